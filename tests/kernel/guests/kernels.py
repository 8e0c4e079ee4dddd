"""Debian's kernels, fetched once and unpacked outside the tree. Nothing is installed."""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import threading


@dataclasses.dataclass(frozen=True)
class Flavour:
    """A kernel by the package that follows its updates."""
    name: str
    package: str


# The oldest that is supported in three builds whose structures are laid out differently, and the next long-term one.
FLAVOURS = [
    Flavour("6.1", "linux-image-amd64"),
    Flavour("6.1-cloud", "linux-image-cloud-amd64"),
    Flavour("6.1-rt", "linux-image-rt-amd64"),
    Flavour("6.12-cloud", "linux-image-6.12-cloud-amd64"),
]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An unpacked one."""
    release: str
    vmlinuz: pathlib.Path
    modules: pathlib.Path


_one_at_a_time = threading.Lock()


def get(flavour: Flavour) -> Kernel:
    """The newest kernel of that flavour, or the one that is in the cache where the archive cannot be reached."""
    with _one_at_a_time:
        folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "storewatch/kernels" / flavour.name
        name = newest(flavour.package)
        if name and not (folder / name).exists():
            fetch(name, folder)
        found = sorted(folder.glob("*/boot/vmlinuz-*"), key=lambda path: path.stat().st_mtime)
        wanted = [path for path in found if path.parts[-3] == name] or found
        if not wanted:
            raise RuntimeError(f"{flavour.package} is not to be had: no Debian archive with it can be reached, and none was kept")
        vmlinuz = wanted[-1]
        release = vmlinuz.name.removeprefix("vmlinuz-")
        base = vmlinuz.parents[1]
        modules = next((path for path in [base / "lib/modules", base / "usr/lib/modules"] if path.exists()), base)
        return Kernel(release, vmlinuz, modules / release)


def newest(package: str) -> str | None:
    """The package of the kernel itself, which the given one depends on; `None` where no list of packages has it."""
    for attempt in range(2):
        done = subprocess.run(["apt-cache", "depends", "--important", package], capture_output=True, text=True)
        if found := re.search(r"Depends: (linux-image-[0-9]\S+)", done.stdout):
            return found[1]
        if attempt == 0:
            subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    return None


def fetch(name: str, folder: pathlib.Path) -> None:
    """Fetches and unpacks; the folder appears whole or not at all."""
    print(f"fetching {name}", flush=True)
    partial = folder / f".{name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    done = subprocess.run(["apt-get", "download", "-q", name], cwd=partial, capture_output=True, text=True, timeout=600)
    packages = list(partial.glob("*.deb"))
    if done.returncode or len(packages) != 1:
        shutil.rmtree(partial)
        print(f"{name} cannot be fetched: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return
    subprocess.run(["dpkg", "-x", packages[0], partial], check=True)
    packages[0].unlink()
    for old in folder.iterdir():
        if old != partial:
            shutil.rmtree(old)
    partial.rename(folder / name)
