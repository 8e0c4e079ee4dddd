//! What the nodes say, put together. Pure: answers in, one answer out.
//!
//! Nodes are counted by what they know: one that gives no answer, or that has not pinged a Store yet, is no voice about
//! that Store, neither for nor against.

use crate::{
    cli::{
        table::clean,
        wire::{Pod, Snapshot, Store},
    },
    wiring::some,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What one node's agent said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told<T> {
    pub(super) node: String,
    /// `NAMESPACE/POD` of the agent.
    pub(super) agent: String,
    /// The answer, or why there is none.
    pub(super) said: Result<T, String>,
}

impl<T> Told<T> {
    /// The same of another form.
    pub(super) fn map<U>(&self, read: impl FnOnce(&T) -> Result<U, String>) -> Told<U> {
        let said = self.said.as_ref().map_err(Clone::clone).and_then(read);
        Told { node: self.node.clone(), agent: self.agent.clone(), said }
    }
}

/// What all nodes said.
#[derive(Debug)]
pub(super) struct Fleet {
    nodes: Vec<Told<Snapshot>>,
}

/// One Store in the eyes of all nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct StoreSeen {
    pub(super) cluster: Option<String>,
    pub(super) label: String,
    pub(super) name: String,
    /// More than one where nodes differ.
    pub(super) addresses: BTreeSet<String>,
    pub(super) reported_states: BTreeSet<String>,
    pub(super) expected: bool,
    pub(super) reached_by: Vec<String>,
    pub(super) unreached_by: Vec<Unreached>,
    /// Nodes that list it and have not pinged it yet.
    pub(super) untried_by: Vec<String>,
    /// Nodes that answer and do not list it.
    pub(super) unlisted_by: Vec<String>,
    /// The longest ping that was answered.
    pub(super) slowest_ms: Option<f64>,
    pub(super) findings: BTreeSet<String>,
}

/// A node whose pings of a Store fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Unreached {
    pub(super) node: String,
    /// How the last one ended.
    pub(super) outcome: String,
}

impl Fleet {
    /// Of these answers.
    pub(super) fn of(nodes: Vec<Told<Snapshot>>) -> Self {
        Self { nodes }
    }

    /// All nodes, those that are silent included.
    pub(super) fn nodes(&self) -> &[Told<Snapshot>] {
        &self.nodes
    }

    /// Those that answered.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&str, &Snapshot)> + Clone {
        self.nodes.iter().filter_map(|told| Some((told.node.as_str(), told.said.as_ref().ok()?)))
    }

    /// All pods, each with its node.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&str, &Pod)> + Clone {
        self.answers().flat_map(|(node, snapshot)| snapshot.pods.iter().map(move |pod| (node, pod)))
    }

    /// Which nodes gave no answer, and why.
    pub(super) fn silent_words(&self) -> Option<String> {
        let silent =
            self.nodes.iter().filter_map(|told| Some(format!("{} ({})", told.node, told.said.as_ref().err()?)));
        let silent: Vec<_> = silent.collect();
        let count = silent.len();
        (count > 0).then(|| format!("no answer from {count} of {}: {}", nodes(self.nodes.len()), some(silent)))
    }

    /// Every Store that any node knows, by cluster and name.
    pub(super) fn stores(&self) -> Vec<StoreSeen> {
        let mut all: BTreeMap<(Option<&str>, &str), StoreSeen> = BTreeMap::new();
        for (node, snapshot) in self.answers() {
            for store in &snapshot.stores {
                let key = (store.cluster.as_deref(), store.label.as_str());
                let seen = all.entry(key).or_insert_with(|| StoreSeen {
                    cluster: store.cluster.clone(),
                    label: store.label.clone(),
                    name: store.name.clone().unwrap_or_else(|| store.label.clone()),
                    ..StoreSeen::default()
                });
                seen.hear(node, store);
            }
        }
        for (node, snapshot) in self.answers() {
            for ((cluster, label), seen) in &mut all {
                if !snapshot.stores.iter().any(|store| store.cluster.as_deref() == *cluster && store.label == **label) {
                    seen.unlisted_by.push(node.to_owned());
                }
            }
        }
        let mut stores: Vec<_> = all.into_values().collect();
        stores.sort_by(|one, other| {
            (&one.cluster, &one.name, &one.label).cmp(&(&other.cluster, &other.name, &other.label))
        });
        stores
    }

    /// What the nodes together say about the Stores: one sentence where all is well, else one for each that is not.
    pub(super) fn store_words(&self) -> Vec<String> {
        let stores = self.stores();
        let asked = self.answers().count();
        let unwell: Vec<_> = stores.iter().filter(|store| !store.is_well()).map(StoreSeen::words).collect();
        let all = if stores.len() == 1 { "the one Store".to_owned() } else { format!("all {} Stores", stores.len()) };
        match (stores.is_empty(), unwell.is_empty()) {
            (true, _) => vec!["no Store is known".to_owned()],
            (false, true) if asked == 1 => vec![format!("the node reaches {all}")],
            (false, true) => vec![format!("all {asked} nodes reach {all}")],
            (false, false) => unwell,
        }
    }

    /// The pods of a workload on other nodes than this one.
    pub(super) fn elsewhere(&self, node: &str, namespace: &str, workload: &str) -> Option<String> {
        let others = self
            .pods()
            .filter(|(at, pod)| *at != node && pod.namespace == namespace && pod.workload.as_deref() == Some(workload));
        let total = others.clone().count();
        let unready = others.clone().filter(|(_, pod)| !pod.ready);
        let unready: Vec<_> = unready.map(|(at, pod)| format!("{} on {at}: {}", pod.name, pod.reason)).collect();
        match (total, unready.len()) {
            (0, _) => None,
            (_, 0) => Some(format!("the {total} pods of {workload} on other nodes are ready")),
            (_, count) => {
                Some(format!("{count} of {total} pods of {workload} on other nodes are not ready: {}", some(unready)))
            }
        }
    }
}

impl StoreSeen {
    fn hear(&mut self, node: &str, store: &Store) {
        self.addresses.insert(store.address.clone());
        self.reported_states.extend(store.reported_state.clone());
        self.findings.extend(store.findings.iter().map(crate::cli::wire::Finding::show));
        self.expected |= store.expected;
        let ping = store.last_ping.as_ref();
        match store.answering {
            Some(true) => {
                self.reached_by.push(node.to_owned());
                let took = ping.and_then(crate::cli::wire::Ping::total).map(|took| took.as_secs_f64() * 1000.0);
                self.slowest_ms = self.slowest_ms.into_iter().chain(took).reduce(f64::max);
            }
            Some(false) => {
                let outcome = ping.map_or_else(|| "no ping".to_owned(), |ping| ping.outcome.clone());
                self.unreached_by.push(Unreached { node: node.to_owned(), outcome });
            }
            None => self.untried_by.push(node.to_owned()),
        }
    }

    /// Reached wherever it is known, known wherever somebody answers, and nobody differs about its address. One that
    /// nobody expects to answer is well in any case.
    pub(super) fn is_well(&self) -> bool {
        !self.expected
            || (self.unreached_by.is_empty()
                && !self.reached_by.is_empty()
                && self.unlisted_by.is_empty()
                && self.addresses.len() == 1)
    }

    /// How many nodes know whether they reach it.
    fn tried(&self) -> usize {
        self.reached_by.len() + self.unreached_by.len()
    }

    /// `12 of 14`.
    pub(super) fn reach(&self) -> String {
        format!("{} of {}", self.reached_by.len(), self.tried())
    }

    /// A sentence of what the nodes say about it.
    pub(super) fn words(&self) -> String {
        let name = &self.name;
        let tried = self.tried();
        let named = || {
            let names = self.unreached_by.iter().map(|each| format!("{} ({})", each.node, each.outcome));
            some(names.collect())
        };
        let mut text = match (self.unreached_by.len(), tried) {
            (_, 0) => format!("no node has pinged {name} yet"),
            (0, 1) => format!("the one node that knows {name} reaches it"),
            (0, _) => format!("all of {} reach {name}", nodes(tried)),
            (1, 1) => format!("{} cannot reach {name}", named()),
            (no, all) if no == all => format!("none of {} reaches {name}: {}", nodes(all), named()),
            (no, all) => format!("{no} of {} cannot reach {name}: {}", nodes(all), named()),
        };
        if !self.unlisted_by.is_empty() {
            text.push_str(&format!("; it is not in the list of {}", some(self.unlisted_by.clone())));
        }
        if self.addresses.len() > 1 {
            let addresses: Vec<_> = self.addresses.iter().cloned().collect();
            text.push_str(&format!("; the nodes differ about its address: {}", some(addresses)));
        }
        clean(&text)
    }
}

/// `1 node`, `14 nodes`.
pub(super) fn nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What a node says: pods as `name status`, Stores as `label outcome`, where `-` is not pinged yet.
    pub(in crate::cli::kubectl) fn node(name: &str, pods: &[&str], stores: &[&str]) -> Told<Snapshot> {
        let pods: Vec<_> = pods
            .iter()
            .map(|text| {
                let (pod, status) = text.split_once(' ').unwrap();
                serde_json::json!({"namespace": "graph", "name": pod, "workload": "StatefulSet/server", "status": status,
                    "ready": status != "NotReady", "reason": if status == "Ready" { "StoreAnswering" } else { "StaleTransport" },
                    "wiring": {"gate": true, "condition": {"open": true}}})
            })
            .collect();
        let stores: Vec<_> = stores
            .iter()
            .map(|text| {
                let (label, outcome) = text.split_once(' ').unwrap();
                let (label, address) = label.split_once('@').unwrap_or((label, "a:8500"));
                let answering = match outcome {
                    "-" => None,
                    "serving" => Some(true),
                    _ => Some(false),
                };
                serde_json::json!({"cluster": "default", "label": label, "name": format!("store-{label}"), "address": address,
                    "expected": true, "answering": answering,
                    "last_ping": {"outcome": outcome, "age_ms": 10, "rpc_ms": 2.5}})
            })
            .collect();
        let snapshot = serde_json::json!({"node": name, "generation": 1, "readiness": {"ready": true, "status": "Ready",
            "reason": "StoreAnswering", "since_ms": 92000}, "pods": pods, "stores": stores, "pd": {"reachable": true,
            "has_leader": true}, "sources": [{"name": "kernel", "state": "active"}]});
        told(name, Ok(serde_json::from_value(snapshot).unwrap()))
    }

    pub(in crate::cli::kubectl) fn told<T>(name: &str, said: Result<T, String>) -> Told<T> {
        Told { node: name.to_owned(), agent: format!("storewatch/{name}"), said }
    }

    pub(in crate::cli::kubectl) fn dead(name: &str) -> Told<Snapshot> {
        told(name, Err("no answer within 10s".to_owned()))
    }

    fn words(nodes: Vec<Told<Snapshot>>) -> Vec<String> {
        Fleet::of(nodes).store_words()
    }

    #[test]
    fn nodes_speak_about_one_store_together() {
        let well = ["1 serving", "2 serving"];
        assert_eq!(words(vec![node("a", &[], &well)]), ["the node reaches all 2 Stores"]);
        assert_eq!(
            words(vec![node("a", &[], &well), node("b", &[], &well), dead("c")]),
            ["all 2 nodes reach all 2 Stores"]
        );
        assert_eq!(words(vec![node("a", &[], &[])]), ["no Store is known"]);
        assert_eq!(words(vec![dead("a")]), ["no Store is known"]);
        // A silent node and one that has not pinged yet are no voices.
        let some = vec![
            node("a", &[], &well),
            node("b", &[], &["1 deadline", "2 serving"]),
            node("c", &[], &["1 refused", "2 serving"]),
            node("d", &[], &["1 -", "2 -"]),
            node("e", &[], &well),
            dead("f"),
        ];
        assert_eq!(words(some), ["2 of 4 nodes cannot reach store-1: b (deadline), c (refused)"]);
        assert_eq!(words(vec![node("a", &[], &["1 refused"])]), ["a (refused) cannot reach store-1"]);
        let none = vec![node("a", &[], &["1 refused"]), node("b", &[], &["1 refused"])];
        assert_eq!(words(none), ["none of 2 nodes reaches store-1: a (refused), b (refused)"]);
        assert_eq!(words(vec![node("a", &[], &["1 -"])]), ["no node has pinged store-1 yet"]);
    }

    #[test]
    fn nodes_that_differ_about_the_list_are_named() {
        let differ = vec![node("a", &[], &["1@x:8500 serving", "2 serving"]), node("b", &[], &["1@y:8500 serving"])];
        assert_eq!(
            words(differ),
            [
                "all of 2 nodes reach store-1; the nodes differ about its address: x:8500, y:8500",
                "the one node that knows store-2 reaches it; it is not in the list of b",
            ]
        );
    }

    #[test]
    fn many_nodes_are_counted_and_few_are_named() {
        let nodes: Vec<_> = (0..1000)
            .map(|number| {
                let store = if number % 100 == 7 { ["1 unreachable"] } else { ["1 serving"] };
                node(&format!("node-{number:03}"), &[], &store)
            })
            .collect();
        let fleet = Fleet::of(nodes);
        let store = &fleet.stores()[0];
        assert_eq!((&*store.reach(), store.slowest_ms), ("990 of 1000", Some(2.5)));
        assert_eq!(
            store.words(),
            "10 of 1000 nodes cannot reach store-1: node-007 (unreachable), node-107 (unreachable), node-207 (unreachable), \
             node-307 (unreachable), node-407 (unreachable) and 5 more"
        );
    }

    #[test]
    fn a_silent_node_costs_its_row() {
        let fleet = Fleet::of(vec![
            node("a", &["server-0 Ready"], &["1 serving"]),
            dead("b"),
            node("c", &["server-1 NotReady"], &[]),
        ]);
        assert_eq!(fleet.silent_words().as_deref(), Some("no answer from 1 of 3 nodes: b (no answer within 10s)"));
        assert_eq!(
            fleet.pods().map(|(node, pod)| format!("{node} {}", pod.name)).collect::<Vec<_>>(),
            ["a server-0", "c server-1"]
        );
        let others = |node| fleet.elsewhere(node, "graph", "StatefulSet/server");
        assert_eq!(
            others("a").as_deref(),
            Some("1 of 1 pods of StatefulSet/server on other nodes are not ready: server-1 on c: StaleTransport")
        );
        assert_eq!(others("c").as_deref(), Some("the 1 pods of StatefulSet/server on other nodes are ready"));
        assert_eq!(fleet.elsewhere("a", "graph", "Deployment/x"), None);
        assert_eq!(Fleet::of(vec![node("a", &[], &[])]).silent_words(), None);
    }
}
