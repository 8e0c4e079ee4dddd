//! What the control plane adds: who is at an address, who is out of judgement, and who may leave.

use crate::{node::Node, script::Script};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use storewatch_core::{
    endpoints::{Endpoint, EndpointsReport, Occupant, Service},
    id::{ClusterId, PodRef, PodUid},
    judge::EXIT_VALID,
    observation::Observation,
    pod::{PodRecord, Wiring},
    snapshot::{AddressView, Snapshot},
    time::MonoTime,
    verdict::{FindingCode, Reason, Status},
};

fn endpoints(at: MonoTime, pods: &[(&str, &str, &str, bool)]) -> Observation {
    let endpoint = |(name, uid, ip, serving): &(&str, &str, &str, bool)| Endpoint {
        hostname: Some((*name).into()),
        ip: ip.parse().unwrap(),
        occupant: Some(Occupant {
            pod: PodRef { namespace: "graph".into(), name: (*name).into() },
            uid: PodUid((*uid).into()),
            serving: Some(*serving),
            terminating: false,
        }),
    };
    let endpoints = pods.iter().map(endpoint).collect();
    let services = vec![Service { host: "store.graph.svc".into(), addresses: Vec::new(), endpoints }];
    Observation::Endpoints(EndpointsReport { cluster: ClusterId(0), at, services })
}

fn addresses(snapshot: &Snapshot) -> Vec<(String, String, String, Option<String>, bool)> {
    let words = |view: &AddressView| {
        let uid = view.occupant.as_ref().map(|occupant| occupant.uid.0.to_string());
        (view.ip.to_string(), view.source.clone(), view.against.clone(), uid, view.to.is_some())
    };
    snapshot.clusters[0].stores[0].addresses.iter().map(words).collect()
}

#[test]
fn endpoints_claim_addresses_and_know_the_pods_there() {
    let mut node = Node::run(Script::parse(
        "0 pd up 1=store-0.store.graph.svc\n0 dns store-0.store.graph.svc 10.0.0.1\n0 host 10.0.0.1 serves store-0.store.graph.svc\n5 end\n",
    ));
    let start = node.now;
    let mut say = |after: u64, pods: &[(&str, &str, &str, bool)]| {
        let at = start + Duration::from_secs(after);
        node.judge.observe(endpoints(at, pods));
        let _ = node.judge.advance(at);
        addresses(&node.judge.snapshot(at))
    };
    let one = |sources: &str, against: &str, ended| {
        ("10.0.0.1".to_owned(), sources.to_owned(), against.to_owned(), Some("a".to_owned()), ended)
    };
    let two = |uid: &str| ("10.0.0.2".to_owned(), "endpoints".to_owned(), String::new(), Some(uid.to_owned()), false);
    assert_eq!(say(1, &[("store-0", "a", "10.0.0.1", true)]), [one("dns,endpoints,identity", "", false)]);
    // Down, but still the same pod.
    assert_eq!(say(2, &[("store-0", "a", "10.0.0.1", false)]), [one("dns,endpoints,identity", "", false)]);
    // Replaced: DNS and the last ping say otherwise, and the conflict is shown.
    let moved = [("store-0", "b", "10.0.0.2", true)];
    assert_eq!(say(3, &moved), [one("dns,identity", "endpoints", false), two("b")]);
    // Said for long enough, it counts; both owners are remembered.
    let after = say(64, &moved);
    assert!(after[0].4, "{after:?}");
    assert_eq!((after[0].3.as_deref(), after[1].3.as_deref()), (Some("a"), Some("b")));
}

#[test]
fn a_pod_in_maintenance_is_not_judged() {
    let mut node = Node::run(Script::parse(
        "0 pd up 1=store-1\n0 dns store-1 10.0.0.1\n0 host 10.0.0.1 refused\n0 pods server-0@100 server-1@101\n10 end\n",
    ));
    let before = node.judge.snapshot(node.now);
    assert!(before.pods.iter().all(|pod| pod.verdict.status == Status::NotReady));
    let records = before.pods.iter().map(|pod| {
        let maintenance = &*pod.record.uid.0 == "server-0";
        Arc::new(PodRecord {
            wiring: Some(Wiring { maintenance, ..Wiring::default() }),
            ..PodRecord::clone(&pod.record)
        })
    });
    let at = node.now + Duration::from_secs(1);
    node.judge.observe(Observation::Pods { at, pods: records.collect() });
    let _ = node.judge.advance(at);
    let verdicts: Vec<_> =
        node.judge.snapshot(at).pods.iter().map(|pod| (pod.verdict.reason, pod.verdict.ready)).collect();
    assert_eq!(verdicts, [(Reason::Maintenance, true), (Reason::NoStoreAnswers, false)]);
    let at = at + Duration::from_secs(1);
    node.judge.observe(Observation::Pods { at, pods: before.pods.iter().map(|pod| Arc::clone(&pod.record)).collect() });
    let _ = node.judge.advance(at);
    assert_eq!(node.judge.snapshot(at).pods[0].verdict.reason, Reason::NoStoreAnswers, "judged again");
}

#[test]
fn an_exit_that_is_granted_is_taken_and_runs_out() {
    let mut node = Node::run(Script::parse(
        "set window 300\n0 pd up 1=store-1\n0 dns store-1 10.0.0.1\n0 host 10.0.0.1 serves store-1\n\
         0 pods server-0@100 server-1@101\n0 client 100 a 10.0.0.1\n0 client 101 b 10.0.0.1\n20 block 100\n20 block 101\n400 end\n",
    ));
    let held = |snapshot: &Snapshot| -> Vec<bool> {
        snapshot
            .pods
            .iter()
            .map(|pod| pod.findings.iter().any(|finding| finding.code == FindingCode::GuardHeld))
            .collect()
    };
    assert_eq!(held(&node.judge.snapshot(node.now)), [true, true], "each waits for the other");
    let at = node.now + Duration::from_millis(10);
    node.judge.observe(Observation::Exits { at, pods: BTreeSet::from([PodUid("server-1".into())]) });
    let _ = node.judge.advance(at);
    let snapshot = node.judge.snapshot(at);
    assert_eq!(held(&snapshot), [true, false]);
    assert_eq!(snapshot.pods[1].verdict.reason, Reason::PodCannotReachStores);
    let at = at + EXIT_VALID + Duration::from_millis(1);
    let _ = node.judge.advance(at);
    assert_eq!(node.judge.snapshot(at).pods[1].verdict.reason.status(), Status::Ready, "nobody grants it any more");
}
