//! A judged pod: its containers' evidence, and its verdict as a state machine.
//!
//! Every reason has its own entry and exit. What the node's rounds say is the base; passive evidence can take a pod out
//! (`PodCannotReachStores`, `StaleTransport`, both latched and subject to the guard) or keep it in while only this agent
//! is cut off (`AgentCannotReachStores`). Without any evidence of this run a verdict from before a restart stands.

use crate::{
    classify,
    cluster::Cluster,
    connection::ConnectionOutcome,
    container::{Container, count_since},
    event::{Event, EventKind, EventLog},
    findings::{Book, Draft, TargetFacts, Turn},
    guard::Member,
    id::{ContainerKey, Role, TargetKey},
    memory::{ContainerMemory, PodMemory, VerdictMemory},
    ownership::Owner,
    pod::PodRecord,
    policy::{StaleTransportAction, VerdictPolicy},
    rounds::RoundState,
    snapshot::{Connections, Histogram, PodTargetView, PodView},
    sockets::Received,
    stale::{self, StaleEntry},
    table::{ConnectionView, OwnerView, Via},
    time::MonoTime,
    verdict::{Finding, FindingCode, Reason, Remedy, Severity, StaleMode, Status, Verdict},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

/// Containers of one pod that are kept, listed and foreign together.
const MAX_CONTAINERS: usize = 32;

/// The longest that a pod's `NoStoreAnswers` waits for an inventory sample that may excuse it.
pub const INVENTORY_WAIT: Duration = Duration::from_millis(500);

/// How often an attempt is contrasted with a fresh ping at the same address.
const CONTRAST: Duration = Duration::from_secs(1);

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
        let before = self.containers.len();
        self.containers.retain(|key, container| {
            listed.contains(key)
                || (container.foreign && container.last_evidence.is_some_and(|last| at.since(last) <= window))
        });
        if self.containers.len() < before && self.restored && !self.verdict_rests_on_the_node() {
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

    /// What did not fit into this pod's bounded memories.
    pub(crate) fn dropped(&self) -> u64 {
        let containers = self.containers.values().map(|container| container.dropped + container.sockets.dropped());
        containers.fold(self.dropped, u64::saturating_add)
    }

    /// Applies the rules to this pod.
    pub(crate) fn assess(&mut self, cluster: &Cluster, world: &World<'_>) -> Assessment {
        let World { now, policy, .. } = *world;
        let since = now - policy.window;
        for container in self.containers.values_mut() {
            container.bracket(&cluster.address_pings, now, policy.window);
        }
        self.find_proxies(since);
        let mut out = Assessment {
            base: Reason::NoEvidenceYet,
            leaves: None,
            suspicions: BTreeSet::new(),
            findings: Vec::new(),
            live: true,
            carried: false,
            evidence_at: None,
            wake: None,
            contrasts: Vec::new(),
            sample_at: None,
        };
        let received = self.received(cluster);
        self.base(cluster, world, received, &mut out);
        self.reach(cluster, world, received, &mut out);
        self.stale(cluster, world, &mut out);
        self.connection_findings(cluster, world, &mut out);
        out
    }

    /// Payload from any Store that owns its address at present. While no list is known, the Stores' port tells a Store.
    fn received(&self, cluster: &Cluster) -> Received {
        let mut all = Received::default();
        for (address, remote) in self.containers.values().flat_map(|container| &container.remotes) {
            if cluster.is_store(*address) {
                all.merge(remote.received);
            }
        }
        all
    }

    /// Two containers of one pod that dial the same address: one of them is a proxy for the other.
    fn find_proxies(&mut self, since: MonoTime) {
        self.proxied.clear();
        if self.containers.len() < 2 {
            return;
        }
        let mut seen = BTreeSet::new();
        for (address, remote) in self.containers.values().flat_map(|container| &container.remotes) {
            let active = remote.established > 0 || remote.last_activity.is_some_and(|at| at >= since);
            if active && !seen.insert(*address) {
                self.proxied.insert(*address);
            }
        }
    }

    fn base(&self, cluster: &Cluster, world: &World<'_>, received: Received, out: &mut Assessment) {
        let World { now, policy, .. } = *world;
        let node = cluster.live_reason();
        let data_at = received.latest.filter(|at| now.since(*at) <= policy.window);
        out.evidence_at = cluster.evidence_at.max(received.latest);
        out.base = match node {
            Reason::NoStoreAnswers => self.no_store_answers(cluster, world, received, out),
            Reason::StoreAnswering | Reason::NoStoreRegistered => node,
            // A restart must not turn "answering" into "passive only" for the moment until the first ping.
            _ if self.restored && self.verdict.status == Status::Ready => Reason::NoEvidenceYet,
            _ if data_at.is_some() => Reason::PassiveOnly,
            _ if world.pods_absent && !self.listed => Reason::PodSourceAbsent,
            Reason::EvidenceExpired => Reason::EvidenceExpired,
            _ => Reason::NoEvidenceYet,
        };
        out.live = out.base.status() != Status::Unknown;
    }

    fn no_store_answers(
        &self,
        cluster: &Cluster,
        world: &World<'_>,
        received: Received,
        out: &mut Assessment,
    ) -> Reason {
        let World { now, policy, .. } = *world;
        if cluster.never_proved() {
            return Reason::NoEvidenceYet;
        }
        let recent = received.latest.is_some_and(|at| now.since(at) <= 2 * policy.inventory_interval);
        let since_the_first_failure = received.earliest.is_some_and(|at| Some(at) >= cluster.rounds.first_failed);
        if recent && since_the_first_failure {
            let draft = self.draft(world);
            out.findings.push(draft.finding(
                FindingCode::AgentCannotReachStores,
                "",
                Severity::Warning,
                "this pod exchanges data with a store, but no store answers this node's own pings".into(),
                "data arrived since the first round without an answer".into(),
                Remedy {
                    now: "let the agent reach the stores: a network policy or a firewall may select it".into(),
                    prevent: "allow the agent's node address on the stores' port".into(),
                },
            ));
            return Reason::PassiveOnly;
        }
        if let RoundState::Failing { began, ended } = cluster.rounds.state
            && self.verdict.reason != Reason::NoStoreAnswers
            && world.inventory
            && world.sampled.is_none_or(|at| at < began)
            && now < ended + INVENTORY_WAIT
        {
            out.wake = Some(ended + INVENTORY_WAIT);
            return self.verdict.reason;
        }
        Reason::NoStoreAnswers
    }

    fn reach(&mut self, cluster: &Cluster, world: &World<'_>, received: Received, out: &mut Assessment) {
        let World { now, policy, .. } = *world;
        let since = now - policy.window;
        let mut counted = 0;
        let mut containers = BTreeSet::new();
        let mut established = None;
        let mut last_activity = None;
        let mut stuck = false;
        let mut silent_flow = false;
        for (key, container) in &self.containers {
            for (address, remote) in &container.remotes {
                let Some(target) = cluster.ownership.present_owner(*address).filter(|key| key.role() == Role::Store)
                else {
                    continue;
                };
                if remote.wants_contrast() {
                    out.contrasts.push(((target, *address), CONTRAST));
                }
                last_activity = last_activity.max(remote.last_begun).max(remote.failed.back().map(|(at, _, _)| *at));
                if self.proxied.contains(address) {
                    continue;
                }
                established = established.max(remote.last_established);
                let attempts = remote.counted(since).count();
                if attempts > 0 {
                    counted += attempts;
                    containers.insert(*key);
                }
            }
            for socket in container.sockets.live() {
                let to_store = cluster.is_store(socket.remote);
                stuck |= to_store && socket.stuck(now, crate::container::STUCK_AFTER);
                // Without byte counts a connection that is not waiting for anything may well be in use.
                silent_flow |= to_store
                    && socket.bytes_received.is_none()
                    && socket.state == crate::connection::TcpState::Established
                    && socket.stuck_since.is_none();
                if to_store && let Some(since) = socket.stuck_since.filter(|_| socket.retransmits > 0) {
                    let again = socket.stuck_counted.map(|at| at + crate::container::STUCK_AGAIN);
                    let due = again.unwrap_or(since + crate::container::STUCK_AFTER);
                    out.sample_at = Some(out.sample_at.map_or(due, |at| at.min(due)));
                }
            }
        }
        let proven_well = established.max(received.latest);
        if let Some(latch) = &mut self.reach {
            // A socket that is stuck is an attempt that goes on.
            latch.last_activity =
                if stuck { now } else { latch.last_activity.max(last_activity.unwrap_or(latch.since)) };
            latch.carried &= counted == 0;
            let quiet = now.since(latch.last_activity) >= policy.window;
            if quiet || proven_well.is_some_and(|at| at > latch.since) {
                self.reach = None;
            }
        } else if counted >= 2
            && cluster.live_reason() == Reason::StoreAnswering
            && !silent_flow
            && proven_well.is_none_or(|at| now.since(at) > policy.window)
        {
            let last_activity = last_activity.unwrap_or(now);
            self.reach = Some(ReachLatch { since: now, containers, last_activity, carried: false });
        }
        let failing = counted > 0 && proven_well.is_none_or(|at| now.since(at) > policy.window);
        if failing || self.reach.is_some() {
            out.suspicions.insert(Reason::PodCannotReachStores);
        }
        if let Some(latch) = &self.reach {
            out.leaves = Some((Reason::PodCannotReachStores, latch.since));
            out.carried = latch.carried;
        }
    }

    fn stale(&mut self, cluster: &Cluster, world: &World<'_>, out: &mut Assessment) {
        let World { now, policy, sampled, .. } = *world;
        let mut facts = Vec::new();
        for container in self.containers.values_mut() {
            facts.extend(stale::evaluate(container, &cluster.ownership, policy, now, sampled));
        }
        let draft = self.draft(world);
        let mut confirmed = None;
        for fact in facts {
            if fact.suspicion() {
                // Whoever still serves there under the target's name would prove the sources wrong.
                out.contrasts.push((fact.address(), STALE_CONTRAST));
            }
            if fact.target.role() == Role::Store {
                if fact.suspicion() {
                    out.suspicions.insert(Reason::StaleTransport);
                }
                let first = fact.confirmed().filter(|at| confirmed.is_none_or(|(first, _)| *at < first));
                confirmed = first.map(|at| (at, fact.carried())).or(confirmed);
            }
            if fact.tells() {
                out.findings.push(fact.finding(&draft, policy));
            }
        }
        if let Some((since, carried)) = confirmed.filter(|_| policy.stale_transport == StaleTransportAction::NotReady) {
            // Whichever of the two took the pod out stays its reason while it holds.
            let reach_holds = out.leaves.is_some() && self.verdict.reason == Reason::PodCannotReachStores;
            if !reach_holds {
                out.leaves = Some((Reason::StaleTransport, since));
                out.carried = carried;
            }
        }
        self.strange_addresses(cluster, world, out);
    }

    /// Dials to addresses that nobody claims, and connections from before an address changed hands.
    fn strange_addresses(&self, cluster: &Cluster, world: &World<'_>, out: &mut Assessment) {
        let draft = self.draft(world);
        let since = world.now - world.policy.window;
        for container in self.containers.values() {
            for (address, remote) in &container.remotes {
                let failed = count_since(&remote.failed, since, |outcome| classify::counts_as_failure(*outcome));
                let unclaimed = cluster.ownership.owner(*address, world.now) == Owner::Unknown;
                let established = remote.last_established.is_some_and(|at| at >= since) || remote.established > 0;
                if unclaimed
                    && failed >= 2
                    && !established
                    && cluster.resolved()
                    && cluster.is_store_port(address.port())
                {
                    out.findings.push(draft.finding(
                        FindingCode::UnknownStoreAddress,
                        "",
                        Severity::Warning,
                        format!("this pod dials {address}, which no source claims and where nothing answers"),
                        format!("{failed} failed attempts within the window"),
                        Remedy {
                            now: format!("if a store had this address once: {}", draft.restart()),
                            prevent: "-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS; under a security manager Java 11 caches DNS \
                                      answers for ever"
                                .into(),
                        },
                    ));
                }
            }
            for socket in container.sockets.live() {
                let former = cluster.ownership.owner(socket.remote, socket.origin());
                if let (Owner::Former(target), Some(owner)) = (former, cluster.ownership.present_owner(socket.remote)) {
                    out.findings.push(draft.finding(
                        FindingCode::IpReused,
                        &target.to_string(),
                        Severity::Warning,
                        format!(
                            "a connection to {} was begun when it was {target}'s; it is {owner}'s now",
                            socket.remote
                        ),
                        "the connection is older than the change".into(),
                        Remedy {
                            now: draft.restart(),
                            prevent:
                                "a finite DNS cache (-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS) and keep-alive".into(),
                        },
                    ));
                }
            }
        }
    }

    fn connection_findings(&self, cluster: &Cluster, world: &World<'_>, out: &mut Assessment) {
        let World { now, policy, .. } = *world;
        let draft = self.draft(world);
        let mut facts: BTreeMap<TargetKey, TargetFacts> = BTreeMap::new();
        for (address, remote) in self.containers.values().flat_map(|container| &container.remotes) {
            if let Some(target) = cluster.ownership.present_owner(*address) {
                facts.entry(target).or_default().add(*address, remote, now, policy.window);
            }
        }
        for (target, facts) in &facts {
            out.findings.extend(facts.findings(&draft, *target, cluster.node_word(*target), now));
        }
        if !self.proxied.is_empty() {
            out.findings.push(draft.finding(
                FindingCode::AttemptsNotObservable,
                "",
                Severity::Info,
                "a proxy in this pod answers for the stores: what the application sees is not what the network does".into(),
                format!("{} addresses are dialled by two containers of the pod", self.proxied.len()),
                Remedy {
                    now: "nothing; verdicts rest on the node's own pings".into(),
                    prevent: "exclude the stores' port from the proxy's redirection".into(),
                },
            ));
        }
        out.findings.extend(cluster.pd.view().findings);
    }

    fn draft(&self, world: &World<'_>) -> Draft<'_> {
        Draft { record: &self.record, now: world.now, window: world.policy.window }
    }

    /// What the guard has to know.
    pub(crate) fn member(&self, assessment: &Assessment) -> Member {
        let reason = if assessment.live || !self.restored { assessment.base } else { self.verdict.reason };
        Member {
            uid: self.record.uid.clone(),
            cluster: self.record.cluster,
            namespace: Arc::clone(&self.record.pod.namespace),
            workload: self.record.workload.clone(),
            ready: reason.status() == Status::Ready,
            leaves: assessment.leaves,
            out: assessment.leaves.is_some_and(|(reason, _)| reason == self.verdict.reason),
            suspicions: assessment.suspicions.clone(),
        }
    }

    /// Settles the verdict once the guard has spoken.
    pub(crate) fn conclude(
        &mut self,
        mut assessment: Assessment,
        may_leave: bool,
        cluster: &Cluster,
        world: &World<'_>,
        log: &mut EventLog,
    ) {
        let World { now, policy, .. } = *world;
        let mut reason = assessment.base;
        let mut carried = false;
        let keeps_prior = !assessment.live && self.restored;
        if let Some((leaves, _)) = assessment.leaves.filter(|_| reason.status() != Status::NotReady) {
            if may_leave {
                reason = leaves;
                carried = assessment.carried;
            } else {
                let draft = self.draft(world);
                assessment.findings.push(draft.finding(
                    FindingCode::GuardHeld,
                    "",
                    Severity::Critical,
                    format!("{} holds, but too few others of the workload are ready and free of it", leaves.as_str()),
                    format!("verdict.min_other_ready is {}", policy.min_other_ready),
                    Remedy {
                        now: "look at the other finding of this pod: all pods of the workload may need the same".into(),
                        prevent: "run one more replica".into(),
                    },
                ));
            }
        }
        if reason.status() == Status::Unknown && keeps_prior {
            reason = self.verdict.reason;
            carried = true;
        } else if reason.status() != Status::Unknown {
            self.restored = false;
        }
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
        if !carried {
            self.verdict.message = self.message(reason, cluster);
        }
        self.verdict.carried = carried;
        self.verdict.ready = match self.verdict.status {
            Status::Ready => true,
            Status::NotReady => false,
            Status::Unknown => policy.ready_when_unknown(),
        };
        self.evidence_at = assessment.evidence_at;
        if self.restored || self.reach.as_ref().is_some_and(|latch| latch.carried) {
            let known: BTreeSet<_> = assessment.findings.iter().map(key).collect();
            let missing = self.carried.iter().filter(|finding| !known.contains(&key(finding)));
            assessment.findings.extend(missing.cloned().collect::<Vec<_>>());
        } else {
            self.carried.clear();
        }
        for turn in self.book.settle(&mut assessment.findings) {
            let (code, target, from, to, message) = match turn {
                Turn::Came(finding) => (finding.code, finding.target, None, Some(finding.code), finding.message),
                Turn::Went { code, target } => (code, target, Some(code), None, "no longer holds".into()),
            };
            let name = |code: FindingCode| code.as_str().to_owned();
            let mut event = Event::new(now, EventKind::Finding, message)
                .cluster(self.record.cluster)
                .pod(self.record.pod.clone())
                .outcome(code.as_str())
                .change(from.map(name), to.map(name));
            if !target.is_empty() {
                event = event.target(target);
            }
            log.push(event);
        }
        self.findings = assessment.findings;
    }

    /// The sentence for a reason; names no address.
    fn message(&self, reason: Reason, cluster: &Cluster) -> String {
        match reason {
            Reason::PassiveOnly => "the pod exchanges data with a store".into(),
            Reason::PodCannotReachStores => "the pod's attempts fail at stores that answer this node".into(),
            Reason::StaleTransport => "the pod keeps dialling an address that its store has left".into(),
            Reason::PodSourceAbsent => "the list of pods is not available".into(),
            reason => cluster.message(reason),
        }
    }

    /// What is published about it.
    pub(crate) fn view(&self, cluster: &Cluster) -> PodView {
        let mut held: BTreeMap<Option<TargetKey>, Connections> = BTreeMap::new();
        for socket in self.containers.values().flat_map(|container| container.sockets.live()) {
            if socket.state == crate::connection::TcpState::SynSent {
                continue;
            }
            let owner = cluster.ownership.owner(socket.remote, socket.origin());
            let connections = held.entry(owner.target()).or_default();
            match owner {
                Owner::Current(_) => connections.current += 1,
                Owner::Former(_) => connections.previous += 1,
                Owner::Unknown => connections.unknown += 1,
            }
        }
        let keys: BTreeSet<_> = self.counters.keys().chain(held.keys()).copied().collect();
        let none = TargetCounters::default();
        PodView {
            record: Arc::clone(&self.record),
            verdict: self.verdict.clone(),
            findings: self.findings.clone(),
            evidence_at: self.evidence_at,
            targets: keys
                .into_iter()
                .map(|target| {
                    let counters = self.counters.get(&target).unwrap_or(&none);
                    PodTargetView {
                        target,
                        connects: counters.connects.iter().map(|(outcome, count)| (*outcome, *count)).collect(),
                        endings: counters.endings.iter().map(|(outcome, count)| (*outcome, *count)).collect(),
                        resets_received: counters.resets_received,
                        resets_sent: counters.resets_sent,
                        retransmits: counters.retransmits,
                        connections: held.get(&target).copied().unwrap_or_default(),
                        connect_duration: counters.connect_duration,
                    }
                })
                .collect(),
            transitions: self.transitions.iter().map(|(reason, count)| (*reason, *count)).collect(),
        }
    }

    /// Its connections, live ones and those that ended lately.
    pub(crate) fn connections<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = ConnectionView> + 'a {
        let sockets =
            self.containers.values().flat_map(|container| container.sockets.live().chain(container.sockets.ended()));
        sockets.map(|socket| {
            let owner = cluster.ownership.owner(socket.remote, socket.origin());
            ConnectionView {
                cluster: self.record.cluster,
                pod: self.record.pod.clone(),
                uid: self.record.uid.clone(),
                target: owner.target(),
                local: socket.local,
                remote: socket.remote,
                owner: match owner {
                    Owner::Current(_) => OwnerView::Current,
                    Owner::Former(_) => OwnerView::Previous,
                    Owner::Unknown => OwnerView::Unknown,
                },
                state: socket.state,
                outcome: socket.outcome,
                opened_at: socket.begun,
                first_seen: socket.first_seen,
                last_used: socket.last_used,
                rtt: socket.rtt,
                retransmits: socket.retransmits_total.max(socket.retransmits.into()),
                resets: socket.resets,
                bytes_received: socket.bytes_received,
                via: if self.proxied.contains(&socket.remote) { Via::Proxy } else { Via::Direct },
                ended: socket.ended,
            }
        })
    }

    /// What survives a restart.
    pub(crate) fn memory(&self, cluster: Arc<str>) -> PodMemory {
        PodMemory {
            cluster,
            record: PodRecord::clone(&self.record),
            verdict: VerdictMemory {
                reason: self.verdict.reason,
                message: self.verdict.message.clone(),
                since: self.verdict.since,
            },
            reach: self.reach.clone(),
            containers: self.containers.iter().map(|(key, container)| ContainerMemory::of(*key, container)).collect(),
            findings: self.findings.clone(),
        }
    }

    /// Takes back what an earlier run put away. Its verdict stands until this run's evidence says otherwise.
    pub(crate) fn restore(memory: PodMemory, now: MonoTime) -> Self {
        let PodMemory { cluster: _, record, verdict, reach, containers, findings } = memory;
        let mut pod = Self::new(Arc::new(record), now);
        pod.listed = false;
        if verdict.reason.status() != Status::Unknown {
            let VerdictMemory { reason, message, since } = verdict;
            pod.restored = true;
            pod.verdict = Verdict { carried: true, ..crate::cluster::verdict(reason, message, since) };
        }
        // A window without an attempt is one that somebody watched.
        pod.reach = reach.map(|latch| ReachLatch { last_activity: now, carried: true, ..latch });
        for ContainerMemory { key, first_seen, stale, baselines } in containers.into_iter().take(MAX_CONTAINERS) {
            let mut container = Container::new(first_seen, false);
            let carried = stale
                .into_iter()
                .map(|(target, address, entry)| ((target, address), StaleEntry { carried: true, ..entry }));
            container.stale.extend(carried);
            container.baselines.extend(baselines.into_iter().map(|(target, at, reading)| ((target, at), reading)));
            pod.containers.insert(key, container);
        }
        for finding in findings {
            pod.book.restore(key(&finding), finding.since);
            pod.carried.push(Finding { carried: true, ..finding });
        }
        pod
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
