//! Who looks over the agent's shoulder from some instant on: a recording, or a second judge that takes its memory over and
//! must say the same of the same.

use super::{Node, START};
use crate::script::Script;
use futures_util::FutureExt;
use std::time::Duration;
use storewatch::recording::{Recording, Recordings, Tap, channel};
use storewatch_core::{judge::Judge, observation::Observation, snapshot::Snapshot, time::MonoTime};

/// One of them. A restart of the agent ends it, for nobody outlives the agent that is watched.
#[derive(Debug)]
pub struct Watcher {
    from: Duration,
    what: What,
}

#[derive(Debug)]
enum What {
    Recorder { tap: Box<Tap>, recordings: Recordings, recording: Option<Recording>, bytes: Vec<u8> },
    Twin(Option<Twin>, Vec<String>),
    Ended(Vec<u8>, Vec<String>),
}

/// A judge that has taken over.
#[derive(Debug)]
struct Twin {
    judge: Box<Judge>,
    /// What it said at the last judgement.
    said: Option<Snapshot>,
}

impl Watcher {
    fn recorder(from: Duration) -> Self {
        let (tap, recordings) = channel();
        Self { from, what: What::Recorder { tap: Box::new(tap), recordings, recording: None, bytes: Vec::new() } }
    }

    fn twin(from: Duration) -> Self {
        Self { from, what: What::Twin(None, Vec::new()) }
    }

    pub(super) fn note(&mut self, observation: &Observation) {
        match &mut self.what {
            What::Recorder { tap, .. } => tap.note(observation),
            What::Twin(Some(twin), _) => twin.judge.observe(observation.clone()),
            What::Twin(None, _) | What::Ended(..) => {}
        }
    }

    pub(super) fn judged(&mut self, now: MonoTime, snapshot: Option<&Snapshot>) {
        match &mut self.what {
            What::Recorder { tap, .. } => tap.judged(now, snapshot),
            What::Twin(Some(twin), differences) => {
                twin.said = twin.judge.advance(now).snapshot;
                differences.extend(difference(now, snapshot, twin.said.as_ref()));
            }
            What::Twin(None, _) | What::Ended(..) => {}
        }
    }

    /// Begins when it is time, and takes what came.
    fn watch(&mut self, judge: &Judge, now: MonoTime) {
        let due = now >= START + self.from;
        match &mut self.what {
            What::Recorder { tap, recordings, recording, bytes } => {
                if recording.is_none() && due {
                    *recording = Some(recordings.begin().unwrap());
                    tap.asked().now_or_never().unwrap();
                    tap.admit(judge, now);
                }
                if let Some(recording) = recording {
                    while let Some(Some(lines)) = recording.next().now_or_never() {
                        bytes.extend(lines);
                    }
                }
            }
            What::Twin(twin @ None, _) if due => {
                let mut judge_of_twin = Judge::new(judge.settings().clone(), now);
                judge_of_twin.resume(judge.whole_memory(now));
                *twin = Some(Twin { judge: Box::new(judge_of_twin), said: None });
            }
            What::Twin(..) | What::Ended(..) => {}
        }
    }

    /// The agent ends. Whoever has not begun watches its successor.
    pub(super) fn end(&mut self) {
        match &mut self.what {
            What::Recorder { recording: Some(_), bytes, .. } => {
                self.what = What::Ended(std::mem::take(bytes), Vec::new());
            }
            What::Twin(Some(_), differences) => self.what = What::Ended(Vec::new(), std::mem::take(differences)),
            What::Recorder { .. } | What::Twin(None, _) | What::Ended(..) => {}
        }
    }
}

/// What they saw.
#[derive(Debug, Default)]
pub struct Watched {
    /// The recordings, each with its begin and without its last line.
    pub recordings: Vec<(Duration, Vec<u8>)>,
    /// What a twin said otherwise.
    pub differences: Vec<String>,
}

impl Node {
    /// Plays a whole script while recordings are made, and twins judge, from these instants on.
    pub fn watched(script: Script, recorders: &[Duration], twins: &[Duration]) -> Watched {
        let mut node = Self::new(script);
        node.watchers.extend(recorders.iter().copied().map(Watcher::recorder));
        node.watchers.extend(twins.iter().copied().map(Watcher::twin));
        node.go();
        let mut watched = Watched::default();
        for watcher in node.watchers {
            let from = watcher.from.as_secs_f64();
            let (bytes, differences) = match watcher.what {
                What::Recorder { bytes, .. } => (bytes, Vec::new()),
                What::Twin(_, differences) => (Vec::new(), differences),
                What::Ended(bytes, differences) => (bytes, differences),
            };
            watched.recordings.extend((!bytes.is_empty()).then_some((watcher.from, bytes)));
            watched.differences.extend(differences.iter().map(|what| format!("from {from:.3} on: {what}")));
        }
        watched
    }

    pub(super) fn watch(&mut self) {
        for watcher in &mut self.watchers {
            watcher.watch(&self.judge, self.now);
        }
    }
}

/// The first line in which they differ.
fn difference(now: MonoTime, right: Option<&Snapshot>, twin: Option<&Snapshot>) -> Option<String> {
    let at = super::seconds(now);
    let (right, twin) = match (right, twin) {
        (None, None) => return None,
        (Some(right), Some(twin)) => (right.clone().without_counters(), twin.clone().without_counters()),
        (right, _) => {
            let who = if right.is_some() { "the agent" } else { "the twin" };
            return Some(format!("{at:.3}: only {who} publishes"));
        }
    };
    if right == twin {
        return None;
    }
    let (right, twin) = (format!("{right:#?}"), format!("{twin:#?}"));
    let mut lines = right.lines().zip(twin.lines()).enumerate();
    let first = lines.find(|(_, (right, twin))| right != twin);
    let (place, (right_line, twin_line)) = first.unwrap_or_default();
    let context: Vec<_> = right.lines().skip(place.saturating_sub(12)).take(12).map(str::trim).collect();
    Some(format!("{at:.3}: `{}` is `{}` (after {})", right_line.trim(), twin_line.trim(), context.join(" ")))
}
