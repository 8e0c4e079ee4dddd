//! One cluster as this node's own calls see it: its Stores, its rounds of pings, its PD, and whether the node reaches
//! its storage.

use crate::{
    event::{Event, EventKind, EventLog},
    findings::{Book, NodeWord},
    id::{ClusterId, HostPort, Role, TargetId, TargetKey},
    judge::Advance,
    memory::{ClusterMemory, TenureMemory, VerdictMemory},
    ownership::{ClaimSource, OwnerChange, Ownership},
    pd::Pd,
    ping::{NameFailure, NameReport, PdReport, Ping, PingOutcome, Purpose, RoundEnded},
    pings::{self, AddressPings},
    policy::{ClusterSettings, VerdictPolicy},
    request::Request,
    rounds::{MIN_SPACING, RoundState, Rounds},
    snapshot::{AddressView, ClusterView, Histogram, LastPing, NodeReadiness, StoreView},
    time::MonoTime,
    topology::{ListedStore, ReportedState, Target},
    verdict::{Finding, FindingCode, Reason, Remedy, Severity, Status, Verdict},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Stores of one cluster that are kept; a real cluster has tens. What PD lists beyond is counted as a fault of the list.
pub(crate) const MAX_STORES: usize = 1024;

/// While nothing answers, a round is asked for at latest this long after the last one.
const RETRY: Duration = Duration::from_millis(250);

/// Least distance between two rounds that the kernel's news trigger.
const TRIGGER_SPACING: Duration = Duration::from_millis(500);

/// How long a Store's former address that another Store has now is worth telling: clients may still go there.
const REUSE_MEMORY: Duration = Duration::from_secs(3600);

/// Pings in a row without an answer before a Store is called down or hung.
const SILENT: u32 = 2;

/// A Store.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) address: HostPort,
    pub(crate) reported: Option<ReportedState>,
    pub(crate) answering: Option<bool>,
    pub(crate) last_ping: Option<LastPing>,
    /// Pings in a row without an answer, and since when.
    pub(crate) silent: u32,
    pub(crate) silent_since: Option<MonoTime>,
    pings: BTreeMap<PingOutcome, u64>,
    ping_durations: [Histogram; 4],
}

impl Store {
    fn new(address: HostPort, reported: Option<ReportedState>) -> Self {
        Self {
            address,
            reported,
            answering: None,
            last_ping: None,
            silent: 0,
            silent_since: None,
            pings: BTreeMap::new(),
            ping_durations: [Histogram::default(); 4],
        }
    }

    /// Pinged, and its answer counts.
    fn pinged(&self) -> bool {
        self.reported.is_none_or(ReportedState::pinged)
    }

    /// It let itself be connected to and ran into the time-out.
    fn hung(&self) -> bool {
        self.last_ping
            .as_ref()
            .is_some_and(|ping| ping.outcome == PingOutcome::Deadline && ping.phases.connect.is_some())
    }

    /// Nothing of a Store answers there.
    fn unreachable(&self) -> bool {
        self.last_ping.as_ref().is_some_and(|ping| {
            matches!(ping.outcome, PingOutcome::Refused | PingOutcome::Unreachable | PingOutcome::Deadline)
        })
    }

    /// Expected to answer.
    fn expected(&self) -> bool {
        self.reported.is_none_or(ReportedState::expected)
    }
}

/// The first answer and the last round.
#[derive(Clone, Debug, Default)]
struct LastRound {
    number: Option<u64>,
    first: Option<(TargetKey, MonoTime, Duration)>,
    asked: Vec<TargetKey>,
}

/// A cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) id: ClusterId,
    pub(crate) settings: ClusterSettings,
    pub(crate) stores: BTreeMap<TargetKey, Store>,
    pub(crate) rounds: Rounds,
    pub(crate) pd: Pd,
    pub(crate) ownership: Ownership,
    pub(crate) address_pings: BTreeMap<SocketAddr, AddressPings>,
    /// An inventory sample is wanted now.
    pub(crate) wants_sample: bool,
    /// The verdict is from before a restart, and nothing has been seen since.
    pub(crate) restored: bool,
    book: Book,
    store_findings: BTreeMap<TargetKey, Vec<Finding>>,
    /// PD's last list that was not empty.
    list: Option<Vec<ListedStore>>,
    list_at: Option<MonoTime>,
    list_faults: u64,
    ever_answered: bool,
    /// Every ping so far ended in a time-out.
    only_deadlines: bool,
    last_round: LastRound,
    answered_round: LastRound,
    pub(crate) evidence_at: Option<MonoTime>,
    live: Reason,
    verdict: Verdict,
    retry_at: Option<MonoTime>,
    triggered: bool,
    requested_round: Option<MonoTime>,
    told_targets: Option<Vec<Target>>,
    told_present: Option<bool>,
}

impl Cluster {
    pub(crate) fn new(id: ClusterId, settings: ClusterSettings, now: MonoTime) -> Self {
        let mut cluster = Self {
            id,
            pd: Pd::new(&settings),
            settings,
            stores: BTreeMap::new(),
            rounds: Rounds::default(),
            ownership: Ownership::default(),
            address_pings: BTreeMap::new(),
            wants_sample: false,
            restored: false,
            book: Book::default(),
            store_findings: BTreeMap::new(),
            list: None,
            list_at: None,
            list_faults: 0,
            ever_answered: false,
            only_deadlines: true,
            last_round: LastRound::default(),
            answered_round: LastRound::default(),
            evidence_at: None,
            live: Reason::NoEvidenceYet,
            verdict: verdict(Reason::NoEvidenceYet, "no Store was asked yet".into(), now),
            retry_at: None,
            triggered: false,
            requested_round: None,
            told_targets: None,
            told_present: None,
        };
        let peers: Vec<_> = cluster.settings.pd_peers.iter().cloned().zip(0..).collect();
        for (address, position) in peers {
            cluster.claim_literal(ClaimSource::Config, TargetKey::Pd(position), &address, now);
        }
        cluster.rebuild(now);
        cluster
    }

    /// A literal address is a claim by itself; a name is none.
    fn claim_literal(&mut self, source: ClaimSource, target: TargetKey, address: &HostPort, at: MonoTime) {
        let literal = address.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, address.port));
        self.ownership.answer(source, target, None, literal.as_slice(), at);
    }

    /// Makes the Stores from the configuration and PD's list. A configured Store that PD lists too is PD's.
    fn rebuild(&mut self, at: MonoTime) {
        let mut old = std::mem::take(&mut self.stores);
        for listed in self.list.iter().flatten() {
            let key = TargetKey::Store(listed.id);
            if self.stores.len() >= MAX_STORES || self.stores.contains_key(&key) {
                self.list_faults = self.list_faults.saturating_add(1);
                continue;
            }
            let normal = listed.address.normal();
            let configured = self.settings.stores.iter().position(|address| address.normal() == normal);
            let configured = configured.and_then(|at| u16::try_from(at).ok()).map(TargetKey::Static);
            let renamed = configured.and_then(|configured| Some((configured, old.remove(&configured)?)));
            let mut store = match (old.remove(&key), renamed) {
                (Some(store), _) => store,
                (None, Some((configured, store))) => {
                    self.ownership.rename(configured, key);
                    store
                }
                (None, None) => Store::new(listed.address.clone(), Some(listed.state)),
            };
            store.address.clone_from(&listed.address);
            store.reported = Some(listed.state);
            self.stores.insert(key, store);
        }
        let listed: BTreeSet<_> = self.stores.values().map(|store| store.address.normal()).collect();
        for (address, position) in self.settings.stores.iter().zip(0..) {
            if listed.contains(&address.normal()) {
                continue;
            }
            let key = TargetKey::Static(position);
            let store = old.remove(&key).unwrap_or_else(|| Store::new(address.clone(), None));
            self.stores.insert(key, store);
        }
        let peers = (0..).zip(&self.settings.pd_peers).map(|(position, _)| TargetKey::Pd(position));
        self.ownership.set_listed(self.stores.keys().copied().chain(peers).collect());
        let literals: Vec<_> = self.stores.iter().map(|(key, store)| (*key, store.address.clone())).collect();
        for (key, address) in literals {
            let source = if matches!(key, TargetKey::Store(_)) { ClaimSource::Pd } else { ClaimSource::Config };
            self.claim_literal(source, key, &address, at);
        }
    }

    /// Files what DNS said about a target's name. Silence is no answer.
    pub(crate) fn name(&mut self, report: &NameReport) {
        let Some(port) = self.port(report.target.key) else { return };
        let addresses: Vec<_> = match &report.answer {
            Ok(addresses) => addresses
                .iter()
                .filter(|address| address.is_ipv6() == report.v6)
                .map(|address| SocketAddr::new(*address, port))
                .collect(),
            Err(NameFailure::NoSuchName) => Vec::new(),
            Err(NameFailure::NoAnswer) => return,
        };
        self.ownership.answer(ClaimSource::Dns, report.target.key, Some(report.v6), &addresses, report.at);
    }

    fn port(&self, target: TargetKey) -> Option<u16> {
        match target {
            TargetKey::Pd(position) => self.settings.pd_peers.get(usize::from(position)).map(|address| address.port),
            key => self.stores.get(&key).map(|store| store.address.port),
        }
    }

    /// The address is a Store's at present. While no Store is known, the Stores' port tells one.
    pub(crate) fn is_store(&self, address: SocketAddr) -> bool {
        match self.ownership.present_owner(address) {
            Some(target) => target.role() == Role::Store,
            None => self.stores.is_empty() && address.port() == self.settings.store_port,
        }
    }

    /// What this node's own calls say about a target.
    pub(crate) fn node_word(&self, target: TargetKey) -> NodeWord {
        let Some(store) = self.stores.get(&target) else {
            let reachable = match target {
                TargetKey::Pd(position) => self.pd.peer_reachable(position),
                TargetKey::Store(_) | TargetKey::Static(_) => None,
            };
            return NodeWord { answers: reachable == Some(true), down: reachable == Some(false), hung: false };
        };
        let silent = store.silent >= SILENT;
        let hung = silent && store.hung();
        NodeWord { answers: store.answering == Some(true), hung, down: silent && !hung && store.unreachable() }
    }

    /// Asks for a fresh ping at an address, unless one was asked for less than `spacing` ago.
    pub(crate) fn contrast(
        &mut self,
        target: TargetKey,
        remote: SocketAddr,
        spacing: Duration,
        now: MonoTime,
        advance: &mut Advance,
    ) {
        let Some(pings) = pings::entry(&mut self.address_pings, remote) else { return };
        match pings.asked {
            Some(asked) if now.since(asked) < spacing => advance.wake(Some(asked + spacing)),
            _ => {
                pings.asked = Some(now);
                let target = TargetId { cluster: self.id, key: target };
                advance.requests.push(Request::Contrast { target, remote });
            }
        }
    }

    /// Every Store that is pinged has an address: one that nobody claims is then really nobody's.
    pub(crate) fn resolved(&self) -> bool {
        let mut pinged = self.stores.iter().filter(|(_, store)| store.pinged()).peekable();
        pinged.peek().is_some() && pinged.all(|(key, _)| self.ownership.of(*key).any(|(_, tenure)| tenure.claimed()))
    }

    /// Stores listen on this port.
    pub(crate) fn is_store_port(&self, port: u16) -> bool {
        port == self.settings.store_port || self.stores.values().any(|store| store.address.port == port)
    }

    /// Files the end of a ping.
    pub(crate) fn ping(&mut self, ping: &Ping, policy: &VerdictPolicy, log: &mut EventLog) {
        let answers = ping.outcome.answers();
        if let Purpose::Round(number) = ping.purpose {
            if self.last_round.number != Some(number) {
                self.last_round = LastRound { number: Some(number), ..LastRound::default() };
            }
            if answers {
                let first = (ping.target.key, ping.ended, ping.ended.since(ping.started));
                if self.last_round.first.is_none_or(|(_, at, _)| ping.ended < at) {
                    self.last_round.first = Some(first);
                }
                self.rounds.answer(number, ping.started, policy);
                self.evidence_at = Some(self.evidence_at.map_or(ping.ended, |at| at.max(ping.ended)));
            }
        }
        pings::file(&mut self.address_pings, ping);
        if let (Some(remote), Some(name)) = (ping.remote, &ping.identity)
            && let Some(shown) = HostPort::parse(name).map(|name| name.normal())
        {
            let known = self.stores.iter().find(|(_, store)| store.address.normal() == shown).map(|(key, _)| *key);
            self.ownership.identity(remote, name, known, ping.ended);
        }
        let tenure = ping.remote.and_then(|remote| self.ownership.tenure(ping.target.key, remote));
        if ping.purpose == Purpose::Contrast && tenure.is_some_and(|tenure| !tenure.claimed()) {
            // Who is at an address that the target has left says nothing about the target.
            return;
        }
        self.ever_answered |= answers;
        self.only_deadlines &= ping.outcome == PingOutcome::Deadline;
        self.ownership.ping(ping.target.key, ping.remote, answers, ping.ended);
        let Some(store) = self.stores.get_mut(&ping.target.key) else { return };
        if store.last_ping.as_ref().is_none_or(|last| last.outcome != ping.outcome) {
            let before = store.last_ping.as_ref().map(|last| last.outcome.as_str().into());
            log.push(
                Event::new(ping.ended, EventKind::Ping, ping.detail.as_deref().unwrap_or_default().into())
                    .cluster(self.id)
                    .target(ping.target.key.to_string())
                    .outcome(ping.outcome.as_str())
                    .change(before, Some(ping.outcome.as_str().into())),
            );
        }
        store.answering = Some(answers);
        if answers {
            store.silent = 0;
            store.silent_since = None;
        } else {
            store.silent = store.silent.saturating_add(1);
            store.silent_since.get_or_insert(ping.ended);
        }
        store.last_ping =
            Some(LastPing { outcome: ping.outcome, at: ping.ended, phases: ping.phases, detail: ping.detail.clone() });
        let count = store.pings.entry(ping.outcome).or_default();
        *count = count.saturating_add(1);
        let phases = [ping.phases.dns, ping.phases.connect, ping.phases.http2, ping.phases.rpc];
        for (histogram, phase) in store.ping_durations.iter_mut().zip(phases) {
            if let Some(duration) = phase {
                histogram.observe(duration);
            }
        }
    }

    /// Files the end of a round.
    pub(crate) fn round_ended(&mut self, round: &RoundEnded, policy: &VerdictPolicy) {
        if self.last_round.number != Some(round.round) {
            self.last_round = LastRound { number: Some(round.round), ..LastRound::default() };
        }
        self.last_round.asked = round.asked.iter().map(|target| target.key).collect();
        self.answered_round = self.last_round.clone();
        let counted = self.rounds.ended(round, policy);
        // Whether pods still receive data must be known from samples on both sides of the threshold.
        let failed = self.rounds.failed();
        self.wants_sample |= counted && (failed == 1 || failed == policy.failure_threshold);
        self.evidence_at = Some(self.evidence_at.map_or(round.ended, |at| at.max(round.ended)));
        let silent = !round.asked.is_empty() && self.last_round.first.is_none();
        self.retry_at = silent.then(|| round.ended.max(round.started + MIN_SPACING).min(round.ended + RETRY));
    }

    /// Files one attempt on PD.
    pub(crate) fn pd(&mut self, report: &PdReport, policy: &VerdictPolicy) {
        self.pd.observe(report, policy);
        for peer in &report.peers {
            self.ownership.ping(TargetKey::Pd(peer.peer), None, peer.alive, report.ended);
        }
        if let Some(list) = &report.list
            && !list.is_empty()
        {
            self.list_at = Some(report.ended);
            self.list = Some(list.clone());
            self.rebuild(report.ended);
        }
    }

    /// What survives a restart.
    pub(crate) fn memory(&self) -> ClusterMemory {
        ClusterMemory {
            name: Arc::clone(&self.settings.name),
            pd_peers: self.settings.pd_peers.clone(),
            stores: self.settings.stores.clone(),
            list: self.list.clone().unwrap_or_default(),
            ever_answered: self.ever_answered,
            verdict: VerdictMemory {
                reason: self.verdict.reason,
                message: self.verdict.message.clone(),
                since: self.verdict.since,
            },
            tenures: self
                .ownership
                .all()
                .map(|(target, address, tenure)| TenureMemory { target, address, tenure: tenure.clone() })
                .collect(),
        }
    }

    /// Takes back what an earlier run put away.
    pub(crate) fn restore(&mut self, memory: ClusterMemory, now: MonoTime) {
        let fits = memory.fits(&self.settings);
        let ClusterMemory { name: _, pd_peers: _, stores: _, list, ever_answered, verdict, tenures } = memory;
        self.ever_answered |= ever_answered;
        for TenureMemory { target, address, tenure } in tenures {
            // A position in another configuration is another target.
            if fits || matches!(target, TargetKey::Store(_)) {
                self.ownership.restore(target, address, tenure);
            }
        }
        if !list.is_empty() {
            self.list = Some(list);
            self.rebuild(now);
        }
        if verdict.reason.status() != Status::Unknown {
            self.restored = true;
            let VerdictMemory { reason, message, since } = verdict;
            self.verdict = Verdict { carried: true, ..crate::cluster::verdict(reason, message, since) };
        }
    }

    /// PD has been asked, or there is none to ask.
    pub(crate) fn pd_asked(&self) -> bool {
        self.pd.checked.is_some() || self.settings.pd_peers.is_empty()
    }

    /// A round has ended, or no Store is known to ask.
    pub(crate) fn pinged_or_listless(&self) -> bool {
        self.evidence_at.is_some() || (self.pd_asked() && !self.any_pinged())
    }

    /// The ports to watch in the kernel.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        let configured = self.settings.pd_peers.iter().map(|address| address.port);
        let stores = self.stores.values().map(|store| store.address.port);
        [self.settings.store_port, self.settings.pd_port].into_iter().chain(configured).chain(stores)
    }

    /// No Store ever answered, and every ping ended in a time-out: this agent may be the one that is cut off.
    pub(crate) fn never_proved(&self) -> bool {
        !self.ever_answered && self.only_deadlines
    }

    /// What the rules say by the evidence of this run, as of the last judgement.
    pub(crate) fn live_reason(&self) -> Reason {
        self.live
    }

    /// The kernel saw something go wrong towards one of the Stores.
    pub(crate) fn trigger(&mut self) {
        self.triggered = true;
    }

    /// A Store that counts is or was known.
    fn any_pinged(&self) -> bool {
        self.stores.values().any(Store::pinged)
    }

    fn reason(&self, now: MonoTime, policy: &VerdictPolicy) -> Reason {
        let expired = self.evidence_at.is_some_and(|at| now.since(at) > policy.window);
        match self.rounds.state {
            RoundState::Answering | RoundState::Failing { .. } if expired => Reason::EvidenceExpired,
            RoundState::Answering => Reason::StoreAnswering,
            RoundState::Failing { .. } => Reason::NoStoreAnswers,
            RoundState::NoneYet if self.any_pinged() => Reason::NoEvidenceYet,
            RoundState::NoneYet => self.pd.reason_without_stores(policy),
        }
    }

    /// The sentence for a reason; names no address.
    pub(crate) fn message(&self, reason: Reason) -> String {
        let asked = self.answered_round.asked.len();
        match reason {
            Reason::StoreAnswering => format!("{} of {asked} stores answered", self.answering()),
            Reason::NoStoreAnswers => format!("0 of {asked} stores answered"),
            Reason::NoStoreRegistered => "PD lists no store".into(),
            Reason::StoreListUnknown => "no store list is known and PD does not answer".into(),
            Reason::EvidenceExpired => "the last ping is too old to prove anything".into(),
            _ => "no store was asked often enough yet".into(),
        }
    }

    /// How many of the last round's Stores answered.
    fn answering(&self) -> usize {
        self.answered_round.asked.iter().filter(|key| self.answers(**key)).count()
    }

    fn answers(&self, key: TargetKey) -> bool {
        self.stores.get(&key).is_some_and(|store| store.answering == Some(true))
    }

    /// Applies the rules at `now`.
    pub(crate) fn advance(
        &mut self,
        now: MonoTime,
        policy: &VerdictPolicy,
        pods_present: bool,
        log: &mut EventLog,
        advance: &mut Advance,
    ) {
        self.ownership.settle(policy.stale_suspect_after);
        self.tell_owners(log);
        self.live = self.reason(now, policy);
        let mut reason = self.live;
        if reason.status() == Status::Unknown && self.restored {
            reason = self.verdict.reason;
        } else if reason.status() != Status::Unknown {
            self.restored = false;
        }
        if reason != self.verdict.reason {
            log.push(
                Event::new(now, EventKind::Transition, self.message(reason))
                    .cluster(self.id)
                    .change(Some(self.verdict.reason.as_str().into()), Some(reason.as_str().into())),
            );
            self.verdict = verdict(reason, String::new(), now);
        }
        if !self.restored {
            self.verdict.message = self.message(reason);
        }
        self.verdict.carried = self.restored;
        self.find(now, policy);
        self.request(now, pods_present, advance);
    }

    fn tell_owners(&mut self, log: &mut EventLog) {
        for change in self.ownership.take_changes() {
            let (target, address, at, message) = match change {
                OwnerChange::Began { target, address, at } => {
                    (target, address, at, format!("{target} is at {address}"))
                }
                OwnerChange::Ended { target, address, at } => {
                    (target, address, at, format!("{target} has left {address}"))
                }
            };
            let began = matches!(change, OwnerChange::Began { .. });
            let (from, to) =
                (Some(address.to_string()).filter(|_| !began), Some(address.to_string()).filter(|_| began));
            log.push(
                Event::new(at, EventKind::Owner, message).cluster(self.id).target(target.to_string()).change(from, to),
            );
        }
    }

    /// What stands out about each Store, by this node's pings alone.
    fn find(&mut self, now: MonoTime, policy: &VerdictPolicy) {
        let mut all = Vec::new();
        for (key, store) in &self.stores {
            let word = self.node_word(*key);
            let label = key.to_string();
            let finding = |code, message: String, evidence: String, now_: &str, prevent: &str| Finding {
                code,
                mode: None,
                target: label.clone(),
                since: store.silent_since.unwrap_or(now),
                confirms_at: None,
                message,
                evidence,
                remedy: Remedy { now: now_.into(), prevent: prevent.into() },
                severity: Severity::Warning,
                carried: false,
            };
            let outcome = store.last_ping.as_ref().map_or("none", |ping| ping.outcome.as_str());
            let evidence = format!("{} pings in a row: {outcome}", store.silent);
            if word.down && store.expected() && store.silent >= policy.failure_threshold {
                all.push(finding(
                    FindingCode::StoreDown,
                    format!("{label} does not answer this node"),
                    evidence,
                    "look at the store's pod and node",
                    "keep at least three replicas of each partition",
                ));
            } else if word.hung && store.silent >= policy.failure_threshold {
                all.push(finding(
                    FindingCode::StoreHung,
                    format!("{label} accepts connections and answers nothing"),
                    evidence,
                    "look at the store's process: a long garbage collection, frozen, or all threads busy",
                    "a liveness probe on the store's own gRPC port",
                ));
            }
            for (address, tenure) in self.ownership.of(*key) {
                let other = self.ownership.present_owner(address).filter(|other| other != key);
                let recent = tenure.ended.is_none_or(|ended| now.since(ended) <= REUSE_MEMORY);
                let shown = other.filter(|_| recent);
                let seen = |other: TargetKey| self.ownership.tenure(other, address).and_then(|t| t.identity.clone());
                if let Some((other, (_, at))) = shown.and_then(|other| Some((other, seen(other)?))) {
                    for target in [*key, other] {
                        all.push(Finding {
                            target: target.to_string(),
                            since: at,
                            severity: Severity::Warning,
                            ..finding(
                                FindingCode::IpReused,
                                format!("{address} was {label}'s and is {other}'s now"),
                                format!("the process there names itself as {other}"),
                                "nothing here; a client that still dials it for the old store reaches the wrong one",
                                "a finite DNS cache in the servers (-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS)",
                            )
                        });
                    }
                }
            }
        }
        self.book.settle(&mut all);
        self.store_findings.clear();
        for finding in all {
            let key = self.stores.keys().find(|key| key.to_string() == finding.target).copied();
            if let Some(key) = key {
                self.store_findings.entry(key).or_default().push(finding);
            }
        }
    }

    fn addresses(&self, target: TargetKey) -> Vec<AddressView> {
        self.ownership
            .of(target)
            .map(|(address, tenure)| AddressView {
                ip: address.ip(),
                from: tenure.from,
                to: tenure.ended,
                source: tenure.sources(),
                identity: tenure.identity.as_ref().map(|(name, _)| Arc::clone(name)),
            })
            .collect()
    }

    fn request(&mut self, now: MonoTime, pods_present: bool, advance: &mut Advance) {
        let targets: Vec<_> = self.targets().collect();
        if self.told_targets.as_ref() != Some(&targets) {
            self.told_targets = Some(targets.clone());
            advance.requests.push(Request::Targets { cluster: self.id, targets });
        }
        if self.told_present != Some(pods_present) {
            self.told_present = Some(pods_present);
            advance.requests.push(Request::PodsPresent { cluster: self.id, present: pods_present });
        }
        let spaced = self.requested_round.is_none_or(|last| now.since(last) >= TRIGGER_SPACING);
        let retry = self.retry_at.is_some_and(|at| at <= now);
        if retry || (self.triggered && spaced) {
            self.retry_at = None;
            self.requested_round = Some(now);
            advance.requests.push(Request::Round { cluster: self.id });
        }
        self.triggered = false;
        advance.wake(self.retry_at);
    }

    /// The Stores to ping. A name is the identity that an answer must carry; an address is none.
    fn targets(&self) -> impl Iterator<Item = Target> {
        self.stores.iter().filter(|(_, store)| store.pinged()).map(|(key, store)| Target {
            id: TargetId { cluster: self.id, key: *key },
            address: store.address.clone(),
            identity: store.address.host.parse::<IpAddr>().is_err().then(|| store.address.to_string().into()),
        })
    }

    /// What is published about it.
    pub(crate) fn view(&self, policy: &VerdictPolicy) -> ClusterView {
        let id = |key: &TargetKey| match key {
            TargetKey::Store(id) => Some(*id),
            TargetKey::Static(_) | TargetKey::Pd(_) => None,
        };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let unanswered = self.answered_round.asked.iter().filter(|key| !self.answers(**key));
        let pd = self.pd.view();
        ClusterView {
            id: self.id,
            name: self.settings.name.clone(),
            readiness: NodeReadiness {
                verdict: Verdict {
                    ready: self.verdict.status == Status::Ready
                        || (self.verdict.status == Status::Unknown && policy.ready_when_unknown()),
                    ..self.verdict.clone()
                },
                active_stores: count(self.stores.values().filter(|store| store.expected()).count()),
                answered_store: self.answered_round.first.and_then(|(key, _, _)| id(&key)),
                answering: count(self.answering()),
                unanswered_stores: unanswered.filter_map(id).collect(),
                pd_reachable: pd.reachable,
                pd_checked: self.pd.checked,
                stores_at: self.list_at,
                store_millis: self
                    .answered_round
                    .first
                    .map(|(_, _, took)| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
                evidence_at: self.evidence_at,
                findings: self.store_findings.values().flatten().chain(&pd.findings).cloned().collect(),
            },
            stores: self
                .stores
                .iter()
                .map(|(key, store)| StoreView {
                    target: TargetId { cluster: self.id, key: *key },
                    address: store.address.clone(),
                    reported: store.reported,
                    expected: store.expected(),
                    answering: store.answering,
                    last_ping: store.last_ping.clone(),
                    addresses: self.addresses(*key),
                    findings: self.store_findings.get(key).cloned().unwrap_or_default(),
                    pings: store.pings.iter().map(|(outcome, count)| (*outcome, *count)).collect(),
                    ping_durations: store.ping_durations,
                })
                .collect(),
            pd,
        }
    }
}

/// A fresh verdict; `ready` is settled when it is published.
pub(crate) fn verdict(reason: Reason, message: String, since: MonoTime) -> Verdict {
    let status = reason.status();
    Verdict { ready: status == Status::Ready, status, reason, message, since, carried: false }
}
