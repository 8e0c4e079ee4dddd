//! Every situation is recorded, from its begin and from its middle, and the replay tells what was told.

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
fn every_situation_can_be_recorded_from_any_moment_on() {
    let mut wrong = Vec::new();
    let mut replays = 0;
    for case in cases::all("") {
        let script = case.script();
        let Some(end) = script.steps.iter().find(|step| step.word(0) == "end").map(|step| step.at) else { continue };
        let first = restarted(&script);
        for part in 0..5 {
            let from = first + (end.saturating_sub(first)) * part / 5;
            let mut bytes = Node::record(script.clone(), from);
            bytes.extend(encode(&Line::End { why: "the situation is over".into() }));
            let replayed = replay(BufReader::new(&*bytes)).unwrap();
            assert!(replayed.broken.is_none(), "{}: {:?}", case.name, replayed.broken);
            assert!(replayed.missing.is_empty(), "{}: {:?}", case.name, replayed.missing);
            replays += 1;
            for difference in &replayed.differences {
                wrong.push(format!("{} from {from:?}: {difference:?}", case.name));
            }
        }
    }
    assert!(replays >= 500, "{replays} replays");
    assert!(wrong.is_empty(), "{} differences in {replays} replays\n{}", wrong.len(), wrong.join("\n"));
}
