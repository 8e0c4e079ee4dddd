"""The kernel tests' own binaries, as cargo names them."""
import dataclasses
import json
import pathlib
import subprocess

PACKAGE = "storewatch-tests-kernel"


@dataclasses.dataclass
class Tests:
    """What to run, and what it starts by its absolute path."""
    harness: pathlib.Path
    helpers: list[pathlib.Path]
    target: pathlib.Path


def tests(root: pathlib.Path, workspace: bool) -> Tests:
    """Builds them. Another selection of packages has other features, and would compile most of the tree again."""
    selection = ["--workspace"] if workspace else ["-p", PACKAGE]
    command = ["cargo", "test", "--locked", *selection, "--no-run", "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"run: {' '.join(command)} failed")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    kinds = {value for message in messages for key, value in message.get("env", []) if key == "STOREWATCH_EBPF_KIND"}
    if "real" not in kinds:
        raise SystemExit("run: the tests need the real eBPF object; its toolchain is not complete on this machine")
    made = [message for message in messages if message.get("executable") and f"/{PACKAGE.rpartition('-')[2]}" in message["package_id"]]
    harness = [pathlib.Path(message["executable"]) for message in made if message["target"]["kind"] == ["test"]]
    helpers = [pathlib.Path(message["executable"]) for message in made
               if message["target"]["kind"] == ["bin"] and not message["profile"]["test"]]
    if len(harness) != 1 or not helpers:
        raise SystemExit(f"run: cargo names {len(harness)} test binaries and {len(helpers)} helpers of {PACKAGE}")
    return Tests(harness[0], helpers, target_of(root))


def target_of(root: pathlib.Path) -> pathlib.Path:
    """Cargo's target directory."""
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    return pathlib.Path(json.loads(subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout)["target_directory"])
