"""The agent under test: started on the cluster's node, asked over its own listeners."""
import json
import os
import pathlib
import shutil
import signal
import time

import cgroups
import network
import processes
import roles
from cluster import Cluster
from settings import NAMESPACE, pod_name

PROBE, METRICS, ADMIN = 9465, 9466, 9467


def binary() -> str:
    """The storewatch program: STOREWATCH, or what cargo built last in this tree."""
    chosen = os.environ.get("STOREWATCH")
    if chosen:
        if not os.access(chosen, os.X_OK):
            raise RuntimeError(f"STOREWATCH={chosen}: no such program")
        return str(pathlib.Path(chosen).absolute())
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or processes.HERE.parents[1] / "target")
    built = [path for kind in ("release", "debug") if (path := target.absolute() / kind / "storewatch").is_file()]
    if not built:
        raise RuntimeError("no storewatch program: build it (make build) or name it in STOREWATCH")
    return str(max(built, key=lambda path: path.stat().st_mtime))


def is_release() -> bool:
    """Whether figures of the program's own cost mean anything: a development build is several times slower."""
    return "debug" not in pathlib.Path(binary()).parts


class Agent:
    """One `storewatch run` in the node's namespace, with the Servers of the cluster as its pods."""

    def __init__(self, cluster: Cluster, overrides: dict[str, object] | None = None):
        self.cluster = cluster
        self.folder = cluster.settings.run / "agent"
        self.overrides = overrides or {}
        self.process: processes.Process | None = None

    def start(self, fresh: bool = True) -> None:
        """Starts the agent and waits until it says it is ready; `fresh`: without the state of an earlier one."""
        if fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("resolv.conf", "hosts"):
            shutil.copy(self.cluster.settings.run / "node" / name, self.folder / name)
        (self.folder / "config.yaml").write_text(json.dumps(self._config(), indent=1))        # JSON is YAML
        self.process = processes.spawn([binary(), "run", "--config", str(self.folder / "config.yaml")],
                                       cgroup=cgroups.helper(self.cluster.settings.prefix, "agent"),
                                       netns=self.cluster.node, folder=self.folder, host="node")
        until = time.monotonic() + 20
        while network.get(self.cluster.node, "127.0.0.1", PROBE, "/readyz")[0] != 200:
            if not self.process.alive():
                raise RuntimeError(f"the agent ended; see {self.folder}/out.log")
            if time.monotonic() > until:
                raise TimeoutError(f"the agent is not ready after 20 s; see {self.folder}/out.log")
            time.sleep(0.05)

    def stop(self) -> float:
        """SIGTERM and the wait for its end; returns the seconds it took."""
        process, self.process = self.process, None
        return process.end(grace=15.0) if process else 0.0

    def crash(self) -> None:
        """SIGKILL."""
        if self.process:
            self.process.send(signal.SIGKILL)
            self.process.end()
            self.process = None

    def readiness(self, part: str | None = None, timeout: float = 2.0) -> tuple[int, dict]:
        """Status code and body for the node (None) or for a Server's pod; code 0 without an answer."""
        path = "/readiness" if part is None else f"/readiness/pods/{NAMESPACE}/{pod_name(part)}"
        code, body = network.get(self.cluster.node, "127.0.0.1", PROBE, path, timeout)
        return code, _object(body)

    def api(self, path: str, timeout: float = 2.0) -> dict | list | None:
        """An answer of the admin API, None if there is none."""
        code, body = network.get(self.cluster.node, "127.0.0.1", ADMIN, path, timeout)
        return json.loads(body) if code == 200 else None

    def explain(self, part: str) -> str:
        """What `storewatch explain` says of a Server's pod."""
        asked = [binary(), "--agent", f"unix:{self.folder / 'admin.sock'}", "explain", f"{NAMESPACE}/{pod_name(part)}"]
        return processes.run(*asked).stdout

    def metrics(self) -> str:
        """The Prometheus page."""
        return network.get(self.cluster.node, "127.0.0.1", METRICS, "/metrics")[1].decode()

    def cpu_seconds(self) -> float:
        """CPU time the agent has used since its start."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """The agent's resident memory."""
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def log(self) -> str:
        return (self.folder / "out.log").read_text(errors="replace")

    def _config(self) -> dict:
        config = {
            "node": self.cluster.node,
            "listen": {"probe": f"[::]:{PROBE}", "metrics": f"[::]:{METRICS}", "admin": f"127.0.0.1:{ADMIN}",
                       "admin_socket": str(self.folder / "admin.sock")},
            "hugegraph": {"pd_peers": roles.pd_peers(self.cluster.settings)},
            "pods": {"source": "file", "file": str(self.cluster.settings.run / "pods.yaml")},
            "state_file": str(self.folder / "state.json"),
        }
        for key, value in self.overrides.items():
            *sections, last = key.split(".")
            place = config
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
        return config


def _object(body: bytes) -> dict:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
