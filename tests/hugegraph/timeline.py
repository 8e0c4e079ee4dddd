"""One row a second: what clients saw, what the agent said, what the kernel held, what was done; and a fast poller."""
import collections
import contextlib
import dataclasses
import http.client
import json
import threading
import time

import network
from agent import PROBE, Agent
from oracle import Oracle, Second
from processes import run
from settings import NAMESPACE, PORTS, pod_name

SHORT = {"ESTAB": "estab", "SYN-SENT": "syn-sent", "FIN-WAIT-1": "fin-wait-1", "FIN-WAIT-2": "fin-wait-2",
         "CLOSE-WAIT": "close-wait", "LAST-ACK": "last-ack", "TIME-WAIT": "time-wait", "CLOSING": "closing"}


@dataclasses.dataclass
class Verdict:
    """An answer of the probe listener: status code (0: none), status, reason and findings of its body."""
    code: int
    status: str = ""
    reason: str = ""
    findings: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return self.code == 200

    def text(self) -> str:
        return f"{self.code or 'no answer'} {self.reason}".strip()


@dataclasses.dataclass
class Row:
    """One second of a scenario."""
    at: int
    node: Verdict
    pods: dict[str, Verdict]
    sockets: dict[str, dict[str, int]]                   # server -> "10.124.0.11 syn-sent" -> count
    events: list[str] = dataclasses.field(default_factory=list)
    rest: dict[str, Second] = dataclasses.field(default_factory=dict)
    serving: dict[str, bool] = dataclasses.field(default_factory=dict)     # whether the Server's own process is up
    snapshot: dict | None = None                         # the agent's own, whole, for a look back


def verdict(code: int, body: dict, details: list[dict] | None = None) -> Verdict:
    """A verdict from a probe's answer; `details` are the findings of the admin API, which name targets and modes."""
    findings = tuple(sorted(map(_finding, details))) if details is not None else tuple(sorted(body.get("findings", [])))
    return Verdict(code, body.get("status", ""), body.get("reason", ""), findings)


def _finding(detail: dict) -> str:
    mode = f"({detail['mode']})" if detail.get("mode") else ""
    return f"{detail.get('code', '?')}{mode}@{detail.get('target', '?')}"


def sockets(namespace: str, port: int = PORTS["store"]) -> dict[str, int]:
    """TCP sockets of a namespace to that remote port, counted by address and state, as `ss` shows them."""
    shown = run("nsenter", f"--net=/run/netns/{namespace}", "ss", "-tnH", f"dport = :{port}", check=False).stdout
    counted: collections.Counter[str] = collections.Counter()
    for line in shown.splitlines():
        fields = line.split()
        address = fields[4].rsplit(":", 1)[0].strip("[]").removeprefix("::ffff:")
        counted[f"{address} {SHORT.get(fields[0], fields[0].lower())}"] += 1
    return dict(sorted(counted.items()))


class Timeline:
    """Samples once a second until it is closed."""

    def __init__(self, agent: Agent, oracle: Oracle):
        self.agent, self.oracle = agent, oracle
        self.rows: list[Row] = []
        self.events: list[tuple[float, str]] = []
        self.closing = threading.Event()
        self.paused = False
        self.thread = threading.Thread(target=self._sample, daemon=True)
        self.thread.start()

    def note(self, text: str) -> float:
        """Puts an event into the present second; returns its Unix time."""
        at = time.time()
        self.events.append((at, text))
        return at

    def latest(self) -> Row | None:
        """The newest row, None before the first."""
        return self.rows[-1] if self.rows else None

    @contextlib.contextmanager
    def silent(self):
        """No samples, so that the agent is asked nothing."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def close(self) -> None:
        """Ends sampling and fills in the events and what clients saw; what is still open counts as not served."""
        if self.closing.is_set():
            return
        self.closing.set()
        self.thread.join(10)
        time.sleep(2)                       # requests of the last row get their time, too
        for row in self.rows:
            row.events = [text for at, text in self.events if int(at) == row.at]
            row.rest = {server: self.oracle.at(server, row.at) for server in self.oracle.servers}

    def _sample(self) -> None:
        while not self.closing.wait(1 - time.time() % 1):
            if self.paused:
                continue
            second = int(time.time())
            try:
                self.rows.append(self._row(second))
            except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
                self.events.append((float(second), f"sample failed: {error!r}"))

    def _row(self, second: int) -> Row:
        state = self.agent.cluster.state
        details: dict[str, list[dict]] = {}
        snapshot = self.agent.api("/v1/snapshot") if self.agent.process else None
        for pod in (snapshot or {}).get("pods", []):
            details[pod.get("name", "")] = pod.get("findings", [])
        row = Row(second, verdict(*self.agent.readiness()), {}, {}, snapshot=snapshot)
        for server in self.oracle.servers:
            row.pods[server] = verdict(*self.agent.readiness(server), details.get(pod_name(server)))
            part = state.parts[server]
            namespace, row.serving[server] = part.namespace, part.running() and part.ready_after is not None
            row.sockets[server] = sockets(namespace) if namespace else {}
        return row


class Poller:
    """Asks /readiness of the node and of each Server every 20 ms and keeps the changes."""

    PERIOD = 0.02

    def __init__(self, namespace: str, servers: list[str]):
        self.namespace = namespace
        self.changes: dict[str, list[tuple[float, int, str]]] = {}
        self.closing = threading.Event()
        paths = {"node": "/readiness"} | {name: f"/readiness/pods/{NAMESPACE}/{pod_name(name)}" for name in servers}
        self.threads = [threading.Thread(target=self._poll, args=item, daemon=True) for item in paths.items()]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """Ends polling."""
        self.closing.set()
        for thread in self.threads:
            thread.join(5)

    def first(self, who: str, code: int, since: float) -> float | None:
        """Unix time of the first answer with that status code at or after `since`."""
        changes = self.changes.get(who, [])
        before = [change for change in changes if change[0] < since]
        if before and before[-1][1] == code:
            return since
        return next((at for at, seen, _ in changes if at >= since and seen == code), None)

    def transitions(self, who: str, since: float = 0.0) -> int:
        """Changes between 200 and 503 since then; answers that did not come count for nothing."""
        known = [code for at, code, _ in self.changes.get(who, []) if code in (200, 503) and at >= since]
        before = [code for at, code, _ in self.changes.get(who, []) if code in (200, 503) and at < since][-1:]
        known = before + known
        return sum(a != b for a, b in zip(known, known[1:]))

    def _poll(self, who: str, path: str) -> None:
        changes = self.changes.setdefault(who, [])
        connection = network.Connection(self.namespace, "127.0.0.1", PROBE, 2.0)
        last = None
        while not self.closing.wait(self.PERIOD):
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                raw, code = answer.read(), answer.status
                now = (code, json.loads(raw).get("reason", "")) if raw else (code, "")
            except (OSError, ValueError, http.client.HTTPException):
                connection.close()
                now = (0, "no answer")
            if now != last:
                changes.append((time.time(), *now))
                last = now


def table(rows: list[Row], begin: float) -> list[str]:
    """The rows as text; seconds in which nothing changed share a line."""
    lines, group = [], []
    for row in rows:
        if group and (row.events or _picture(row) != _picture(group[-1])):
            lines += _lines(group, begin)
            group = []
        group.append(row)
    return lines + (_lines(group, begin) if group else [])


def _picture(row: Row) -> tuple:
    return (row.node.text(), row.node.findings, [(pod.text(), pod.findings) for pod in row.pods.values()], row.sockets,
            [second.state() for second in row.rest.values()])


def _lines(group: list[Row], begin: float) -> list[str]:
    first, last = group[0], group[-1]
    start, end = first.at - int(begin), last.at - int(begin)
    lines = [f"  {start:5d} s  {event}" for event in first.events]
    span = f"{start}" if start == end else f"{start}-{end}"
    found = f" [{', '.join(first.node.findings)}]" if first.node.findings else ""
    lines.append(f"  {span:>9}  node {first.node.text()}{found}")
    for server, pod in first.pods.items():
        rest = last.rest[server]
        held = ", ".join(f"{what} x{count}" for what, count in first.sockets[server].items()) or "none"
        found = f" [{', '.join(pod.findings)}]" if pod.findings else ""
        lines.append(f"             {server} {pod.text()}{found}; REST {rest.state()} {rest.text()}; sockets {held}")
    return lines


def as_json(row: Row) -> str:
    """A row as one line of JSON."""
    return json.dumps(dataclasses.asdict(row))
