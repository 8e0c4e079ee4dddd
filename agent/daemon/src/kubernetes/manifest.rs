//! From the API server's word about a pod to what is needed of it.

use super::{
    condition::{self, MAINTENANCE},
    objects::{Container, Pod, Probe},
};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};
use storewatch_core::{
    id::{PodRef, PodUid},
    pod::{Wiring, Workload},
};

/// Addresses of one pod: one of each family, and some room.
const MAX_IPS: usize = 8;

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) pod: PodRef,
    pub(crate) uid: PodUid,
    /// The uid in its cgroup's name.
    pub(crate) cgroup_uid: String,
    pub(crate) workload: Option<Workload>,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) host_network: bool,
    /// Its containers run, so that a cgroup must be there.
    pub(crate) running: bool,
    pub(crate) wiring: Option<Wiring>,
    /// Where it runs.
    pub(crate) node: Option<Arc<str>>,
    /// It is ready, by the kubelet's word.
    pub(crate) ready: bool,
    /// Its version, for a write that must not overtake another.
    pub(crate) version: Option<String>,
}

/// `None` for one that has ended (its address may be another's by now), and for one without a name.
pub(crate) fn read(pod: Pod) -> Option<Seen> {
    let Pod { metadata: meta, spec, status } = pod;
    let (namespace, name, uid) = (meta.namespace?, meta.name?, meta.uid.filter(|uid| !uid.is_empty())?);
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let labels = meta.labels.unwrap_or_default();
    let annotations = meta.annotations.unwrap_or_default();
    let owner = meta.owner_references.unwrap_or_default().into_iter().find(|owner| owner.controller == Some(true));
    let owner = owner.map(|owner| (owner.kind, owner.name));
    let mut ips: Vec<IpAddr> = Vec::new();
    for text in status.pod_ip.iter().chain(status.pod_ips.iter().map(|ip| &ip.ip)) {
        if let Ok(ip) = text.parse()
            && !ips.contains(&ip)
            && ips.len() < MAX_IPS
        {
            ips.push(ip);
        }
    }
    let containers = || spec.containers.iter().chain(&spec.init_containers);
    let asks = |probe: fn(&Container) -> Option<&Probe>| containers().filter_map(probe).any(asks_storewatch);
    Some(Seen {
        workload: workload(owner.as_ref().map(|(kind, name)| (&**kind, &**name)), &labels, &name),
        // A static pod is known to the kubelet by the hash of its file.
        cgroup_uid: annotations.get("kubernetes.io/config.mirror").unwrap_or(&uid).clone(),
        running: status.phase.as_deref() == Some("Running"),
        host_network: spec.host_network,
        node: spec.node_name.as_deref().map(Into::into),
        ready: status.condition("Ready").is_some_and(|condition| condition.status == "True"),
        version: meta.resource_version,
        wiring: Some(Wiring {
            probe: asks(|container| container.readiness_probe.as_ref()),
            liveness: asks(|container| container.liveness_probe.as_ref()),
            gate: spec.readiness_gates.iter().any(|gate| gate.condition_type == condition::TYPE),
            condition: condition::of(&status),
            maintenance: in_maintenance(&annotations),
            terminating: meta.deletion_timestamp.is_some(),
        }),
        pod: PodRef { namespace: namespace.into(), name: name.into() },
        uid: PodUid(uid.into()),
        ips,
    })
}

/// Its annotations take it out of judgement.
pub(crate) fn in_maintenance(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(MAINTENANCE).is_some_and(|value| value == "true")
}

/// What a pod belongs to: its controller, where it is known, and a ReplicaSet's own owner by its name; else what the
/// controllers' labels and the names that they give tell.
pub(crate) fn workload(owner: Option<(&str, &str)>, labels: &BTreeMap<String, String>, pod: &str) -> Option<Workload> {
    let of = |kind: &str, name: &str| Some(Workload { kind: Arc::from(kind), name: Arc::from(name) });
    let hashes = [("Deployment", "pod-template-hash"), ("Rollout", "rollouts-pod-template-hash")];
    match owner {
        Some(("ReplicaSet", name)) => {
            let owner = hashes.iter().find_map(|(kind, label)| {
                let hash = labels.get(*label)?;
                Some((*kind, name.strip_suffix(hash.as_str())?.strip_suffix('-')?))
            });
            owner.map_or_else(|| of("ReplicaSet", name), |(kind, name)| of(kind, name))
        }
        Some((kind, name)) => of(kind, name),
        None => {
            // NAME-HASH-RANDOM, and NAME-ORDINAL.
            let (front, back) = pod.rsplit_once('-')?;
            let by_hash = hashes.iter().find_map(|(kind, label)| {
                let hash = labels.get(*label)?;
                Some((*kind, front.strip_suffix(hash.as_str())?.strip_suffix('-')?))
            });
            if let Some((kind, name)) = by_hash {
                return of(kind, name);
            }
            let numbered = !back.is_empty() && back.bytes().all(|byte| byte.is_ascii_digit());
            let stateful = labels.get("statefulset.kubernetes.io/pod-name").is_some_and(|name| name == pod);
            (numbered && stateful).then(|| of("StatefulSet", front))?
        }
    }
}

/// Whether a probe asks an agent of this kind, by what only such a probe says.
fn asks_storewatch(probe: &Probe) -> bool {
    let http = probe.http_get.as_ref().and_then(|get| get.path.as_deref()).is_some_and(|path| {
        let path = path.split('?').next().unwrap_or_default().trim_start_matches('/');
        path == "readiness"
            || ["readiness/pods/", "readiness/uid/", "readiness/self", "readiness/workloads/", "readiness/clusters/"]
                .iter()
                .any(|start| path.starts_with(start))
    });
    let grpc = probe
        .grpc
        .as_ref()
        .and_then(|grpc| grpc.service.as_deref())
        .is_some_and(|name| name.starts_with("pod/") || name.starts_with("workload/"));
    let exec = probe.exec.as_ref().is_some_and(|exec| {
        let mut words = exec.command.iter().flat_map(|part| part.split_whitespace());
        words.any(|word| word.rsplit('/').next() == Some("storewatch")) && words.any(|word| word == "probe")
    });
    http || grpc || exec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> BTreeMap<String, String> {
        text.split_terminator(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
    }

    #[test]
    fn a_pods_workload() {
        let (deployment, stateful) = ("pod-template-hash=5d4f", "statefulset.kubernetes.io/pod-name=server-0");
        for (owner, given, pod, expected) in [
            (Some(("ReplicaSet", "server-5d4f")), deployment, "server-5d4f-x7x9z", "Deployment/server"),
            (Some(("ReplicaSet", "server-5d4f")), "", "server-5d4f-x7x9z", "ReplicaSet/server-5d4f"),
            (Some(("ReplicaSet", "-5d4f")), "pod-template-hash=other", "x", "ReplicaSet/-5d4f"),
            (Some(("ReplicaSet", "s-77")), "rollouts-pod-template-hash=77", "s-77-a", "Rollout/s"),
            (Some(("StatefulSet", "server")), "", "server-0", "StatefulSet/server"),
            (None, deployment, "server-5d4f-x7x9z", "Deployment/server"),
            (None, stateful, "server-0", "StatefulSet/server"),
            (None, stateful, "server-1", "-"),
            (None, "", "server-0", "-"),
            (None, "", "server", "-"),
        ] {
            let found = workload(owner, &labels(given), pod).map(|found| format!("{}/{}", found.kind, found.name));
            assert_eq!(found.as_deref().unwrap_or("-"), expected, "{owner:?} {given} {pod}");
        }
    }

    #[test]
    fn what_is_read_of_a_pod() {
        let pod = |text: &str| read(serde_json::from_str(text).unwrap());
        let full = pod(
            r#"{"metadata":{"namespace":"graph","name":"server-0","uid":"u","deletionTimestamp":"2026-11-30T12:00:00Z",
            "annotations":{"storewatch.io/maintenance":"true","kubernetes.io/config.mirror":"hash"},
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"server","uid":"s","controller":true}]},
            "spec":{"hostNetwork":true,"readinessGates":[{"conditionType":"storewatch.io/storage-reachable"}],
            "containers":[{"name":"c","readinessProbe":{"exec":{"command":["/opt/storewatch","probe","--self"]}},
            "livenessProbe":{"httpGet":{"path":"/readiness/self?x=1","port":9465}}}]},
            "status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"},{"ip":"nonsense"}],
            "conditions":[{"type":"storewatch.io/storage-reachable","status":"False","reason":"NoStoreAnswers"}]}}"#,
        )
        .unwrap();
        let wiring = full.wiring.unwrap();
        assert!(wiring.probe && wiring.liveness && wiring.gate && wiring.maintenance && wiring.terminating);
        assert_eq!(wiring.condition.map(|at| (at.open, at.reason)), Some((false, "NoStoreAnswers".into())));
        assert_eq!((full.ips.len(), full.host_network, full.running), (2, true, true));
        assert_eq!((&*full.cgroup_uid, &*full.uid.0), ("hash", "u"));

        let bare = pod(r#"{"metadata":{"namespace":"graph","name":"server-0","uid":"u"}}"#).unwrap();
        assert_eq!((bare.ips.len(), bare.workload, bare.running), (0, None, false));
        assert_eq!(bare.wiring, Some(Wiring::default()));
        for none in [
            "{}",
            r#"{"metadata":{"namespace":"graph","name":"a"}}"#,
            r#"{"metadata":{"namespace":"graph","name":"a","uid":""}}"#,
            r#"{"metadata":{"namespace":"graph","name":"a","uid":"u"},"status":{"phase":"Failed"}}"#,
        ] {
            assert_eq!(pod(none), None, "{none}");
        }
    }

    #[test]
    fn whether_a_probe_asks_storewatch() {
        let probe = |text: &str| asks_storewatch(&serde_json::from_str(text).unwrap());
        for asks in [
            r#"{"httpGet":{"path":"/readiness/pods/graph/server-0"}}"#,
            r#"{"httpGet":{"path":"readiness/self"}}"#,
            r#"{"httpGet":{"path":"/readiness"}}"#,
            r#"{"grpc":{"port":9465,"service":"pod/graph/server-0"}}"#,
            r#"{"exec":{"command":["sh","-c","exec /bin/storewatch --agent x probe --self"]}}"#,
        ] {
            assert!(probe(asks), "{asks}");
        }
        for other in [
            "{}",
            r#"{"httpGet":{"path":"/versions"}}"#,
            r#"{"httpGet":{"path":"/readiness/check"}}"#,
            r#"{"grpc":{"port":8686}}"#,
            r#"{"exec":{"command":["probe","storewatch"]}}"#,
        ] {
            assert!(!probe(other), "{other}");
        }
    }
}
