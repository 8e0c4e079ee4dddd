"""Scenarios about PD, and about majorities of raft groups: what clients may lack while every process answers."""
import time

from stage import Stage

PD_NEEDED = "writes need PD on 1.5.0 and 1.7.0, the verdict is about storage"


def pd_to_zero(stage: Stage) -> None:
    """The only PD killed, started again: a finding, never a reason."""
    stage.hold(3)
    begun = stage.do("PD killed", lambda: stage.cluster.kill("pd0"))
    stage.hold(40)
    stage.finding("PdDown", ["node"], begun)
    _reachable(stage, "without PD", False)
    stage.do("PD started", lambda: (stage.cluster.start("pd0"), stage.cluster.wait("pd0")))
    back = time.time()
    stage.until("PD reachable for the agent", lambda row: not _told(row.node, "PdDown"), 30)
    stage.hold(5)
    _reachable(stage, "with PD", True)
    served = stage.until("clients served again", stage.served, 180)
    stage.check("clients: served again after PD answered", "for comparison", f"{served - back:.0f} s" if served else "never", True)
    stage.no_transitions()
    stage.agreement(PD_NEEDED, allowed=None)


def pd_moved(stage: Stage) -> None:
    """The only PD restarted on a new address: nothing changes, and the agent finds it again."""
    stage.hold(3)
    stage.do("PD replaced on a new address", lambda: stage.cluster.replace("pd0", "term"))
    stage.cluster.wait("pd0")
    back = time.time()
    seen = stage.until("agent reaches PD", lambda row: stage.agent.readiness()[1].get("pd_reachable") is True, 60)
    stage.within("node: pd_reachable after PD's return", seen and seen - back, 25)
    stage.hold(30)
    stage.no_transitions()
    stage.agreement("writes need PD, and server0 goes on asking at its old address", allowed=None)


def pd_roll(stage: Stage) -> None:
    """Three PDs restarted one after the other on new addresses: nothing changes, PD is never down."""
    stage.hold(3)
    for name in stage.pds:
        stage.do(f"{name} replaced on a new address", lambda part=name: stage.cluster.replace(part, "term"))
        stage.cluster.wait(name)
        stage.hold(20)
    _never(stage, "PdDown")
    _reachable(stage, "after the roll", True)
    _storage_known(stage)
    stage.no_transitions()
    stage.agreement("writes need PD, and server0 goes on asking at old addresses", allowed=None)


def pd_without_majority(stage: Stage) -> None:
    """Two of three PDs killed: the one left serves its health and knows no leader; back again."""
    stage.hold(3)
    first = stage.do("pd1 and pd2 killed", lambda: stage.cluster.kill("pd1", "pd2"))
    stage.hold(40)
    stage.finding("PdNoLeader", ["node"], first)
    _never(stage, "PdDown")
    _reachable(stage, "with one follower", True)

    def start() -> None:
        for name in ("pd1", "pd2"):
            stage.cluster.start(name)
        for name in ("pd1", "pd2"):
            stage.cluster.wait(name)
    stage.do("pd1 and pd2 started", start)
    back = time.time()
    gone = stage.until("PD has a leader", lambda row: not _told(row.node, "PdNoLeader"), 60)
    stage.within("node: PdNoLeader withdrawn after PD's return", gone and gone - back, 30)
    served = stage.until("clients served again", stage.served, 180)
    stage.check("clients: served again after PD's return", "for comparison", f"{served - back:.0f} s" if served else "never", True)
    stage.no_transitions()
    stage.agreement(PD_NEEDED, allowed=None)


def stores_without_majority(stage: Stage) -> None:
    """Two of three Stores killed, three replicas: no partition has a leader. The Store that is left answers until all its
    gRPC threads wait for a majority; from then on no Store answers, and the node says so. Back again."""
    stage.hold(3)
    begun = stage.do("store1 and store2 killed", lambda: stage.cluster.kill("store1", "store2"))
    stage.hold(30)
    stage.finding("StoreDown", ["node", *stage.servers], begun)

    def start() -> None:
        for name in ("store1", "store2"):
            stage.cluster.start(name)
        for name in ("store1", "store2"):
            stage.cluster.wait(name)
    stage.do("store1 and store2 started", start)
    stage.calm_again(150)
    out = [row for row in stage.rows() if row.node.code == 503]
    stage.check("node: while NotReady", "NoStoreAnswers, StoreHung told of the one that is left",
                f"{len(out)} s, {', '.join(sorted({row.node.reason for row in out})) or 'never'}",
                all(row.node.reason == "NoStoreAnswers" and _told(row.node, "StoreHung") for row in out))
    for name in stage.servers:
        served = [row.at - int(stage.begin) for row in stage.rows()
                  if not row.pods[name].ready and stage.oracle.at(name, row.at).state() == "good"]
        stage.check(f"{name}: NotReady while clients are served", "never", served[:12] or "never", not served)
    stage.agreement("no majority, no leader, partition faults: Ready says that a Store answers, StoreDown says the rest",
                    allowed=None)


def _told(verdict, code: str) -> bool:
    return any(finding.startswith(code) for finding in verdict.findings)


def _reachable(stage: Stage, when: str, expected: bool) -> None:
    seen = stage.agent.readiness()[1].get("pd_reachable")
    stage.check(f"node: pd_reachable {when}", str(expected), seen, seen is expected)


def _never(stage: Stage, code: str) -> None:
    seconds = [row.at - int(stage.begin) for row in stage.rows() if _told(row.node, code)]
    stage.check(f"node: finding {code}", "never", seconds[:12] or "never", not seconds)


def _storage_known(stage: Stage) -> None:
    active = stage.agent.readiness()[1].get("active_stores")
    stage.check("node: active_stores", str(len(stage.stores)), active, active == len(stage.stores))
