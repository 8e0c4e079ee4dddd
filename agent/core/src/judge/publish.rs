//! Publishing: on change at once, for refreshed ages once in each second.

use super::{Advance, Judge, LOOK};
use crate::{
    cluster::Cluster,
    id::PodUid,
    memory::{KernelLoss, Publication},
    pod::Wiring,
    pods::Pod,
    remedy::{self, Case},
    snapshot::{ClusterView, Dropped, PodView, Snapshot},
    source::{SourceName, SourceState},
    time::{MonoTime, short},
    verdict::{Facts, Finding, FindingCode, Reason, Severity, StaleMode},
};
use std::net::IpAddr;

/// What makes two snapshots different: everything but instants, durations and counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gist {
    clusters: Vec<ClusterGist>,
    pods: Vec<PodGist>,
    pods_fresh: bool,
    sources: Vec<(SourceName, SourceState)>,
    synced: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct ClusterGist {
    verdict: (bool, Reason, bool),
    counts: (u32, u32, Vec<u64>),
    pd: (Option<bool>, Option<bool>, Vec<Option<bool>>),
    stores: Vec<StoreGist>,
    findings: Vec<FindingGist>,
}

#[derive(Debug, PartialEq, Eq)]
struct PodGist {
    uid: PodUid,
    ips: Vec<IpAddr>,
    wiring: Option<Wiring>,
    verdict: (bool, Reason, bool),
    findings: Vec<FindingGist>,
}

/// Answering, expected, and each address with whether its tenure is over.
type StoreGist = (Option<bool>, bool, Vec<(IpAddr, bool)>);

type FindingGist = (FindingCode, Option<StaleMode>, String, Severity, bool);

fn finding(finding: &Finding) -> FindingGist {
    (finding.code, finding.mode, finding.target.clone(), finding.severity, finding.carried)
}

impl Gist {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            clusters: snapshot.clusters.iter().map(ClusterGist::of).collect(),
            pods: snapshot.pods.iter().map(PodGist::of).collect(),
            pods_fresh: snapshot.pods_fresh,
            sources: snapshot.sources.iter().map(|source| (source.name, source.state)).collect(),
            synced: snapshot.synced,
        }
    }
}

impl ClusterGist {
    fn of(view: &ClusterView) -> Self {
        let readiness = &view.readiness;
        Self {
            verdict: (readiness.verdict.ready, readiness.verdict.reason, readiness.verdict.carried),
            counts: (readiness.active_stores, readiness.answering, readiness.unanswered_stores.clone()),
            pd: (view.pd.reachable, view.pd.has_leader, view.pd.peers.iter().map(|peer| peer.reachable).collect()),
            stores: view
                .stores
                .iter()
                .map(|store| {
                    let addresses = store.addresses.iter().map(|address| (address.ip, address.to.is_some())).collect();
                    (store.answering, store.expected, addresses)
                })
                .collect(),
            findings: readiness.findings.iter().map(finding).collect(),
        }
    }
}

impl PodGist {
    fn of(view: &PodView) -> Self {
        Self {
            uid: view.record.uid.clone(),
            ips: view.record.ips.clone(),
            wiring: view.record.wiring.clone(),
            verdict: (view.verdict.ready, view.verdict.reason, view.verdict.carried),
            findings: view.findings.iter().map(finding).collect(),
        }
    }
}

impl Judge {
    /// Publishes what changed. Building a snapshot costs more than judging, so it is built at once only when a verdict, a
    /// finding, a ping's outcome, an owner or a source changed, and otherwise at most every [`LOOK`].
    pub(super) fn publish(&mut self, now: MonoTime, advance: &mut Advance) {
        let look = self.looked_at.map(|at| at + LOOK);
        let refresh = self.published_at.map(MonoTime::next_second);
        let pending = self.dirty && look.is_none_or(|at| at <= now);
        if !(self.log.is_urgent() || pending || refresh.is_none_or(|at| at <= now)) {
            advance.wake(if self.dirty { look } else { refresh });
            advance.events = self.log.drain(now, &mut self.generation);
            return;
        }
        self.looked_at = Some(now);
        let told = self.log.is_urgent();
        let mut snapshot = self.snapshot(now);
        let gist = Gist::of(&snapshot);
        let changed = self.published.as_ref() != Some(&gist);
        self.dirty = false;
        advance.events = self.log.drain(now, &mut self.generation);
        if changed || told || (self.stale_ages && refresh.is_none_or(|at| at <= now)) {
            // A change that is no event of its own needs a generation too.
            self.generation += u64::from(changed && advance.events.is_empty());
            self.changes += u64::from(changed || told);
            snapshot.generation = self.generation;
            self.published = Some(gist);
            self.published_at = Some(now);
            self.stale_ages = false;
            advance.snapshot = Some(snapshot);
        }
    }

    /// When it was published, and whether that still shows the world.
    pub(super) fn publication(&self, now: MonoTime) -> Publication {
        Publication {
            looked_at: self.looked_at,
            published_at: self.published_at,
            dirty: self.dirty,
            stale_ages: self.stale_ages,
            current: self.published.as_ref() == Some(&Gist::of(&self.snapshot(now))),
        }
    }

    /// Goes on publishing where another judge stood at `now`.
    pub(super) fn go_on_publishing(&mut self, publication: Publication, now: MonoTime) {
        let Publication { looked_at, published_at, dirty, stale_ages, current } = publication;
        (self.looked_at, self.published_at) = (looked_at, published_at);
        (self.dirty, self.stale_ages) = (dirty, stale_ages);
        self.published = current.then(|| Gist::of(&self.snapshot(now)));
    }

    /// How often what decides has changed so far; ages, counters and single connections do not count.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The world as of the last [`Judge::advance`].
    pub fn snapshot(&self, now: MonoTime) -> Snapshot {
        let policy = &self.settings.policy;
        let lost = self.kernel_lost(now);
        let mut clusters: Vec<_> = self.clusters.iter().map(|cluster| cluster.view(policy)).collect();
        for cluster in &mut clusters {
            cluster.readiness.findings.extend(lost.clone());
        }
        let cluster = |pod: &Pod| self.clusters.get(usize::from(pod.record.cluster.0));
        let mut pods: Vec<_> = self.pods.values().filter_map(|pod| Some(pod.view(cluster(pod)?))).collect();
        pods.sort_by(|a, b| (&a.record.pod, &a.record.uid).cmp(&(&b.record.pod, &b.record.uid)));
        for pod in &mut pods {
            // Lost details explain less; only inexact counters touch what is said about pods.
            pod.findings.extend(lost.iter().filter(|finding| finding.severity >= Severity::Warning).cloned());
        }
        Snapshot {
            node: self.settings.node.clone(),
            generation: self.generation,
            taken_at: now,
            clusters,
            pods,
            pods_fresh: self.pods_at.is_some() && self.pods_source_answers(),
            sources: self.sources.values().cloned().collect(),
            synced: self.synced(),
            kernel: self.kernel,
            unattributed: self.unattributed.iter().map(|(why, count)| (*why, *count)).collect(),
            dropped: Dropped {
                events: self.log.dropped(),
                targets: self.clusters.iter().map(Cluster::dropped).fold(0, u64::saturating_add),
                pods: self.dropped_pods,
                evidence: self.pods.values().map(Pod::dropped).fold(0, u64::saturating_add),
            },
        }
    }

    /// The source of pods is well: what it does not list does not exist.
    fn pods_source_answers(&self) -> bool {
        self.sources.get(&SourceName::Pods).is_none_or(|view| view.state == SourceState::Active)
    }

    /// Every source has had its first answer or is marked absent.
    fn synced(&self) -> bool {
        let needed = [SourceName::Pods, SourceName::Pd, SourceName::Pings, SourceName::Kernel, SourceName::Inventory];
        let absent = |name| self.sources.get(&name).is_some_and(|view| view.state == SourceState::Absent);
        needed.into_iter().all(|name| match name {
            _ if absent(name) => true,
            SourceName::Pods => self.pods_at.is_some(),
            SourceName::Pd => self.clusters.iter().all(Cluster::pd_asked),
            SourceName::Pings => self.clusters.iter().all(Cluster::pinged_or_listless),
            SourceName::Inventory => self.sampled.is_some() || self.settings.kernel_off,
            _ => self.sources.contains_key(&name) || self.settings.kernel_off,
        })
    }

    pub(super) fn kernel_lost(&self, now: MonoTime) -> Option<Finding> {
        let KernelLoss { since, last, lost, counters } = self.kernel_loss?;
        let facts = Facts::default();
        let case = Case { pod: None, target: None, mode: None, severity: Severity::Warning, facts: &facts };
        (now.since(last) <= self.settings.policy.window).then(|| Finding {
            code: FindingCode::KernelEventsLost,
            mode: None,
            target: String::new(),
            since,
            confirms_at: None,
            message: if counters {
                "the kernel's counters overflowed: attempts were missed".into()
            } else {
                "details of connections were dropped; counts are exact".into()
            },
            evidence: format!("{lost} lost, the last {} ago", short(now.since(last))),
            facts,
            remedy: remedy::remedy(FindingCode::KernelEventsLost, &case),
            severity: if counters { Severity::Warning } else { Severity::Info },
            carried: false,
        })
    }
}
