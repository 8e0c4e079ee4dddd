"""What a scenario acts on: the cluster, the agent, the clients, the timeline, and the list of expectations."""
import dataclasses
import json
import time
from collections.abc import Callable

import network
from agent import Agent
from cluster import Cluster
from oracle import Oracle
from settings import HEALTH, kind
from timeline import Poller, Row, Timeline

WARM_UP = 120.0                          # seconds until cluster, clients and agent must agree that all is well
INFORMATIVE = ("PoolCollapsed",)         # true of every released Server; says nothing about a fault
ELSEWHERE = ("KernelEventsLost",)        # a neighbour's storm on a watched port may cost the agent events


@dataclasses.dataclass
class Check:
    """One expectation and what was measured."""
    what: str
    expected: str
    measured: str
    passed: bool


class Stage:
    """One scenario's run, from a healthy cluster and an agent without memory on."""

    def __init__(self, cluster: Cluster, overrides: dict[str, object] | None = None):
        self.cluster = cluster
        self.servers = [name for name in cluster.settings.parts() if kind(name) == "server"]
        self.pds = [name for name in cluster.settings.parts() if kind(name) == "pd"]
        self.stores = [name for name in cluster.settings.parts() if kind(name) == "store"]
        self.agent = Agent(cluster, overrides)
        self.checks: list[Check] = []
        self.begin = 0.0

    # Before and after

    def open(self) -> None:
        """Heals the cluster, starts clients and agent, and waits until everybody says that all is well."""
        self._heal()
        self.oracle = Oracle(self.cluster.node, {name: self.cluster.state.parts[name].address for name in self.servers})
        self.agent.start()
        self.timeline = Timeline(self.agent, self.oracle)
        calm = 0
        until = time.monotonic() + WARM_UP
        while calm < 3:
            time.sleep(1)
            row = self.timeline.latest()
            calm = calm + 1 if row and self.calm(row) else 0
            if time.monotonic() > until:
                self.close()
                raise TimeoutError(f"not all well {WARM_UP:.0f} s after the start: {row}")
        self.poller = Poller(self.cluster.node, self.servers)
        self.begin = time.time()

    def close(self) -> None:
        """Ends agent and clients."""
        for part in ("poller", "timeline", "oracle"):
            if hasattr(self, part):
                getattr(self, part).close()
        self.agent.stop()

    def rows(self) -> list[Row]:
        """The scenario's seconds, without the warm-up."""
        return [row for row in self.timeline.rows if row.at >= int(self.begin)]

    # Steps

    def hold(self, seconds: float) -> None:
        """Lets time pass."""
        time.sleep(seconds)

    def do(self, text: str, action: Callable[[], object]) -> float:
        """Does something to the cluster; returns the time just before."""
        at = self.timeline.note(text)
        action()
        return at

    def restart(self, part: str) -> None:
        """A new container in the same pod, waited for."""
        if self.cluster.process(part):
            self.cluster.kill(part)
        self.cluster.start(part)
        self.cluster.wait(part)

    def until(self, text: str, ask: Callable[[Row], bool], limit: float) -> float | None:
        """Waits for a row that satisfies `ask`; returns its Unix time, None if none came within `limit` seconds."""
        end, seen = time.monotonic() + limit, time.time()
        while time.monotonic() < end:
            row = self.timeline.latest()
            if row and row.at >= int(seen) and ask(row):
                self.timeline.note(text)
                return float(row.at)
            time.sleep(0.2)
        self.timeline.note(f"{text}: not within {limit:.0f} s")
        return None

    def calm_again(self, limit: float, refusing: str = "") -> None:
        """Expects that agent and clients say within `limit` seconds that all is well; clients of `refusing` are not asked."""
        found = self.until("all well again", lambda row: self.calm(row, refusing), limit)
        self.check("all well again", f"within {limit:.0f} s", "yes" if found else self._unwell(), found is not None)

    def served(self, row: Row) -> bool:
        """Whether every write begun at any Server in the second before succeeded."""
        return all(self.oracle.at(name, row.at - 1).state() == "good" for name in self.servers)

    def leaders(self) -> dict[str, int]:
        """How many partitions each Store leads, by its own word."""
        counts = {}
        for name in self.stores:
            address = self.cluster.state.parts[name].address
            code, body = network.get(self.cluster.node, address, HEALTH["store"][0], "/")
            counts[name] = int(json.loads(body).get("leaderCount", 0)) if code == 200 else 0
        return counts

    # Expectations

    def check(self, what: str, expected: str, measured: object, passed: bool) -> None:
        """Notes an expectation."""
        self.checks.append(Check(what, expected, str(measured), bool(passed)))

    def within(self, what: str, seconds: float | None, limit: float) -> None:
        """Expects a time span, known in seconds, of at most `limit`."""
        measured = "never" if seconds is None else f"{seconds * 1000:.0f} ms" if abs(seconds) < 10 else f"{seconds:.0f} s"
        wanted = f"<= {limit * 1000:.0f} ms" if limit < 10 else f"<= {limit:.0f} s"
        self.check(what, wanted, measured, seconds is not None and seconds <= limit)

    def transitions(self, who: str, expected: int) -> None:
        """Expects that many changes between ready and not ready, at 20 ms polling."""
        seen = self.poller.transitions(who, self.begin)
        self.check(f"{who}: transitions", str(expected), seen, seen == expected)

    def no_transitions(self) -> None:
        """Expects that neither the node nor any Server changed."""
        for who in ["node", *self.servers]:
            self.transitions(who, 0)

    def finding(self, code: str, who: list[str], since: float, until: float | None = None) -> None:
        """Expects a finding at these Servers ("node": at the node) in some second of the span."""
        for name in who:
            rows = [row for row in self.rows() if since <= row.at + 1 and (until is None or row.at <= until)]
            verdicts = [(row.at, row.node if name == "node" else row.pods[name]) for row in rows]
            hits = [at for at, verdict in verdicts if any(f.split("(")[0].split("@")[0] == code for f in verdict.findings)]
            self.check(f"{name}: finding {code}", "shown", f"after {max(0, hits[0] - int(since))} s, {len(hits)} s long"
                       if hits else "never", bool(hits))

    def no_finding(self, who: list[str], since: float = 0.0) -> None:
        """Expects that these Servers show no finding (but informative ones)."""
        for name in who:
            seen = {f for row in self.rows() if row.at >= since for f in row.pods[name].findings
                    if not f.startswith(INFORMATIVE)}
            self.check(f"{name}: findings", "none", ", ".join(sorted(seen)) or "none", not seen)

    def agreement(self, why: str = "", allowed: int | None = 2, counted_until: float | None = None) -> None:
        """Compares each second's verdict with what clients saw in it: Ready where nothing gets through, or NotReady
        where all is well, differs (while the Server itself is up). `why` explains the `allowed` seconds of each Server
        (None: as many as there are) and all seconds from `counted_until` on."""
        self.timeline.close()
        for name in self.servers:
            differ = [row.at - int(self.begin) for row in self.rows()
                      if row.pods[name].code and row.serving[name] and (row.rest[name].begun or row.rest[name].stuck)
                      and row.rest[name].state() == ("none" if row.pods[name].ready else "good")]
            partly = sum(row.rest[name].state() == "part" for row in self.rows())
            end = counted_until - int(self.begin) if counted_until else 1e9
            counted = [second for second in differ if second < end]
            later = f", and {len(differ) - len(counted)} s that are explained" if counted_until else ""
            self.check(f"{name}: verdict against REST",
                       ("explained" if allowed is None else f"<= {allowed} s differ") + (f": {why}" if why else ""),
                       f"{len(counted)} of {len(self.rows())} s differ{f' {counted[:12]}' if counted else ''}{later}; {partly} s partly served",
                       allowed is None or len(counted) <= allowed)

    # Inside

    def _unwell(self) -> str:
        row = self.timeline.latest()
        return f"node {row.node.text()}; " + "; ".join(
            f"{name} {pod.text()} [{', '.join(pod.findings)}] REST {self.oracle.at(name, row.at - 1).state()}"
            for name, pod in row.pods.items())

    def _heal(self) -> None:
        for name in self.cluster.settings.parts():
            part = self.cluster.state.parts.get(name)
            if part and part.running() and part.process.frozen():
                self.cluster.thaw(name)
        self.cluster.up()
        for name in sorted(self.cluster.outdated):
            self.restart(name)

    def calm(self, row: Row, refusing: str = "") -> bool:
        """Whether agent and clients say that all is well; a Server too small for its load refuses some even then."""
        rest = [self.oracle.at(name, row.at - 1) for name in self.servers if name != refusing]
        return (row.node.ready and all(pod.ready and all(f.startswith(INFORMATIVE + ELSEWHERE) for f in pod.findings)
                                       for pod in row.pods.values())
                and all(second.state() == "good" for second in rest))
