#!/usr/bin/env python3
"""Faults on a real HugeGraph cluster, and whether the agent judges them rightly.

  battery.py                      the short battery
  battery.py --full               every scenario
  battery.py NAME...              these scenarios;  --list names them

Prints each scenario's timeline and the table of expectations, and their count in the last line, in cargo's form; exit 1 if
one of them does not hold. The timelines are kept second by second as JSON lines in the folder that --out names.
"""
import argparse
import os
import pathlib
import sys
import time
import traceback

import agent
import cluster as clusters
import processes
import rest
import scenarios
import settings as names
import state as states
import timeline
from scenarios import Scenario
from stage import Check, Stage

SCHEMA_LIMIT = 120.0                     # seconds until a fresh cluster must take a schema


def play(scenario: Scenario, cluster: clusters.Cluster, out: pathlib.Path | None) -> list[Check]:
    """Runs one scenario; an error in it is a failed expectation."""
    print(f"\n== {scenario.name}: {(scenario.act.__doc__ or '').splitlines()[0]}", flush=True)
    begun = time.monotonic()
    if out:
        out.mkdir(parents=True, exist_ok=True)
    stage = Stage(cluster, scenario.overrides)
    try:
        stage.open()
        try:
            scenario.act(stage)
        finally:
            stage.close()
    except (OSError, RuntimeError, ValueError, KeyError, AttributeError, TypeError) as error:
        traceback.print_exc()
        stage.check("the scenario itself", "runs to its end", repr(error), False)
    if stage.begin:
        print("\n".join(timeline.table(stage.rows(), stage.begin)), flush=True)
        if out:
            (out / f"{scenario.name}.jsonl").write_text("".join(timeline.as_json(row) + "\n" for row in stage.rows()))
    for check in stage.checks:
        print(f"  {'ok  ' if check.passed else 'FAIL'} {check.what}: {check.measured} (expected {check.expected})", flush=True)
    print(f"  took {time.monotonic() - begun:.0f} s; {os.cpu_count()} CPUs, load average {os.getloadavg()[1]:.1f}", flush=True)
    failed = not all(check.passed for check in stage.checks)
    if failed and (stage.agent.folder / "out.log").exists():
        print("  the agent's log ends with:\n" + "\n".join(f"    {line}" for line in stage.agent.log().splitlines()[-25:]))
        if out:
            (out / f"{scenario.name}.agent.log").write_text(stage.agent.log())
    return stage.checks


def run(chosen: list[Scenario], base: names.Settings, out: pathlib.Path | None) -> dict[str, list[Check]]:
    """All chosen scenarios, on one cluster for each number of PDs and replicas."""
    results: dict[str, list[Check]] = {}
    for pds, replicas in sorted({(scenario.pds, scenario.replicas) for scenario in chosen}):
        shape = {**vars(base), "pds": pds, "replicas": replicas, "jvm": {**scenarios.RESOLVING, **base.jvm}}
        cluster = clusters.fresh(names.Settings(**shape))
        try:
            begun = time.monotonic()
            cluster.up()
            print(f"cluster: HugeGraph {base.version}, {pds} PD(s), {replicas} replica(s), "
                  f"up in {time.monotonic() - begun:.0f} s", flush=True)
            _schema(cluster)
            for scenario in chosen:
                if (scenario.pds, scenario.replicas) == (pds, replicas):
                    results[scenario.name] = play(scenario, cluster, out)
        except BaseException:
            processes.undisturbed()
            raise
        finally:
            cluster.down()
    return results


def _schema(cluster: clusters.Cluster) -> None:
    graph = rest.Graph(cluster.node, cluster.state.parts["server0"].address)
    until = time.monotonic() + SCHEMA_LIMIT
    while True:
        try:
            graph.schema()
            break
        except RuntimeError as error:       # a Server that answers may not have found the leader of several PDs yet
            if time.monotonic() > until:
                raise
            print(f"{error}\ntrying again", flush=True)
            time.sleep(5)
    graph.close()


def summary(results: dict[str, list[Check]]) -> list[str]:
    """The table of all expectations."""
    rows = [(name, check.what, check.expected, check.measured, "ok" if check.passed else "FAIL")
            for name, checks in results.items() for check in checks]
    head = ("scenario", "what", "expected", "measured", "")
    wide = [min(70, max(len(row[i]) for row in [head, *rows])) for i in range(5)]
    return ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, wide)) + " |"
            for row in [head, tuple("-" * width for width in wide), *rows]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("HUGEGRAPH_OUT"))
    parser.add_argument("--prefix", default=os.environ.get("HUGEGRAPH_PREFIX", "swhgtest"))
    names.add_arguments(parser)
    args = parser.parse_args()
    processes.end_in_order()
    if args.list:
        for scenario in scenarios.ALL:
            print(f"{scenario.name:24} {scenario.seconds:4} s  {'short' if scenario.short else 'full '}  "
                  f"{(scenario.act.__doc__ or '').splitlines()[0]}")
        return
    unknown = set(args.names) - {scenario.name for scenario in scenarios.ALL}
    if unknown:
        raise SystemExit(f"no scenario {', '.join(sorted(unknown))}; --list names them")
    chosen = [s for s in scenarios.ALL if (s.name in args.names if args.names else (s.short or args.full))]
    base = names.from_arguments(args)
    print(f"agent: {agent.binary()}")
    begun = time.monotonic()
    with states.Lock(base.run):
        results = run(chosen, base, args.out)
    print(f"\nHugeGraph {base.version}, {len(chosen)} scenario(s) in {time.monotonic() - begun:.0f} s")
    print("\n".join(summary(results)))
    passed = sum(check.passed for checks in results.values() for check in checks)
    failed = sum(map(len, results.values())) - passed
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; 0 ignored")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, TimeoutError, ValueError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(1)
    except KeyboardInterrupt:
        raise SystemExit(130)
