#!/usr/bin/env python3
"""load.py [--prefix P] [--server server0] [--writes 200]: writes vertices through one Server, then reads them back."""
import argparse
import os
import random

import rest
import state
from settings import Settings


def batch(call, numbers: list[int]) -> tuple[int, list[float], dict[str, int]]:
    """Calls each number in turn: successes, sorted seconds, complaints with their counts."""
    good, seconds, complaints = 0, [], {}
    for number in numbers:
        answer = call(number)
        seconds.append(answer.seconds)
        if answer.ok:
            good += 1
        else:
            complaints[answer.complaint()] = complaints.get(answer.complaint(), 0) + 1
    return good, sorted(seconds), complaints


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefix", default=os.environ.get("HUGEGRAPH_PREFIX", Settings().prefix))
    parser.add_argument("--server", default="server0")
    parser.add_argument("--writes", type=int, default=200)
    args = parser.parse_args()
    known = state.load(args.prefix)
    if known is None or args.server not in known.parts:
        raise SystemExit(f"no cluster {args.prefix} with {args.server} runs")
    graph = rest.Graph(known.settings.node_namespace, known.parts[args.server].address)
    graph.schema()
    first = random.randrange(1 << 40)
    failed = 0
    for name, call in (("put", graph.put), ("get", graph.get)):
        good, seconds, complaints = batch(call, list(range(first, first + args.writes)))
        failed += args.writes - good
        print(f"{args.server} {name}: {good} of {args.writes} good, median {1000 * seconds[len(seconds) // 2]:.1f} ms, "
              f"slowest {1000 * seconds[-1]:.0f} ms {complaints or ''}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
