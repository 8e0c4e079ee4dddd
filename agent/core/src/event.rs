//! What happened, told once: the lines of `/v1/events` and of the event stream.

use crate::{
    id::{ClusterId, PodRef},
    time::MonoTime,
};

/// Events that may wait between two calls of [`Judge::advance`](crate::judge::Judge::advance): a storm of failing
/// connects is read from counters, so what is dropped here explains less and decides nothing.
pub const MAX_PENDING: usize = 1024;

/// The kinds of [`Event`] (stable names).
#[expect(missing_docs, reason = "defined by their names in the public contract")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    Transition,
    Connection,
    Reset,
    Ping,
    Owner,
    Finding,
    Source,
    Loss,
}

impl EventKind {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transition => "transition",
            Self::Connection => "connection",
            Self::Reset => "reset",
            Self::Ping => "ping",
            Self::Owner => "owner",
            Self::Finding => "finding",
            Self::Source => "source",
            Self::Loss => "loss",
        }
    }
}

/// One thing that happened. `message` may name addresses: events are for the admin side only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Generation of the snapshot that shows its effect.
    pub generation: u64,
    /// When.
    pub at: MonoTime,
    /// What kind.
    pub kind: EventKind,
    /// In which cluster, if it concerns one.
    pub cluster: Option<ClusterId>,
    /// Which pod, if it concerns one.
    pub pod: Option<PodRef>,
    /// Label of the target concerned.
    pub target: Option<String>,
    /// How it ended: name of a connection or ping outcome.
    pub outcome: Option<&'static str>,
    /// What it was before, for transitions, owners, findings and sources.
    pub from: Option<String>,
    /// What it is now.
    pub to: Option<String>,
    /// One sentence.
    pub message: String,
}

impl Event {
    /// An event without particulars; the generation is set when it is published.
    pub(crate) fn new(at: MonoTime, kind: EventKind, message: String) -> Self {
        Self {
            generation: 0,
            at,
            kind,
            cluster: None,
            pod: None,
            target: None,
            outcome: None,
            from: None,
            to: None,
            message,
        }
    }

    pub(crate) fn cluster(mut self, cluster: ClusterId) -> Self {
        self.cluster = Some(cluster);
        self
    }

    pub(crate) fn pod(mut self, pod: PodRef) -> Self {
        self.pod = Some(pod);
        self
    }

    pub(crate) fn target(mut self, target: String) -> Self {
        self.target = Some(target);
        self
    }

    pub(crate) fn outcome(mut self, outcome: &'static str) -> Self {
        self.outcome = Some(outcome);
        self
    }

    pub(crate) fn change(mut self, from: Option<String>, to: Option<String>) -> Self {
        self.from = from;
        self.to = to;
        self
    }
}

/// Events on their way out: bounded, and what did not fit is counted.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    pending: Vec<Event>,
    urgent: bool,
    dropped: u64,
}

impl EventLog {
    pub(crate) fn push(&mut self, event: Event) {
        // What single connections came to changes counters only, and in a storm there are thousands.
        self.urgent |= !matches!(event.kind, EventKind::Connection | EventKind::Reset);
        if self.pending.len() < MAX_PENDING {
            self.pending.push(event);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Hands out what waits, stamped with `generation`.
    pub(crate) fn drain(&mut self, generation: u64) -> Vec<Event> {
        self.urgent = false;
        let mut events = std::mem::take(&mut self.pending);
        for event in &mut events {
            event.generation = generation;
        }
        events
    }

    /// Something happened that a snapshot shows.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}
