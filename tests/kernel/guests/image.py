"""A guest's whole system as an initramfs: busybox, the tests with what they start and load, and the kernel's modules.

Nothing is shared with the machine, so a guest cannot change it, and kernels without a file system for sharing (the
cloud builds) are served like all others.
"""
import lzma
import os
import pathlib
import re
import shutil
import subprocess

import build
import kernels

# With all that they depend on. A name that a kernel does not have is built in, or that kernel lacks it.
MODULES = ["crc32c_generic", "veth", "nft_reject_inet", "nft_reject_ipv4", "nft_reject_ipv6", "nft_redir", "nft_chain_nat", "nft_ct", "inet_diag", "tcp_diag"]
COMMANDS = ["ip", "ss", "nft"]
FOLDERS = ["bin", "dev", "etc", "modules", "proc", "root", "run", "sys", "tmp", "var", "var/empty"]
HERE = pathlib.Path(__file__).resolve().parent


def write(path: pathlib.Path, kernel: kernels.Kernel, tests: build.Tests, filters: list[str]) -> None:
    """Writes the archive."""
    with path.open("wb") as file:
        archive = Archive(file)
        for folder in FOLDERS:
            archive.folder(folder)
        archive.file("init", (HERE / "init").read_bytes(), 0o755)
        archive.file("bin/busybox", pathlib.Path(found("busybox")).read_bytes(), 0o755)
        archive.link("bin/sh", "busybox")
        archive.file("arguments", "".join(f"{word}\n" for word in filters).encode())
        archive.file("harness", f"{tests.harness}\n".encode())
        programs = [tests.harness, *tests.helpers, *(pathlib.Path(found(name)) for name in COMMANDS)]
        for program in programs:
            archive.file(str(program), stripped(program), 0o755)
        for library in libraries(programs):
            archive.file(library, pathlib.Path(library).read_bytes(), 0o755)
        for number, (name, content) in enumerate(modules(kernel)):
            archive.file(f"modules/{number:03}-{name}.ko", content)
        archive.end()


class Archive:
    """The format `newc` of cpio, which the kernel unpacks."""

    def __init__(self, file):
        self._file = file
        self._made: set[str] = set()

    def folder(self, path: str) -> None:
        if path and path not in self._made:
            self.folder(path.rpartition("/")[0])
            self._add(path, 0o040755, b"")

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        path = path.lstrip("/")
        if path not in self._made:
            self.folder(path.rpartition("/")[0])
            self._add(path, 0o100000 | mode, content)

    def link(self, path: str, target: str) -> None:
        self._add(path, 0o120777, target.encode())

    def end(self) -> None:
        self._add("TRAILER!!!", 0, b"")

    def _add(self, path: str, mode: int, content: bytes) -> None:
        self._made.add(path)
        name = path.encode() + b"\0"
        fields = [len(self._made), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0]
        head = b"070701" + "".join(f"{field:08x}" for field in fields).encode() + name
        for part in (head, content):
            self._file.write(part + b"\0" * (-len(part) % 4))


def found(name: str) -> str:
    """Where a command is; /usr/sbin is on nobody's PATH but root's."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        raise RuntimeError(f"{name} is not installed")
    return path


def stripped(program: pathlib.Path) -> bytes:
    """Without its debug information, which is most of it. A machine without strip gives it whole."""
    copy = program.with_name(program.name + ".stripped")
    try:
        done = subprocess.run(["strip", "-o", copy, program], capture_output=True)
        return (program if done.returncode else copy).read_bytes()
    except FileNotFoundError:
        return program.read_bytes()
    finally:
        copy.unlink(missing_ok=True)


def libraries(programs: list[pathlib.Path]) -> list[str]:
    """The shared libraries of all, the loader among them, at the paths where they are looked for."""
    paths = set()
    for program in programs:
        done = subprocess.run(["ldd", program], capture_output=True, text=True)
        paths.update(re.findall(r"(/\S+)(?= \(0x)", done.stdout))
    return sorted(paths)


def modules(kernel: kernels.Kernel) -> list[tuple[str, bytes]]:
    """Names and contents, each after those that it needs."""
    files = {path.name.split(".")[0].replace("-", "_"): path for path in kernel.modules.rglob("*.ko*")}
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        if name in ordered or name not in files:
            return
        content = files[name].read_bytes()
        if files[name].suffix == ".xz":
            content = lzma.decompress(content)
        needs = re.search(rb"\0depends=([^\0]*)\0", content)
        for needed in needs[1].decode().split(",") if needs else []:
            add(needed.replace("-", "_"))
        ordered[name] = content

    for name in MODULES:
        add(name)
    return list(ordered.items())
