"""The chart: what it refuses, what it grants, and that an agent's token can do no more."""
import pathlib
import re

from api import GATE, MERGE, STRATEGIC, Api, until
from stage import CHART, NAMESPACE, TREE, Stage
from timeline import SERVERS

VALUES = ["--set", "image.tag=test,image.pullPolicy=Never,config.kubernetes.readiness_gate=on", "--set", "updateStrategy.maxUnavailable=1"]


def chart(stage: Stage) -> None:
    """The chart by itself: lint, schema, what its switches grant, what the API server says of it."""
    stage.check("helm lint", "no failure", stage.helm("lint", CHART, "--strict").splitlines()[-1].strip(), True)
    for wrong, names in (("image.repository=", "repository"), ("config.kubernetes.readiness_gate=maybe", "readiness_gate"),
                         ("nonsense=1", "nonsense"), ("config.pods.source=file", "source")):
        said = stage.helm("template", "storewatch", CHART, "--set", wrong, good=False)
        stage.check(f"--set {wrong}", f"refused, naming {names}", "refused" if names in said else said, names in said)
    off = stage.helm("template", "storewatch", CHART, "-n", NAMESPACE, "--set", "service.enabled=true")
    on = stage.helm("template", "storewatch", CHART, "-n", NAMESPACE, *VALUES)
    for words in ("pods/status", "pods/eviction", "ValidatingAdmissionPolicy", "leases", "SYS_PTRACE", "containerd.sock",
                  "NetworkPolicy", "ServiceMonitor", "ClusterRole"):
        stage.check(f"by default without {words}", False, words in off)
    stage.check("with the gate: pods/status, leases, the policy", True,
                all(word in on for word in ("pods/status", "leases", "ValidatingAdmissionPolicyBinding", "pre-delete")))
    stage.check("with the gate: no eviction", False, "pods/eviction" in on)
    every = ["--set", "config.healing.mode=evict,extraCapabilities.sysPtrace=true,networkPolicy.enabled=true,config.pods.source=cri",
             "--set", "config.hugegraph.pd_peers={10.0.0.1:8686}"]
    all_on = stage.helm("template", "storewatch", CHART, "-n", NAMESPACE, *VALUES, *every)
    stage.check("everything on", True, all(word in all_on for word in (
        "pods/eviction", "SYS_PTRACE", "containerd.sock", "NetworkPolicy", "kind: ClusterRole")))
    monitors = stage.helm("template", "storewatch", CHART, "--set", "serviceMonitor.enabled=true,podMonitor.enabled=true")
    stage.check("monitors", True, "kind: ServiceMonitor" in monitors and "kind: PodMonitor" in monitors)
    stage.kubectl("apply", "-f", TREE / "deploy/kustomize/base/namespace.yaml")
    added = stage.helm("template", "storewatch", CHART, "-n", NAMESPACE, *VALUES, *every, "--no-hooks")
    said = stage.kubectl("apply", "--dry-run=server", "-f", "-", stdin=added)
    stage.check("the API server takes all of it", True, "daemonset.apps/storewatch" in said)


def kustomize(stage: Stage) -> None:
    """The kustomize bases are the chart: with its default values, and with the gate."""
    for folder in ("base", "gate"):
        base = TREE / "deploy/kustomize" / folder
        made = stage.command(TREE / "deploy/kustomize/render", "--print", folder, stage.tools / "helm")
        kept = (base / "storewatch.yaml").read_text(encoding="utf-8")
        stage.check(f"deploy/kustomize/{folder}", "as the chart", "as the chart" if made == kept else
                    "different; deploy/kustomize/render writes it anew")
        built = stage.kubectl("kustomize", base)
        # Nothing is lost on the way through kustomize, and the API server knows every field.
        stage.check("its objects", kept.count("\nkind: ") + 1, len(re.findall(r"^kind: ", built, re.MULTILINE)))
        said = stage.kubectl("apply", "--dry-run=client", "--validate=strict", "-f", "-", stdin=built)
        stage.check("it can be applied", True, "daemonset.apps/storewatch" in said)


def refused(stage: Stage) -> None:
    """In a namespace whose PodSecurity forbids the agent, the installation says so."""
    stage.kubectl("create", "namespace", "strict")
    stage.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=baseline")
    said = stage.helm("install", "storewatch", CHART, "-n", "strict", *VALUES, good=False)
    stage.check("in a baseline namespace", "refused, with the remedy", said.strip().splitlines()[-1][:160],
                "enforce=privileged" in said)
    stage.kubectl("delete", "namespace", "strict", "--wait=false")


def install(stage: Stage) -> None:
    """Three commands from nothing to a verdict."""
    stage.helm("install", "storewatch", CHART, "-n", NAMESPACE, *VALUES, "--wait", "--timeout", "180s")
    agent = stage.agent()
    stage.check("the agent's user and capabilities", "0, BPF and PERFMON alone", capabilities(stage, agent))
    def wrong() -> list[str]:
        return [f"{each['name']}: {each['state']}: {each['detail']}" for each in stage.admin("/v1/sources")
                if each["state"] != "active"]
    try:
        until("all sources", 60, lambda: not wrong())
    except RuntimeError:
        pass
    stage.check("the agent's sources", "all active", wrong() or "all active")
    stage.ready("graph", SERVERS, 2)
    said = stage.helm("test", "storewatch", "-n", NAMESPACE, "--timeout", "120s")
    stage.check("helm test", True, "Succeeded" in said)
    stage.figure("RSS of the agent with 2 pods", f"{resident(stage):.1f} MiB", "24 MiB at rest")


def resident(stage: Stage) -> float:
    """MiB of the agent's process."""
    return int(re.search(r"VmRSS:\s*(\d+)", status(stage, stage.agent()))[1]) / 1024


def status(stage: Stage, agent: dict) -> str:
    """What the kernel tells of the agent's process."""
    pid = stage.processes(agent["metadata"]["uid"])[0]
    return pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")


def capabilities(stage: Stage, agent: dict) -> str:
    """What the kernel says that the process may do."""
    text = status(stage, agent)
    effective = int(re.search(r"CapEff:\s*([0-9a-f]+)", text)[1], 16)
    user = re.search(r"Uid:\s*(\d+)", text)[1]
    seccomp = re.search(r"Seccomp:\s*(\d)", text)[1]
    names = {39: "BPF", 38: "PERFMON"}
    held = [names.get(bit, f"capability {bit}") for bit in range(63, -1, -1) if effective >> bit & 1]
    return f"{user}, {' and '.join(held)} alone" + ("" if seccomp == "2" else ", no seccomp")


def token(stage: Stage) -> None:
    """What an agent's token can do: its own condition on its own node's pods, and nothing else."""
    agent = stage.agent()["metadata"]["name"]
    made = stage.kubectl("create", "token", "storewatch", "-n", NAMESPACE, "--bound-object-kind", "Pod",
                         "--bound-object-name", agent).strip()
    as_agent = Api(stage.run, stage.address, made)
    here = "/api/v1/namespaces/graph/pods/hugegraph-server-0"
    # A pod of another node, as far as the API server knows.
    pod = stage.api.get(here)
    other = {"apiVersion": "v1", "kind": "Pod",
             "metadata": {"name": "elsewhere", "namespace": "graph", "labels": {"app.kubernetes.io/name": "other"}},
             "spec": {"nodeName": "another-node", "readinessGates": [{"conditionType": GATE}], "terminationGracePeriodSeconds": 0,
                      "containers": pod["spec"]["containers"]}}
    for container in other["spec"]["containers"]:
        container.pop("volumeMounts", None)
    stage.api.call("POST", "/api/v1/namespaces/graph/pods", other)
    there = "/api/v1/namespaces/graph/pods/elsewhere"

    def says(status: str, reason: str, kind: str = GATE) -> dict:
        return {"status": {"conditions": [{"type": kind, "status": status, "reason": reason, "message": "by a test"}]}}

    # The policy takes effect some moments after it was made.
    until("the policy in force", 30, lambda: as_agent.call("PATCH", f"{there}/status", says("False", "Test"), STRATEGIC)[0] == 422)
    tries = [
        ("its own condition, own node", "PATCH", f"{here}/status", says("True", "StoreAnswering"), STRATEGIC, 200),
        ("another condition", "PATCH", f"{here}/status", says("False", "Test", "Ready"), STRATEGIC, 422),
        ("the phase", "PATCH", f"{here}/status", {"status": {"phase": "Failed"}}, MERGE, 422),
        ("the addresses", "PATCH", f"{here}/status", {"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}}, MERGE, 422),
        ("the containers' states", "PATCH", f"{here}/status", {"status": {"containerStatuses": []}}, MERGE, 422),
        ("labels, by way of the status", "PATCH", f"{here}/status",
         {"metadata": {"labels": {"app.kubernetes.io/component": "store"}}, **says("True", "StoreAnswering")}, STRATEGIC, 422),
        ("annotations, by way of the status", "PATCH", f"{here}/status",
         {"metadata": {"annotations": {"storewatch.io/maintenance": "true"}}}, MERGE, 422),
        ("all conditions away", "PATCH", f"{here}/status", {"status": {"conditions": None}}, MERGE, 422),
        ("another node's pod: shut", "PATCH", f"{there}/status", says("False", "NoStoreAnswers"), STRATEGIC, 422),
        ("another node's pod: open, with another reason", "PATCH", f"{there}/status", says("True", "StoreAnswering"), STRATEGIC, 422),
        ("another node's pod: open, AgentAbsent", "PATCH", f"{there}/status", says("True", "AgentAbsent"), STRATEGIC, 200),
        ("the pod itself", "PATCH", here, {"metadata": {"labels": {"x": "y"}}}, MERGE, 403),
        ("an eviction", "POST", f"{here}/eviction",
         {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "hugegraph-server-0", "namespace": "graph"}},
         "application/json", 403),
        ("a Secret", "GET", "/api/v1/namespaces/graph/secrets", None, "application/json", 403),
        ("pods of another namespace", "GET", "/api/v1/namespaces/kube-system/pods", None, "application/json", 403),
        ("nodes", "GET", "/api/v1/nodes", None, "application/json", 403),
    ]
    for what, method, path, body, kind, expected in tries:
        status, answer = as_agent.call(method, path, body, kind)
        stage.check(f"agent's token, {what}", expected, status)
        if status != expected:
            print(f"       {answer.get('message', '')[:300]}")
    stage.api.call("DELETE", f"{there}?gracePeriodSeconds=0")
