"""One cgroup v2 directory per container, named as kubelet's cgroupfs driver names them.

The directory's inode number is the cgroup id in the kernel's events, so a process in a directory of its own is
attributed as a real container is. Everything sits below one directory named after the cluster's prefix; what still
runs in there is the cluster's, even if the state file was lost.
"""
import hashlib
import pathlib
import time

import processes


def mount() -> pathlib.Path:
    """Where cgroup v2 is mounted: /sys/fs/cgroup, or .../unified beside v1."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2":
            return pathlib.Path(fields[1])
    raise RuntimeError("cgroup v2 is mounted nowhere; try: mount -t cgroup2 none /sys/fs/cgroup/unified")


def container(prefix: str, uid: str, restart: int) -> pathlib.Path:
    """The directory of a pod's container, made if missing; `restart` counts the containers of that pod."""
    name = hashlib.sha256(f"{uid}/{restart}".encode()).hexdigest()
    path = mount() / prefix / "kubepods" / "burstable" / f"pod{uid}" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def helper(prefix: str, name: str) -> pathlib.Path:
    """A directory for a process that belongs to the test but to no pod."""
    path = mount() / prefix / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def remove(path: pathlib.Path, stop: pathlib.Path) -> None:
    """Removes a directory that no process is in any more, and its empty parents below `stop`."""
    while path != stop and stop in path.parents:
        if path.exists():
            if any(child.is_dir() for child in path.iterdir()):
                return                   # a sibling lives on
            _remove_one(path)
        path = path.parent


def sweep(prefix: str) -> int:
    """Ends whatever runs below the prefix, removes its directories; returns how many processes were ended."""
    root, ended = mount() / prefix, 0
    if not root.exists():
        return 0
    below = sorted((path for path in root.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
    for directory in [*below, root]:
        for pid in (directory / "cgroup.procs").read_text().split():
            process = processes.of(int(pid))
            if process:
                process.end()
                ended += 1
        _remove_one(directory)
    return ended


def _remove_one(directory: pathlib.Path) -> None:
    until = time.monotonic() + 5
    while True:
        try:
            directory.rmdir()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)             # the kernel still takes the last task out
