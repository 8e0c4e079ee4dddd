//! Moving every instant of a memory, for another boot's clock. Each type is taken apart in full, so that a field that is
//! added is decided about here.

use super::{
    AddressPings, Answered, Attempt, ClusterMemory, ContainerMemory, Dialer, Early, EarlyEvidence, Evidence,
    KernelLoss, LastRound, Memory, NodeMemory, PdMemory, PeerMemory, PodMemory, Publication, Received, Remote,
    SocketMemory, SourceMemory, StoreMemory, Streak, TenureMemory, VerdictMemory,
};
use crate::{
    connection::{AttemptCount, ConnectionChange, ConnectionEvent},
    ownership::{Claim, SuccessorClock, Tenure},
    pods::ReachLatch,
    rounds::{RoundState, Rounds},
    snapshot::LastPing,
    stale::StaleEntry,
    time::MonoTime,
    verdict::{Facts, Finding},
};
use std::collections::{BTreeMap, VecDeque};

/// How an instant moves.
type Map<'a> = &'a mut dyn FnMut(MonoTime) -> MonoTime;

impl Memory {
    /// Moves every instant.
    pub fn map_times(&mut self, mut map: impl FnMut(MonoTime) -> MonoTime) {
        self.each(&mut map);
    }
}

/// Holds instants.
trait Instants {
    fn each(&mut self, map: Map<'_>);
}

impl Instants for MonoTime {
    fn each(&mut self, map: Map<'_>) {
        *self = map(*self);
    }
}

impl<T: Instants> Instants for Option<T> {
    fn each(&mut self, map: Map<'_>) {
        self.iter_mut().for_each(|one| one.each(map));
    }
}

impl<T: Instants> Instants for Vec<T> {
    fn each(&mut self, map: Map<'_>) {
        self.iter_mut().for_each(|one| one.each(map));
    }
}

impl<T: Instants> Instants for VecDeque<T> {
    fn each(&mut self, map: Map<'_>) {
        self.iter_mut().for_each(|one| one.each(map));
    }
}

impl<K, T: Instants> Instants for BTreeMap<K, T> {
    fn each(&mut self, map: Map<'_>) {
        self.values_mut().for_each(|one| one.each(map));
    }
}

/// Pairs and triples: which of their values hold instants is told by the type that they stand in.
fn last<K, T: Instants>(list: &mut [(K, T)], map: Map<'_>) {
    list.iter_mut().for_each(|(_, one)| one.each(map));
}

fn third<K, L, T: Instants>(list: &mut [(K, L, T)], map: Map<'_>) {
    list.iter_mut().for_each(|(_, _, one)| one.each(map));
}

/// Of each type the fields that hold instants, and those that hold none.
macro_rules! instants {
    ($($kind:ident { $($moves:ident),* $(,)? } still { $($stays:ident),* $(,)? })*) => {$(
        impl Instants for $kind {
            fn each(&mut self, map: Map<'_>) {
                let Self { $($moves,)* $($stays: _,)* } = self;
                $($moves.each(map);)*
            }
        }
    )*};
}

/// Short memories: an instant, what, and how often.
impl<T> Instants for (MonoTime, T, u64) {
    fn each(&mut self, map: Map<'_>) {
        self.0.each(map);
    }
}

instants! {
    Memory { taken_at, watched_since, clusters, pods, node } still {}
    NodeMemory { pods_at, sampled, exits, early, sources, kernel_loss, publication } still {}
    Early { at, what } still {}
    AttemptCount { last_begun, last_ended } still { owner, remote, what, added }
    ConnectionEvent { at, what } still { socket, owner, local, remote, rtt, retransmits_total }
    SourceMemory { last, told_at } still { name, state, detail, told, told_detail }
    KernelLoss { since, last } still { lost, counters }
    Publication { looked_at, published_at } still { dirty, stale_ages, current }
    VerdictMemory { since } still { reason, message, carried }
    Rounds { state, first_failed, last_failed, last_answered } still { failed, answered, sweep_answered, counted }
    StoreMemory { last_ping, answer, silent_since } still { answering, silent }
    LastPing { at } still { outcome, phases, detail }
    Answered { at } still { remote, took }
    AddressPings { run_since, fresh_started, last, asked } still {}
    PdMemory { checked, peers, empty, silent, down, leaderless, refused } still { reachable, has_leader }
    Streak { since } still { count }
    TenureMemory { tenure } still { target, address }
    Claim { last, absent_since, absent_last } still {}
    SuccessorClock { first, last } still { answered }
    ReachLatch { since, last_activity } still { containers, carried }
    StaleEntry { since, last_dial, last_counted, last_answer, last_held, suspected, confirmed } still { mode, dials, answers, carried }
    Attempt { begun, ended } still { outcome, stuck, counted }
    Received { earliest, latest } still {}
    Dialer { last, started } still { addresses, command }
    SocketMemory {
        begun, established, first_seen, last_seen, received, last_used, stuck_since, stuck_counted,
    } still { id, local, remote, state, pid, bytes_received, unanswered, retransmits }
    Remote {
        last_begun, last_established, begins, answers, failed, endings, slow, idle_drops, attempts, received,
        last_activity, few_since, clean_since,
    } still { established }
    Finding { since, confirms_at, facts } still {
        code, mode, target, message, evidence, remedy, severity, carried,
    }
    Facts { left_at, first_attempt, last_attempt, suspected_at, confirmed_at } still {
        address, present, ping, answering, attempts, answers, every_attempt, connections,
    }
    PodMemory { verdict, reach, containers, findings, carried } still { cluster, record, listed, restored }
}

/// Who may leave, and since when that is known.
impl<K> Instants for (MonoTime, std::collections::BTreeSet<K>) {
    fn each(&mut self, map: Map<'_>) {
        self.0.each(map);
    }
}

/// None.
impl Instants for PeerMemory {
    fn each(&mut self, _: Map<'_>) {
        let Self { reachable: _, last_error: _, unresolved: _, v4: _, v6: _ } = self;
    }
}

impl Instants for EarlyEvidence {
    fn each(&mut self, map: Map<'_>) {
        match self {
            Self::Count(count) => count.each(map),
            Self::Event(event) => event.each(map),
        }
    }
}

impl Instants for ConnectionChange {
    fn each(&mut self, map: Map<'_>) {
        match self {
            Self::Established { begun }
            | Self::Failed { begun, evidence: _ }
            | Self::Ended { begun, evidence: _, bytes_received: _ } => begun.each(map),
            Self::Begun
            | Self::ResetReceived { .. }
            | Self::ResetSent { .. }
            | Self::Retransmit { .. }
            | Self::ErrorReported { .. } => {}
        }
    }
}

impl Instants for RoundState {
    fn each(&mut self, map: Map<'_>) {
        match self {
            Self::NoneYet | Self::Answering => {}
            Self::Failing { began, ended } => {
                began.each(map);
                ended.each(map);
            }
        }
    }
}

impl Instants for LastRound {
    fn each(&mut self, map: Map<'_>) {
        let Self { number: _, first, asked: _ } = self;
        if let Some((_, at, _)) = first {
            at.each(map);
        }
    }
}

impl Instants for Tenure {
    fn each(&mut self, map: Map<'_>) {
        let Self { from, ended, claims, identity, successor } = self;
        from.each(map);
        ended.each(map);
        claims.each(map);
        if let Some((_, at)) = identity {
            at.each(map);
        }
        successor.each(map);
    }
}

impl Instants for ClusterMemory {
    fn each(&mut self, map: Map<'_>) {
        let Self {
            name: _,
            pd_peers: _,
            stores: _,
            list: _,
            list_at,
            ever_answered: _,
            only_deadlines: _,
            verdict,
            live: _,
            rounds,
            last_round,
            answered_round,
            evidence_at,
            pinged,
            addresses,
            pd,
            tenures,
            gone: _,
            services: _,
            occupants: _,
            findings,
        } = self;
        list_at.each(map);
        verdict.each(map);
        rounds.each(map);
        last_round.each(map);
        answered_round.each(map);
        evidence_at.each(map);
        last(pinged, map);
        last(addresses, map);
        pd.each(map);
        tenures.each(map);
        findings.each(map);
    }
}

impl Instants for ContainerMemory {
    fn each(&mut self, map: Map<'_>) {
        let Self { key: _, first_seen, foreign: _, last_evidence, stale, baselines: _, dialers, evidence, gap } = self;
        first_seen.each(map);
        last_evidence.each(map);
        third(stale, map);
        last(dialers, map);
        evidence.each(map);
        gap.each(map);
    }
}

impl Instants for Evidence {
    fn each(&mut self, map: Map<'_>) {
        let Self { remotes, sockets } = self;
        last(remotes, map);
        sockets.each(map);
    }
}
