"""The Server's REST interface as far as the tests use it: a small schema, vertex writes, vertex reads."""
import dataclasses
import gzip
import http.client
import json
import time

import network

GRAPH = "/graphs/hugegraph"
SCHEMA = (
    ("/schema/propertykeys", {"name": "name", "data_type": "TEXT", "cardinality": "SINGLE"}),
    ("/schema/propertykeys", {"name": "age", "data_type": "INT", "cardinality": "SINGLE"}),
    ("/schema/vertexlabels", {"name": "person", "id_strategy": "PRIMARY_KEY", "properties": ["name", "age"],
                              "primary_keys": ["name"]}),
)


@dataclasses.dataclass
class Answer:
    """One request: HTTP status (0: none within the time limit), body or error, when it began (Unix), how long it took."""
    status: int
    body: str
    at: float
    seconds: float

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def complaint(self) -> str:
        """What went wrong, in one short line."""
        try:
            parsed = json.loads(self.body)
            return f"{self.status} {parsed.get('message') or parsed.get('exception')}"[:160]
        except (ValueError, AttributeError):
            return f"{self.status} {self.body}"[:160]


class Graph:
    """One Server's graph, called from a namespace. A kept connection per object: use one object per thread."""

    def __init__(self, namespace: str, address: str, limit: float = 130.0):
        self.namespace, self.address, self.limit = namespace, address, limit
        self.connection: network.Connection | None = None
        self.label = 1

    def call(self, method: str, path: str, body: dict | None = None) -> Answer:
        """One request; a kept connection that the Server closed meanwhile is tried once more."""
        at, begun = time.time(), time.monotonic()
        for kept in (self.connection is not None, False):
            try:
                if self.connection is None:
                    self.connection = network.Connection(self.namespace, self.address, 8080, self.limit)
                self.connection.request(method, path, json.dumps(body) if body is not None else None,
                                        {"Content-Type": "application/json"})
                answer = self.connection.getresponse()
                raw = answer.read()
                if answer.headers.get("Content-Encoding") == "gzip":
                    raw = gzip.decompress(raw)
                return Answer(answer.status, raw.decode(errors="replace"), at, time.monotonic() - begun)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not (kept and isinstance(error, (ConnectionError, http.client.HTTPException))):
                    return Answer(0, repr(error), at, time.monotonic() - begun)
        raise AssertionError("unreachable: the second try returns")

    def close(self) -> None:
        """Drops the connection; the next call makes another."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def schema(self) -> None:
        """Makes the schema, whether it exists or not; RuntimeError if the Server refuses."""
        for path, body in SCHEMA:
            answer = self.call("POST", GRAPH + path, body)
            if not answer.ok and "existed" not in answer.body:
                raise RuntimeError(f"{path}: {answer.complaint()}")
        answer = self.call("GET", f"{GRAPH}/schema/vertexlabels/person")
        if not answer.ok:
            raise RuntimeError(f"schema: {answer.complaint()}")
        self.label = json.loads(answer.body)["id"]

    def put(self, number: int) -> Answer:
        """Writes the vertex of that number; its partition follows from the number."""
        return self.call("POST", f"{GRAPH}/graph/vertices",
                         {"label": "person", "properties": {"name": f"p{number}", "age": number % 90}})

    def get(self, number: int) -> Answer:
        """Reads the vertex of that number (from the Server's cache, if it wrote it lately)."""
        return self.call("GET", f'{GRAPH}/graph/vertices/%22{self.label}:p{number}%22')
