//! What the control plane adds to whose an address is: who is there.

use std::time::Duration;
use storewatch_core::{
    endpoints::{Endpoint, EndpointsReport, Occupant, Service},
    id::{ClusterId, PodRef, PodUid},
    observation::Observation,
    snapshot::{AddressView, Snapshot},
    time::MonoTime,
};
use storewatch_tests_corpus::{node::Node, script::Script};

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
        "endpoints",
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
