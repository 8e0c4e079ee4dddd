//! What the elected agent does for all nodes: it opens the gates of nodes without an agent, and grants exits.

use super::{
    CONCURRENT, GateSettings, MANAGER,
    healing::Healing,
    lease::{ASKED, Ask, GRANTED, LABEL, NODE, STALE, listed},
};
use crate::{
    clock,
    kubernetes::{
        client::{Access, call},
        condition,
        failure::Why,
        manifest::{self, Seen},
        objects::{Lease, Pod},
        watch::{self, Objects},
    },
};
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{
    gate::{self, Elsewhere, Member, SeenLease},
    id::PodUid,
    time::MonoTime,
};
use tokio::{task::JoinSet, time::sleep};

/// How often it looks.
const LOOK: Duration = Duration::from_secs(5);

/// Gates opened in one look; the rest follows in the next.
const AT_ONCE: usize = 200;

/// A node's Lease, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeLease {
    name: String,
    node: String,
    renewed: Option<Timestamp>,
    asked: Vec<Ask>,
    granted: BTreeSet<String>,
    stale: Vec<String>,
}

fn read(lease: Lease) -> Option<NodeLease> {
    let node = lease.metadata.annotations.as_ref()?.get(NODE)?.clone();
    Some(NodeLease {
        node,
        renewed: lease.spec.renew_time.as_ref().map(|time| time.0),
        asked: listed(&lease, ASKED),
        granted: listed(&lease, GRANTED).into_iter().collect(),
        stale: listed(&lease, STALE),
        name: lease.metadata.name?,
    })
}

/// Runs until the Lease of the elected is lost.
pub(super) async fn run(settings: &GateSettings, access: &Access, client: &Client) {
    let mut tasks = JoinSet::new();
    let pods: Vec<_> = settings
        .scopes
        .iter()
        .map(|scope| {
            let (set, pods) = tokio::sync::watch::channel(None);
            let part = access.health().part(format!("pods of all nodes in {}", scope.place()));
            tasks.spawn(watch::follow(scope.api(client), scope.selection(), part, manifest::read, set));
            pods
        })
        .collect();
    let api: Api<Lease> = Api::namespaced(client.clone(), client.default_namespace());
    let (set, leases) = tokio::sync::watch::channel(None);
    let selection = watcher::Config::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    tasks.spawn(watch::follow(api.clone(), selection, access.health().part("node leases"), read, set));
    let mut nodes = Nodes::default();
    let mut healing = Healing::new(settings, access, client);
    loop {
        sleep(LOOK).await;
        let pods: Option<Vec<Objects<Seen>>> = pods.iter().map(|pods| pods.borrow().clone()).collect();
        // Without all lists nobody can be called absent.
        let (Some(pods), Some(leases)) = (pods, leases.borrow().clone()) else { continue };
        let pods: Vec<_> = pods.iter().flat_map(|set| set.values()).collect();
        let leases: Vec<_> = leases.values().collect();
        let now = clock::now();
        nodes.look(&pods, &leases, now, Timestamp::now());
        if settings.gate {
            let absent = nodes.absent(now);
            open(client, access, &pods, &absent).await;
            grant(&api, access, settings, &pods, &leases).await;
        }
        healing.look(&pods, leases.iter().flat_map(|lease| &lease.stale)).await;
    }
}

/// What is known of the nodes with gated pods.
#[derive(Debug, Default)]
struct Nodes {
    gated_since: BTreeMap<Arc<str>, MonoTime>,
    leases: BTreeMap<String, (Option<Timestamp>, SeenLease)>,
}

impl Nodes {
    fn look(&mut self, pods: &[&Arc<Seen>], leases: &[&Arc<NodeLease>], now: MonoTime, date: Timestamp) {
        let gated: BTreeSet<_> = pods
            .iter()
            .filter(|pod| pod.wiring.as_ref().is_some_and(|wiring| wiring.gate && !wiring.terminating))
            .filter_map(|pod| pod.node.clone())
            .collect();
        self.gated_since.retain(|node, _| gated.contains(node));
        for node in gated {
            self.gated_since.entry(node).or_insert(now);
        }
        self.leases.retain(|node, _| leases.iter().any(|lease| lease.node == *node));
        for lease in leases {
            let known = self.leases.get(&lease.node);
            if known.is_none_or(|(renewed, _)| *renewed != lease.renewed) {
                let age = lease.renewed.map(|at| Duration::try_from(date.duration_since(at)).unwrap_or_default());
                // Without a date it is as old as can be.
                let seen = SeenLease { since: now, age_then: age.unwrap_or(gate::LEASE_VALID) };
                self.leases.insert(lease.node.clone(), (lease.renewed, seen));
            }
        }
    }

    /// The nodes without an agent.
    fn absent(&self, now: MonoTime) -> BTreeSet<Arc<str>> {
        let nodes = self.gated_since.iter().filter(|(node, since)| {
            let lease = self.leases.get(&***node).map(|(_, seen)| *seen);
            Elsewhere { gated_since: **since, lease }.absent(now)
        });
        nodes.map(|(node, _)| Arc::clone(node)).collect()
    }
}

/// Opens what is shut on the nodes without an agent.
async fn open(client: &Client, access: &Access, pods: &[&Arc<Seen>], absent: &BTreeSet<Arc<str>>) {
    let part = access.health().part("gates of absent agents");
    let shut = pods.iter().filter(|pod| {
        pod.node.as_ref().is_some_and(|node| absent.contains(node)) && pod.wiring.as_ref().is_some_and(gate::opens)
    });
    let writes = shut.take(AT_ONCE).map(|pod| {
        let (client, part) = (client.clone(), part.clone());
        async move {
            let api: Api<Pod> = Api::namespaced(client, &pod.pod.namespace);
            // With the version that was seen: whoever wrote in between knows better.
            let word = gate::absent_word();
            let patch = condition::patch(&word, true, Timestamp::now(), &pod.uid, pod.version.as_deref());
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            match call(api.patch_status(&pod.pod.name, &params, &Patch::Strategic(&patch))).await {
                Ok(_) => {
                    part.well();
                    tracing::warn!(pod = %pod.pod, node = ?pod.node, "no agent on its node: gate opened");
                }
                Err(failure) if matches!(failure.why, Why::Missing | Why::Conflict) => {}
                Err(failure) => part.fails(failure),
            }
        }
    });
    stream::iter(writes.collect::<Vec<_>>()).for_each_concurrent(CONCURRENT, |write| write).await;
}

/// Writes into each node's Lease which of its pods may leave.
async fn grant(
    api: &Api<Lease>,
    access: &Access,
    settings: &GateSettings,
    pods: &[&Arc<Seen>],
    leases: &[&Arc<NodeLease>],
) {
    let asks = leases.iter().flat_map(|lease| &lease.asked);
    let asks: BTreeMap<_, Arc<str>> = asks.map(|ask| (ask.uid.as_str(), ask.reason.as_str().into())).collect();
    let granted: BTreeSet<_> = leases.iter().flat_map(|lease| &lease.granted).collect();
    let members: Vec<_> = pods
        .iter()
        .filter_map(|pod| {
            Some(Member {
                uid: pod.uid.clone(),
                namespace: Arc::clone(&pod.pod.namespace),
                workload: pod.workload.clone()?,
                serves: pod.ready
                    && !pod.wiring.as_ref().is_some_and(|wiring| wiring.terminating || wiring.maintenance),
                asks: asks.get(&*pod.uid.0).cloned(),
                granted: granted.contains(&pod.uid.0.to_string()),
            })
        })
        .collect();
    let leaving: BTreeSet<PodUid> = gate::grants(&members, settings.min_other_ready);
    let part = access.health().part("exits granted");
    for lease in leases {
        let of_node: BTreeSet<_> = lease
            .asked
            .iter()
            .filter(|ask| leaving.iter().any(|uid| *uid.0 == *ask.uid))
            .map(|ask| ask.uid.clone())
            .collect();
        if of_node == lease.granted {
            continue;
        }
        let patch = json!({ "metadata": { "annotations": { GRANTED: json!(of_node).to_string() } } });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match call(api.patch(&lease.name, &params, &Patch::Merge(&patch))).await {
            Ok(_) => {
                part.well();
                tracing::info!(node = lease.node, exits = ?of_node, "exits granted");
            }
            Err(failure) => part.fails(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storewatch_core::{id::PodRef, pod::Wiring};

    fn at(seconds: i64) -> MonoTime {
        MonoTime::from_millis(seconds * 1000)
    }

    fn pod(node: &str, gate: bool) -> Arc<Seen> {
        Arc::new(Seen {
            pod: PodRef { namespace: "graph".into(), name: node.into() },
            uid: PodUid(node.into()),
            cgroup_uid: String::new(),
            workload: None,
            ips: Vec::new(),
            host_network: false,
            running: true,
            wiring: Some(Wiring { gate, ..Wiring::default() }),
            node: Some(node.into()),
            ready: true,
            version: None,
        })
    }

    fn lease(node: &str, renewed: i64) -> Arc<NodeLease> {
        let renewed = Timestamp::from_second(renewed).ok();
        Arc::new(NodeLease {
            name: String::new(),
            node: node.into(),
            renewed,
            asked: Vec::new(),
            granted: BTreeSet::new(),
            stale: Vec::new(),
        })
    }

    #[test]
    fn a_node_is_absent_when_its_lease_stands_still() {
        let mut nodes = Nodes::default();
        let pods = [pod("live", true), pod("dead", true), pod("none", true), pod("ungated", false)];
        let pods: Vec<_> = pods.iter().collect();
        for second in (0..=95).step_by(5) {
            let leases = [lease("live", 1000 + second / 20 * 20), lease("dead", 1000)];
            nodes.look(
                &pods,
                &leases.iter().collect::<Vec<_>>(),
                at(second),
                Timestamp::from_second(1000 + second).unwrap(),
            );
            let absent: Vec<_> = nodes.absent(at(second)).into_iter().collect();
            let expected: &[&str] = if second >= 60 { &["dead", "none"] } else { &[] };
            assert_eq!(absent.iter().map(|node| &**node).collect::<Vec<_>>(), expected, "after {second} s");
        }
        let back = [lease("live", 1080), lease("dead", 1096)];
        nodes.look(&pods, &back.iter().collect::<Vec<_>>(), at(96), Timestamp::from_second(1096).unwrap());
        assert_eq!(nodes.absent(at(96)).into_iter().map(|node| node.to_string()).collect::<Vec<_>>(), ["none"]);
    }

    #[test]
    fn a_lease_is_read_whatever_it_holds() {
        let of = |text: &str| read(serde_json::from_str(text).unwrap());
        assert_eq!(of("{}"), None);
        let broken = r#"{"metadata":{"name":"l","annotations":{"storewatch.io/node":"n","storewatch.io/exits-asked":"{",
            "storewatch.io/exits-granted":"[1]"}}}"#;
        let lease = of(broken).unwrap();
        assert_eq!((lease.asked.len(), lease.granted.len(), lease.renewed), (0, 0, None));
        let full = r#"{"metadata":{"name":"l","annotations":{"storewatch.io/node":"n",
            "storewatch.io/exits-asked":"[{\"uid\":\"u\",\"reason\":\"StaleTransport\"}]"}},
            "spec":{"renewTime":"2026-11-30T12:00:00.000000Z"}}"#;
        let lease = of(full).unwrap();
        assert_eq!((lease.asked[0].uid.as_str(), lease.renewed.is_some()), ("u", true));
    }
}
