//! Every situation is recorded from its begin, and the replay tells what was told.
//!
//! A recording that begins later begins with what the agent remembers, and tells some findings at another time within its
//! first window.

use std::{io::BufReader, time::Duration};
use storewatch::recording::{
    format::{Line, encode},
    replay,
};
use storewatch_tests_corpus::{cases, node::Node, script::Script};

/// When the last restart is over: no recording outlives the agent that writes it.
fn restarted(script: &Script) -> Duration {
    let restarts = script.steps.iter().filter(|step| step.word(0) == "restart");
    let over = restarts.map(|step| step.at + storewatch_tests_corpus::script::seconds(step.word(1)));
    over.max().unwrap_or_default()
}

#[test]
fn every_situation_can_be_recorded() {
    let mut wrong = Vec::new();
    let mut replays = 0;
    for case in cases::all("") {
        let script = case.script();
        // A restart ends a recording.
        if script.steps.is_empty() || restarted(&script) > Duration::ZERO {
            continue;
        }
        let mut bytes = Node::record(script, Duration::ZERO);
        bytes.extend(encode(&Line::End { why: "the situation is over".into() }));
        let replayed = replay(BufReader::new(&*bytes)).unwrap();
        assert!(replayed.broken.is_none(), "{}: {:?}", case.name, replayed.broken);
        assert!(replayed.missing.is_empty(), "{}: {:?}", case.name, replayed.missing);
        replays += 1;
        for difference in &replayed.differences {
            wrong.push(format!("{}: {difference:?}", case.name));
        }
    }
    assert!(replays >= 100, "{replays} replays");
    assert!(wrong.is_empty(), "{} differences in {replays} replays\n{}", wrong.len(), wrong.join("\n"));
}
