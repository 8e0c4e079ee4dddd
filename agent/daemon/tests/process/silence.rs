//! Stores that do not even refuse: a probe is answered from memory all the same.

use crate::daemon::{Daemon, Storage};
use std::{
    thread,
    time::{Duration, Instant},
};
use storewatch_hugegraph::testkit::store::StoreFault;

const ASKING: usize = 100;

/// A kubelet's default time-out for a probe. An answer from memory takes a hundredth of it; this is the bound on a machine
/// that does other things.
const KUBELET: Duration = Duration::from_secs(1);

#[test]
fn a_hundred_probes_at_once_are_answered_while_most_stores_are_silent() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    for store in &storage.stores[..2] {
        store.fault.send_replace(StoreFault::Frozen);
    }
    let silent = |code: u16, body: &serde_json::Value| {
        code == 200 && body["unanswered_stores"].as_array().is_some_and(|list| list.len() == 2)
    };
    daemon.until("/readiness", silent);
    let port = daemon.probe;
    let asking: Vec<_> = (0..ASKING)
        .map(|_| {
            thread::spawn(move || {
                let begun = Instant::now();
                let answer = crate::daemon::get(port, "/readiness/pods/graph/server-0");
                (answer.map(|(code, _)| code), begun.elapsed())
            })
        })
        .collect();
    let mut times = Vec::new();
    for thread in asking {
        let (code, time) = thread.join().unwrap();
        assert_eq!(code, Some(200));
        times.push(time);
    }
    times.sort_unstable();
    assert!(
        times[ASKING - 1] < KUBELET,
        "the slowest took {:?}, half of them {:?}",
        times[ASKING - 1],
        times[ASKING / 2]
    );
}
