//! Where recordings leave the engine: the one place at which it notes what it judges, and what may never hold it up.
//!
//! The engine hands each observation to the [`Tap`] before it files it, and tells it each judgement. Without a recorder
//! the tap only remembers the last word of each source and what was judged lately, within bounds; with one it puts each
//! judgement into that recorder's queue. A queue that is full loses the judgement, counts it, and says so with the next
//! that fits.

use super::{
    Judgement, Lost, Start, Told,
    format::{Header, Line, encode, encode_header},
    told::Timeline,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{
    connection::{AttemptCount, SocketSample},
    endpoints::{Endpoint, Service},
    id::{ClusterId, PodUid, TargetId},
    judge::Judge,
    observation::Observation,
    ping::PeerReport,
    pod::PodRecord,
    process::ProcessReport,
    snapshot::Snapshot,
    source::SourceName,
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

/// How far back a recording begins at least, if it may hold so much: attempts are remembered for a minute or the window.
const MIN_RECENT: Duration = Duration::from_secs(60);

/// Bytes of recent judgements that are kept; at a few kilobytes a round this is far more than a window.
const RECENT_BYTES: usize = 1 << 20;

/// One observation larger than this is not kept. Only the inventory of thousands of sockets is, and a new one is asked
/// for when a recording begins.
const RECENT_ONE: usize = RECENT_BYTES / 4;

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
        told: Arc<[Told]>,
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
}

impl Recorder {
    /// Hands over a judgement, or counts it as lost. False once nobody receives any more.
    fn offer(&mut self, judgement: &Arc<Judgement>, told: &Arc<[Told]>, bytes: usize) -> bool {
        if self.entries.is_closed() {
            return false;
        }
        // What is larger than the whole queue fits into an empty one.
        let share = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(1, QUEUE_BYTES);
        let room = Arc::clone(&self.room).try_acquire_many_owned(share);
        let sent = room.is_ok_and(|room| {
            let (judgement, told) = (Arc::clone(judgement), Arc::clone(told));
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

/// The last word of each source that does not repeat itself within a window.
#[derive(Debug, Default)]
struct Words {
    sources: BTreeMap<SourceName, Observation>,
    pd: BTreeMap<ClusterId, Observation>,
    pods: Option<Observation>,
    endpoints: BTreeMap<ClusterId, Observation>,
    exits: Option<Observation>,
}

impl Words {
    fn note(&mut self, observation: &Observation) {
        match observation {
            Observation::Source(report) => {
                self.sources.insert(report.source, observation.clone());
            }
            Observation::Pd(report) => {
                self.pd.insert(report.cluster, observation.clone());
            }
            Observation::Pods { .. } => self.pods = Some(observation.clone()),
            Observation::Endpoints(report) => {
                self.endpoints.insert(report.cluster, observation.clone());
            }
            Observation::Exits { .. } => self.exits = Some(observation.clone()),
            Observation::Connection(_)
            | Observation::Attempts { .. }
            | Observation::Inventory(_)
            | Observation::Ping(_)
            | Observation::RoundEnded(_)
            | Observation::Name(_)
            | Observation::Processes(_)
            | Observation::Loss(_) => {}
        }
    }

    fn all(&self) -> Vec<Observation> {
        let lists = self.endpoints.values().chain(&self.pods).chain(&self.exits);
        self.sources.values().chain(self.pd.values()).chain(lists).cloned().collect()
    }
}

/// The engine's end.
#[derive(Debug)]
pub struct Tap {
    requests: mpsc::Receiver<Recorder>,
    /// Who waits to begin.
    waiting: Vec<Recorder>,
    recorders: Vec<Recorder>,
    words: Words,
    /// What was observed since the last judgement.
    pending: Vec<Observation>,
    recent: VecDeque<(Arc<Judgement>, usize)>,
    recent_bytes: usize,
    /// How far back it reaches.
    span: Duration,
    /// Follows the snapshots while somebody records.
    timeline: Timeline,
}

/// The publishers' end: cheap to clone.
#[derive(Clone, Debug)]
pub struct Recordings {
    requests: mpsc::Sender<Recorder>,
    seats: Arc<Semaphore>,
}

/// Makes both ends; `window` is how far back the judge's short memories reach.
pub fn channel(window: Duration) -> (Tap, Recordings) {
    let (sender, requests) = mpsc::channel(MAX_RECORDERS);
    let tap = Tap {
        requests,
        waiting: Vec::new(),
        recorders: Vec::new(),
        words: Words::default(),
        pending: Vec::new(),
        recent: VecDeque::new(),
        recent_bytes: 0,
        span: window.max(MIN_RECENT),
        timeline: Timeline::default(),
    };
    (tap, Recordings { requests: sender, seats: Arc::new(Semaphore::new(MAX_RECORDERS)) })
}

impl Tap {
    /// Notes an observation that is about to be filed.
    pub fn note(&mut self, observation: &Observation) {
        self.words.note(observation);
        if !self.recorders.is_empty() || weight(observation) <= RECENT_ONE {
            self.pending.push(observation.clone());
        }
    }

    /// Notes that what was filed has been judged at `at`, and what was published then, if anything.
    pub fn judged(&mut self, at: MonoTime, snapshot: Option<&Snapshot>) {
        let observed = std::mem::take(&mut self.pending);
        let bytes = observed.iter().map(weight).sum();
        let judgement = Arc::new(Judgement { at, observed });
        if !self.recorders.is_empty() {
            let news = snapshot.map(|snapshot| self.timeline.follow(snapshot)).unwrap_or_default();
            let told: Arc<[Told]> = news.into_iter().map(|(told, _)| told).collect();
            self.recorders.retain_mut(|recorder| recorder.offer(&judgement, &told, bytes));
        }
        self.remember(judgement, bytes);
    }

    fn remember(&mut self, mut judgement: Arc<Judgement>, mut bytes: usize) {
        if bytes > RECENT_ONE {
            let Judgement { at, observed } = &*judgement;
            let observed: Vec<_> = observed.iter().filter(|one| weight(one) <= RECENT_ONE).cloned().collect();
            bytes = observed.iter().map(weight).sum();
            judgement = Arc::new(Judgement { at: *at, observed });
        }
        let now = judgement.at;
        // A judgement of nothing new leaves nothing in short memories.
        if !judgement.observed.is_empty() {
            self.recent_bytes += bytes;
            self.recent.push_back((judgement, bytes));
        }
        while let Some((oldest, bytes)) = self.recent.front() {
            if self.recent_bytes <= RECENT_BYTES && now.since(oldest.at) <= self.span {
                break;
            }
            self.recent_bytes -= bytes;
            self.recent.pop_front();
        }
    }

    /// Waits until somebody wants to record, whom the next [`Tap::admit`] lets begin; for ever once no publisher is left.
    /// Cancel-safe.
    pub async fn asked(&mut self) {
        match self.requests.recv().await {
            Some(recorder) => self.waiting.push(recorder),
            None => std::future::pending().await,
        }
    }

    /// Lets those who asked begin with the state of `judge` after its judgement at `now`. True when they lack an inventory,
    /// so that a new one is worth asking for.
    pub fn admit(&mut self, judge: &Judge, now: MonoTime) -> bool {
        let mut lacks = false;
        for recorder in std::mem::take(&mut self.waiting) {
            if self.recorders.is_empty() {
                self.timeline = Timeline::of(&judge.snapshot(now));
            }
            let start = self.start(judge, now);
            lacks |= !start.recent.iter().flat_map(|judgement| &judgement.observed).any(is_inventory);
            if recorder.entries.try_send(Entry::Start(now, Box::new(start))).is_ok() {
                self.recorders.push(recorder);
            }
        }
        lacks
    }

    /// What a recording that begins now begins with.
    pub fn start(&self, judge: &Judge, now: MonoTime) -> Start {
        let recent: Vec<_> = self.recent.iter().map(|(judgement, _)| Arc::clone(judgement)).collect();
        // Heard twice, a word would count twice.
        let repeated = |word: &Observation| recent.iter().any(|judgement| judgement.observed.contains(word));
        let words = self.words.all().into_iter().filter(|word| !repeated(word)).collect();
        Start { settings: judge.settings().clone(), memory: judge.memory(now), words, recent }
    }
}

fn is_inventory(observation: &Observation) -> bool {
    matches!(observation, Observation::Inventory(_))
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
        self.requests.try_send(Recorder { entries: sender, room, lost: Lost::default() }).map_err(|_| Busy)?;
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
                lines.extend(encode(&Line::Start(start)));
                lines
            }
            Entry::Judged { judgement, told, lost, _room } => {
                let mut lines = Vec::new();
                if !lost.is_none() {
                    lines.extend(encode(&Line::Lost { at: judgement.at, lost }));
                }
                let judgement = Judgement::clone(&judgement);
                lines.extend(encode(&Line::Judged { judgement, told: told.to_vec() }));
                lines
            }
        })
    }
}

/// As many recordings as there may be are running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_RECORDERS} recordings are running, and there may be no more")]
pub struct Busy;
