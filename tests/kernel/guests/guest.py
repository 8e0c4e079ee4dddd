"""Runs the tests, in a guest or here, and reads what they said."""
import dataclasses
import os
import pathlib
import re
import subprocess
import time

import build
import kernels

# A guest that says nothing for so long hangs; one that runs so long in all never ends.
SILENCE = 420
LONGEST = 3600
# An emulated processor is some twenty times slower. Waiting for what is due at once must allow for that.
PATIENCE = 6


@dataclasses.dataclass
class Result:
    """What came of one kernel."""
    release: str = "?"
    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    not_run: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    ended: int | None = None
    problem: str = ""
    text: str = ""

    def good(self) -> bool:
        return not self.problem and self.ended == 0 and not self.failed and self.passed > 0

    def complaint(self) -> str:
        """Why it is not good, in a few words."""
        if self.problem:
            return self.problem
        return "FAILED" if self.failed else f"no test ran, exit {self.ended}" if self.ended is not None else "it did not end"

    def tail(self) -> list[str]:
        """The part of the output that explains a failure."""
        lines = self.text.splitlines()
        begin = next((number for number, line in enumerate(lines) if line.startswith("failures:")), max(0, len(lines) - 25))
        return lines[begin:begin + 120]


def boot(kernel: kernels.Kernel, initramfs: pathlib.Path, log: pathlib.Path) -> Result:
    """One guest, from its first instruction to its power-off."""
    command = [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "2048", "-smp", "2",
        "-nographic", "-no-reboot", "-nic", "none", "-vga", "none",
        "-kernel", str(kernel.vmlinuz), "-initrd", str(initramfs),
        "-append", f"console=ttyS0 quiet loglevel=1 panic=-1 storewatch.patience={PATIENCE}",
    ]
    result = run(command, os.environ.copy(), log)
    result.release = kernel.release
    if "Kernel panic" in result.text:
        result.problem = "the kernel panicked"
    return result


def on_this_machine(tests: build.Tests, filters: list[str], log: pathlib.Path) -> Result:
    """The same binary on the running kernel."""
    not_run = log.with_suffix(".not-run")
    not_run.write_text("")
    environment = {**os.environ, "STOREWATCH_NOT_RUN": str(not_run)}
    result = run([str(tests.harness), "--include-ignored", "--test-threads=1", *filters], environment, log)
    result.release = os.uname().release
    result.not_run = sorted(set(not_run.read_text().splitlines()))
    not_run.unlink()
    return result


def run(command: list[str], environment: dict[str, str], log: pathlib.Path) -> Result:
    """Runs it to its end, or ends it."""
    begun = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        problem = ""
        size, quiet_since = 0, begun
        try:
            while process.poll() is None and not problem:
                time.sleep(0.2)
                now = time.monotonic()
                if log.stat().st_size > size:
                    size, quiet_since = log.stat().st_size, now
                if now - quiet_since > SILENCE:
                    problem = f"nothing was said for {SILENCE} s"
                elif now - begun > LONGEST:
                    problem = f"not done after {LONGEST} s"
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    result = read(log.read_text(errors="replace"))
    if result.ended is None and not problem and "guest:" not in result.text:
        result.ended = process.returncode
    result.problem, result.seconds = problem, time.monotonic() - begun
    return result


def read(text: str) -> Result:
    """The harness's own last lines, and the guest's."""
    text = text.replace("\r", "")
    ended = re.search(r"^guest: ended (\d+)$", text, re.MULTILINE)
    counts = re.search(r"^test result: \S+ (\d+) passed; \d+ failed", text, re.MULTILINE)
    # The last list of failures holds the names alone.
    names = text.rpartition("\nfailures:\n")[2].partition("\n\n")[0] if counts else ""
    return Result(
        passed=int(counts[1]) if counts else 0,
        failed=re.findall(r"^    (\S+)$", names, re.MULTILINE) if "\nfailures:\n" in text else [],
        not_run=sorted(set(re.findall(r"^guest: not run: (.*)$", text, re.MULTILINE))),
        ended=int(ended[1]) if ended else None,
        text=text,
    )
