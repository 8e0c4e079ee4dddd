"""The faults, each a function of a stage: what is done, for how long, and what must be seen.

server0 runs with the released defaults, so its JVM caches names for ever; server1 runs with
-Dsun.net.inetaddr.ttl=30 and resolves again. The expected values are the product's promises, not the last run's.
"""
import dataclasses
import time
from collections.abc import Callable

import moves
import ping
import quorum
import timeline
from agent import is_release
from cluster import START_LIMIT
from oracle import Load
from settings import NAMESPACE, pod_name
from stage import Stage

RESOLVING = {"server1": ["-Dsun.net.inetaddr.ttl=30"]}


@dataclasses.dataclass
class Scenario:
    """A named fault; `short`: part of the battery that CI runs; `seconds`: about how long it takes."""
    name: str
    act: Callable[[Stage], None]
    seconds: int
    short: bool = True
    replicas: int = 1
    pds: int = 1
    overrides: dict[str, object] = dataclasses.field(default_factory=dict)


def baseline(stage: Stage) -> None:
    """Nothing happens, under load: no transition, no finding, and every channel is attributed to its Server."""
    stage.poller.close()                    # polling at 50 Hz is not part of the agent's own cost
    load = Load(stage.cluster.node, {name: stage.cluster.state.parts[name].address for name in stage.servers}, rate=200)
    stage.timeline.note("200 writes per second")
    stage.hold(5)
    with stage.timeline.silent():           # neither are the timeline's own questions
        alone, served = _cpu_share(stage, load, 20)
    asked, _ = _cpu_share(stage, load, 15)
    load.close()
    stage.timeline.note("load ends")
    only = "" if is_release() else "for comparison, of a release build: "
    stage.check("agent: CPU under load", f"{only}<= 1 % of a core", f"{alone:.2f} % at {served:.0f} requests/s",
                alone <= 1 or not is_release())
    stage.check("agent: CPU under load, and its snapshot asked for every second", "for comparison", f"{asked:.2f} %", True)
    resident = stage.agent.resident_mib()
    stage.check("agent: memory", f"{only}<= 24 MiB", f"{resident:.1f} MiB", resident <= 24 or not is_release())
    stage.check("clients: failed requests", "0", f"{load.bad} of {load.good + load.bad}, slowest {load.slowest:.2f} s",
                load.bad == 0)
    stage.no_transitions()
    stage.no_finding(stage.servers)
    _storage_view(stage)
    _attribution(stage)
    stage.agreement()


def _cpu_share(stage: Stage, load: Load, seconds: float) -> tuple[float, float]:
    """The agent's CPU over that time, in percent of one core, and the writes per second that ended in it."""
    cpu, ended, begun = stage.agent.cpu_seconds(), load.good + load.bad, time.monotonic()
    stage.hold(seconds)
    passed = time.monotonic() - begun
    return 100 * (stage.agent.cpu_seconds() - cpu) / passed, (load.good + load.bad - ended) / passed


def _storage_view(stage: Stage) -> None:
    """The agent's list of Stores is the cluster's, and each answers with its identity."""
    stores = stage.agent.api("/v1/stores") or []
    stores = stores.get("stores", []) if isinstance(stores, dict) else stores
    answering = [store for store in stores if store.get("answering")]
    stage.check("agent: stores known and answering", f"{len(stage.stores)} of {len(stage.stores)}",
                f"{len(answering)} of {len(stores)}", len(answering) == len(stores) == len(stage.stores))
    code, body = stage.agent.readiness()
    stage.check("agent: active_stores, pd_reachable", f"{len(stage.stores)}, True",
                f"{body.get('active_stores')}, {body.get('pd_reachable')}",
                body.get("active_stores") == len(stage.stores) and body.get("pd_reachable") is True and code == 200)


def _attribution(stage: Stage) -> None:
    """The connections that the agent counts for each Server are those that `ss` shows in the Server's namespace."""
    for name in stage.servers:
        path, until = f"/v1/pods/{NAMESPACE}/{pod_name(name)}", time.monotonic() + 35
        while True:                         # two inventory intervals: idle channels may come and go
            held = sum(count for what, count in timeline.sockets(stage.cluster.state.parts[name].namespace).items()
                       if what.endswith(" estab"))
            targets = (stage.agent.api(path) or {}).get("targets", [])
            stores = [target for target in targets if target["target"] != "pd"]
            seen = {key: sum(target["connections"][key] for target in stores) for key in ("current", "previous", "unknown")}
            if seen == {"current": held, "previous": 0, "unknown": 0} or time.monotonic() > until:
                break
            time.sleep(1)
        stage.check(f"{name}: channels to Stores attributed to it", f"{held} current, as ss shows",
                    ", ".join(f"{count} {key}" for key, count in seen.items()),
                    held > 0 and seen == {"current": held, "previous": 0, "unknown": 0})


def stores_to_zero(stage: Stage) -> None:
    """All Stores killed, later started again at their addresses."""
    stage.hold(3)
    stage.timeline.note("all Stores killed")
    killed = stage.cluster.kill(*stage.stores)
    dead = time.time()
    stage.hold(20)
    lost = stage.poller.first("node", 503, killed)
    stage.within("node: 503 after the last Store had ended", lost and lost - dead, 0.3)
    stage.check("Stores: ended after the last SIGKILL", "for comparison", f"{1000 * (dead - killed):.0f} ms", True)
    for name in stage.servers:
        gone = stage.poller.first(name, 503, killed)
        stage.within(f"{name}: 503 after the last Store had ended", gone and gone - dead, 0.3)
    reasons = {row.node.reason for row in stage.rows() if row.at > dead + 1}
    stage.check("node: reason", "NoStoreAnswers", ", ".join(sorted(reasons)), reasons == {"NoStoreAnswers"})
    stage.finding("StoreDown", stage.servers, killed)

    def start() -> None:
        for name in stage.stores:
            stage.cluster.start(name)
    stage.do("Stores started", start)
    addresses = [stage.cluster.state.parts[name].address for name in stage.stores]
    back = ping.wait(stage.cluster.node, addresses, START_LIMIT["store"])
    stage.timeline.note("first Store answers")
    for name in stage.stores:
        stage.cluster.wait(name)
    served = stage.until("clients served again", stage.served, 180)
    stage.check("clients: served again after a Store's first answer", "for comparison",
                f"{served - back:.0f} s" if served and back else "never", True)
    stage.hold(3)
    again = back and stage.poller.first("node", 200, dead + 5)
    stage.within("node: 200 after a Store's first answer", again and again - back, 0.5)
    for name in stage.servers:
        again = back and stage.poller.first(name, 200, dead + 5)
        stage.within(f"{name}: 200 after a Store's first answer", again and again - back, 0.5)
    stage.transitions("node", 2)
    for name in stage.servers:
        stage.transitions(name, 2)
    stage.agreement("after the return the Servers' channels first serve out their back-off, as long as the outage at most",
                    allowed=3, counted_until=back)


def store_killed(stage: Stage) -> None:
    """One Store killed, back at the same address half a minute later."""
    stage.hold(3)
    begun = stage.do("store1 killed", lambda: stage.cluster.kill("store1"))
    stage.hold(30)
    stage.finding("StoreDown", stage.servers, begun)
    stage.do("store1 started", lambda: (stage.cluster.start("store1"), stage.cluster.wait("store1")))
    stage.calm_again(150)
    stage.no_transitions()
    stage.agreement("one partition in three is away, one replica", allowed=2)


def store_frozen(stage: Stage) -> None:
    """SIGSTOP of the Store that leads most partitions, SIGCONT a minute later."""
    leaders = stage.leaders()
    victim = max(leaders, key=lambda name: leaders[name])
    stage.hold(3)
    begun = stage.do(f"{victim} frozen (leads {leaders[victim]} of {sum(leaders.values())})",
                     lambda: stage.cluster.freeze(victim))
    stage.hold(45)
    stage.finding("StoreHung", stage.servers, begun)
    thawed = stage.do(f"{victim} thawed", lambda: stage.cluster.thaw(victim))
    stage.calm_again(60)
    stage.no_transitions()
    stage.agreement("the frozen Store's partitions hang, one replica; then what had hung is worked off", allowed=2,
                    counted_until=thawed)


def stores_frozen(stage: Stage) -> None:
    """All Stores SIGSTOPped: connections stand, nobody answers."""
    stage.hold(3)
    frozen = stage.do("all Stores frozen", lambda: [stage.cluster.freeze(name) for name in stage.stores])
    stage.hold(20)
    lost = stage.poller.first("node", 503, frozen)
    stage.within("node: 503 after the freeze", lost and lost - frozen, 4.3)
    thawed = stage.do("all Stores thawed", lambda: [stage.cluster.thaw(name) for name in stage.stores])
    stage.calm_again(60)
    again = stage.poller.first("node", 200, thawed)
    stage.within("node: 200 after the thaw", again and again - thawed, 1.3)
    stage.transitions("node", 2)
    stage.agreement("requests of the first seconds of the freeze end well after the thaw", allowed=8)


def server_restarted(stage: Stage) -> None:
    """A Server is replaced in its pod by a new container."""
    stage.hold(3)
    stage.do("server0 killed", lambda: stage.cluster.kill("server0"))
    stage.hold(2)
    stage.do("server0 started", lambda: (stage.cluster.start("server0"), stage.cluster.wait("server0")))
    stage.calm_again(60)
    stage.no_transitions()


def server_busy(stage: Stage) -> None:
    """A Server of 4 REST workers, all of them waiting for one frozen Store, refuses everybody: its storage is there."""
    stage.cluster.settings.rest["server0"] = {"restserver.max_worker_threads": 4}
    try:
        stage.do("server0 restarted with 4 REST workers", lambda: stage.restart("server0"))
    finally:
        stage.cluster.settings.rest.clear()
        stage.cluster.outdated.add("server0")   # the next scenario starts it anew, with the usual number
    stage.calm_again(60, refusing="server0")
    leaders = stage.leaders()
    victim = max(leaders, key=lambda name: leaders[name])
    begun = stage.do(f"{victim} frozen (leads {leaders[victim]} of {sum(leaders.values())})",
                     lambda: stage.cluster.freeze(victim))
    stage.hold(25)
    refused = stage.oracle.complaints("server0", begun)
    stage.check("clients of server0: refused by a busy Server", "told", ", ".join(sorted(refused)) or "nothing",
                any("too busy" in text for text in refused))
    stage.finding("StoreHung", ["server0"], begun)
    stage.do(f"{victim} thawed", lambda: stage.cluster.thaw(victim))
    stage.calm_again(90, refusing="server0")
    stage.no_transitions()
    stage.agreement("a full pool of the Server's own is no word on its storage", allowed=None)


def agent_restarted(stage: Stage) -> None:
    """The agent ends in order, and once by SIGKILL, while all is well: no verdict changes."""
    stage.hold(3)
    stage.do("agent ends", lambda: stage.check("agent: seconds to end after SIGTERM", "<= 5 s", f"{stage.agent.stop():.2f} s", True))
    stage.do("agent started", lambda: stage.agent.start(fresh=False))
    stage.hold(10)
    stage.do("agent killed", stage.agent.crash)
    stage.do("agent started", lambda: stage.agent.start(fresh=False))
    stage.hold(10)
    stage.no_transitions()


def agent_in_fault(stage: Stage) -> None:
    """All Stores are killed; the agent is killed and started again, then started without its memory."""
    stage.hold(3)
    stage.timeline.note("all Stores killed")
    stage.cluster.kill(*stage.stores)
    stage.until("node not ready", lambda row: row.node.code == 503, 10)
    stage.hold(0.5)                         # a changed verdict is on the disk a tenth of a second later
    stage.do("agent killed", stage.agent.crash)
    again = stage.do("agent started", lambda: stage.agent.start(fresh=False))
    stage.hold(8)
    for who in ["node", *stage.servers]:
        seen = [code for at, code, _ in stage.poller.changes[who] if at > again]
        stage.check(f"{who}: answers after the restart", "503 only", sorted({code for code in seen if code}), 200 not in seen)
    stage.do("agent ends", stage.agent.stop)
    late = stage.do("agent started without memory", lambda: stage.agent.start(fresh=True))
    stage.hold(8)
    for who in ["node", *stage.servers]:
        told = next((at for at, code, _ in stage.poller.changes[who] if at > late and code == 503), None)
        stage.within(f"{who}: 503 after a late start", told and told - late, 5)
        stage.check(f"{who}: last answer", "503", stage.poller.changes[who][-1][1], stage.poller.changes[who][-1][1] == 503)
    stage.agreement("the agent is away for some seconds, and young for some more", allowed=4)


ALL = [
    Scenario("baseline", baseline, 60),
    Scenario("stores-to-zero", stores_to_zero, 90),
    Scenario("store-killed", store_killed, 90, short=False),
    Scenario("store-frozen", store_frozen, 90),
    Scenario("stores-frozen", stores_frozen, 60, short=False),
    Scenario("pd-to-zero", quorum.pd_to_zero, 100, short=False),
    Scenario("server-restarted", server_restarted, 60),
    Scenario("server-busy", server_busy, 120, short=False),
    Scenario("agent-restarted", agent_restarted, 50, short=False),
    Scenario("agent-in-fault", agent_in_fault, 60),
    Scenario("pd-moved", quorum.pd_moved, 80, short=False),
    Scenario("store-replaced-quick", moves.replaced("kill", 15, 45), 270, overrides=moves.QUICK),
    Scenario("store-replaced-kill", moves.replaced("kill"), 480, short=False),
    Scenario("store-replaced-term", moves.replaced("term"), 480, short=False),
    Scenario("store-cut", moves.cut, 330, short=False),
    Scenario("store-roll", moves.roll, 450, short=False),
    Scenario("address-reused", moves.address_reused, 240, short=False),
    Scenario("agent-late", moves.agent_late, 450, short=False),
    Scenario("agent-in-stale", moves.agent_in_stale, 330, short=False, overrides=moves.QUICK),
    Scenario("store-replaced-kill-3", moves.replaced_replicated("kill"), 330, short=False, replicas=3),
    Scenario("store-replaced-cut-3", moves.replaced_replicated("cut"), 330, short=False, replicas=3),
    Scenario("store-roll-3", moves.roll, 450, short=False, replicas=3),
    Scenario("store-majority-lost", quorum.stores_without_majority, 120, short=False, replicas=3),
    Scenario("pd-roll", quorum.pd_roll, 150, short=False, pds=3),
    Scenario("pd-majority-lost", quorum.pd_without_majority, 120, short=False, pds=3),
]
