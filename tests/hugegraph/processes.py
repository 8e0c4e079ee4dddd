"""Processes that outlive the command that started them: identity, signals, and an end that can be waited for.

A process is known by its pid and the kernel's start time of that pid, so a number that the kernel gave to somebody
else meanwhile is never signalled. Waiting uses a pidfd, which reports the end of the last thread: the main thread of a
JVM may be a zombie while others still hold its sockets.
"""
import dataclasses
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Process:
    """A started process; `start` is field 22 of /proc/PID/stat, in clock ticks since boot."""
    pid: int
    start: int

    def alive(self) -> bool:
        return _stat(self.pid) == (self.start, False)

    def frozen(self) -> bool:
        try:
            text = pathlib.Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return self.alive() and text.rsplit(")", 1)[1].split()[0] == "T"

    def send(self, number: int) -> bool:
        """Signals the process if it is still the one that was started."""
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            found = _stat(self.pid)
            if found is None or found[0] != self.start:
                return False
            signal.pidfd_send_signal(fd, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)

    def end(self, grace: float = 0.0, limit: float = 10.0) -> float:
        """SIGTERM and `grace` seconds, then SIGKILL; returns the seconds until the last thread had ended."""
        begun = time.monotonic()
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return 0.0
        try:
            found = _stat(self.pid)
            if found is None or found[0] != self.start:
                return 0.0
            if grace and self.send(signal.SIGTERM) and _readable(fd, grace):
                return time.monotonic() - begun
            self.send(signal.SIGKILL)
            if not _readable(fd, limit):
                raise TimeoutError(f"process {self.pid} did not end within {limit} s of SIGKILL")
            return time.monotonic() - begun
        finally:
            os.close(fd)
            _reap(self.pid)


def _stat(pid: int) -> tuple[int, bool] | None:
    """(start time, whether nothing but a zombie is left), or None if there is no such process."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except (OSError, IndexError):
        return None
    return int(fields[19]), fields[0] in "ZX" and threads <= 1


def _readable(fd: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)      # ours if this very command started it, init's otherwise
    except ChildProcessError:
        pass


def of(pid: int) -> Process | None:
    """The process that has this pid now."""
    found = _stat(pid)
    return None if found is None or found[1] else Process(pid, found[0])


def end_in_order() -> None:
    """Makes SIGTERM and a closed terminal an orderly exit, so that what was started is ended."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def undisturbed() -> None:
    """From here to the end of the program nothing breaks off the cleaning up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def run(*command: str, limit: float = 30.0, check: bool = True) -> subprocess.CompletedProcess:
    """A short helper command, bounded in time; its complaint becomes the error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done


def spawn(command: list[str], *, cgroup: pathlib.Path, netns: str, folder: pathlib.Path, host: str) -> Process:
    """Starts `command` as pod.sh describes, in a session of its own, its output appended to folder/out.log."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA_", "_JAVA", "JDK_"))}
    with open(folder / "out.log", "ab") as log:
        child = subprocess.Popen(["/bin/sh", str(HERE / "pod.sh"), str(cgroup), f"/run/netns/{netns}", str(folder), host,
                                  *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 env=environment, start_new_session=True)
    started = of(child.pid)
    child.returncode = 0                 # it outlives this command; the object shall neither wait nor warn
    if started is None:
        _reap(child.pid)
        raise RuntimeError(f"{host} ended at once; see {folder}/out.log")
    return started
