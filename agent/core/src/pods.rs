//! A judged pod: its containers' evidence, and its verdict as a state machine.
//!
//! Every reason has its own entry and exit. What the node's rounds say is the base; passive evidence can take a pod out
//! (`PodCannotReachStores`, `StaleTransport`, both latched and subject to the guard) or keep it in while only this agent
//! is cut off (`AgentCannotReachStores`). Without any evidence of this run a verdict from before a restart stands.

use crate::{
    cluster::Cluster,
    connection::ConnectionOutcome,
    container::Container,
    dialers::Dialer,
    event::{Event, EventKind, EventLog},
    findings::{Book, Said},
    guard::{GuardView, Member},
    id::{ContainerKey, TargetKey},
    pod::PodRecord,
    policy::VerdictPolicy,
    process::ProcessReport,
    snapshot::Histogram,
    time::MonoTime,
    verdict::{Finding, FindingCode, Reason, Severity, StaleMode, Status, Verdict},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

mod findings;
mod publish;
mod remember;
mod rules;

/// Containers of one pod that are kept, listed and foreign together.
const MAX_CONTAINERS: usize = 32;

/// The longest that a pod's `NoStoreAnswers` waits for an inventory sample that may excuse it.
pub const INVENTORY_WAIT: Duration = Duration::from_millis(500);

/// How often an attempt is contrasted with a fresh ping at the same address.
const CONTRAST: Duration = Duration::from_secs(1);

/// How often the inventory is read while a pod cannot reach its Stores.
const LATCHED_SAMPLE: Duration = Duration::from_secs(2);

/// How often a former address is asked who is there.
const STALE_CONTRAST: Duration = Duration::from_secs(15);

/// What was counted for one target since the agent started (or the pod came).
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetCounters {
    pub(crate) connects: BTreeMap<ConnectionOutcome, u64>,
    pub(crate) endings: BTreeMap<ConnectionOutcome, u64>,
    pub(crate) resets_received: u64,
    pub(crate) resets_sent: u64,
    pub(crate) retransmits: u64,
    pub(crate) connect_duration: Histogram,
}

/// `PodCannotReachStores` has been entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachLatch {
    /// When.
    pub since: MonoTime,
    /// The containers whose attempts it rests on; it ends with the last of them.
    pub containers: BTreeSet<ContainerKey>,
    /// The last attempt or stuck socket.
    pub last_activity: MonoTime,
    /// Kept from before a restart of the agent and not confirmed since.
    pub carried: bool,
}

/// What the judge knows beside the pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World<'a> {
    pub(crate) now: MonoTime,
    pub(crate) policy: &'a VerdictPolicy,
    /// The inventory may still answer.
    pub(crate) inventory: bool,
    /// When the reading of the latest sample began.
    pub(crate) sampled: Option<MonoTime>,
    /// The kernel's counters are exact: no attempt was missed within the window.
    pub(crate) exact: bool,
    /// Since when this run has watched, if it took over what an earlier one knew.
    pub(crate) watched_since: Option<MonoTime>,
    /// The pod source said that it is absent.
    pub(crate) pods_absent: bool,
}

/// What the rules say about one pod, before the guard.
#[derive(Clone, Debug)]
pub(crate) struct Assessment {
    /// The reason without passive evidence.
    base: Reason,
    /// Why it should leave on passive evidence, and since when.
    leaves: Option<(Reason, MonoTime)>,
    suspicions: BTreeSet<Reason>,
    findings: Vec<Finding>,
    /// It rests on evidence of this run.
    live: bool,
    /// The base is the verdict before, until a sample has come that may excuse the pod.
    waits: bool,
    carried: bool,
    evidence_at: Option<MonoTime>,
    pub(crate) wake: Option<MonoTime>,
    /// Addresses at which a fresh ping is wanted, and the least distance between two.
    pub(crate) contrasts: Vec<((TargetKey, SocketAddr), Duration)>,
    /// A new inventory sample would help, at this time.
    pub(crate) sample_at: Option<MonoTime>,
}

/// A judged pod.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) record: Arc<PodRecord>,
    pub(crate) containers: BTreeMap<ContainerKey, Container>,
    pub(crate) counters: BTreeMap<Option<TargetKey>, TargetCounters>,
    pub(crate) verdict: Verdict,
    pub(crate) reach: Option<ReachLatch>,
    /// A list of this run holds it.
    pub(crate) listed: bool,
    /// The verdict is from before a restart, and nothing has been seen since.
    pub(crate) restored: bool,
    pub(crate) book: Book,
    findings: Vec<Finding>,
    /// Findings from before a restart: they stand as long as the verdict does.
    carried: Vec<Finding>,
    evidence_at: Option<MonoTime>,
    transitions: BTreeMap<Reason, u64>,
    proxied: BTreeSet<SocketAddr>,
    /// How the guard stands to it, while it should leave on passive evidence.
    guard: Option<GuardView>,
    dropped: u64,
}

impl Pod {
    pub(crate) fn new(record: Arc<PodRecord>, now: MonoTime) -> Self {
        Self {
            record,
            containers: BTreeMap::new(),
            counters: BTreeMap::new(),
            verdict: crate::cluster::verdict(Reason::NoEvidenceYet, "nothing is known about this pod yet".into(), now),
            reach: None,
            listed: true,
            restored: false,
            book: Book::default(),
            findings: Vec::new(),
            carried: Vec::new(),
            evidence_at: None,
            transitions: BTreeMap::new(),
            proxied: BTreeSet::new(),
            guard: None,
            dropped: 0,
        }
    }

    /// Takes in what a list says about it: a container that is gone takes its evidence with it.
    pub(crate) fn update(
        &mut self,
        record: &Arc<PodRecord>,
        cluster: Option<&Cluster>,
        at: MonoTime,
        window: Duration,
    ) {
        let listed: BTreeSet<_> = record.containers().into_iter().collect();
        let own = |containers: &BTreeMap<ContainerKey, Container>| {
            containers.values().filter(|container| !container.foreign).count()
        };
        let before = own(&self.containers);
        self.containers.retain(|key, container| {
            listed.contains(key)
                || (container.foreign && container.last_evidence.is_some_and(|last| at.since(last) <= window))
        });
        if own(&self.containers) < before && self.restored && !self.verdict_rests_on_the_node() {
            // A container that restarted starts clean.
            self.restored = false;
        }
        for key in listed {
            let container = self.containers.entry(key).or_insert_with(|| new_container(at, false, cluster));
            container.foreign = false;
        }
        let containers = &self.containers;
        self.reach = self.reach.take().filter(|latch| latch.containers.iter().any(|key| containers.contains_key(key)));
        self.record = Arc::clone(record);
        self.listed = true;
    }

    fn verdict_rests_on_the_node(&self) -> bool {
        !matches!(self.verdict.reason, Reason::PodCannotReachStores | Reason::StaleTransport | Reason::PassiveOnly)
    }

    /// The container that evidence belongs to; `None` if there are too many.
    pub(crate) fn container(
        &mut self,
        key: ContainerKey,
        foreign: bool,
        at: MonoTime,
        cluster: Option<&Cluster>,
    ) -> Option<&mut Container> {
        if !self.containers.contains_key(&key) && self.containers.len() >= MAX_CONTAINERS {
            self.dropped = self.dropped.saturating_add(1);
            return None;
        }
        Some(self.containers.entry(key).or_insert_with(|| new_container(at, foreign, cluster)))
    }

    /// The processes that dial, in all its containers.
    pub(crate) fn dialers(&self) -> impl Iterator<Item = (u32, &Dialer)> {
        self.containers.values().flat_map(|container| container.dialers.all())
    }

    /// What was found of a process. Returns whether it has ended; then it takes its evidence with it.
    pub(crate) fn process(&mut self, report: &ProcessReport, cluster: &Cluster) -> bool {
        let mut any = false;
        let mut all = false;
        for (key, container) in &mut self.containers {
            let Some(ended) = container.dialers.report(report) else { continue };
            any = true;
            all |= ended.alone;
            if container.clean(&ended, &cluster.ownership)
                && let Some(latch) = &mut self.reach
            {
                latch.containers.remove(key);
            }
        }
        self.reach = self.reach.take().filter(|latch| !latch.containers.is_empty());
        if all && self.restored && !self.verdict_rests_on_the_node() {
            self.restored = false;
        }
        any
    }

    /// What did not fit into this pod's bounded memories.
    pub(crate) fn dropped(&self) -> u64 {
        let containers = self.containers.values().map(|container| container.dropped + container.sockets.dropped());
        containers.fold(self.dropped, u64::saturating_add)
    }

    /// Its operator has taken it out of judgement.
    fn in_maintenance(&self) -> bool {
        self.record.wiring.as_ref().is_some_and(|wiring| wiring.maintenance)
    }

    /// What the guard has to know.
    pub(crate) fn member(&self, assessment: &Assessment) -> Member {
        let reason = if assessment.live || !self.restored { assessment.base } else { self.verdict.reason };
        // What is not judged is no one's replacement.
        let reason = if self.in_maintenance() { Reason::Maintenance } else { reason };
        Member {
            uid: self.record.uid.clone(),
            cluster: self.record.cluster,
            namespace: Arc::clone(&self.record.pod.namespace),
            workload: self.record.workload.clone(),
            ready: reason.status() == Status::Ready,
            leaves: assessment.leaves.filter(|_| !self.in_maintenance()),
            out: assessment.leaves.is_some_and(|(reason, _)| reason == self.verdict.reason),
            suspicions: assessment.suspicions.clone(),
        }
    }

    /// Settles the verdict once the guard has spoken.
    pub(crate) fn conclude(
        &mut self,
        mut assessment: Assessment,
        guard: Option<GuardView>,
        cluster: &Cluster,
        world: &World<'_>,
        log: &mut EventLog,
    ) {
        let World { now, policy, .. } = *world;
        let mut reason = assessment.base;
        let mut carried = assessment.waits && self.verdict.carried;
        // A verdict on passive evidence lives in its latch, which the guard watches; the others stand by themselves.
        let passive = matches!(self.verdict.reason, Reason::PodCannotReachStores | Reason::StaleTransport);
        let keeps_prior = !assessment.live && self.restored && !passive && !self.in_maintenance();
        if self.in_maintenance() {
            reason = Reason::Maintenance;
            carried = false;
            assessment.waits = false;
            assessment.leaves = None;
            assessment.findings.clear();
            self.carried.clear();
        }
        if let Some((leaves, _)) = assessment.leaves.filter(|_| reason.status() != Status::NotReady) {
            if let Some(guard) = guard.filter(|guard| guard.holds) {
                let said = Said::new(
                    FindingCode::GuardHeld,
                    Severity::Critical,
                    format!("{} holds, but too few others of the workload are ready and free of it", leaves.as_str()),
                    self.guard_words(guard),
                );
                assessment.findings.push(self.draft(world).finding(None, said));
            } else {
                reason = leaves;
                carried = assessment.carried;
            }
        }
        if reason.status() == Status::Unknown && keeps_prior {
            reason = self.verdict.reason;
            carried = true;
        } else if reason.status() != Status::Unknown && !assessment.waits {
            self.restored = false;
        }
        let stays = assessment.waits && reason == self.verdict.reason;
        if reason != self.verdict.reason {
            let message = self.message(reason, cluster);
            log.push(
                Event::new(now, EventKind::Transition, message.clone())
                    .cluster(self.record.cluster)
                    .pod(self.record.pod.clone())
                    .change(Some(self.verdict.reason.as_str().into()), Some(reason.as_str().into())),
            );
            let count = self.transitions.entry(reason).or_default();
            *count = count.saturating_add(1);
            self.verdict = crate::cluster::verdict(reason, message, now);
        }
        if !carried && !stays {
            self.verdict.message = self.message(reason, cluster);
        }
        self.verdict.carried = carried;
        self.settle_ready(policy);
        self.evidence_at = assessment.evidence_at;
        if self.restored || self.reach.as_ref().is_some_and(|latch| latch.carried) {
            let carried: BTreeSet<_> = self.carried.iter().map(key).collect();
            for finding in assessment.findings.iter_mut().filter(|finding| carried.contains(&key(finding))) {
                finding.carried = true;
            }
            let known: BTreeSet<_> = assessment.findings.iter().map(key).collect();
            let missing = self.carried.iter().filter(|finding| !known.contains(&key(finding)));
            assessment.findings.extend(missing.cloned().collect::<Vec<_>>());
        } else {
            self.carried.clear();
        }
        for turn in self.book.settle(&mut assessment.findings) {
            log.push(turn.event(now).cluster(self.record.cluster).pod(self.record.pod.clone()));
        }
        self.findings = assessment.findings;
        self.guard = guard;
    }

    /// What the verdict's status means.
    fn settle_ready(&mut self, policy: &VerdictPolicy) {
        self.verdict.ready = match self.verdict.status {
            Status::Ready => true,
            Status::NotReady => false,
            Status::Unknown => policy.ready_when_unknown() || self.in_maintenance(),
        };
    }

    /// Why the guard keeps the pod in.
    fn guard_words(&self, guard: GuardView) -> String {
        let GuardView { needed, free, suspected, others, .. } = guard;
        let needs = format!("verdict.min_other_ready asks for {needed} that are ready and free of the same suspicion");
        if self.record.workload.is_none() {
            return format!("{needs}; no workload is known for this pod, so it has no others");
        }
        let others = crate::findings::plural(others.into(), "other");
        format!("{needs}; of {others} on this node {free} are so, {suspected} under the same suspicion")
    }

    /// The sentence for a reason; names no address.
    fn message(&self, reason: Reason, cluster: &Cluster) -> String {
        match reason {
            Reason::PassiveOnly => "the pod exchanges data with a store".into(),
            Reason::PodCannotReachStores => "the pod's attempts fail at stores that answer this node".into(),
            Reason::StaleTransport => "the pod keeps dialling an address that its store has left".into(),
            Reason::PodSourceAbsent => "the list of pods is not available".into(),
            Reason::Maintenance => "the pod is not judged: its maintenance annotation says so".into(),
            reason => cluster.message(reason),
        }
    }
}

/// What makes a finding the same as before.
fn key(finding: &Finding) -> (FindingCode, Option<StaleMode>, String) {
    (finding.code, finding.mode, finding.target.clone())
}

/// A container that begins now: what its targets' clocks read already is not its doing.
fn new_container(at: MonoTime, foreign: bool, cluster: Option<&Cluster>) -> Container {
    let mut container = Container::new(at, foreign);
    for (target, address, tenure) in cluster.into_iter().flat_map(|cluster| cluster.ownership.leaving()) {
        let elapsed = tenure.successor.elapsed(at);
        if elapsed > Duration::ZERO {
            container.baselines.insert((target, address), elapsed);
        }
    }
    container
}
