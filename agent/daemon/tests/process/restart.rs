//! A restart of the agent is no evidence: what the state file must carry over, and what must not stop a start.

use crate::daemon::{Daemon, Storage};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::{
    cell::Cell,
    time::{Duration, Instant, SystemTime},
};
use storewatch_hugegraph::testkit::{pd::PdFault, store::StoreFault};

const NODE: &str = "/readiness";
const POD: &str = "/readiness/pods/graph/server-0";

/// Old enough that a verdict that began anew would be seen by its date.
const SETTLED_MS: u64 = 3_000;

/// How far two readings of one date may be apart: the answer's way here, and whole milliseconds.
const SAME: Duration = Duration::from_secs(1);

/// The date since which an answer holds.
fn since(body: &Value) -> SystemTime {
    SystemTime::now() - Duration::from_millis(body["since_ms"].as_u64().unwrap())
}

fn assert_same(before: SystemTime, body: &Value) {
    let now = since(body);
    let apart = now.duration_since(before).unwrap_or_else(|error| error.duration());
    assert!(apart < SAME, "the verdict began anew, {apart:?} apart: {body}");
}

fn kill(daemon: &mut Daemon) {
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
}

/// What the state file says at present.
fn state(daemon: &Daemon) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(daemon.folder.path().join("state.json")).ok()?).ok()
}

/// Waits until the state file holds this reason for the pod.
fn until_kept(daemon: &Daemon, reason: &str) {
    let begun = Instant::now();
    while state(daemon).is_none_or(|state| state["state"]["memory"]["pods"][0]["verdict"]["reason"] != reason) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{reason} is not in the state file:\n{}", daemon.log());
        std::thread::yield_now();
    }
}

/// Kills and restarts under unchanged evidence: from the first answer on nothing may change but `carried`.
fn assert_unmoved_by_restarts(daemon: &mut Daemon, code: u16, reason: &str) -> bool {
    let settled = |path: &str| {
        let wanted = |got: u16, body: &Value| {
            got == code && body["reason"] == reason && body["since_ms"].as_u64() > Some(SETTLED_MS)
        };
        since(&daemon.until(path, wanted))
    };
    let before = [NODE, POD].map(settled);
    until_kept(daemon, reason);
    let carried = Cell::new(false);
    for _ in 0..3 {
        kill(daemon);
        let log = daemon.log().len();
        daemon.start_again();
        for (path, before) in [(POD, before[1]), (NODE, before[0])] {
            // Confirmed by pings of this run, and not the first answer alone.
            let body = daemon.until(path, |got, body| {
                assert_eq!((got, &body["reason"]), (code, &Value::from(reason)), "{path} moved: {body}");
                assert_same(before, body);
                carried.set(carried.get() || body["carried"] == true);
                body.get("carried").is_none() && body["age_ms"].is_u64()
            });
            assert_same(before, &body);
        }
        let log = daemon.log().split_off(log);
        assert!(log.contains("state restored"), "{log}");
        assert!(!log.contains("transition"), "a restart was a transition:\n{log}");
    }
    carried.get()
}

#[test]
fn a_kill_while_no_store_answers_changes_nothing() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready");
    // Frozen ones take two time-outs to prove it again, in which the verdict is carried.
    storage.all_stores(&StoreFault::Frozen);
    assert!(assert_unmoved_by_restarts(&mut daemon, 503, "NoStoreAnswers"), "the verdict was never shown as carried");
    storage.all_stores(&StoreFault::None);
    daemon.until(POD, |code, body| code == 200 && body["reason"] == "StoreAnswering");
}

#[test]
fn a_kill_while_ready_changes_nothing() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    assert_unmoved_by_restarts(&mut daemon, 200, "StoreAnswering");
}

#[test]
fn the_list_outlives_a_restart_without_pd_and_stores() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    daemon.until(POD, |code, body| code == 200 && body["since_ms"].as_u64() > Some(SETTLED_MS));
    until_kept(&daemon, "StoreAnswering");
    let before = since(&daemon.until(POD, |code, _| code == 200));
    kill(&mut daemon);
    storage.pd.state.send_modify(|state| state.fault = PdFault::Down);
    storage.all_stores(&StoreFault::Frozen);
    daemon.start_again();

    // The verdict stands until this run has proof of its own, which it can only have with the list of the run before.
    let carried = Cell::new(false);
    daemon.until(POD, |code, body| {
        if code == 200 {
            assert_eq!(body["reason"], "StoreAnswering", "{body}");
            assert_same(before, body);
            carried.set(carried.get() || body["carried"] == true);
        }
        code == 503
    });
    assert!(carried.get(), "the verdict was never shown as carried");
    let body = daemon.until(NODE, |code, _| code == 503);
    assert_eq!((&body["reason"], &body["active_stores"]), (&"NoStoreAnswers".into(), &3.into()), "{body}");

    let body = daemon.until(POD, |_, body| body["since_ms"].as_u64() > Some(SETTLED_MS));
    let before = since(&body);
    until_kept(&daemon, "NoStoreAnswers");
    kill(&mut daemon);
    daemon.start_again();
    daemon.until(POD, |code, body| {
        assert_eq!((code, &body["reason"]), (503, &"NoStoreAnswers".into()), "{body}");
        assert_same(before, body);
        body.get("carried").is_none()
    });

    storage.all_stores(&StoreFault::None);
    let body = daemon.until(NODE, |code, _| code == 200);
    assert_eq!((&body["reason"], &body["pd_reachable"]), (&"StoreAnswering".into(), &false.into()), "{body}");
}

#[test]
fn a_damaged_file_is_set_aside_and_said_and_the_agent_runs() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    until_kept(&daemon, "StoreAnswering");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    let path = daemon.folder.path().join("state.json");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();

    daemon.start_again();
    until_kept(&daemon, "StoreAnswering");
    daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready" && body.get("carried").is_none());
    let aside = daemon.folder.path().join("state.json.damaged");
    assert_eq!(std::fs::read(&aside).unwrap(), bytes);
    let log = daemon.log();
    let said: Vec<_> = log.lines().filter(|line| line.contains("set aside")).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains("checksum") && said[0].contains("state.json.damaged"), "{}", said[0]);

    // Nowhere to write to is said once, and is no reason to end.
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    daemon.start_again();
    daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready" && body["since_ms"].as_u64() > Some(1_500));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    let said = daemon.log().matches("cannot be written").count();
    assert_eq!(said, 1, "{}", daemon.log());
}
