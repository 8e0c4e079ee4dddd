#!/usr/bin/env python3
"""The bill of materials of the agent (CycloneDX 1.6, JSON), from what cargo resolved for one target: every crate that is
linked in or runs at build time, of the workspace and of the eBPF programs, with its licence, checksum and dependencies.

usage: sbom.py --out FILE --target TRIPLE
"""
import argparse
import datetime
import json
import os
import subprocess
import tomllib
import uuid

ROOT = "storewatch"
EBPF = "ebpf/probes"


def metadata(manifest: str, target: str) -> dict:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target,
               "--manifest-path", manifest]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def checksums(lock: str) -> dict[tuple[str, str], str]:
    with open(lock, "rb") as file:
        packages = tomllib.load(file)["package"]
    return {(each["name"], each["version"]): each["checksum"] for each in packages if "checksum" in each}


def reached(data: dict, root: str) -> dict[str, list[str]]:
    """Ids of all that `root` needs to be built, dev-dependencies left out, each with its own dependencies."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    found: dict[str, list[str]] = {}
    waiting = [root]
    while waiting:
        package = waiting.pop()
        if package in found:
            continue
        needs = [dep["pkg"] for dep in nodes[package]["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        found[package] = sorted(needs)
        waiting += needs
    return found


def purl(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict, sums: dict[tuple[str, str], str]) -> dict:
    made = {"type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"],
            "purl": purl(package)}
    if package.get("license"):
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = sums.get((package["name"], package["version"]))
    if checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--target", required=True)
    args = parser.parse_args()
    components: dict[str, dict] = {}
    needs: dict[str, set[str]] = {}
    main_component = None
    parts = [("Cargo.toml", args.target, "Cargo.lock", ROOT), (f"{EBPF}/Cargo.toml", "bpfel-unknown-none", f"{EBPF}/Cargo.lock", None)]
    roots = []
    for manifest, target, lock, name in parts:
        data, sums = metadata(manifest, target), checksums(lock)
        packages = {package["id"]: package for package in data["packages"]}
        root = next(package for package in data["packages"]
                    if package["id"] in data["workspace_members"] and name in (None, package["name"]))
        roots.append(purl(root))
        for package, its_needs in reached(data, root["id"]).items():
            found = packages[package]
            needs.setdefault(purl(found), set()).update(purl(packages[need]) for need in its_needs)
            components.setdefault(purl(found), component(found, sums))
        if name:
            main_component = components.pop(purl(root)) | {"type": "application"}
    # The object is compiled into the agent.
    needs[roots[0]].add(roots[1])
    time = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": main_component,
                     "properties": [{"name": "cargo:target", "value": args.target}]},
        "components": [components[key] for key in sorted(components)],
        "dependencies": [{"ref": key, "dependsOn": sorted(needs[key])} for key in sorted(needs)],
    }
    # A name of its own that the content gives, so that the same content has the same.
    content = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump(bom, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
