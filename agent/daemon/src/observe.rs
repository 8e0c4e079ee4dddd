//! The way from the sources to the engine: one bounded channel, whose overflow is itself an observation.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use storewatch_core::{
    observation::Observation,
    source::{Loss, SourceName},
    time::MonoTime,
};
use tokio::sync::mpsc;

/// Observations that may wait. A storm of failures is read from counters, so this bounds details, not truth; at about
/// 200 bytes each it is under 2 MiB.
const CAPACITY: usize = 8192;

/// The end that a source holds.
#[derive(Clone, Debug)]
pub struct ObservationSender {
    sender: mpsc::Sender<Observation>,
    lost: Arc<[AtomicU64; SourceName::ALL.len()]>,
}

/// The end that the engine holds.
#[derive(Debug)]
pub struct ObservationReceiver {
    receiver: mpsc::Receiver<Observation>,
    lost: Arc<[AtomicU64; SourceName::ALL.len()]>,
}

/// Makes the channel.
pub fn channel() -> (ObservationSender, ObservationReceiver) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let lost = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    (ObservationSender { sender, lost: Arc::clone(&lost) }, ObservationReceiver { receiver, lost })
}

fn index(source: SourceName) -> usize {
    SourceName::ALL.iter().position(|name| *name == source).unwrap_or_default()
}

impl ObservationSender {
    /// Hands over a detail that may be dropped when the engine is behind; the drop is counted and told.
    pub fn offer(&self, source: SourceName, observation: Observation) {
        if self.sender.try_send(observation).is_err() {
            self.lost[index(source)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one that could not even be understood.
    pub fn not_understood(&self, source: SourceName) {
        self.lost[index(source)].fetch_add(1, Ordering::Relaxed);
    }

    /// Hands over what must arrive, waiting for room. An error means that the engine has ended.
    ///
    /// # Errors
    /// [`EngineEnded`] when nobody will ever receive it.
    pub async fn send(&self, observation: Observation) -> Result<(), EngineEnded> {
        self.sender.send(observation).await.map_err(|_| EngineEnded)
    }
}

impl ObservationReceiver {
    /// The next observation; `None` when every source has ended. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Observation> {
        self.receiver.recv().await
    }

    /// An observation that waits already.
    pub fn try_recv(&mut self) -> Option<Observation> {
        self.receiver.try_recv().ok()
    }

    /// What was dropped since the last call, as observations.
    pub fn losses(&self, at: MonoTime) -> Vec<Observation> {
        SourceName::ALL
            .iter()
            .filter_map(|source| {
                let lost = self.lost[index(*source)].swap(0, Ordering::Relaxed);
                (lost > 0).then_some(Observation::Loss(Loss { source: *source, at, lost, counters: false }))
            })
            .collect()
    }
}

/// The engine no longer receives: the agent is shutting down.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the engine has ended")]
pub struct EngineEnded;
