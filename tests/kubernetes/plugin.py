"""`kubectl storewatch`: the answer of all nodes, one of which is dead."""
import json
import time

from api import MERGE, until
from stage import AGENTS, NAMESPACE, Stage

DEAD = "node-dead"


def quote(said: str) -> None:
    print("".join(f"    {line}\n" for line in said.splitlines()), end="", flush=True)


def plugin(stage: Stage) -> None:
    """All nodes asked at once by kubectl's plug-in: well, with a dead node, and as somebody with few rights."""
    said = stage.kubectl("storewatch", "explain")
    quote(said)
    stage.check("kubectl storewatch explain", "All is well: 2 of 2 pods on 1 node", said.splitlines()[0],
                said.startswith("All is well: 2 of 2 pods on 1 node are Ready"))
    said = stage.kubectl("storewatch", "status")
    quote(said)
    for words in ("1 node: 1 Ready", "2 of 2 ready", "the node reaches all 3 Stores", "2 of 2 pods: 2 by the readiness gate, 0 by a probe"):
        stage.check(f"status says {words}", True, words in said)
    pods = json.loads(stage.kubectl("storewatch", "pods", "-o", "json"))
    stage.check("pods", {"hugegraph-server-0": stage.node, "hugegraph-server-1": stage.node},
                {pod["name"]: pod["node"] for pod in pods})
    stores = json.loads(stage.kubectl("storewatch", "stores", "-o", "json"))
    stage.check("stores, each reached by", [[stage.node]] * 3, [store["reached_by"] for store in stores])
    said = stage.kubectl("storewatch", "explain", "graph/hugegraph-server-0")
    stage.check("explain graph/hugegraph-server-0", "Ready, and by which node", said.splitlines()[0],
                "Ready" in said.splitlines()[0] and f"Node      {stage.node}" in said)
    said = stage.kubectl("storewatch", "doctor")
    quote(said)
    for words in ("kubernetes pods in graph", "kubernetes endpointslices in graph", "kubernetes readiness gate", "kubernetes leases",
                  "wiring"):
        line = next((line for line in said.splitlines() if words in line), "no such line")
        stage.check(f"doctor, {words}", "ok", line[:120], line.startswith("ok "))
    stage.check("doctor's end", True, "the agent can run on all of 1 node" in said)
    said = stage.kubectl("storewatch", "explain", "graph/none", good=False)
    stage.check("a pod that nobody watches", True, "no agent of 1 node watches graph/none" in said)
    said = stage.kubectl("storewatch", "status", "-n", "graph", good=False)
    stage.check("where no agent is", True, "no agent is found" in said)
    dead_node(stage)
    few_rights(stage)


def dead_node(stage: Stage) -> None:
    """A node as the API server knows it, whose kubelet does not answer; its agent's pod is Running by the last word of it."""
    stage.api.done("POST", "/api/v1/nodes", {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": DEAD, "labels": {"kubernetes.io/os": "linux"}}})
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    stage.api.done("PATCH", f"/api/v1/nodes/{DEAD}/status", {"status": {
        "capacity": room, "allocatable": room, "addresses": [{"type": "InternalIP", "address": "10.90.0.77"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}, MERGE)

    def its_agent() -> dict | None:
        pods = stage.api.pods(NAMESPACE, AGENTS)
        return next((pod for pod in pods if pod["spec"].get("nodeName") == DEAD), None)
    name = None
    try:
        name = until("a pod of the DaemonSet for it", 60, its_agent)["metadata"]["name"]
        stage.api.done("PATCH", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status", {"status": {"phase": "Running"}}, MERGE)
        begun = time.monotonic()
        said = stage.kubectl("storewatch", "status", "--timeout", "5s")
        took = time.monotonic() - begun
        quote(said)
        row = next((line for line in said.splitlines() if line.startswith(DEAD)), "no row")
        stage.check("a dead node costs its row", "no answer", row,
                    "no answer" in row and "2 nodes: 1 Ready, 1 without an answer" in said)
        stage.check("and no more than its time", "5 s and the way there", f"{took:.1f} s", took < 15)
        stage.check("the Stores, all the same", True, "the node reaches all 3 Stores" in said)
        said = stage.kubectl("storewatch", "pods", "--timeout", "2s")
        stage.check("the pods, all the same", True, "hugegraph-server-1" in said and f"no answer from 1 of 2 nodes: {DEAD}" in said)
    finally:
        stage.api.call("DELETE", f"/api/v1/nodes/{DEAD}")
        if name:
            stage.api.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0")
    stage.agent()


def few_rights(stage: Stage) -> None:
    """List pods and create pods/exec in the agents' namespace is all that it takes."""
    group = "rbac.authorization.k8s.io"
    stage.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "asker", "namespace": "default"}},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "asker", "namespace": NAMESPACE}, "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            # A WebSocket is opened by GET: API servers before 1.35 take that for the verb.
            {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}]},
        {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "asker", "namespace": NAMESPACE},
         "roleRef": {"apiGroup": group, "kind": "Role", "name": "asker"},
         "subjects": [{"kind": "ServiceAccount", "name": "asker", "namespace": "default"}]}]}))
    config = stage.run / "conf/asker.conf"
    config.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://{stage.address}:6443",
                                               "certificate-authority": str(stage.run / "pki/ca.crt")}}],
        "users": [{"name": "u", "user": {"token": stage.kubectl("create", "token", "asker", "-n", "default").strip()}}]}))
    said = stage.kubectl("storewatch", "status", "--kubeconfig", config, "--context", "x")
    stage.check("with the right to list pods and to exec there, and no other", True, "1 node: 1 Ready" in said)
    said = stage.kubectl("storewatch", "status", "--kubeconfig", config, "-n", "kube-system", good=False)
    stage.check("elsewhere", "forbidden, and what", said.strip()[:150], "403" in said and "kube-system" in said)
    stage.kubectl("delete", "role,rolebinding", "asker", "-n", NAMESPACE)
    stage.kubectl("delete", "serviceaccount", "asker", "-n", "default")
