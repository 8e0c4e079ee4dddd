//! What is published: immutable, small, complete.

use crate::{
    attribution::Unattributed,
    connection::ConnectionOutcome,
    endpoints::Occupant,
    guard::GuardView,
    id::{ClusterId, HostPort, TargetId, TargetKey},
    ping::{Phases, PingOutcome},
    pod::PodRecord,
    process::CommandLine,
    source::{SourceName, SourceState},
    time::MonoTime,
    topology::ReportedState,
    verdict::{Finding, Remedy, Verdict},
};
use std::{net::IpAddr, sync::Arc};

/// All that publishers know.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// This node.
    pub node: Arc<str>,
    /// Rises with every event and with every published change: a snapshot shows the effect of all events up to its own.
    pub generation: u64,
    /// When it was made.
    pub taken_at: MonoTime,
    /// Each configured cluster, by its [`ClusterId`].
    pub clusters: Vec<ClusterView>,
    /// The judged pods, sorted by name.
    pub pods: Vec<PodView>,
    /// The pod inventory has answered and is fresh: a pod that is not listed does not exist.
    pub pods_fresh: bool,
    /// Every source.
    pub sources: Vec<SourceView>,
    /// Every source has had its first answer or is marked absent.
    pub synced: bool,
    /// What the kernel side counted, for metrics.
    pub kernel: KernelCounters,
    /// Kernel evidence that belongs to no judged pod, by the reason why.
    pub unattributed: Vec<(Unattributed, u64)>,
    /// What did not fit into the judge's own bounded memories since start.
    pub dropped: Dropped,
}

/// What the judge's own bounds dropped since start. All zero on a node that is not under attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Events that came faster than they were handed out.
    pub events: u64,
    /// Addresses of targets, and list entries with a duplicate id or beyond the limit.
    pub targets: u64,
    /// Pods beyond the limit, or of a cluster that is not configured.
    pub pods: u64,
    /// Remote addresses, sockets and containers of single pods.
    pub evidence: u64,
}

impl Snapshot {
    /// The same without what each agent counts from its own start: equal for two that know the same.
    pub fn without_counters(mut self) -> Self {
        let Self { generation, clusters, pods, sources, kernel, unattributed, dropped, .. } = &mut self;
        (*generation, *kernel, *dropped) = Default::default();
        unattributed.clear();
        sources.iter_mut().for_each(|source| source.lost = 0);
        for store in clusters.iter_mut().flat_map(|cluster| &mut cluster.stores) {
            store.pings.clear();
            store.ping_durations = Default::default();
        }
        for pod in pods {
            pod.transitions.clear();
            pod.targets.clear();
        }
        self
    }
}

/// A cluster as seen from this node.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    /// Its position.
    pub id: ClusterId,
    /// Its name.
    pub name: Arc<str>,
    /// Whether this node reaches its storage.
    pub readiness: NodeReadiness,
    /// Its Stores, sorted.
    pub stores: Vec<StoreView>,
    /// Its PD.
    pub pd: PdView,
}

/// The node's readiness for one cluster, and the numbers behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReadiness {
    /// The answer.
    pub verdict: Verdict,
    /// Stores expected to answer.
    pub active_stores: u32,
    /// The Store that answered first in the last round; `None` when none did or it has no PD id.
    pub answered_store: Option<u64>,
    /// How many answered in the last round.
    pub answering: u32,
    /// Ids of those that did not.
    pub unanswered_stores: Vec<u64>,
    /// `None` until the first attempt has ended.
    pub pd_reachable: Option<bool>,
    /// When the last attempt on PD ended.
    pub pd_checked: Option<MonoTime>,
    /// When the list was last confirmed.
    pub stores_at: Option<MonoTime>,
    /// Time to the first answer of the last round, in milliseconds.
    pub store_millis: Option<u64>,
    /// The youngest evidence that the verdict rests on.
    pub evidence_at: Option<MonoTime>,
    /// Union of the findings about the cluster's targets.
    pub findings: Vec<Finding>,
}

/// One address of a Store over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressView {
    /// The address.
    pub ip: IpAddr,
    /// Since when it is claimed.
    pub from: MonoTime,
    /// Until when it was; `None` while it is.
    pub to: Option<MonoTime>,
    /// Who claims it: names of sources, joined by a comma.
    pub source: String,
    /// What a ping there showed.
    pub identity: Option<Arc<str>>,
    /// Sources that claimed it and now answer without it, while others claim it; empty when they agree.
    pub against: String,
    /// The pod there, or the last one that was, where Kubernetes tells.
    pub occupant: Option<Occupant>,
}

/// The last ping of a Store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastPing {
    /// How it ended.
    pub outcome: PingOutcome,
    /// When.
    pub at: MonoTime,
    /// Where the time went.
    pub phases: Phases,
    /// What went wrong.
    pub detail: Option<Arc<str>>,
}

/// A Store as seen from this node.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreView {
    /// Which.
    pub target: TargetId,
    /// Where.
    pub address: HostPort,
    /// What people call it: the shortest part of its address that is its own.
    pub name: String,
    /// PD's word; `None` for one that only the configuration names.
    pub reported: Option<ReportedState>,
    /// Expected to answer.
    pub expected: bool,
    /// It answered the last ping; `None` before the first.
    pub answering: Option<bool>,
    /// The last ping.
    pub last_ping: Option<LastPing>,
    /// Its addresses, present and former.
    pub addresses: Vec<AddressView>,
    /// What stands out about it.
    pub findings: Vec<Finding>,
    /// Pings by outcome since start.
    pub pings: Vec<(PingOutcome, u64)>,
    /// Durations per phase since start: dns, connect, http2, rpc.
    pub ping_durations: [Histogram; 4],
}

/// PD as seen from this node.
#[derive(Clone, Debug, PartialEq)]
pub struct PdView {
    /// Any peer's process answers; `None` before the first attempt has ended.
    pub reachable: Option<bool>,
    /// A list came; `None` before the first attempt has ended.
    pub has_leader: Option<bool>,
    /// Each configured peer.
    pub peers: Vec<PeerView>,
    /// What stands out about it.
    pub findings: Vec<Finding>,
}

/// A PD peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Position in the configuration.
    pub peer: u16,
    /// Where.
    pub address: HostPort,
    /// Its process answers; `None` before it was asked.
    pub reachable: Option<bool>,
    /// What went wrong last.
    pub last_error: Option<Arc<str>>,
}

/// A judged pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// Who it is.
    pub record: Arc<PodRecord>,
    /// The answer.
    pub verdict: Verdict,
    /// What stands out.
    pub findings: Vec<Finding>,
    /// The youngest evidence that the verdict rests on.
    pub evidence_at: Option<MonoTime>,
    /// What to do about the verdict, where no finding says more.
    pub remedy: Option<Remedy>,
    /// How the guard stands to it, while it should leave on passive evidence.
    pub guard: Option<GuardView>,
    /// The processes that dial.
    pub processes: Vec<ProcessView>,
    /// Per target.
    pub targets: Vec<PodTargetView>,
    /// Transitions into each reason since start.
    pub transitions: Vec<(crate::verdict::Reason, u64)>,
}

/// A process that dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessView {
    /// Its number in the initial pid namespace.
    pub pid: u32,
    /// When it began; `None` before it was looked at.
    pub started: Option<MonoTime>,
    /// What its command line says; `None` if that was not read.
    pub command: Option<CommandLine>,
}

/// A target of a pod: `None` stands for `other`, an address that no target owns.
#[derive(Clone, Debug, PartialEq)]
pub struct PodTargetView {
    /// Which.
    pub target: Option<TargetKey>,
    /// Attempts by how they ended.
    pub connects: Vec<(ConnectionOutcome, u64)>,
    /// Established connections by how they ended.
    pub endings: Vec<(ConnectionOutcome, u64)>,
    /// RSTs.
    pub resets_received: u64,
    /// RSTs.
    pub resets_sent: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Connections held now, by who owns their remote address.
    pub connections: Connections,
    /// Durations of successful dials, where the begin was seen.
    pub connect_duration: Histogram,
    /// When an attempt was begun last.
    pub last_attempt: Option<MonoTime>,
    /// When one was answered last.
    pub last_answer: Option<MonoTime>,
    /// When payload arrived last from where the target is at present, as sampled.
    pub received: Option<MonoTime>,
}

/// Connections by the owner of their remote address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// The target owns the address now.
    pub current: u32,
    /// It did before.
    pub previous: u32,
    /// No source knows.
    pub unknown: u32,
}

/// Counts of durations, cumulative as Prometheus wants them only when rendered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Histogram {
    /// One count per bound of [`Histogram::BOUNDS`], and one for all above.
    pub counts: [u64; 13],
    /// Sum of all, in seconds.
    pub sum: f64,
}

impl Histogram {
    /// Upper bounds in seconds: from a same-node handshake to gRPC's 30 s connect time-out.
    pub const BOUNDS: [f64; 12] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

    /// Counts one duration.
    pub fn observe(&mut self, duration: std::time::Duration) {
        let seconds = duration.as_secs_f64();
        let index = Self::BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(Self::BOUNDS.len());
        self.counts[index] = self.counts[index].saturating_add(1);
        self.sum += seconds;
    }
}

/// A source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceView {
    /// Which.
    pub name: SourceName,
    /// How it is.
    pub state: SourceState,
    /// Why, and how to get the rest.
    pub detail: Arc<str>,
    /// What it lost since start.
    pub lost: u64,
    /// Its youngest answer.
    pub last: Option<MonoTime>,
}

/// What the kernel side counted since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Details received.
    pub state: u64,
    /// Details received.
    pub reset_received: u64,
    /// Details received.
    pub reset_sent: u64,
    /// Details received.
    pub retransmit: u64,
    /// Details received.
    pub error: u64,
    /// Details lost.
    pub lost: u64,
    /// Details and counts on watched ports that belong to no judged pod.
    pub unattributed: u64,
}
