//! What happened, told once: the lines of `/v1/events` and of the event stream.

use crate::{
    id::{ClusterId, PodRef},
    time::MonoTime,
};

/// Events that may wait between two calls of [`Judge::advance`](crate::judge::Judge::advance). All pods of a large node
/// may leave at once, each with a finding or two; what is dropped here explains less and decides nothing.
pub const MAX_PENDING: usize = 4096;

/// Of these, what single connections came to. A storm of failing connects is read from counters, and must not take the
/// places of what follows from it.
const MAX_CHATTER: usize = 1024;

/// Bytes of an event's message. What a source has to say may be longer; it stands in the snapshot in full.
pub const MAX_MESSAGE: usize = 1000;

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
    /// Every kind, in the order of the contract.
    pub const ALL: [Self; 8] = [
        Self::Transition,
        Self::Connection,
        Self::Reset,
        Self::Ping,
        Self::Owner,
        Self::Finding,
        Self::Source,
        Self::Loss,
    ];

    /// It tells of a single connection: changes counters only, and comes by the thousand in a storm.
    pub const fn is_chatter(self) -> bool {
        matches!(self, Self::Connection | Self::Reset)
    }

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
    /// Its place in the order of everything that happened, no two the same: snapshots of this generation and later ones
    /// show its effect.
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
    pub(crate) fn new(at: MonoTime, kind: EventKind, mut message: String) -> Self {
        const CUT: &str = "...";
        if message.len() > MAX_MESSAGE {
            let fits = |end: &usize| message.is_char_boundary(*end);
            message.truncate((0..=MAX_MESSAGE - CUT.len()).rev().find(fits).unwrap_or_default());
            message.push_str(CUT);
        }
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
    chatter: usize,
    urgent: bool,
    dropped: u64,
    /// Of the dropped ones, those that nobody was told of yet.
    untold: u64,
}

impl EventLog {
    /// Tells it, with a snapshot at once unless it is chatter.
    pub(crate) fn push(&mut self, event: Event) {
        self.urgent |= !event.kind.is_chatter();
        self.mention(event);
    }

    /// Tells it; the snapshot that shows it may take its time.
    pub(crate) fn mention(&mut self, event: Event) {
        let chatter = event.kind.is_chatter();
        // One place is kept for the word that something was dropped.
        let room = self.pending.len() + 1 < MAX_PENDING && (!chatter || self.chatter < MAX_CHATTER);
        if room {
            self.chatter += usize::from(chatter);
            self.pending.push(event);
        } else {
            self.dropped = self.dropped.saturating_add(1);
            self.untold = self.untold.saturating_add(1);
        }
    }

    /// Hands out what waits, each with a generation of its own after `generation`, which is moved on.
    pub(crate) fn drain(&mut self, now: MonoTime, generation: &mut u64) -> Vec<Event> {
        self.urgent = false;
        self.chatter = 0;
        let mut events = std::mem::take(&mut self.pending);
        let untold = std::mem::take(&mut self.untold);
        if untold > 0 {
            let message = format!("{untold} events came faster than they could be told");
            events.push(Event::new(now, EventKind::Loss, message).outcome("events"));
        }
        for event in &mut events {
            *generation += 1;
            event.generation = *generation;
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
