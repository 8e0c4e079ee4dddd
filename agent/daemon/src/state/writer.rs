//! The task that writes: off the engine, at its own pace, and never a reason to end.

use super::StateFile;
use std::{collections::VecDeque, io, sync::Arc, time::Duration};
use storewatch_core::{memory::Memory, time::MonoTime, verdict::Reason};
use tokio::{sync::watch, time::Instant};

/// Least distance between two writes: what changes more often is written in its last state.
const SPACING: Duration = Duration::from_secs(1);

/// A verdict that has changed is written at once: a kill must not bring back one that somebody has read already. The node's
/// and the pods' change one right after the other, so that many such writes follow each other without a pause...
const BURST: usize = 10;

/// ... and no more of them within this.
const BURST_TIME: Duration = Duration::from_secs(1);

/// While nothing changes, clocks inside go on (how long a Store has answered elsewhere, when an address was last
/// claimed); losing more of them than this would delay what a restart must not delay.
const REFRESH: Duration = Duration::from_secs(30);

/// The engine's end: takes what is to be written and never waits.
#[derive(Debug)]
pub struct Recorder {
    sender: Option<watch::Sender<Option<Arc<Memory>>>>,
    changes: u64,
    taken_at: MonoTime,
}

impl Recorder {
    /// One that records nothing.
    pub fn off() -> Self {
        Self { sender: None, changes: 0, taken_at: MonoTime::default() }
    }

    /// Takes `memory()` if there is something new to it: another count of changes, or the clocks of 30 s.
    pub fn published(&mut self, changes: u64, now: MonoTime, memory: impl FnOnce() -> Memory) {
        if changes != self.changes || now.since(self.taken_at) >= REFRESH {
            self.changes = changes;
            self.record(now, memory);
        }
    }

    /// Takes the last `memory()`, to be written before the agent ends.
    pub fn ends(mut self, now: MonoTime, memory: impl FnOnce() -> Memory) {
        // An engine that has published nothing knows no more than the file.
        if self.changes > 0 {
            self.record(now, memory);
        }
    }

    fn record(&mut self, now: MonoTime, memory: impl FnOnce() -> Memory) {
        self.taken_at = now;
        if let Some(sender) = &self.sender {
            sender.send_replace(Some(Arc::new(memory())));
        }
    }
}

/// The task's end.
#[derive(Debug)]
pub struct Writer {
    file: StateFile,
    receiver: watch::Receiver<Option<Arc<Memory>>>,
    /// The verdicts on the disk.
    kept: Vec<Reason>,
    /// What was last said about a write that failed or left something out.
    failing: Option<String>,
}

/// Makes both ends.
pub(super) fn channel(file: StateFile) -> (Recorder, Writer) {
    let (sender, receiver) = watch::channel(None);
    let recorder = Recorder { sender: Some(sender), ..Recorder::off() };
    (recorder, Writer { file, receiver, kept: Vec::new(), failing: None })
}

impl Writer {
    /// Writes until the [`Recorder`] is gone and its last state is on the disk.
    ///
    /// # Errors
    /// None: a disk that fails is said, and tried again with the next state.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let mut writes: VecDeque<Instant> = VecDeque::with_capacity(BURST);
        // A state that came before the recorder went is still seen as a change, so the last one is written, too.
        while self.receiver.changed().await.is_ok() {
            loop {
                let due = if self.verdicts() == self.kept {
                    writes.back().map(|last| *last + SPACING)
                } else {
                    (writes.len() == BURST).then(|| writes.front().map(|first| *first + BURST_TIME)).flatten()
                };
                let due = due.unwrap_or_else(Instant::now);
                // A newer state may be due sooner; the agent's end does not wait at all.
                match tokio::time::timeout_at(due, self.receiver.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => break,
                }
            }
            self.write().await;
            if writes.len() == BURST {
                writes.pop_front();
            }
            writes.push_back(Instant::now());
        }
        Ok(())
    }

    /// The verdicts of the state that waits.
    fn verdicts(&self) -> Vec<Reason> {
        self.receiver.borrow().as_deref().map(verdicts).unwrap_or_default()
    }

    async fn write(&mut self) {
        let Some(memory) = self.receiver.borrow_and_update().clone() else { return };
        let (file, kept) = (self.file.clone(), verdicts(&memory));
        let written = tokio::task::spawn_blocking(move || file.store(&memory)).await;
        let written = written.unwrap_or_else(|_| Err(io::Error::other("the writing panicked")));
        if written.is_ok() {
            self.kept = kept;
        }
        self.tell(match written {
            Ok(true) => None,
            Ok(false) => {
                Some("is written without the connections, which are too many: a restart would forget them".into())
            }
            Err(error) => Some(format!("cannot be written, a restart would forget: {error}")),
        });
    }

    /// Says a failure once, and again when it is another one or over.
    fn tell(&mut self, why: Option<String>) {
        if why == self.failing {
            return;
        }
        let path = self.file.path().display();
        match &why {
            Some(why) => tracing::warn!("state_file {path} {why}"),
            None => tracing::info!("state_file {path} is written whole again"),
        }
        self.failing = why;
    }
}

/// The verdicts of all clusters, then of all pods. Pods that come and go differ, too, and are no reason to wait either.
fn verdicts(memory: &Memory) -> Vec<Reason> {
    let clusters = memory.clusters.iter().map(|cluster| cluster.verdict.reason);
    clusters.chain(memory.pods.iter().map(|pod| pod.verdict.reason)).collect()
}

#[cfg(test)]
mod tests;
