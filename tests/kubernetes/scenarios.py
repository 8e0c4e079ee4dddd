"""What happens to the cluster, and which transitions follow: these and no others."""
import contextlib
import socket
import time
from typing import Callable

from api import until
from stage import AGENTS, NAMESPACE, Stage
from timeline import SERVERS, STORES, Timeline, look

OPEN, SHUT = "True StoreAnswering", "False NoStoreAnswers"
NAMES = ["hugegraph-server-0", "hugegraph-server-1"]
# The kubelet looks at a condition within a second of its change, and this machine has few processors.
QUIET = 5


def steady(stage: Stage, line: Timeline, what: str, seconds: float) -> None:
    """Goes on for a while: a transition that should not come has its time to."""
    line.say(what)
    time.sleep(seconds)


def no_transition(stage: Stage, line: Timeline) -> None:
    for name in NAMES:
        stage.check(f"gate of {name}", [OPEN], line.words(name))
    stage.check("Servers in the Service", [2], line.insides())


def reaction(stage: Stage, begun: float, what: str, inside: int) -> float:
    """Seconds until so many Servers are in the Service."""
    until(what, 60, lambda: len(look(stage.api, 0).inside) == inside)
    return time.monotonic() - begun


def answering(stage: Stage) -> float:
    """When the first Store took a connection, at the latest."""
    def one() -> float | None:
        for pod in stage.api.pods("graph", STORES):
            address = pod["status"].get("podIP")
            if address and not pod["metadata"].get("deletionTimestamp"):
                with contextlib.suppress(OSError), socket.create_connection((address, 8500), timeout=0.2):
                    return time.monotonic()
        return None
    return until("a Store that listens", 60, one)


def stores_to_zero(stage: Stage, line: Timeline) -> None:
    """All Stores scaled to 0, and back."""
    steady(stage, line, "", 3)
    line.say("Stores scaled to 0")
    begun = time.monotonic()
    stage.api.scale("hugegraph-store", 0)
    out = reaction(stage, begun, "both Servers out", 0)
    steady(stage, line, f"out after {out:.2f} s", 8)
    line.say("Stores scaled to 3")
    begun = time.monotonic()
    stage.api.scale("hugegraph-store", 3)
    back = reaction(stage, begun, "both Servers back", 2)
    line.say(f"in after {back:.2f} s")
    stage.cluster()
    steady(stage, line, "", QUIET)
    for name in NAMES:
        stage.check(f"gate of {name}", [OPEN, SHUT, OPEN], line.words(name))
    print(f"  from the scaling: out after {out:.2f} s, in after {back:.2f} s (the pods' own start and end included)")


def stores_killed(stage: Stage, line: Timeline) -> None:
    """SIGKILL to every Store's process at once, with nobody to start them again; then back."""
    steady(stage, line, "", 2)
    pods = stage.api.pods("graph", STORES)
    # First unwanted, or the kubelet would start them again; killed before it has begun to end them in order.
    begun = stage.kill(pods, before=lambda: stage.api.scale("hugegraph-store", 0))
    line.say("Stores killed")
    out = reaction(stage, begun, "both Servers out", 0)
    steady(stage, line, f"out after {out:.2f} s", 4)
    stage.api.scale("hugegraph-store", 3)
    line.say("Stores scaled to 3")
    back = reaction(stage, answering(stage), "both Servers back", 2)
    line.say(f"in {back:.2f} s after a Store listens")
    stage.cluster()
    steady(stage, line, "", QUIET)
    for name in NAMES:
        stage.check(f"gate of {name}", [OPEN, SHUT, OPEN], line.words(name))
    stage.figure("kill -9 of all Stores to gates False, Servers out", f"{out:.2f} s", "1.5 s")
    stage.figure("a Store listens to gates True, Servers in", f"{back:.2f} s", "1.5 s")
    stage.check("back in", "at most 1.5 s (3 s on a machine with other work)", f"{back:.2f} s", back <= 3)
    stage.check("kill -9 to both Servers out of their Service", "at most 1.5 s (3 s on a machine with other work)",
                f"{out:.2f} s", out <= 3)


def store_deleted(stage: Stage, line: Timeline) -> None:
    """One Store's pod deleted: it comes back with another address."""
    steady(stage, line, "", 2)
    name = "hugegraph-store-1"
    before = stage.api.get(f"/api/v1/namespaces/graph/pods/{name}")
    stage.api.done("DELETE", f"/api/v1/namespaces/graph/pods/{name}")
    line.say(f"{name} deleted")

    def replaced() -> dict | None:
        pod = stage.api.get(f"/api/v1/namespaces/graph/pods/{name}")
        return pod if pod["metadata"]["uid"] != before["metadata"]["uid"] and pod["status"].get("podIP") else None
    after = until("a new pod", 60, replaced)
    stage.cluster()
    old, new = before["status"]["podIP"], after["status"]["podIP"]
    line.say(f"back at {new}, was {old}")
    stage.check("the Store's address", "another one", f"{old}, then {new}", old != new)

    def known() -> dict | None:
        stores = stage.admin("/v1/stores")
        stores = stores.get("stores", []) if isinstance(stores, dict) else stores
        found = next(store for store in stores if store["address"].startswith(name))
        now = [each["ip"] for each in found["addresses"] if not each.get("to")]
        return found if new in now and found["answering"] else None
    store = until("the agent knows the new address", 60, known)
    steady(stage, line, "the agent knows it", 15)
    stage.check("its addresses, as the agent has them", f"{old} and {new}", [each["ip"] for each in store["addresses"]],
                {old, new} <= {each["ip"] for each in store["addresses"]})
    no_transition(stage, line)


def agent_killed(stage: Stage, line: Timeline) -> None:
    """SIGKILL to the agent: the kubelet starts it again."""
    steady(stage, line, "", 2)
    agent = stage.agent()
    stage.kill([agent])
    line.say("agent killed")
    until("the agent again", 60, lambda: stage.agent()["status"]["containerStatuses"][0]["restartCount"]
          > agent["status"]["containerStatuses"][0]["restartCount"])
    steady(stage, line, "it runs again", 15)
    no_transition(stage, line)


def agent_replaced(stage: Stage, line: Timeline) -> None:
    """The DaemonSet rolled, as by an upgrade."""
    steady(stage, line, "", 2)
    before = stage.agent()["metadata"]["uid"]
    stage.helm("upgrade", "storewatch", stage.chart, "-n", NAMESPACE, "--reuse-values", "--set", "podAnnotations.rolled=yes")
    line.say("helm upgrade")
    until("another agent", 90, lambda: stage.agent()["metadata"]["uid"] != before)
    steady(stage, line, "it runs", 15)
    no_transition(stage, line)


def api_away(stage: Stage, line: Timeline) -> None:
    """The API server stopped for a while: no verdict changes, and none when it is back."""
    steady(stage, line, "", 2)
    stage.stop_api()
    line.say("API server killed")
    time.sleep(20)
    away = [row.node for row in line.rows if not row.api]
    stage.check("the probe's answers meanwhile", ["200"], sorted(set(away)), bool(away) and set(away) == {"200"})
    # The listing of the pods is kept, so that a probe by name knows them.
    pods = stage.admin("/v1/pods")
    pods = pods.get("pods", []) if isinstance(pods, dict) else pods
    stage.check("pods that the agent knows meanwhile", 2, len(pods))
    stage.start_api()
    line.say("API server back")
    steady(stage, line, "", 20)
    no_transition(stage, line)


def uninstalled(stage: Stage, line: Timeline) -> None:
    """`helm uninstall` while every gate is shut: it opens them, and leaves nothing behind."""
    leases = stage.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
    owners = {lease["metadata"]["name"]: [f"{owner['kind']}/{owner['name']}" for owner in lease["metadata"].get("ownerReferences", [])]
              for lease in leases}
    stage.check("owners of the Leases", {name: ["ServiceAccount/storewatch"] for name in (f"storewatch-node-{stage.node}", "storewatch-elected")},
                owners)
    stage.api.scale("hugegraph-store", 0)
    line.say("Stores scaled to 0")
    reaction(stage, time.monotonic(), "both Servers out", 0)
    steady(stage, line, "", 3)
    stage.helm("uninstall", "storewatch", "-n", NAMESPACE, "--wait", "--timeout", "180s")
    line.say("helm uninstall")
    reaction(stage, time.monotonic(), "both Servers in", 2)
    steady(stage, line, "", QUIET)
    for name in NAMES:
        stage.check(f"gate of {name}", [OPEN, SHUT, "True AgentAbsent"], line.words(name))
    def left() -> list[str]:
        found = stage.kubectl("get", "all,configmaps,serviceaccounts,roles,rolebindings,leases", "-n", NAMESPACE, "-o", "name").split()
        for kinds in (["roles,rolebindings", "-n", "graph"], ["clusterroles,clusterrolebindings"],
                      ["validatingadmissionpolicies,validatingadmissionpolicybindings"]):
            found += stage.kubectl("get", *kinds, "-o", "name", "-l", AGENTS).split()
        return [name for name in found if name not in ("configmap/kube-root-ca.crt", "serviceaccount/default")]
    # Helm does not wait for the pods of what it deletes.
    try:
        until("nothing left", 30, lambda: not left())
    except RuntimeError:
        pass
    stage.check("left of the release", [], left())
    stage.api.scale("hugegraph-store", 3)


SCENARIOS: list[Callable[[Stage, Timeline], None]] = [
    stores_to_zero, stores_killed, store_deleted, agent_killed, agent_replaced, api_away,
]
