"""Scenarios in which a pod moves to another address: what makes a Server's name cache matter."""
import time
from collections.abc import Callable

import ping
from cluster import START_LIMIT
from stage import Stage
from timeline import Row

BACKOFF = 150.0                          # seconds: the longest silence of a channel that backs off
SUSPECT, CONFIRM, WINDOW = 60.0, 240.0, 150.0
STALE = ("StaleTransportSuspected", "StaleTransport")
QUICK = {"verdict.stale_suspect_after": "15s", "verdict.stale_confirm_after": "45s"}


def replaced(how: str, suspect: float = SUSPECT, confirm: float = CONFIRM) -> Callable[[Stage], None]:
    """One replica; store1 ends (kill, term: its FINs get out) and comes back on another address."""
    def act(stage: Stage) -> None:
        since = _move(stage, "store1", how)
        told = stage.until("stale transport suspected at server0", lambda row: _has(row, "server0", *STALE),
                           suspect + BACKOFF)
        stage.within("server0: suspected after the successor's first answer", told and told - since, suspect + 15)
        left = stage.until("server0 taken out", lambda row: row.pods["server0"].reason == "StaleTransport", confirm + BACKOFF + 30)
        sure = next((row.at for row in stage.rows() if _has(row, "server0", "StaleTransport")), None)
        stage.check("server0: confirmed after the successor's first answer", "for comparison",
                    f"{sure - since:.0f} s" if sure else "never", True)
        # The guard may hold it while the other Server is suspected, until that one has dialled nothing stale for WINDOW.
        stage.within("server0: taken out after the successor's first answer", left and left - since, confirm + BACKOFF)
        _resolving_server(stage, since)
        again = stage.do("server0 restarted", lambda: stage.restart("server0"))
        stage.hold(10)
        ready = stage.poller.first("server0", 200, again)
        stage.within("server0: ready again after its restart began", ready and ready - again, 20)
        stage.no_finding(["server0"], since=time.time() - 5)
        stage.transitions("node", 0)
        stage.transitions("server0", 2)
        stage.transitions("server1", 0)
        stage.agreement("a stale Server still serves the other Stores' partitions", allowed=5)
    act.__doc__ = f"store1 replaced on a new address ({how}), one replica: the Server that never resolves again is named."
    return act


def cut(stage: Stage) -> None:
    """store1's node is lost without a FIN, one replica: both Servers hold dead connections, so neither leaves."""
    since = _move(stage, "store1", "cut")
    for name in stage.servers:
        told = stage.until(f"{name}: stale transport confirmed (holding)",
                           lambda row, n=name: _has(row, n, "StaleTransport", mode="holding"), CONFIRM + 60)
        stage.within(f"{name}: confirmed after the successor's first answer", told and told - since, CONFIRM + 15)
    for name in stage.servers:
        stage.finding("GuardHeld", [name], since)
        stage.transitions(name, 0)
    stage.transitions("node", 0)
    stage.agreement("half-open connections hang, one partition in three", allowed=5)


def replaced_replicated(how: str) -> Callable[[Stage], None]:
    """Three replicas: the leaders move, so clients miss nothing at first. A channel of grpc-java in back-off dials all the
    same, and minutes later a leader may move back to the replaced Store, which the stale Server does not reach."""
    def act(stage: Stage) -> None:
        since = _move(stage, "store1", how)
        stage.hold(CONFIRM + BACKOFF)
        out = next((row.at for row in stage.rows() if row.pods["server0"].code == 503), None)
        reasons = {row.pods["server0"].reason for row in stage.rows() if row.pods["server0"].code == 503}
        stage.check("server0: taken out", f"never, or for StaleTransport after {CONFIRM:.0f} s",
                    f"after {out - since:.0f} s, {', '.join(sorted(reasons))}" if out else "never",
                    out is None or (out - since >= CONFIRM and reasons == {"StaleTransport"}))
        for name in ("node", "server1"):
            stage.transitions(name, 0)
        stage.agreement("requests under way end when new leaders are known", allowed=35)
    act.__doc__ = f"store1 replaced on a new address ({how}), three replicas: the resolving Server never leaves."
    return act


def roll(stage: Stage) -> None:
    """All Stores restarted one after the other on new addresses, under load: the resolving Server never leaves."""
    answered = []
    for name in stage.stores:
        moved = time.time()
        answered.append(_move(stage, name, "term"))
        stage.cluster.wait(name)
        stage.hold(20)
    _resolving_server(stage, answered[-1])
    left = stage.until("server0 taken out", lambda row: row.pods["server0"].reason == "StaleTransport", CONFIRM + BACKOFF)
    stage.within("server0: confirmed after the first successor's first answer", left and left - answered[0], CONFIRM + BACKOFF)
    again = stage.do("server0 restarted", lambda: stage.restart("server0"))
    stage.calm_again(60)
    ready = stage.poller.first("server0", 200, again)
    stage.within("server0: ready again after its restart began", ready and ready - again, 20)
    stage.transitions("server0", 2)
    for name in ("node", "server1"):
        stage.transitions(name, 0)
    stage.agreement("server0 reaches no Store once all have moved, until passive evidence is confirmed", allowed=5, counted_until=moved)


def address_reused(stage: Stage) -> None:
    """store1 moves away and store2 moves to store1's old address: another Store answers there."""
    old = stage.cluster.state.parts["store1"].address
    _move(stage, "store1", "kill")
    stage.cluster.wait("store1")
    since = _move(stage, "store2", "kill", old)
    stage.cluster.wait("store2")
    stage.hold(60)
    stores = stage.agent.api("/v1/stores") or []
    stores = stores.get("stores", []) if isinstance(stores, dict) else stores
    told = [store.get("address") for store in stores if any(f.get("code") == "IpReused" for f in store.get("findings", []))]
    stage.check("stores: IpReused", "told", ", ".join(map(str, told)) or "never", bool(told))
    # Not asked of it: its channel to the reused address never breaks again, so it has no reason to resolve the name.
    _connected(stage, since)
    for name in ("node", "server1"):
        stage.transitions(name, 0)
    stage.agreement("the stale Server asks the wrong Store", allowed=120)


def agent_late(stage: Stage) -> None:
    """The agent starts after the move: it knows no former owner, so it names the address and judges nobody."""
    stage.agent.stop()
    _move(stage, "store1", "kill")
    stage.cluster.wait("store1")
    stage.hold(40)
    since = stage.do("agent started", lambda: stage.agent.start(fresh=True))
    told = stage.until("server0 dials an unknown address", lambda row: _has(row, "server0", "UnknownStoreAddress"), BACKOFF + 30)
    stage.within("server0: UnknownStoreAddress", told and told - since, BACKOFF)
    stage.hold(CONFIRM)
    without = [row.at - int(stage.begin) for row in stage.rows()
               if told and row.at > told and not _has(row, "server0", "UnknownStoreAddress")]
    stage.check("server0: seconds without it while it backs off", "0", f"{len(without)} {without[:6] or ''}", not without)
    codes = {row.pods["server0"].code for row in stage.rows() if row.at > since + 1}
    stage.check("server0: verdict", "200", codes, codes == {200})


def agent_in_stale(stage: Stage) -> None:
    """The agent is killed while it suspects a stale Server, and again when it has taken it out: it goes on where it was."""
    since = _move(stage, "store1", "kill")
    stage.until("stale transport suspected at server0", lambda row: _has(row, "server0", *STALE), 15 + BACKOFF)
    stage.do("agent killed", stage.agent.crash)
    stage.do("agent started", lambda: stage.agent.start(fresh=False))
    left = stage.until("server0 taken out", lambda row: row.pods["server0"].reason == "StaleTransport", 45 + BACKOFF + 30)
    stage.within("server0: confirmed after the successor's first answer", left and left - since, 45 + BACKOFF)
    stage.do("agent killed", stage.agent.crash)
    again = stage.do("agent started", lambda: stage.agent.start(fresh=False))
    stage.hold(20)
    seen = sorted({code for at, code, _ in stage.poller.changes["server0"] if at > again and code})
    stage.check("server0: answers after the restart", "503 only", seen or "no change", 200 not in seen)
    stage.check("server0: reason after the restart", "StaleTransport", stage.timeline.latest().pods["server0"].reason,
                stage.timeline.latest().pods["server0"].reason == "StaleTransport")
    again = stage.do("server0 restarted", lambda: stage.restart("server0"))
    stage.hold(10)
    ready = stage.poller.first("server0", 200, again)
    stage.within("server0: ready again after its restart began", ready and ready - again, 20)
    stage.transitions("node", 0)
    stage.transitions("server0", 2)
    stage.transitions("server1", 0)


def _move(stage: Stage, part: str, how: str, address: str | None = None) -> float:
    """Replaces a Store; returns when its successor first answered."""
    stage.hold(3)
    stage.do(f"{part} replaced on a new address ({how})", lambda: stage.cluster.replace(part, how, address))
    answered = ping.wait(stage.cluster.node, [stage.cluster.state.parts[part].address], START_LIMIT["store"])
    if answered is None:
        raise TimeoutError(f"{part} does not answer at its new address")
    stage.timeline.note(f"{part} answers at {stage.cluster.state.parts[part].address}")
    return answered


def _resolving_server(stage: Stage, since: float) -> None:
    """server1 resolves again: by now it must talk to every Store at its present address."""
    held = _connected(stage, since)
    stage.check("server1: connected to every Store", "yes", "yes" if held else "no", held is not None)


def _connected(stage: Stage, since: float) -> float | None:
    """Waits until server1 talks to every Store at its present address, and notes how long that took."""
    present = {stage.cluster.state.parts[name].address for name in stage.stores}
    held = stage.until("server1 connected to every Store", lambda row: present <= {
        key.split()[0] for key in row.sockets["server1"] if key.endswith(" estab")}, 120)
    stage.check("server1: connected to every Store, since the successor's first answer", "for comparison",
                f"{held - since:.0f} s" if held else "never", True)
    return held


def _has(row: Row, server: str, *codes: str, mode: str = "") -> bool:
    return any(finding.split("@")[0].split("(")[0] in codes and mode in finding for finding in row.pods[server].findings)
