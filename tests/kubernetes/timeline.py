"""What the cluster shows, once a second: the Servers' gates and who is in their Service, the Stores, the agent's word."""
import dataclasses
import http.client
import threading
import time

from api import GATE, Api, condition

SERVERS = "app.kubernetes.io/name=hugegraph,app.kubernetes.io/component=server"
STORES = "app.kubernetes.io/name=hugegraph,app.kubernetes.io/component=store"


@dataclasses.dataclass
class Row:
    """One second."""
    at: float
    gates: dict[str, str]           # Server -> "True StoreAnswering"
    inside: frozenset[str]          # Servers that the Service sends to
    stores: int                     # Stores that are ready
    node: str                       # the agent's /readiness: code; "-": nobody answers
    api: bool = True
    events: list[str] = dataclasses.field(default_factory=list)

    def text(self) -> str:
        gates = "  ".join(f"{name.rsplit('-', 1)[1]}: {word:<24}" for name, word in sorted(self.gates.items()))
        who = ",".join(sorted(name.rsplit("-", 1)[1] for name in self.inside)) or "-"
        columns = f"{gates}  {who:<6} {self.stores:>6}  {self.node:<5}" if self.api else f"{'(no API server)':<58}{'':>9}{self.node:<5}"
        return f"{self.at:6.1f}  {columns}  {'; '.join(self.events)}"


HEAD = f"{'s':>6}  {'gate of each Server':<58}{'inside':<6} {'Stores':>6}  {'node':<5}  what was done"


def readiness() -> str:
    """The node's answer on the probe port."""
    connection = http.client.HTTPConnection("127.0.0.1", 9465, timeout=1)
    try:
        connection.request("GET", "/readiness")
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return "-"
    finally:
        connection.close()


def look(api: Api, at: float) -> Row:
    """The present second."""
    base = "/api/v1/namespaces/graph/pods?labelSelector="
    asked = [api.call("GET", path, timeout=2) for path in (
        base + SERVERS, base + STORES, "/apis/discovery.k8s.io/v1/namespaces/graph/endpointslices"
                                       "?labelSelector=kubernetes.io/service-name=hugegraph-server")]
    if any(status != 200 for status, _ in asked):
        return Row(at, {}, frozenset(), 0, readiness(), api=False)
    servers, stores, slices = (answer for _, answer in asked)
    gates = {}
    for pod in servers["items"]:
        word = condition(pod, GATE)
        gates[pod["metadata"]["name"]] = f"{word.get('status', '-')} {word.get('reason', '')}".strip()
    inside = frozenset(end["targetRef"]["name"] for each in slices["items"] for end in each["endpoints"] or []
                       if end["conditions"].get("ready"))
    ready = sum(condition(pod, "Ready").get("status") == "True" for pod in stores["items"])
    return Row(at, gates, inside, ready, readiness())


class Timeline:
    """Rows of one scenario, by a thread of its own."""

    def __init__(self, api: Api) -> None:
        self.api, self.rows, self.begin = api, [], time.monotonic()
        self._events: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Timeline":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def say(self, what: str) -> None:
        self._events.append(what)

    def _run(self) -> None:
        due = self.begin
        while not self._end.wait(max(0.0, due - time.monotonic())):
            row = look(self.api, time.monotonic() - self.begin)
            row.events, self._events = self._events, []
            self.rows.append(row)
            due = max(due + 1, time.monotonic())

    def words(self, server: str) -> list[str]:
        """What its gate said, one after the other."""
        found: list[str] = []
        for row in self.rows:
            word = row.gates.get(server)
            if word and found[-1:] != [word]:
                found.append(word)
        return found

    def insides(self) -> list[int]:
        """How many Servers were in the Service, one after the other."""
        found: list[int] = []
        for row in self.rows:
            if row.api and found[-1:] != [len(row.inside)]:
                found.append(len(row.inside))
        return found
