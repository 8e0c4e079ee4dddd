//! What the agent says when PD and Stores fail, and when its list of pods does.

use crate::daemon::{Daemon, FIRST_STORE, ONE_POD, Storage, exchange};
use std::os::unix::net::UnixStream;
use storewatch_hugegraph::testkit::{pd::PdFault, store::StoreFault};

const POD: &str = "/readiness/pods/graph/server-0";

fn well(code: u16, body: &serde_json::Value) -> bool {
    code == 200 && body["status"] == "Ready" && body["unanswered_stores"] == serde_json::json!([])
}

#[test]
fn one_store_is_enough_and_none_is_not() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until("/readiness", well);

    storage.stores[0].fault.send_replace(StoreFault::Down);
    storage.stores[1].fault.send_replace(StoreFault::Frozen);
    daemon.until("/readiness", |code, body| {
        assert_eq!(code, 200, "a Store answers: {body}");
        // A lost channel is told at once; who answered first is known at the end of the round.
        body["unanswered_stores"] == serde_json::json!([FIRST_STORE, FIRST_STORE + 1])
            && body["answered_store"] == FIRST_STORE + 2
    });

    storage.stores[2].fault.send_replace(StoreFault::Down);
    for path in ["/readiness", POD, "/readiness/uid/uid-0", "/readiness/workloads/graph/server"] {
        let body = daemon.until(path, |code, _| code == 503);
        assert_eq!(body["ready"], false, "{path}");
    }
    let body = daemon.until("/readiness", |code, _| code == 503);
    assert_eq!(body["reason"], "NoStoreAnswers");
    assert!(!body.to_string().contains("127.0.0.1"), "an open answer names an address: {body}");

    storage.stores[1].fault.send_replace(StoreFault::None);
    let body = daemon.until("/readiness", |code, _| code == 200);
    assert_eq!(body["reason"], "StoreAnswering");
    daemon.until(POD, |code, _| code == 200);
}

#[test]
fn pd_is_a_hint() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until("/readiness", well);
    for (fault, finding, reachable) in
        [(PdFault::Down, "PdDown", false), (PdFault::NoLeader, "PdNoLeader", true), (PdFault::Frozen, "PdDown", false)]
    {
        storage.pd.state.send_modify(|state| state.fault = fault);
        daemon.until("/readiness", |code, body| {
            assert_eq!(code, 200, "{fault:?} is no reason: {body}");
            let found = body["findings"].as_array().unwrap().iter().any(|code| code == finding);
            found && body["pd_reachable"] == reachable
        });
    }
    // An empty answer never replaces a known list.
    let stores = storage.pd.state.borrow().stores.clone();
    storage.pd.state.send_modify(|state| {
        state.fault = PdFault::None;
        state.stores.clear();
    });
    daemon.until("/readiness", |code, body| {
        assert_eq!(code, 200, "{body}");
        body["findings"].as_array().unwrap().is_empty() && body["active_stores"] == 3
    });
    storage.pd.state.send_modify(|state| state.stores = stores);
    // And without PD the known Stores are still judged.
    storage.pd.state.send_modify(|state| state.fault = PdFault::Down);
    storage.all_stores(&StoreFault::Down);
    daemon.until("/readiness", |code, body| code == 503 && body["reason"] == "NoStoreAnswers");
    storage.all_stores(&StoreFault::None);
    daemon.until("/readiness", |code, _| code == 200);
}

#[test]
fn a_broken_list_of_pods_keeps_the_last_good_one_and_says_so() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready");
    let file = daemon.folder.path().join("pods.yaml");
    let named = || {
        let (_, body) = exchange(UnixStream::connect(daemon.socket()).unwrap(), "/v1/sources").unwrap();
        let sources: serde_json::Value = serde_json::from_str(&body).unwrap();
        let pods = sources.as_array().unwrap().iter().find(|source| source["name"] == "pods").unwrap().clone();
        pods["state"] == "degraded" && pods["detail"].as_str().unwrap().contains("pods.yaml")
    };
    // (The pod itself shares this test's cgroup and namespace, which is said, too, but names no file.)
    let until = |wanted: bool| {
        let begun = std::time::Instant::now();
        while named() != wanted {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "the source does not say {wanted}");
        }
    };

    std::fs::write(&file, "- {namespace: graph, name: [").unwrap();
    until(true);
    assert_eq!(daemon.get(POD).unwrap().0, 200, "the last good list is kept");

    std::fs::write(&file, ONE_POD.replace("server-0", "server-9")).unwrap();
    daemon.until("/readiness/pods/graph/server-9", |code, body| code == 200 && body["status"] == "Ready");
    until(false);
    // That the new pod shares this test's namespace is said, but takes nothing from the list: what it does not hold is gone.
    assert_eq!(daemon.get(POD).unwrap().0, 404);
}
