#!/usr/bin/env python3
"""The chart, the agent and the gate on a real Kubernetes node.

  battery.py                 all of it, on a node that is brought up for it and taken down again
  battery.py NAME...         these scenarios (the installation comes first in any case);  --list names them
  battery.py --keep          leaves the node up;  --up: on a node that is up

Prints each scenario second by second and its expectations; the last line counts them in cargo's form.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import beyond
import installing
import plugin
import scenarios
from stage import TREE, Stage
from timeline import HEAD, Timeline

HERE = pathlib.Path(__file__).resolve().parent
# What one part of the run ends with, and the others go on.
FAULTS = (OSError, RuntimeError, ValueError, KeyError, IndexError, TypeError, StopIteration, subprocess.SubprocessError)
STEPS = [installing.chart, installing.kustomize, installing.refused, installing.install, installing.token, plugin.plugin]
SCENARIOS = [*scenarios.SCENARIOS, *beyond.SCENARIOS, scenarios.uninstalled]


def inside(chosen: list[str]) -> int:
    """In the node's network namespace."""
    stage = Stage()
    begun = time.monotonic()
    try:
        stage.apply("coredns.yaml")
        stage.apply("hugegraph.yaml")
        stage.ready("kube-system", "k8s-app=kube-dns", 1)
        for step in STEPS:
            print(f"\n== {step.__name__}: {(step.__doc__ or '').splitlines()[0]}", flush=True)
            try:
                step(stage)
            except FAULTS as error:
                # Without an installation there is nothing to go on with.
                if step is installing.install:
                    raise
                traceback.print_exc()
                stage.check(step.__name__, "runs to its end", repr(error)[:300], False)
        for act in SCENARIOS:
            if act.__name__ in chosen or not chosen:
                play(stage, act)
    except FAULTS as error:
        traceback.print_exc()
        stage.check("the run itself", "goes to its end", repr(error)[:300], False)
    if stage.figures:
        width = max(len(what) for what, _, _ in stage.figures)
        print(f"\nFigures (load average {os.getloadavg()[0]:.1f})")
        for what, seen, wanted in stage.figures:
            print(f"  {what:<{width}}  {seen:<20} wanted: {wanted}")
    failed = [check for check in stage.checks if not check.passed]
    for check in failed:
        print(f"FAILED {check.what}: {check.seen} (expected {check.expected})")
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(stage.checks) - len(failed)} passed; {len(failed)} failed; 0 ignored; "
          f"finished in {time.monotonic() - begun:.0f}s")
    return 1 if failed else 0


def play(stage: Stage, act: scenarios.Callable) -> None:
    print(f"\n== {act.__name__}: {(act.__doc__ or '').splitlines()[0]} (load average {os.getloadavg()[0]:.1f})", flush=True)
    stage.cluster()
    line = Timeline(stage.api)
    try:
        with line:
            act(stage, line)
    except FAULTS as error:
        traceback.print_exc()
        stage.check(act.__name__, "runs to its end", repr(error)[:300], False)
    print(HEAD)
    print("\n".join(row.text() for row in line.rows), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--up", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    known = [act.__name__ for act in SCENARIOS]
    if args.list:
        print("\n".join(known))
        return 0
    if unknown := set(args.names) - set(known):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if args.inside:
        return inside(args.names)
    if os.geteuid():
        print("a node needs root", file=sys.stderr)
        return 2
    (TREE / "target").mkdir(exist_ok=True)
    settings = HERE / "node/settings.sh"
    try:
        if not args.up:
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run([HERE / "node/parts"], check=True)
                subprocess.run([HERE / "images", folder], check=True)
                subprocess.run([HERE / "node/up", *sorted(pathlib.Path(folder).glob("*.tar"))], check=True)
        script = (f'. {settings}; export RUN BIN TOOLS DAEMONS NODE_IP NODE; in_node python3 "$0" --inside "$@"')
        result = subprocess.run(["bash", "-c", script, str(HERE / "battery.py"), *args.names]).returncode
    except subprocess.CalledProcessError as error:
        print(error, file=sys.stderr)
        result = 1
    finally:
        if not args.keep and not args.up:
            result = subprocess.run([HERE / "node/down"], env={**os.environ, "KEEP": "1"}).returncode or result
    return result


if __name__ == "__main__":
    sys.exit(main())
