//! The agent is killed at any instant of every situation and starts again at once: the verdicts and findings of the moment
//! stand, with their begins (the simulated node asserts that at each restart), and nobody is taken out because of it.

use crate::{each, instants, many};
use storewatch_core::verdict::Status;
use storewatch_tests_corpus::{cases::Case, labels::Fault, node::Node, script::Step};

/// Kills the agent at several instants, each in a run of its own; gives how often, and who was wrongly taken out.
fn kill(case: &Case) -> (usize, Vec<String>) {
    let mut wrong = Vec::new();
    let all = instants(&case.play(), many(2));
    for at in &all {
        let mut script = case.script();
        let words = ["restart", "0"].map(str::to_owned).to_vec();
        script.steps.push(Step { at: *at, place: format!("{}, killed", case.name), words });
        script.steps.sort_by_key(|step| step.at);
        let course = Node::play(script);
        // Who was out already may stay out for longer: what ends that has to be watched for a whole window.
        let out = |subject: &str| {
            let told = course.verdicts.get(subject).into_iter().flatten();
            let last = told.take_while(|(told, _)| *told <= at.as_secs_f64()).last();
            last.and_then(|(_, reason)| *reason).is_some_and(|reason| reason.status() == Status::NotReady)
        };
        for (fault, what) in case.judge(&course).faults {
            let subject = what.split(' ').nth(1).unwrap_or_default();
            if fault == Fault::FalseNotReady && !out(subject) {
                wrong.push(format!("{} killed at {:.3}: {what}", case.name, at.as_secs_f64()));
            }
        }
    }
    (all.len(), wrong)
}

#[test]
fn a_kill_at_any_instant_takes_nobody_out() {
    let (kills, wrong): (Vec<_>, Vec<_>) = each(kill).into_iter().unzip();
    let (kills, wrong) = (kills.iter().sum::<usize>(), wrong.concat());
    println!("{kills} kills");
    assert!(kills >= 300, "{kills} kills");
    assert!(wrong.is_empty(), "{} of {kills} kills\n{}", wrong.len(), wrong.join("\n"));
}
