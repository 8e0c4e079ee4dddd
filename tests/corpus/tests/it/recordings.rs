//! Every situation can be recorded from any instant on, and the replay tells what was told; and a judge that takes the
//! agent's memory over at any instant publishes what the agent does, at the same instants and word for word.

use crate::{each, instants, many};
use std::io::BufReader;
use storewatch::recording::{
    format::{Line, encode},
    replay,
};
use storewatch_tests_corpus::{cases::Case, node::Node};

/// Records from several instants on, and lets a twin take over at several; gives how many of both, and where a replay or a
/// twin said otherwise.
fn watch(case: &Case) -> ([usize; 2], Vec<String>) {
    let course = case.play();
    let (recorders, twins) = (instants(&course, many(3)), instants(&course, many(2)));
    let watched = Node::watched(case.script(), &recorders, &twins);
    let taken_over = watched.differences.iter().take(3).map(|what| format!("{}, taken over {what}", case.name));
    let mut wrong: Vec<_> = taken_over.collect();
    let replays = watched.recordings.len();
    for (from, mut bytes) in watched.recordings {
        bytes.extend(encode(&Line::End { why: "the situation is over".into() }));
        let replayed = replay(BufReader::new(&*bytes)).unwrap();
        assert!(replayed.broken.is_none(), "{} from {from:?}: {:?}", case.name, replayed.broken);
        assert!(replayed.missing.is_empty(), "{} from {from:?}: {:?}", case.name, replayed.missing);
        wrong.extend(replayed.differences.iter().map(|what| format!("{} from {from:?} on: {what:?}", case.name)));
    }
    ([replays, twins.len()], wrong)
}

#[test]
fn every_situation_can_be_recorded_from_any_instant_on() {
    let (counts, wrong): (Vec<_>, Vec<_>) = each(watch).into_iter().unzip();
    let [replays, twins] = [0, 1].map(|which| counts.iter().map(|count| count[which]).sum::<usize>());
    let wrong = wrong.concat();
    println!("{replays} replays, {twins} twins");
    assert!(wrong.is_empty(), "{} differences in {replays} replays, {twins} twins\n{}", wrong.len(), wrong.join("\n"));
    assert!(replays >= 500 && twins >= 300, "{replays} replays, {twins} twins");
}
