//! Where recordings leave the engine: the one place at which it notes what it judges, and what may never hold it up.
//!
//! The engine hands each observation to the [`Tap`] before it files it, and tells it each judgement. Without a recorder
//! the tap does nothing; with one it puts each judgement into that recorder's queue. A queue that is full loses the
//! judgement, counts it, and says so with the next that fits.

use super::{
    Judgement, Lost, Start, Told,
    format::{Header, Line, encode, encode_header, encode_start},
    told::Timeline,
};
use std::sync::Arc;
use storewatch_core::{
    connection::{AttemptCount, SocketSample},
    endpoints::{Endpoint, Service},
    id::{PodUid, TargetId},
    judge::Judge,
    observation::Observation,
    ping::PeerReport,
    pod::PodRecord,
    process::ProcessReport,
    snapshot::Snapshot,
    time::MonoTime,
    topology::ListedStore,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Recordings at a time: one for the operator, and room for a colleague's.
pub const MAX_RECORDERS: usize = 4;

/// Judgements that may wait for one recorder...
const QUEUE: usize = 1024;

/// ... and how many bytes they may hold together.
const QUEUE_BYTES: u32 = 8 << 20;

/// Bytes that an observation holds, about.
fn weight(observation: &Observation) -> usize {
    let inside = match observation {
        Observation::Attempts { counts, .. } => counts.len() * size_of::<AttemptCount>(),
        Observation::Inventory(sample) => sample.sockets.len() * size_of::<SocketSample>(),
        Observation::RoundEnded(round) => round.asked.len() * size_of::<TargetId>(),
        Observation::Pd(report) => {
            report.peers.len() * size_of::<PeerReport>()
                + report.list.as_ref().map_or(0, |list| list.len() * 2 * size_of::<ListedStore>())
        }
        Observation::Pods { pods, .. } => pods.len() * 2 * size_of::<PodRecord>(),
        Observation::Endpoints(report) => {
            let endpoints = report.services.iter().map(|service| service.endpoints.len()).sum::<usize>();
            report.services.len() * size_of::<Service>() + endpoints * 2 * size_of::<Endpoint>()
        }
        Observation::Exits { pods, .. } => pods.len() * 2 * size_of::<PodUid>(),
        Observation::Processes(reports) => reports.len() * size_of::<ProcessReport>(),
        Observation::Connection(_)
        | Observation::Ping(_)
        | Observation::Name(_)
        | Observation::Source(_)
        | Observation::Loss(_) => 0,
    };
    size_of::<Observation>() + inside
}

/// What a recorder receives.
#[derive(Debug)]
enum Entry {
    Start(MonoTime, Box<Start>),
    Judged {
        judgement: Arc<Judgement>,
        told: Vec<Told>,
        /// What did not fit before this.
        lost: Lost,
        /// Its share of the queue's bytes, given back when the recorder has taken it.
        _room: OwnedSemaphorePermit,
    },
}

/// A recorder as the engine sees it.
#[derive(Debug)]
struct Recorder {
    entries: mpsc::Sender<Entry>,
    room: Arc<Semaphore>,
    lost: Lost,
    /// Follows the snapshots since its begin.
    timeline: Timeline,
}

impl Recorder {
    /// Hands over a judgement and what was told with it, or counts it as lost. False once nobody receives any more.
    fn offer(&mut self, judgement: &Arc<Judgement>, snapshot: Option<&Snapshot>, bytes: usize) -> bool {
        let news = snapshot.map(|snapshot| self.timeline.follow(snapshot)).unwrap_or_default();
        let told = news.into_iter().map(|(told, _)| told).collect();
        if self.entries.is_closed() {
            return false;
        }
        // What is larger than the whole queue fits into an empty one.
        let share = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(1, QUEUE_BYTES);
        let room = Arc::clone(&self.room).try_acquire_many_owned(share);
        let sent = room.is_ok_and(|room| {
            let judgement = Arc::clone(judgement);
            self.entries.try_send(Entry::Judged { judgement, told, lost: self.lost, _room: room }).is_ok()
        });
        if sent {
            self.lost = Lost::default();
        } else {
            let observations = u64::try_from(judgement.observed.len()).unwrap_or(u64::MAX);
            self.lost.observations = self.lost.observations.saturating_add(observations);
            self.lost.judgements = self.lost.judgements.saturating_add(1);
        }
        true
    }
}

/// The engine's end.
#[derive(Debug)]
pub struct Tap {
    requests: mpsc::Receiver<Recorder>,
    /// Who waits to begin.
    waiting: Vec<Recorder>,
    recorders: Vec<Recorder>,
    /// What was observed since the last judgement.
    pending: Vec<Observation>,
}

/// The publishers' end: cheap to clone.
#[derive(Clone, Debug)]
pub struct Recordings {
    requests: mpsc::Sender<Recorder>,
    seats: Arc<Semaphore>,
}

/// Makes both ends.
pub fn channel() -> (Tap, Recordings) {
    let (sender, requests) = mpsc::channel(MAX_RECORDERS);
    let tap = Tap { requests, waiting: Vec::new(), recorders: Vec::new(), pending: Vec::new() };
    (tap, Recordings { requests: sender, seats: Arc::new(Semaphore::new(MAX_RECORDERS)) })
}

impl Tap {
    /// Notes an observation that is about to be filed.
    pub fn note(&mut self, observation: &Observation) {
        if !self.recorders.is_empty() {
            self.pending.push(observation.clone());
        }
    }

    /// Notes that what was filed has been judged at `at`, and what was published then, if anything.
    pub fn judged(&mut self, at: MonoTime, snapshot: Option<&Snapshot>) {
        if self.recorders.is_empty() {
            return;
        }
        let observed = std::mem::take(&mut self.pending);
        let bytes = observed.iter().map(weight).sum();
        let judgement = Arc::new(Judgement { at, observed });
        self.recorders.retain_mut(|recorder| recorder.offer(&judgement, snapshot, bytes));
    }

    /// Waits until somebody wants to record, whom the next [`Tap::admit`] lets begin; for ever once no publisher is left.
    /// Cancel-safe.
    pub async fn asked(&mut self) {
        match self.requests.recv().await {
            Some(recorder) => self.waiting.push(recorder),
            None => std::future::pending().await,
        }
    }

    /// Lets those who asked begin with the state of `judge` after its judgement at `now`.
    pub fn admit(&mut self, judge: &Judge, now: MonoTime) {
        for mut recorder in std::mem::take(&mut self.waiting) {
            recorder.timeline = Timeline::of(&judge.snapshot(now));
            let start = Start { settings: judge.settings().clone(), memory: judge.whole_memory(now) };
            if recorder.entries.try_send(Entry::Start(now, Box::new(start))).is_ok() {
                self.recorders.push(recorder);
            }
        }
    }
}

impl Recordings {
    /// Asks the engine for a recording; it begins with the engine's next turn.
    ///
    /// # Errors
    /// [`Busy`] when there are as many as there may be.
    pub fn begin(&self) -> Result<Recording, Busy> {
        let seat = Arc::clone(&self.seats).try_acquire_owned().map_err(|_| Busy)?;
        let (sender, entries) = mpsc::channel(QUEUE);
        let room = Arc::new(Semaphore::new(QUEUE_BYTES as usize));
        let recorder = Recorder { entries: sender, room, lost: Lost::default(), timeline: Timeline::default() };
        self.requests.try_send(recorder).map_err(|_| Busy)?;
        Ok(Recording { entries, _seat: seat })
    }
}

/// A recording in progress.
#[derive(Debug)]
pub struct Recording {
    entries: mpsc::Receiver<Entry>,
    _seat: OwnedSemaphorePermit,
}

impl Recording {
    /// The next lines, as bytes; `None` once the engine has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        Some(match self.entries.recv().await? {
            Entry::Start(at, start) => {
                let mut lines = encode_header(&Header::new(&start.settings.node, at));
                lines.extend(encode_start(*start));
                lines
            }
            Entry::Judged { judgement, told, lost, _room } => {
                let mut lines = Vec::new();
                if !lost.is_none() {
                    lines.extend(encode(&Line::Lost { at: judgement.at, lost }));
                }
                let judgement = Judgement::clone(&judgement);
                lines.extend(encode(&Line::Judged { judgement, told }));
                lines
            }
        })
    }
}

/// As many recordings as there may be are running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_RECORDERS} recordings are running, and there may be no more")]
pub struct Busy;
