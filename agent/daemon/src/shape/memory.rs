//! All that decides: the state file, and the begin of a recording.

use super::Stored;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{
    connection, endpoints, id, memory, ownership, ping, pod, pods, process, rounds, snapshot, source, stale,
    time::MonoTime, topology, verdict,
};

/// A memory on its way to the disk: pod by pod, so that no second shape of all is held beside it.
#[derive(Debug)]
pub(crate) struct Writing<'a>(pub(crate) &'a memory::Memory);

impl Serialize for Writing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let memory::Memory { taken_at, watched_since, clusters, pods, node } = self.0;
        let mut fields = serializer.serialize_struct("Memory", 5)?;
        fields.serialize_field("taken_at", &taken_at.put())?;
        fields.serialize_field("watched_since", &watched_since.put())?;
        fields.serialize_field("clusters", &Each(clusters))?;
        fields.serialize_field("pods", &Each(pods))?;
        fields.serialize_field("node", &node.put())?;
        fields.end()
    }
}

/// A list, one after the other.
struct Each<'a, T>(&'a [T]);

impl<T: Stored<Shape: Serialize>> Serialize for Each<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(T::put))
    }
}

names! {
    ClaimSource of ownership::ClaimSource { Config, Pd, Dns, Endpoints, Identity }
    Outcome of connection::ConnectionOutcome {
        Established, Refused, Reset, NoAnswerKernel, NoAnswerGivenUp, IcmpUnreachable, HostUnreachable, NetUnreachable,
        Cancelled, LocalPorts, LocalRoute, PeerClosed, KeepaliveDead, UserTimeout, Stalled, KilledLocally, Closed, Unknown,
    }
}

choice! {
    EarlyEvidence of memory::EarlyEvidence { Count(connection::AttemptCount), Event(connection::ConnectionEvent) }
}

variants! {
    RoundState of rounds::RoundState {
        bare { NoneYet, Answering }
        one {}
        fields { Failing { began: MonoTime, ended: MonoTime } }
    }
}

record! {
    Memory of memory::Memory {
        taken_at: MonoTime,
        watched_since: Option<MonoTime>,
        clusters: Vec<memory::ClusterMemory>,
        pods: Vec<memory::PodMemory>,
        node: memory::NodeMemory,
    }
    Node of memory::NodeMemory {
        pods_at: Option<MonoTime>,
        sampled: Option<MonoTime>,
        exits: Option<(MonoTime, BTreeSet<id::PodUid>)>,
        early: Vec<memory::Early>,
        sources: Vec<memory::SourceMemory>,
        kernel_loss: Option<memory::KernelLoss>,
        publication: Option<memory::Publication>,
    }
    Early of memory::Early { at: MonoTime, what: memory::EarlyEvidence }
    Source of memory::SourceMemory {
        name: source::SourceName,
        state: source::SourceState,
        detail: Arc<str>,
        last: Option<MonoTime>,
        told: source::SourceState,
        told_detail: Arc<str>,
        told_at: MonoTime,
    }
    KernelLoss of memory::KernelLoss { since: MonoTime, last: MonoTime, lost: u64, counters: bool }
    Publication of memory::Publication {
        looked_at: Option<MonoTime>,
        published_at: Option<MonoTime>,
        dirty: bool,
        stale_ages: bool,
        current: bool,
    }
    Verdict of memory::VerdictMemory { reason: verdict::Reason, message: String, since: MonoTime, carried: bool }
    Cluster of memory::ClusterMemory {
        name: Arc<str>,
        pd_peers: Vec<id::HostPort>,
        stores: Vec<id::HostPort>,
        list: Vec<topology::ListedStore>,
        list_at: Option<MonoTime>,
        ever_answered: bool,
        only_deadlines: bool,
        verdict: memory::VerdictMemory,
        live: verdict::Reason,
        rounds: rounds::Rounds,
        last_round: memory::LastRound,
        answered_round: memory::LastRound,
        evidence_at: Option<MonoTime>,
        pinged: Vec<(id::TargetKey, memory::StoreMemory)>,
        addresses: Vec<(SocketAddr, memory::AddressPings)>,
        pd: memory::PdMemory,
        tenures: Vec<memory::TenureMemory>,
        gone: BTreeSet<id::TargetKey>,
        services: BTreeSet<IpAddr>,
        occupants: Vec<(id::TargetKey, SocketAddr, endpoints::Occupant)>,
        findings: Vec<verdict::Finding>,
    }
    Rounds of rounds::Rounds {
        state: rounds::RoundState,
        first_failed: Option<MonoTime>,
        failed: u32,
        answered: u32,
        last_failed: Option<MonoTime>,
        last_answered: Option<MonoTime>,
        sweep_answered: bool,
        counted: Option<u64>,
    }
    LastRound of memory::LastRound {
        number: Option<u64>,
        first: Option<(id::TargetKey, MonoTime, Duration)>,
        asked: Vec<id::TargetKey>,
    }
    Store of memory::StoreMemory {
        answering: Option<bool>,
        last_ping: Option<snapshot::LastPing>,
        answer: Option<memory::Answered>,
        silent: u32,
        silent_since: Option<MonoTime>,
    }
    LastPing of snapshot::LastPing {
        outcome: ping::PingOutcome,
        at: MonoTime,
        phases: ping::Phases,
        detail: Option<Arc<str>>,
    }
    Answered of memory::Answered { remote: SocketAddr, at: MonoTime, took: Duration }
    AddressPings of memory::AddressPings {
        run_since: Option<MonoTime>,
        fresh_started: Option<MonoTime>,
        last: Option<MonoTime>,
        asked: Option<MonoTime>,
    }
    Pd of memory::PdMemory {
        checked: Option<MonoTime>,
        reachable: Option<bool>,
        has_leader: Option<bool>,
        peers: Vec<memory::PeerMemory>,
        empty: memory::Streak,
        silent: memory::Streak,
        down: memory::Streak,
        leaderless: memory::Streak,
        refused: memory::Streak,
    }
    Streak of memory::Streak { count: u32, since: Option<MonoTime> }
    Peer of memory::PeerMemory {
        reachable: Option<bool>,
        last_error: Option<Arc<str>>,
        unresolved: bool,
        v4: Option<Result<bool, ping::NameFailure>>,
        v6: Option<Result<bool, ping::NameFailure>>,
    }
    OwnedAddress of memory::TenureMemory { target: id::TargetKey, address: SocketAddr, tenure: ownership::Tenure }
    Tenure of ownership::Tenure {
        from: MonoTime,
        ended: Option<MonoTime>,
        claims: BTreeMap<ownership::ClaimSource, ownership::Claim>,
        identity: Option<(Arc<str>, MonoTime)>,
        successor: ownership::SuccessorClock,
    }
    Claim of ownership::Claim { last: MonoTime, absent_since: Option<MonoTime>, absent_last: Option<MonoTime> }
    SuccessorClock of ownership::SuccessorClock {
        answered: Duration,
        first: Option<MonoTime>,
        last: Option<MonoTime>,
    }
    Pod of memory::PodMemory {
        cluster: Arc<str>,
        record: pod::PodRecord,
        listed: bool,
        verdict: memory::VerdictMemory,
        restored: bool,
        reach: Option<pods::ReachLatch>,
        containers: Vec<memory::ContainerMemory>,
        findings: Vec<verdict::Finding>,
        carried: Vec<verdict::Finding>,
    }
    ReachLatch of pods::ReachLatch {
        since: MonoTime,
        containers: BTreeSet<id::ContainerKey>,
        last_activity: MonoTime,
        carried: bool,
    }
    Container of memory::ContainerMemory {
        key: id::ContainerKey,
        first_seen: MonoTime,
        foreign: bool,
        last_evidence: Option<MonoTime>,
        stale: Vec<(id::TargetKey, SocketAddr, stale::StaleEntry)>,
        baselines: Vec<(id::TargetKey, SocketAddr, Duration)>,
        dialers: Vec<(u32, memory::Dialer)>,
        evidence: Option<memory::Evidence>,
        gap: Option<MonoTime>,
    }
    StaleEntry of stale::StaleEntry {
        since: MonoTime,
        mode: verdict::StaleMode,
        last_dial: Option<MonoTime>,
        dials: u64,
        last_counted: Option<MonoTime>,
        answers: u64,
        last_answer: Option<MonoTime>,
        last_held: Option<MonoTime>,
        suspected: Option<MonoTime>,
        confirmed: Option<MonoTime>,
        carried: bool,
    }
    Dialer of memory::Dialer {
        last: MonoTime,
        addresses: BTreeSet<SocketAddr>,
        started: Option<MonoTime>,
        command: Option<process::CommandLine>,
    }
    Evidence of memory::Evidence {
        remotes: Vec<(SocketAddr, memory::Remote)>,
        sockets: Vec<memory::SocketMemory>,
    }
    Remote of memory::Remote {
        last_begun: Option<MonoTime>,
        last_established: Option<MonoTime>,
        begins: VecDeque<(MonoTime, (), u64)>,
        answers: VecDeque<(MonoTime, (), u64)>,
        failed: VecDeque<(MonoTime, connection::ConnectionOutcome, u64)>,
        endings: VecDeque<(MonoTime, connection::ConnectionOutcome, u64)>,
        slow: VecDeque<(MonoTime, (), u64)>,
        idle_drops: VecDeque<(MonoTime, Duration, u64)>,
        attempts: VecDeque<memory::Attempt>,
        received: memory::Received,
        last_activity: Option<MonoTime>,
        established: u32,
        few_since: Option<MonoTime>,
        clean_since: Option<MonoTime>,
    }
}

row! {
    Attempt of memory::Attempt {
        begun: MonoTime,
        ended: MonoTime,
        outcome: connection::ConnectionOutcome,
        stuck: bool,
        counted: bool,
    }
    Received of memory::Received { earliest: Option<MonoTime>, latest: Option<MonoTime> }
    Socket of memory::SocketMemory {
        id: connection::SocketId,
        local: SocketAddr,
        remote: SocketAddr,
        state: connection::TcpState,
        pid: Option<u32>,
        begun: Option<MonoTime>,
        established: Option<MonoTime>,
        first_seen: MonoTime,
        last_seen: MonoTime,
        bytes_received: Option<u64>,
        received: memory::Received,
        unanswered: u64,
        retransmits: u8,
        last_used: Option<MonoTime>,
        stuck_since: Option<MonoTime>,
        stuck_counted: Option<MonoTime>,
    }
}
