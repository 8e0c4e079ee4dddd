//! The one thing that every publisher reads.

use super::feed::Feed;
use crate::{clock, recording::Recordings};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use storewatch_core::{event::Event, policy::OnUnknown, snapshot::Snapshot, time::MonoTime};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Makes both ends. `initial` is what is served until the first [`Publisher::publish`]; with generation 0 it counts as
/// "nothing known yet".
pub fn channel(initial: Arc<Snapshot>, on_unknown: OnUnknown, draining: CancellationToken) -> (Publisher, Publication) {
    let (sender, snapshots) = watch::channel(initial);
    // A loop that never ticks is as dead as one that stopped: its time runs from here.
    let heartbeat = Arc::new(AtomicI64::new(clock::now().as_nanos()));
    let feed = Arc::new(Feed::new());
    let publisher = Publisher { snapshots: sender, heartbeat: Arc::clone(&heartbeat), feed: Arc::clone(&feed) };
    let shared = Shared { snapshots, heartbeat, feed, draining, on_unknown, recordings: None, clock: clock::now };
    (publisher, Publication(Arc::new(shared)))
}

/// The engine's end.
#[derive(Debug)]
pub struct Publisher {
    snapshots: watch::Sender<Arc<Snapshot>>,
    heartbeat: Arc<AtomicI64>,
    feed: Arc<Feed>,
}

impl Publisher {
    /// Replaces what is served, and wakes those who wait for a change.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        self.snapshots.send_replace(snapshot);
    }

    /// Tells what happened, oldest first. Never waits for a reader.
    pub fn tell(&self, events: Vec<Event>) {
        self.feed.push(events);
    }

    /// Says that the engine's loop was alive at `now`.
    pub fn beat(&self, now: MonoTime) {
        self.heartbeat.store(now.as_nanos(), Ordering::Relaxed);
    }
}

/// The publishers' end: cheap to clone, which a router does for each request.
#[derive(Clone, Debug)]
pub struct Publication(Arc<Shared>);

#[derive(Clone, Debug)]
struct Shared {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    heartbeat: Arc<AtomicI64>,
    feed: Arc<Feed>,
    draining: CancellationToken,
    on_unknown: OnUnknown,
    recordings: Option<Recordings>,
    clock: fn() -> MonoTime,
}

impl Publication {
    /// The snapshot of this moment.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.snapshots.borrow())
    }

    /// A receiver that has seen nothing yet, for those who wait for changes.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        let mut receiver = self.0.snapshots.clone();
        receiver.mark_changed();
        receiver
    }

    /// The newest events.
    pub(crate) fn feed(&self) -> &Arc<Feed> {
        &self.0.feed
    }

    /// When the engine's loop last ticked.
    pub fn last_beat(&self) -> MonoTime {
        MonoTime::from_nanos(self.0.heartbeat.load(Ordering::Relaxed))
    }

    /// Cancelled once the agent has begun to end.
    pub fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// What an Unknown verdict means, for pods that no snapshot holds.
    pub fn on_unknown(&self) -> OnUnknown {
        self.0.on_unknown
    }

    /// Who lets recordings begin; `None` where nobody does.
    pub fn recordings(&self) -> Option<&Recordings> {
        self.0.recordings.as_ref()
    }

    /// The same, with recordings.
    pub fn with_recordings(mut self, recordings: Recordings) -> Self {
        Arc::make_mut(&mut self.0).recordings = Some(recordings);
        self
    }

    /// The present instant of the clock that snapshots are stamped with.
    pub fn now(&self) -> MonoTime {
        (self.0.clock)()
    }

    /// The same with another clock.
    #[cfg(test)]
    pub(crate) fn with_clock(mut self, clock: fn() -> MonoTime) -> Self {
        Arc::make_mut(&mut self.0).clock = clock;
        self
    }
}
