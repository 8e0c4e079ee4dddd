"""What goes beyond one verdict: a node without an agent, a stale transport that healing would end, many pods, and what it costs."""
import datetime
import pathlib
import re
import time
from typing import Callable

from api import GATE, STRATEGIC, Object, condition, until
from installing import resident
from plugin import quote
from scenarios import NAMES, OPEN, QUIET, no_transition, steady
from stage import NAMESPACE, Stage
from timeline import SERVERS, Timeline

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PODS = "/api/v1/namespaces/graph/pods"


def gate_of(stage: Stage, name: str) -> Object:
    return condition(stage.api.get(f"{PODS}/{name}"), GATE)


def agent_absent(stage: Stage, line: Timeline) -> None:
    """A shut gate on a node whose agent has died: the elected agent opens it."""
    # A pod of a node that there is not would be collected. Without a label of its system the node gets no agent.
    stage.api.done("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another-node"}})
    image = stage.api.get(f"{PODS}/hugegraph-server-0")["spec"]["containers"][0]["image"]
    stage.api.done("POST", PODS, {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left-behind", "namespace": "graph", "labels": {
            "app.kubernetes.io/name": "hugegraph", "app.kubernetes.io/component": "server"}},
        "spec": {"nodeName": "another-node", "readinessGates": [{"conditionType": GATE}], "terminationGracePeriodSeconds": 0,
                 "containers": [{"name": "server", "image": image}]}})
    # Its agent's last acts: the gate is shut, the Lease renewed.
    stage.api.done("PATCH", f"{PODS}/left-behind/status", {"status": {"conditions": [
        {"type": GATE, "status": "False", "reason": "NoStoreAnswers", "message": "by a test"}]}}, STRATEGIC)
    renewed = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    stage.api.done("POST", LEASES, {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "storewatch-node-another-node", "namespace": NAMESPACE, "labels": {"storewatch.io/lease": "node"},
                     "annotations": {"storewatch.io/node": "another-node"}},
        "spec": {"holderIdentity": "another-node", "leaseDurationSeconds": 60, "renewTime": renewed}})
    begun = time.monotonic()
    line.say("agent of another node dies")
    try:
        until("the gate open", 120, lambda: gate_of(stage, "left-behind").get("status") == "True")
        took = time.monotonic() - begun
        word = gate_of(stage, "left-behind")
        stage.check("the gate", "True AgentAbsent", f"{word['status']} {word['reason']}")
        stage.check("after its Lease has lapsed, and in time", "60 to 90 s", f"{took:.1f} s", 59 <= took <= 90)
        stage.figure("last renewal to AgentAbsent", f"{took:.1f} s", "90 s")
    finally:
        stage.api.call("DELETE", f"{PODS}/left-behind?gracePeriodSeconds=0")
        stage.api.call("DELETE", "/api/v1/nodes/another-node")
        stage.api.call("DELETE", f"{LEASES}/storewatch-node-another-node")
    for name in NAMES:
        stage.check(f"gate of {name}", [OPEN], line.words(name))


def requests(stage: Stage) -> dict[str, int]:
    """Requests that the API server has answered, by verb and resource."""
    found: dict[str, int] = {}
    text = stage.kubectl("get", "--raw", "/metrics")
    for match in re.finditer(r"^apiserver_request_total\{([^}]*)\} (\d+)", text, re.MULTILINE):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', match[1]))
        key = f"{labels.get('verb')} {labels.get('resource')} {labels.get('subresource', '')}".strip()
        found[key] = found.get(key, 0) + int(match[2])
    return found


def cost_of_leases(stage: Stage, line: Timeline) -> None:
    """What the agents ask of the API server in a minute in which nothing happens."""
    # Of all who use Leases the agents alone patch theirs; the elected one replaces its own.
    before = requests(stage)
    steady(stage, line, "", 60)
    after = requests(stage)
    leases, gates = (after.get(key, 0) - before.get(key, 0) for key in ("PATCH leases", "PATCH pods status"))
    stage.check("renewals of the node's Lease in 60 s", "3 or 4", leases, leases in (3, 4))
    print(f"  patches of pods' status in it, the kubelet's included: {gates}")
    stage.figure("Lease renewals per minute, gated pods", str(leases), "3 (each 20 s)")
    no_transition(stage, line)


def first_verdict(stage: Stage, line: Timeline) -> None:
    """An agent without a past: from its process's start to its first verdicts."""
    took = []
    for _ in range(3):
        before = stage.agent()
        uid = before["metadata"]["uid"]
        state = pathlib.Path(f"/proc/{stage.processes(uid)[0]}/root/var/lib/storewatch/state.json")
        restarts = before["status"]["containerStatuses"][0]["restartCount"]
        stage.kill([before], before=lambda: state.unlink(missing_ok=True))

        def started() -> float | None:
            if stage.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{before['metadata']['name']}"
                             )["status"]["containerStatuses"][0]["restartCount"] == restarts:
                return None
            found = stage.processes(uid)
            return int(pathlib.Path(f"/proc/{found[0]}/stat").read_text().rsplit(")", 1)[1].split()[19]) / 100

        def judged() -> float | None:
            try:
                pods = stage.admin("/v1/pods")
            except OSError:
                return None
            well = len(pods) == 2 and all(pod["status"] == "Ready" and not pod["carried"] for pod in pods)
            return time.clock_gettime(time.CLOCK_BOOTTIME) if well else None
        line.say("agent killed, its state removed")
        time.sleep(0.3)  # the old one is gone
        at = until("a verdict on each pod", 60, judged)
        took.append(at - until("its process again", 60, started))
        steady(stage, line, "", 12)
    stage.figure("agent's start to its first verdicts", f"{', '.join(f'{each:.2f}' for each in took)} s", "3 s")
    stage.check("first verdicts", "at most 3 s (6 s on a machine with other work)", f"{max(took):.2f} s", max(took) <= 6)
    no_transition(stage, line)


def hundred_pods(stage: Stage, line: Timeline) -> None:
    """A node with a hundred selected pods: what the agent's memory comes to."""
    stage.api.done("POST", "/apis/apps/v1/namespaces/graph/deployments", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "crowd", "namespace": "graph"},
        "spec": {"replicas": 94, "selector": {"matchLabels": {"crowd": "yes"}}, "template": {
            "metadata": {"labels": {"crowd": "yes", "app.kubernetes.io/name": "hugegraph", "app.kubernetes.io/component": "server"}},
            # A gate of nobody's keeps them out of the Servers' Service.
            "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "enableServiceLinks": False,
                     "readinessGates": [{"conditionType": "tests/never"}],
                     "containers": [{"name": "idle", "image": "hugegraph-part:test", "imagePullPolicy": "Never", "args": ["pause"]}]}}}})
    try:
        line.say("94 pods more")

        def all_there() -> bool:
            pods = stage.admin("/v1/pods")
            return len(pods) == 96 and all(pod["ips"] for pod in pods)
        until("96 pods judged", 500, all_there)
        steady(stage, line, "all are there", 20)
        size = resident(stage)
        stage.figure("RSS of the agent with 96 pods", f"{size:.1f} MiB", "32 MiB with 100")
        stage.check("RSS of the agent with 96 pods", "at most 32 MiB, if it is the program that is shipped", f"{size:.1f} MiB",
                    size <= 32 or not stage.shipped)
        said = stage.kubectl("storewatch", "status")
        stage.check("what is not wired is named", True, "nothing acts on the verdict of graph/crowd-" in said)
    finally:
        stage.api.call("DELETE", "/apis/apps/v1/namespaces/graph/deployments/crowd?propagationPolicy=Background")
        until("the crowd gone", 300, lambda: not stage.api.pods("graph", "crowd=yes"))
    for name in NAMES:
        stage.check(f"gate of {name}", [OPEN], line.words(name))


def healing_dry(stage: Stage, line: Timeline) -> None:
    """A Server that keeps the address of a Store that moved: found, explained, and by a dry run not evicted."""
    quick = "config.verdict.window=8s,config.verdict.stale_suspect_after=4s,config.verdict.stale_confirm_after=12s"
    stage.kubectl("set", "env", "statefulset/hugegraph-server", "-n", "graph", "KEEPS=hugegraph-server-0")
    stage.kubectl("rollout", "status", "statefulset/hugegraph-server", "-n", "graph", "--timeout=120s")
    before = stage.agent()["metadata"]["uid"]
    stage.helm("upgrade", "storewatch", stage.chart, "-n", NAMESPACE, "--reuse-values", "--set", f"config.healing.mode=dry_run,{quick}")
    until("another agent", 90, lambda: stage.agent()["metadata"]["uid"] != before)
    stage.cluster()
    # The new agent has to have seen who was where.
    until("its pings", 60, lambda: all(store["answering"] for store in stage.admin("/v1/stores")))
    steady(stage, line, "healing: dry_run", 15)
    uid = stage.api.get(f"{PODS}/hugegraph-server-0")["metadata"]["uid"]
    begun = time.monotonic()
    stage.api.done("DELETE", f"{PODS}/hugegraph-store-1")
    line.say("hugegraph-store-1 deleted")
    until("StaleTransport of hugegraph-server-0", 120, lambda: any(
        pod["name"] == "hugegraph-server-0" and pod["reason"] == "StaleTransport" for pod in stage.admin("/v1/pods")))
    line.say(f"found after {time.monotonic() - begun:.0f} s")
    said = stage.kubectl("storewatch", "explain")
    quote(said)
    stage.check("kubectl storewatch explain", "names it, and what to do", said.splitlines()[0],
                "graph/hugegraph-server-0    NotReady    StaleTransport" in said
                and "kubectl delete pod -n graph hugegraph-server-0" in said)
    until("its gate shut", 30, lambda: gate_of(stage, "hugegraph-server-0").get("status") == "False")

    def told() -> list[str]:
        events = stage.api.get("/apis/events.k8s.io/v1/namespaces/graph/events")["items"]
        return [event["note"] for event in events if event["reason"] == "WouldEvict" and event["regarding"]["uid"] == uid]
    notes = until("an Event", 120, told)
    stage.check("the Event", "its transport is stale", notes[0], "stale" in notes[0])
    steady(stage, line, "told", QUIET)
    stage.check("the pod, after a dry run", uid, stage.api.get(f"{PODS}/hugegraph-server-0")["metadata"]["uid"])
    stage.check("the other Server's gate", OPEN, line.words("hugegraph-server-1")[-1])
    # By hand, as the agent says.
    stage.kubectl("delete", "pod", "-n", "graph", "hugegraph-server-0")
    line.say("hugegraph-server-0 deleted by hand")
    stage.ready("graph", SERVERS, 2)
    stage.kubectl("set", "env", "statefulset/hugegraph-server", "-n", "graph", "KEEPS-")
    stage.kubectl("rollout", "status", "statefulset/hugegraph-server", "-n", "graph", "--timeout=120s")
    stage.helm("upgrade", "storewatch", stage.chart, "-n", NAMESPACE, "--reuse-values", "--set", "config.healing.mode=off")
    stage.cluster()


SCENARIOS: list[Callable[[Stage, Timeline], None]] = [first_verdict, cost_of_leases, agent_absent, hundred_pods, healing_dry]
