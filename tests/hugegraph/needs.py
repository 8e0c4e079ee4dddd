"""Programs that the cluster needs from the machine: named when missing, installed where that is ours to do.

As root on a Debian-like machine a missing package is installed, each step said; elsewhere the message names the
package and the program ends.
"""
import os
import re
import shutil
import subprocess
import sys

PACKAGES = {"java": "openjdk-17-jre-headless", "mvn": "maven", "ip": "iproute2", "ss": "iproute2",
            "nsenter": "util-linux", "unshare": "util-linux", "mount": "mount", "git": "git"}
OLDEST_JAVA = 11


def require(*programs: str) -> None:
    """Returns when all programs can be called; otherwise says what is missing and exits 2."""
    missing = [name for name in programs if not shutil.which(name)]
    if not missing:
        return
    packages = sorted({PACKAGES[name] for name in missing if name in PACKAGES})
    unknown = [name for name in missing if name not in PACKAGES]
    if unknown:
        _refuse(f"not found: {', '.join(unknown)}")
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if os.geteuid() or not shutil.which("apt-get"):
        _refuse(f"not found: {', '.join(missing)}. On Debian: {' '.join(install)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["apt-get", "update", "-q"], install):
        print(f"installing {', '.join(packages)}: {' '.join(step)}", flush=True)
        done = subprocess.run(step, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=900)
        if done.returncode and step is install:
            _refuse(f"{' '.join(step)} failed (exit {done.returncode})")
    still = [name for name in missing if not shutil.which(name)]
    if still:
        _refuse(f"still not found after installing {', '.join(packages)}: {', '.join(still)}")


def require_java(program: str) -> int:
    """The major version of `program`, which must be recent enough for HugeGraph."""
    require(program)
    text = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    if not found or int(found[1]) < OLDEST_JAVA:
        _refuse(f"{program} is no Java {OLDEST_JAVA} or later: {text.splitlines()[0] if text else 'it says nothing'}")
    return int(found[1])


def require_root() -> None:
    """Namespaces, cgroups and foreign sockets need root."""
    if os.geteuid():
        _refuse("the cluster runs in network namespaces and cgroups of its own: root is needed")


def _refuse(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(2)
