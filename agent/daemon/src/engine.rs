//! The single owner of all facts: observations and ticks in, snapshots, events and requests out.
//!
//! It does no I/O of its own, so a dead target, a slow disk or a stuck reader cannot hold it up; liveness of the agent is
//! the liveness of this loop.

use crate::{
    ask::Questions, clock, observe::ObservationReceiver, publish::Publisher, recording::Tap, requests::RequestSender,
    state::Recorder,
};
use std::{sync::Arc, time::Duration};
use storewatch_core::{
    event::{Event, EventKind},
    judge::Judge,
    observation::Observation,
};
use tokio_util::sync::CancellationToken;

/// The loop ticks at least this often, so that `/livez` can tell a stuck engine from an idle one.
const TICK: Duration = Duration::from_secs(1);

/// What arrives together (the answers of one round, what is looked at every second) is judged together: the engine waits
/// this long after the first before it applies the rules. Far below every time that a verdict may take.
const GATHER: Duration = Duration::from_millis(1);

/// Observations applied before the rules run: bounds the delay of a verdict in a storm.
const BATCH: usize = 512;

/// What the engine is wired to.
#[derive(Debug)]
pub struct Wiring {
    /// From the sources.
    pub observations: ObservationReceiver,
    /// To the sources.
    pub requests: RequestSender,
    /// From the publishers.
    pub questions: Questions,
    /// To the publishers.
    pub publisher: Publisher,
    /// To the state file.
    pub recorder: Recorder,
    /// To those who record.
    pub tap: Tap,
}

/// Runs until `stop` or until every source has ended.
pub async fn run(mut judge: Judge, mut wiring: Wiring, stop: CancellationToken) {
    let mut wake = Duration::ZERO;
    let mut full = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = wiring.tap.asked() => {}
            received = wiring.observations.recv() => {
                let Some(observation) = received else { break };
                file(&mut judge, &mut wiring.tap, observation);
            }
            () = wiring.questions.arrive() => {}
            () = tokio::time::sleep(wake) => {}
        }
        if !full {
            tokio::time::sleep(GATHER).await;
        }
        let mut filed = 0;
        while filed < BATCH
            && let Some(observation) = wiring.observations.try_recv()
        {
            file(&mut judge, &mut wiring.tap, observation);
            filed += 1;
        }
        // In a storm the channel fills faster than it is emptied: there is nothing to wait for.
        full = filed == BATCH;
        let now = clock::now();
        for loss in wiring.observations.losses(now) {
            file(&mut judge, &mut wiring.tap, loss);
        }
        wiring.publisher.beat(now);
        let due = wiring.questions.serve(&mut judge, now);
        let advance = judge.advance(now);
        let next = [advance.next, due].into_iter().flatten().min();
        wake = next.map_or(TICK, |next| next.since(now).min(TICK));
        for request in advance.requests {
            wiring.requests.route(request);
        }
        advance.events.iter().for_each(log);
        wiring.tap.judged(now, advance.snapshot.as_ref());
        wiring.tap.admit(&judge, now);
        // In this order, so that whoever hears of an event finds it in the snapshot.
        if let Some(snapshot) = advance.snapshot {
            wiring.publisher.publish(Arc::new(snapshot));
            wiring.recorder.published(judge.changes(), now, || judge.memory(now));
        }
        wiring.publisher.tell(advance.events);
    }
    let now = clock::now();
    wiring.recorder.ends(now, || judge.memory(now));
}

fn file(judge: &mut Judge, tap: &mut Tap, observation: Observation) {
    tap.note(&observation);
    judge.observe(observation);
}

/// Changes of verdicts and sources are worth a line each, and those for the worse a warning; the rest is asked for.
fn log(event: &Event) {
    let Event { kind, pod, from, to, message, .. } = event;
    let pod = pod.as_ref().map(ToString::to_string);
    let (kind, pod, from, to) = (kind.as_str(), pod.as_deref(), from.as_deref(), to.as_deref());
    let well = matches!(to, Some("active" | "absent" | "StoreAnswering" | "PassiveOnly"));
    match event.kind {
        EventKind::Transition | EventKind::Source | EventKind::Loss if well => {
            tracing::info!(kind, pod, from, to, "{message}");
        }
        EventKind::Transition | EventKind::Source | EventKind::Loss => {
            tracing::warn!(kind, pod, from, to, "{message}");
        }
        _ => tracing::debug!(kind, pod, from, to, "{message}"),
    }
}
