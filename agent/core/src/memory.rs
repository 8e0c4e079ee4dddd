//! What survives a restart of the agent: enough that the restart by itself changes no verdict.
//!
//! Plain values with instants of this boot's monotonic clock. Whoever stores them adds the wall clock and the boot's id,
//! and after a reboot moves the instants ([`Memory::map_times`]) and drops what ended with the boot
//! ([`Memory::after_reboot`]).

use crate::{
    id::{ContainerKey, HostPort, TargetKey},
    ownership::Tenure,
    pod::PodRecord,
    pods::ReachLatch,
    stale::StaleEntry,
    time::MonoTime,
    topology::ListedStore,
    verdict::{Facts, Finding, Reason},
};
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// Everything that survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// When it was taken.
    pub taken_at: MonoTime,
    /// The clusters, by name.
    pub clusters: Vec<ClusterMemory>,
    /// The judged pods.
    pub pods: Vec<PodMemory>,
}

/// A verdict, as it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictMemory {
    /// Why.
    pub reason: Reason,
    /// In words.
    pub message: String,
    /// Since when.
    pub since: MonoTime,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMemory {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// The PD peers that were configured: what is known of them counts only while they are the same.
    pub pd_peers: Vec<HostPort>,
    /// The Stores that were configured, likewise.
    pub stores: Vec<HostPort>,
    /// PD's last list that was not empty.
    pub list: Vec<ListedStore>,
    /// A Store answered once.
    pub ever_answered: bool,
    /// The node's verdict.
    pub verdict: VerdictMemory,
    /// Who owned which address when.
    pub tenures: Vec<TenureMemory>,
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
    /// Its verdict.
    pub verdict: VerdictMemory,
    /// It could not reach the Stores.
    pub reach: Option<ReachLatch>,
    /// Its containers.
    pub containers: Vec<ContainerMemory>,
    /// What stood out.
    pub findings: Vec<Finding>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerMemory {
    /// Which.
    pub key: ContainerKey,
    /// When it was first seen.
    pub first_seen: MonoTime,
    /// What it does with former addresses.
    pub stale: Vec<(TargetKey, SocketAddr, StaleEntry)>,
    /// Readings of the targets' clocks at its begin.
    pub baselines: Vec<(TargetKey, SocketAddr, Duration)>,
    /// The processes that dialled: when each showed itself last, and where it dialled.
    pub dialers: Vec<(u32, MonoTime, Vec<SocketAddr>)>,
}

impl Memory {
    /// After a reboot no container is what it was: inode numbers are given anew.
    pub fn after_reboot(mut self) -> Self {
        self.pods.clear();
        self
    }

    /// Moves every instant, for another boot's clock.
    pub fn map_times(&mut self, mut map: impl FnMut(MonoTime) -> MonoTime) {
        fn each(time: &mut Option<MonoTime>, map: &mut impl FnMut(MonoTime) -> MonoTime) {
            if let Some(time) = time {
                *time = map(*time);
            }
        }
        let Self { taken_at, clusters, pods } = self;
        *taken_at = map(*taken_at);
        for cluster in clusters {
            cluster.verdict.since = map(cluster.verdict.since);
            for TenureMemory { tenure, .. } in &mut cluster.tenures {
                let Tenure { from, ended, claims, identity, successor } = tenure;
                *from = map(*from);
                each(ended, &mut map);
                for claim in claims.values_mut() {
                    claim.last = map(claim.last);
                    each(&mut claim.absent_since, &mut map);
                    each(&mut claim.absent_last, &mut map);
                }
                if let Some((_, at)) = identity {
                    *at = map(*at);
                }
                each(&mut successor.first, &mut map);
                each(&mut successor.last, &mut map);
            }
        }
        for pod in pods {
            pod.verdict.since = map(pod.verdict.since);
            if let Some(ReachLatch { since, last_activity, .. }) = &mut pod.reach {
                *since = map(*since);
                *last_activity = map(*last_activity);
            }
            for container in &mut pod.containers {
                container.first_seen = map(container.first_seen);
                for (_, last, _) in &mut container.dialers {
                    *last = map(*last);
                }
                for (_, _, entry) in &mut container.stale {
                    let StaleEntry {
                        since,
                        mode: _,
                        last_dial,
                        dials: _,
                        answers: _,
                        last_answer,
                        last_held,
                        suspected,
                        confirmed,
                        carried: _,
                    } = entry;
                    *since = map(*since);
                    for time in [last_dial, last_answer, last_held, suspected, confirmed] {
                        each(time, &mut map);
                    }
                }
            }
            for finding in &mut pod.findings {
                finding.since = map(finding.since);
                each(&mut finding.confirms_at, &mut map);
                let Facts { left_at, first_attempt, last_attempt, suspected_at, confirmed_at, .. } = &mut finding.facts;
                for time in [left_at, first_attempt, last_attempt, suspected_at, confirmed_at] {
                    each(time, &mut map);
                }
            }
        }
    }
}
