#!/usr/bin/env python3
"""assemble.py [VERSION]: puts the jars of one HugeGraph version under the cache folder and prints where.

1.5.0 is published whole. Of 1.7.0 the Server is published; PD and Store are built from a source tree that the user
names in HUGEGRAPH_SOURCE: a git repository (bare or not), of which HUGEGRAPH_SOURCE_REF or else the branch
release-VERSION or the tag VERSION is taken, or an unpacked source archive. The tree itself is left as it is. What is assembled already is not made again.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import needs
import settings

HERE = pathlib.Path(__file__).resolve().parent
PUBLISHED_WHOLE = {"1.5.0"}
MODULES = {"pd.jar": "hugegraph-pd/hg-pd-service", "store.jar": "hugegraph-store/hg-store-node"}
# Only the dependency plugin of this age fetches a jar without reading its POM; the POM of hugegraph-struct 1.7.0
# names its parent by an unresolved property.
LONE_JAR = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"


def assemble(version: str) -> pathlib.Path:
    """The folder with pd.jar, store.jar and server/ of that version."""
    target = settings.home() / "lib" / version
    if target.is_dir():
        return target
    needs.require("mvn", "java")
    source = os.environ.get("HUGEGRAPH_SOURCE", "")
    if version not in PUBLISHED_WHOLE and not os.path.isdir(source):
        why = f"HUGEGRAPH_SOURCE {source}: no such folder" if source else "name a source tree in HUGEGRAPH_SOURCE"
        print(f"PD and Store of HugeGraph {version} are not published and have to be built; {why}", file=sys.stderr)
        raise SystemExit(2)
    target.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=target.parent) as scratch:
        out = pathlib.Path(scratch, "out")
        print(f"HugeGraph {version}: fetching its jars with Maven (minutes, once)", flush=True)
        profile = ["-Pstorage"] if version in PUBLISHED_WHOLE else []
        _maven(HERE, "-f", str(HERE / "pom.xml"), *profile, f"-Dhugegraph.version={version}", f"-Dout={out}", "package")
        if version not in PUBLISHED_WHOLE:
            _maven(HERE, LONE_JAR, "-Dtransitive=false", f"-Dartifact=org.apache.hugegraph:hugegraph-struct:{version}",
                   f"-Ddest={out / 'server' / f'hugegraph-struct-{version}.jar'}")
            _build(version, source, pathlib.Path(scratch, "src"), out)
        for name in MODULES:
            if not (out / name).is_file():
                raise SystemExit(f"Maven ended well, yet made no {name}")
        out.rename(target)
    print(f"HugeGraph {version}: assembled in {time.monotonic() - begun:.0f} s in {target}", flush=True)
    return target


def _build(version: str, source: str, tree: pathlib.Path, out: pathlib.Path) -> None:
    """PD and Store from source, in a copy; `package` puts nothing into the local Maven repository."""
    chosen = os.environ.get("HUGEGRAPH_SOURCE_REF")
    refs = [chosen] if chosen else [f"release-{version}", version]
    ref = next((ref for ref in refs if _has(source, ref)), None)
    if ref:
        tree.mkdir()
        archive = subprocess.Popen(["git", "-C", source, "archive", ref], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(tree)], stdin=archive.stdout, check=True, timeout=300)
        if archive.wait(timeout=60):
            raise SystemExit(f"HUGEGRAPH_SOURCE {source}: git archive {ref} failed")
    elif pathlib.Path(source, "pom.xml").is_file():
        shutil.copytree(source, tree, ignore=shutil.ignore_patterns(".git", "target"))
    else:
        raise SystemExit(f"HUGEGRAPH_SOURCE {source}: neither a git repository with {' or '.join(refs)} nor a source "
                         "tree with pom.xml")
    print(f"HugeGraph {version}: building PD and Store from {source} {ref or ''} (about 4 minutes)", flush=True)
    _maven(tree, "-DskipTests", "-Drat.skip", "-Dcheckstyle.skip", "package", "-pl", ",".join(MODULES.values()), "-am")
    for name, module in MODULES.items():
        jar = tree / module / "target" / f"{pathlib.Path(module).name}-{version}.jar"
        if not jar.is_file():
            raise SystemExit(f"{source} {ref or ''} is not version {version}: the build made no {jar.name}")
        shutil.move(jar, out / name)


def _has(source: str, ref: str) -> bool:
    return subprocess.run(["git", "-C", source, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"],
                          capture_output=True, timeout=60).returncode == 0


def _maven(folder: pathlib.Path, *arguments: str) -> None:
    done = subprocess.run(["nice", "mvn", "-B", "-ntp", "-q", "-Dstyle.color=never", *arguments], cwd=folder, stdin=subprocess.DEVNULL, timeout=3600)
    if done.returncode:
        raise SystemExit(f"mvn {' '.join(arguments)}: exit {done.returncode}")


if __name__ == "__main__":
    print(assemble(sys.argv[1] if len(sys.argv) > 1 else settings.Settings().version))
