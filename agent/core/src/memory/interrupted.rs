//! What is left of a memory once the agent was away.
//!
//! A restart proves nothing and disproves nothing. What was seen stays seen: attempts, received data, who owned which
//! address, how long a Store has been silent. What needs somebody who watched throughout begins anew: rounds, runs of
//! answered pings, a window without an attempt, a Store's time of answering elsewhere. So verdicts stand as carried until
//! the new run knows, and nothing is confirmed, and nothing excused, by the time in between.

use super::{
    ClusterMemory, ContainerMemory, LastRound, Memory, NodeMemory, PdMemory, PeerMemory, PodMemory, Streak,
    TenureMemory, VerdictMemory,
};
use crate::{
    ownership::{SuccessorClock, Tenure},
    pods::ReachLatch,
    rounds::Rounds,
    stale::StaleEntry,
    time::MonoTime,
    verdict::{Finding, Reason, Status},
};

impl Memory {
    /// What a run that begins at `now` may take over.
    pub fn interrupted(self, now: MonoTime) -> Self {
        let Self { taken_at: _, watched_since: _, clusters, pods, node } = self;
        let sampled = node.sampled.is_some();
        Self {
            taken_at: now,
            watched_since: Some(now),
            clusters: clusters.into_iter().map(|cluster| cluster.interrupted(now)).collect(),
            pods: pods.into_iter().map(|pod| pod.interrupted(now, sampled)).collect(),
            node: node.interrupted(),
        }
    }
}

impl NodeMemory {
    /// Each source speaks for itself again.
    fn interrupted(self) -> Self {
        let Self { pods_at: _, sampled: _, exits, early, sources: _, kernel_loss, publication: _ } = self;
        Self { exits, early, kernel_loss, ..Self::default() }
    }
}

impl VerdictMemory {
    /// Unknown is what it is by itself.
    fn interrupted(self, unknown: &str, now: MonoTime) -> Self {
        if self.reason.status() == Status::Unknown {
            return Self { reason: Reason::NoEvidenceYet, message: unknown.into(), since: now, carried: false };
        }
        Self { carried: true, ..self }
    }
}

impl ClusterMemory {
    fn interrupted(self, now: MonoTime) -> Self {
        Self {
            verdict: self.verdict.interrupted("no Store was asked yet", now),
            live: Reason::NoEvidenceYet,
            rounds: Rounds::default(),
            last_round: LastRound::default(),
            answered_round: LastRound::default(),
            evidence_at: None,
            // A ping may have failed meanwhile: what it would have excused must not be held against the path.
            addresses: Vec::new(),
            pd: self.pd.interrupted(),
            tenures: self.tenures.into_iter().map(TenureMemory::interrupted).collect(),
            ..self
        }
    }
}

impl PdMemory {
    /// What stands out goes on standing out; no reason follows from it before PD has been asked again.
    fn interrupted(self) -> Self {
        let peers = self.peers.into_iter().map(|peer| PeerMemory { reachable: None, ..peer });
        Self {
            checked: None,
            reachable: None,
            has_leader: None,
            peers: peers.collect(),
            empty: Streak::default(),
            silent: Streak::default(),
            ..self
        }
    }
}

impl TenureMemory {
    /// How the target did meanwhile is not known: its clock goes on with the next answer.
    fn interrupted(self) -> Self {
        let Tenure { successor, .. } = self.tenure;
        Self { tenure: Tenure { successor: SuccessorClock { last: None, ..successor }, ..self.tenure }, ..self }
    }
}

impl PodMemory {
    fn interrupted(self, now: MonoTime, sampled: bool) -> Self {
        let Self { cluster, record, listed: _, verdict, restored: _, reach, containers, findings, carried: _ } = self;
        // Who is out of judgement is so by the list's word, not by evidence.
        let verdict = match verdict.reason {
            Reason::Maintenance => verdict,
            _ => verdict.interrupted("nothing is known about this pod yet", now),
        };
        Self {
            cluster,
            record,
            listed: false,
            restored: verdict.carried,
            verdict,
            // A window without an attempt is one that somebody watched.
            reach: reach.map(|latch| ReachLatch { last_activity: now, carried: true, ..latch }),
            containers: containers.into_iter().map(|container| container.interrupted(now, sampled)).collect(),
            carried: findings.iter().map(|finding| Finding { carried: true, ..finding.clone() }).collect(),
            findings,
        }
    }
}

impl ContainerMemory {
    fn interrupted(self, now: MonoTime, sampled: bool) -> Self {
        let stale = self.stale.into_iter();
        let stale = stale.map(|(target, address, entry)| (target, address, StaleEntry { carried: true, ..entry }));
        // Where all sockets were known, one that was not is younger.
        let known = self.evidence.is_some() && (sampled || self.gap.is_some());
        Self { stale: stale.collect(), gap: known.then_some(now), ..self }
    }
}
