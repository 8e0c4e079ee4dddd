"""The API server, asked directly: a command for each question would cost a tenth of a second of this machine."""
import http.client
import json
import pathlib
import ssl
import time
from typing import Any, Callable

Object = dict[str, Any]
GATE = "storewatch.io/storage-reachable"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


class Api:
    """With a client certificate (the administrator's), or with a token."""

    def __init__(self, run: pathlib.Path, address: str, token: str | None = None) -> None:
        self.address, self.token = address, token
        self.context = ssl.create_default_context(cafile=str(run / "pki/ca.crt"))
        if not token:
            self.context.load_cert_chain(run / "pki/admin.crt", run / "pki/admin.key")

    def call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json",
             timeout: float = 10) -> tuple[int, Object]:
        """Status and answer; 0 when the server cannot be reached."""
        headers = {"Accept": "application/json", "Content-Type": kind}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPSConnection(self.address, 6443, context=self.context, timeout=timeout)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else {}
        except (OSError, http.client.HTTPException, ValueError):
            return 0, {}
        finally:
            connection.close()

    def get(self, path: str) -> Object:
        status, answer = self.call("GET", path)
        if status != 200:
            raise RuntimeError(f"GET {path}: {status} {answer.get('message', '')}")
        return answer

    def done(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        status, answer = self.call(method, path, body, kind)
        if not 200 <= status < 300:
            raise RuntimeError(f"{method} {path}: {status} {answer.get('message', '')}")
        return answer

    def scale(self, name: str, replicas: int) -> None:
        self.done("PATCH", f"/apis/apps/v1/namespaces/graph/statefulsets/{name}/scale", {"spec": {"replicas": replicas}},
                  MERGE)

    def pods(self, namespace: str, selector: str) -> list[Object]:
        return self.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]


def condition(pod: Object, kind: str) -> Object:
    """The condition of that type; empty where there is none."""
    return next((each for each in pod["status"].get("conditions", []) if each["type"] == kind), {})


def until(what: str, seconds: float, ready: Callable[[], Any]) -> Any:
    """What `ready` gives once it is true; an error after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            found, said = ready(), ""
        except (RuntimeError, KeyError, IndexError) as error:
            found, said = None, f": {error}"
        if found:
            return found
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {seconds:.0f} s{said}")
        time.sleep(0.1)
