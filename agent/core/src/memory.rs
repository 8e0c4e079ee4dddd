//! All that decides, as plain values: what survives a restart of the agent, and what a recording begins with.
//!
//! [`Judge::memory`](crate::judge::Judge::memory) takes it, and both ways back go through the same door.
//! [`Judge::resume`](crate::judge::Judge::resume) goes on exactly where it was taken: the same observations at the same
//! instants give the same verdicts and findings, with the same begins. [`Judge::restore`](crate::judge::Judge::restore)
//! first takes out what nobody vouches for once the agent was away ([`Memory::interrupted`]).
//!
//! Left out is what decides nothing: counters for metrics, events that were told, wishes to the sources, and what the
//! next judgement makes anew from the rest.
//!
//! The instants are of this boot's monotonic clock. Whoever stores them adds the wall clock and the boot's id, and after a
//! reboot moves the instants ([`Memory::map_times`]) and drops what ended with the boot ([`Memory::after_reboot`]).

use crate::{
    connection::{AttemptCount, ConnectionEvent, SocketId, TcpState},
    endpoints::Occupant,
    id::{ContainerKey, HostPort, PodUid, TargetKey},
    ownership::Tenure,
    ping::NameFailure,
    pod::PodRecord,
    pods::ReachLatch,
    rounds::Rounds,
    snapshot::LastPing,
    source::{SourceName, SourceState},
    stale::StaleEntry,
    time::MonoTime,
    topology::ListedStore,
    verdict::{Finding, Reason},
};
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

mod interrupted;
mod times;

pub use crate::{
    container::{Attempt, Recent, Remote},
    dialers::Dialer,
    findings::Answered,
    pd::Streak,
    pings::AddressPings,
    sockets::Received,
};

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When it was taken.
    pub taken_at: MonoTime,
    /// When this run took back what an earlier one had put away, if it did: before that somebody else watched, and for a
    /// while nobody.
    pub watched_since: Option<MonoTime>,
    /// The clusters, by name.
    pub clusters: Vec<ClusterMemory>,
    /// The judged pods.
    pub pods: Vec<PodMemory>,
    /// What belongs to none of them.
    pub node: NodeMemory,
}

/// What is known of the sources, and what they told that nobody can use yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// When the list of pods was true last; `None` before the first.
    pub pods_at: Option<MonoTime>,
    /// When the reading of the latest sample of sockets began.
    pub sampled: Option<MonoTime>,
    /// When it was granted last that pods leave, and which.
    pub exits: Option<(MonoTime, BTreeSet<PodUid>)>,
    /// Evidence that came before the pod that it may belong to.
    pub early: Vec<Early>,
    /// The sources.
    pub sources: Vec<SourceMemory>,
    /// What the kernel side lost.
    pub kernel_loss: Option<KernelLoss>,
    /// What has been published. Whoever goes on after a restart has published nothing, so the state file leaves it out.
    pub publication: Option<Publication>,
}

/// Evidence that came before its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Early {
    /// When it was filed.
    pub at: MonoTime,
    /// What.
    pub what: EarlyEvidence,
}

/// The kinds of [`Early`] evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEvidence {
    /// Growth of a counter.
    Count(AttemptCount),
    /// A detail.
    Event(ConnectionEvent),
}

/// A source's last word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceMemory {
    /// Which.
    pub name: SourceName,
    /// How it is.
    pub state: SourceState,
    /// Why.
    pub detail: Arc<str>,
    /// Its youngest answer.
    pub last: Option<MonoTime>,
    /// What was told of it last, with an event: how it was...
    pub told: SourceState,
    /// ... why, ...
    pub told_detail: Arc<str>,
    /// ... and when.
    pub told_at: MonoTime,
}

/// Losses of the kernel side that no whole window parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLoss {
    /// The first.
    pub since: MonoTime,
    /// The last.
    pub last: MonoTime,
    /// How many in all.
    pub lost: u64,
    /// Counters are among what was lost.
    pub counters: bool,
}

/// When snapshots were made, which decides when the next may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The last time that the world was looked at as a whole.
    pub looked_at: Option<MonoTime>,
    /// The last time that a snapshot was published.
    pub published_at: Option<MonoTime>,
    /// Something was observed since the former...
    pub dirty: bool,
    /// ... and since the latter.
    pub stale_ages: bool,
    /// What was published last still shows the world.
    pub current: bool,
}

/// A verdict, as it stood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerdictMemory {
    /// Why.
    pub reason: Reason,
    /// In words.
    pub message: String,
    /// Since when.
    pub since: MonoTime,
    /// Kept from before a restart and not confirmed since.
    pub carried: bool,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterMemory {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// The PD peers that were configured: what is known of them counts only while they are the same.
    pub pd_peers: Vec<HostPort>,
    /// The Stores that were configured, likewise.
    pub stores: Vec<HostPort>,
    /// PD's last list that was not empty.
    pub list: Vec<ListedStore>,
    /// When it came.
    pub list_at: Option<MonoTime>,
    /// A Store answered once.
    pub ever_answered: bool,
    /// Every ping so far ended in a time-out.
    pub only_deadlines: bool,
    /// The node's verdict.
    pub verdict: VerdictMemory,
    /// What the rules say by the evidence of this run alone.
    pub live: Reason,
    /// The rounds of pings.
    pub rounds: Rounds,
    /// The round that is under way or ended last...
    pub last_round: LastRound,
    /// ... and the last one that is over.
    pub answered_round: LastRound,
    /// The youngest evidence of this node's own pings.
    pub evidence_at: Option<MonoTime>,
    /// What pings showed of each Store.
    pub pinged: Vec<(TargetKey, StoreMemory)>,
    /// What they showed at each address.
    pub addresses: Vec<(SocketAddr, AddressPings)>,
    /// PD, as far as the peers are the same.
    pub pd: PdMemory,
    /// Who owned which address when.
    pub tenures: Vec<TenureMemory>,
    /// Targets that existed once and held an address when they left.
    pub gone: BTreeSet<TargetKey>,
    /// Addresses of Services.
    pub services: BTreeSet<IpAddr>,
    /// The pods at the targets' addresses.
    pub occupants: Vec<(TargetKey, SocketAddr, Occupant)>,
    /// What stood out about the Stores.
    pub findings: Vec<Finding>,
}

/// A round of pings, as far as it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastRound {
    /// Its number.
    pub number: Option<u64>,
    /// The first answer: whose, when, and how long it took.
    pub first: Option<(TargetKey, MonoTime, Duration)>,
    /// All that were asked, once it is over.
    pub asked: Vec<TargetKey>,
}

/// What pings showed of a Store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreMemory {
    /// It answered the last one.
    pub answering: Option<bool>,
    /// The last one.
    pub last_ping: Option<LastPing>,
    /// The last one that was answered.
    pub answer: Option<Answered>,
    /// Pings in a row without an answer...
    pub silent: u32,
    /// ... and since when.
    pub silent_since: Option<MonoTime>,
}

/// PD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PdMemory {
    /// When it was asked last.
    pub checked: Option<MonoTime>,
    /// A peer's process answered.
    pub reachable: Option<bool>,
    /// A list came.
    pub has_leader: Option<bool>,
    /// The peers, in the order of the configuration.
    pub peers: Vec<PeerMemory>,
    /// Empty lists in a row.
    pub empty: Streak,
    /// Attempts in a row that gave no list, ...
    pub silent: Streak,
    /// ... at which nobody answered at all, ...
    pub down: Streak,
    /// ... at which somebody served, ...
    pub leaderless: Streak,
    /// ... which were refused.
    pub refused: Streak,
}

/// A PD peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerMemory {
    /// Its process answered last.
    pub reachable: Option<bool>,
    /// What went wrong last.
    pub last_error: Option<Arc<str>>,
    /// It was not asked for want of an address.
    pub unresolved: bool,
    /// What DNS said last of its name, for A: whether there is an address, or why that is not known...
    pub v4: Option<Result<bool, NameFailure>>,
    /// ... and for AAAA.
    pub v6: Option<Result<bool, NameFailure>>,
}

/// A target's time at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenureMemory {
    /// Whose.
    pub target: TargetKey,
    /// Where.
    pub address: SocketAddr,
    /// When, and by whose word.
    pub tenure: Tenure,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMemory {
    /// Name of its cluster (positions in the configuration may change).
    pub cluster: Arc<str>,
    /// Who it was.
    pub record: PodRecord,
    /// A list of this run held it.
    pub listed: bool,
    /// Its verdict.
    pub verdict: VerdictMemory,
    /// That is from before a restart, and nothing has been seen since.
    pub restored: bool,
    /// It could not reach the Stores.
    pub reach: Option<ReachLatch>,
    /// Its containers.
    pub containers: Vec<ContainerMemory>,
    /// What stood out.
    pub findings: Vec<Finding>,
    /// What stood out before a restart, as long as that counts.
    pub carried: Vec<Finding>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerMemory {
    /// Which.
    pub key: ContainerKey,
    /// When it was first seen.
    pub first_seen: MonoTime,
    /// It was not in the pod's list of containers.
    pub foreign: bool,
    /// When evidence of it came last.
    pub last_evidence: Option<MonoTime>,
    /// What it does with former addresses.
    pub stale: Vec<(TargetKey, SocketAddr, StaleEntry)>,
    /// Readings of the targets' clocks at its begin.
    pub baselines: Vec<(TargetKey, SocketAddr, Duration)>,
    /// The processes that dialled.
    pub dialers: Vec<(u32, Dialer)>,
    /// Its connections; `None` where they did not fit.
    pub evidence: Option<Evidence>,
    /// Until this instant nobody watched, and no whole sample has come since.
    pub gap: Option<MonoTime>,
}

/// A container's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// What dials and connections to each address came to.
    pub remotes: Vec<(SocketAddr, Remote)>,
    /// Those that live.
    pub sockets: Vec<SocketMemory>,
}

/// A socket, as far as it decides anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMemory {
    /// Which; 0 where only its addresses tell.
    pub id: SocketId,
    /// Own address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Its state.
    pub state: TcpState,
    /// The process that began it or holds it.
    pub pid: Option<u32>,
    /// When it was begun, if that was seen.
    pub begun: Option<MonoTime>,
    /// When its handshake ended, if that was seen.
    pub established: Option<MonoTime>,
    /// When it was first seen.
    pub first_seen: MonoTime,
    /// When it was last seen.
    pub last_seen: MonoTime,
    /// Payload received.
    pub bytes_received: Option<u64>,
    /// When that arrived.
    pub received: Received,
    /// Bytes written that the peer has not acknowledged.
    pub unanswered: u64,
    /// Retransmissions in a row.
    pub retransmits: u8,
    /// When it was last used, as sampled.
    pub last_used: Option<MonoTime>,
    /// Since when it waits for an answer.
    pub stuck_since: Option<MonoTime>,
    /// When that last counted as a failed attempt.
    pub stuck_counted: Option<MonoTime>,
}

impl Memory {
    /// After a reboot no container is what it was: inode numbers are given anew. Nor does what waited for one.
    pub fn after_reboot(mut self) -> Self {
        self.pods.clear();
        self.node = NodeMemory::default();
        self
    }

    /// The same without what grows with the number of connections, for whoever has no room for that: verdicts and whose
    /// addresses are stay.
    pub fn without_evidence(mut self) -> Self {
        self.node.early.clear();
        for container in self.pods.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.evidence = None;
            container.gap = None;
        }
        self
    }
}
