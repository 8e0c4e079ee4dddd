"""The state file of a running cluster: what was made, so that any later command, also after a crash, can undo it."""
import dataclasses
import fcntl
import json
import os
import pathlib

from processes import Process
from settings import Settings


@dataclasses.dataclass
class Part:
    """One PD, Store or Server: its pod (uid, namespace, address) and its present process."""
    name: str
    uid: str = ""
    address: str = ""
    namespace: str = ""
    veth: str = ""
    cgroup: str = ""
    restarts: int = 0
    process: Process | None = None
    ready_after: float | None = None

    def running(self) -> bool:
        return self.process is not None and self.process.alive()


@dataclasses.dataclass
class State:
    """All parts by name, the name server, and a counter that keeps namespace names unique."""
    settings: Settings
    parts: dict[str, Part] = dataclasses.field(default_factory=dict)
    dns: Process | None = None
    made: int = 0


class Lock:
    """One command at a time changes a cluster; a second one waits."""

    def __init__(self, folder: pathlib.Path):
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.path = folder.with_suffix(".lock")

    def __enter__(self):
        self.file = open(self.path, "w")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another command works on cluster {self.path.stem}; waiting for its end", flush=True)
            fcntl.flock(self.file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_):
        self.file.close()


def save(state: State) -> None:
    """Writes the file whole or not at all."""
    path = state.settings.run / "state.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(dataclasses.asdict(state), indent=1))
    os.replace(fresh, path)


def load(prefix: str) -> State | None:
    """The state of the cluster with that prefix, None if there is none (or its file is beyond use)."""
    path = Settings(prefix=prefix).run / "state.json"
    try:
        raw = json.loads(path.read_text())
        parts = {name: Part(**{**part, "process": _process(part["process"])}) for name, part in raw["parts"].items()}
        return State(Settings(**raw["settings"]), parts, _process(raw["dns"]), raw["made"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        print(f"{path}: not readable ({error}); going by namespaces and cgroups alone", flush=True)
        return None


def _process(raw: dict | None) -> Process | None:
    return Process(**raw) if raw else None
