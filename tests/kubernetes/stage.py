"""The node that the tests run on: commands in it, its processes, and what is expected of it."""
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request
from typing import Callable

from api import Api, Object, until
from timeline import SERVERS, STORES

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
CHART = TREE / "deploy/helm/storewatch"
NAMESPACE = "storewatch"
AGENTS = "app.kubernetes.io/name=storewatch"
PLUGINS = TREE / "target/kubernetes"


@dataclasses.dataclass
class Check:
    """An expectation and what was seen."""
    what: str
    expected: str
    seen: str
    passed: bool


class Stage:
    """Made inside the node's network namespace: `battery` calls itself there."""

    def __init__(self) -> None:
        self.run = pathlib.Path(os.environ["RUN"])
        self.bin, self.tools = pathlib.Path(os.environ["BIN"]), pathlib.Path(os.environ["TOOLS"])
        self.daemons = pathlib.Path(os.environ["DAEMONS"])
        self.address = os.environ["NODE_IP"]
        self.node = os.environ["NODE"]
        self.api = Api(self.run, self.address)
        self.chart = CHART
        # Not a developer's build, whose size says nothing.
        self.shipped = "STOREWATCH" not in os.environ
        self.checks: list[Check] = []
        self.figures: list[tuple[str, str, str]] = []

    def check(self, what: str, expected: object, seen: object, passed: bool | None = None) -> None:
        """Passed when both are the same, unless it is said."""
        passed = expected == seen if passed is None else passed
        self.checks.append(Check(what, str(expected), str(seen), passed))
        print(f"  {'ok  ' if passed else 'FAIL'} {what}: {seen}" + ("" if passed else f" (expected {expected})"), flush=True)

    def figure(self, what: str, seen: str, wanted: str) -> None:
        """A measured value and what it should be at most; it decides nothing."""
        self.figures.append((what, seen, wanted))
        print(f"  {what}: {seen} (wanted: {wanted})", flush=True)

    def command(self, *words: object, good: bool = True, stdin: str | None = None) -> str:
        """Runs a command with the administrator's configuration, and gives what it wrote."""
        environment = {**os.environ, "PATH": f"{PLUGINS}:{os.environ['PATH']}", "KUBECONFIG": str(self.run / "conf/admin.conf"), "HELM_CACHE_HOME": str(self.run / "helm"),
                       "HELM_CONFIG_HOME": str(self.run / "helm"), "HELM_DATA_HOME": str(self.run / "helm")}
        done = subprocess.run([str(word) for word in words], env=environment, input=stdin, capture_output=True, text=True,
                              timeout=400)
        if (done.returncode == 0) != good:
            raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}: {(done.stderr + done.stdout)[-1500:]}")
        return done.stdout if good else done.stderr + done.stdout

    def kubectl(self, *words: object, **options: object) -> str:
        return self.command(self.bin / "kubectl", *words, **options)

    def helm(self, *words: object, **options: object) -> str:
        return self.command(self.tools / "helm", *words, **options)

    def apply(self, name: str) -> None:
        self.kubectl("apply", "-f", HERE / "manifests" / name)

    def ready(self, namespace: str, selector: str, count: int, seconds: float = 120) -> list[Object]:
        """Waits for exactly so many pods, all ready."""
        def all_ready() -> list[Object] | None:
            pods = self.api.pods(namespace, selector)
            good = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))]
            return good if len(good) == len(pods) == count else None
        return until(f"{count} pods of {selector} ready", seconds, all_ready) or []

    def cluster(self) -> None:
        """All Stores and Servers there, and the gates open."""
        self.api.scale("hugegraph-store", 3)
        self.ready("graph", STORES, 3)
        self.ready("graph", SERVERS, 2)

    def agent(self) -> Object:
        """The agent's pod."""
        return self.ready(NAMESPACE, AGENTS, 1)[0]

    def processes(self, uid: str) -> list[int]:
        """Of all containers of a pod, without the sandbox's own."""
        found = []
        for file in self.pod_groups():
            if uid in str(file) or uid.replace("-", "_") in str(file):
                found += [int(pid) for pid in file.read_text().split()]
        # The sandbox's own is the one without an argument.
        return [pid for pid in found if len(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")) > 2]

    def pod_groups(self) -> list[pathlib.Path]:
        """The files that list the processes of pods, in the hierarchy that the node's own group is in."""
        root = self.daemons.parent / self.daemons.name.removesuffix("-daemons")
        return list(root.rglob("cgroup.procs"))

    def kill(self, pods: list[Object], before: Callable[[], None] = lambda: None) -> float:
        """SIGKILL to all their processes at once, right after `before`; gives when."""
        victims = [pid for pod in pods for pid in self.processes(pod["metadata"]["uid"])]
        if len(victims) < len(pods):
            raise RuntimeError(f"{len(victims)} processes for {len(pods)} pods")
        before()
        at = time.monotonic()
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return at

    def stop_api(self) -> None:
        """Kills the API server."""
        pid = int((self.run / "pid/apiserver").read_text())
        os.kill(pid, signal.SIGKILL)

    def start_api(self) -> None:
        """Starts it again, as `up` did."""
        command = f"echo $$ >{self.daemons}/cgroup.procs; exec bash {self.run}/conf/apiserver"
        with open(self.run / "log/apiserver.log", "ab") as log:
            server = subprocess.Popen(["bash", "-c", command], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                      start_new_session=True)
        (self.run / "pid/apiserver").write_text(f"{server.pid}\n")
        until("the API server", 120, lambda: self.api.call("GET", "/api/v1/namespaces/graph", timeout=2)[0] == 200)

    def admin(self, path: str) -> Object:
        """The agent's admin interface."""
        with urllib.request.urlopen(f"http://127.0.0.1:9467{path}", timeout=5) as answer:
            return json.loads(answer.read())
