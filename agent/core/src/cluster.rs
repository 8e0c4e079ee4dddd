//! One cluster as this node's own calls see it: its Stores, its rounds of pings, its PD, and whether the node reaches
//! its storage.

use crate::{
    event::{Event, EventKind, EventLog},
    findings::{Answered, Book},
    id::{ClusterId, HostPort, Role, TargetKey},
    memory::LastRound,
    naming::Named,
    ownership::{ClaimSource, Ownership},
    pd::Pd,
    ping::{NameFailure, NameReport, PdReport, Ping, PingOutcome, Purpose, RoundEnded},
    pings::{self, AddressPings},
    policy::{ClusterSettings, VerdictPolicy},
    rounds::{MIN_SPACING, Rounds},
    snapshot::{Histogram, LastPing},
    time::MonoTime,
    topology::{ListedStore, ReportedState, Target},
    verdict::{Finding, Reason, Status, Verdict},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

mod endpoints;
mod findings;
mod publish;
mod remember;
mod rules;

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
    /// The last ping that was answered.
    pub(crate) answer: Option<Answered>,
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
            answer: None,
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

/// A cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) id: ClusterId,
    pub(crate) settings: ClusterSettings,
    pub(crate) stores: BTreeMap<TargetKey, Store>,
    names: BTreeMap<TargetKey, Arc<Named>>,
    pub(crate) rounds: Rounds,
    pub(crate) pd: Pd,
    pub(crate) ownership: Ownership,
    pub(crate) services: endpoints::Services,
    pub(crate) address_pings: BTreeMap<SocketAddr, AddressPings>,
    /// An inventory sample is wanted now.
    pub(crate) wants_sample: bool,
    /// The verdict is from before a restart, and nothing has been seen since.
    pub(crate) restored: bool,
    book: Book,
    pd_book: Book,
    /// What stands out; under `None` what is told of no Store.
    store_findings: BTreeMap<Option<TargetKey>, Vec<Finding>>,
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
            names: BTreeMap::new(),
            rounds: Rounds::default(),
            ownership: Ownership::default(),
            services: endpoints::Services::default(),
            address_pings: BTreeMap::new(),
            wants_sample: false,
            restored: false,
            book: Book::default(),
            pd_book: Book::default(),
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
        cluster.claim_peers(now);
        cluster.rebuild(now);
        cluster
    }

    /// PD's addresses come from the configuration alone.
    fn claim_peers(&mut self, at: MonoTime) {
        let peers: Vec<_> = self.settings.pd_peers.iter().cloned().zip(0..).collect();
        for (address, position) in peers {
            self.claim_literal(ClaimSource::Config, TargetKey::Pd(position), &address, at);
        }
    }

    /// A literal address is a claim by itself; a name is none.
    fn claim_literal(&mut self, source: ClaimSource, target: TargetKey, address: &HostPort, at: MonoTime) {
        let literal = address.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, address.port));
        self.ownership.answer(source, target, None, literal.as_slice(), at);
    }

    /// Takes in a new list.
    fn rebuild(&mut self, at: MonoTime) {
        self.arrange();
        self.ownership.set_listed(self.listed(), at);
        self.claim_literals(at);
    }

    /// Everything that exists.
    fn listed(&self) -> BTreeSet<TargetKey> {
        let peers = (0..).zip(&self.settings.pd_peers).map(|(position, _)| TargetKey::Pd(position));
        self.stores.keys().copied().chain(peers).collect()
    }

    /// Makes the Stores from the configuration and PD's list. A configured Store that PD lists too is PD's.
    fn arrange(&mut self) {
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
        self.names = self.call();
    }

    /// What PD or the configuration give as an address is claimed by their word alone.
    fn claim_literals(&mut self, at: MonoTime) {
        let literals: Vec<_> = self.stores.iter().map(|(key, store)| (*key, store.address.clone())).collect();
        for (key, address) in literals {
            let source = if matches!(key, TargetKey::Store(_)) { ClaimSource::Pd } else { ClaimSource::Config };
            self.claim_literal(source, key, &address, at);
        }
    }

    /// Files what DNS said about a target's name. Silence is no answer.
    pub(crate) fn name(&mut self, report: &NameReport) {
        let Some(port) = self.port(report.target.key) else { return };
        if let TargetKey::Pd(position) = report.target.key {
            self.pd.name(position, report.v6, report.answer.as_ref().map(|list| !list.is_empty()).map_err(|why| *why));
        }
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

    /// How a target is called among people.
    pub(crate) fn named(&self, target: TargetKey) -> Arc<Named> {
        self.names.get(&target).cloned().unwrap_or_else(|| Arc::new(Named::unlisted(target)))
    }

    /// Names all targets: the rules ask for a name often, and it depends on all others.
    fn call(&self) -> BTreeMap<TargetKey, Arc<Named>> {
        let stores = || self.stores.values().map(|store| &store.address);
        let peers = &self.settings.pd_peers;
        let names = self.stores.iter().map(|(key, store)| (*key, Named::new(*key, &store.address, stores())));
        let pd = (0..).map(TargetKey::Pd).zip(peers).map(|(key, address)| (key, Named::new(key, address, peers)));
        names.chain(pd).map(|(key, named)| (key, Arc::new(named))).collect()
    }

    /// PD as people call it: its first peer.
    pub(crate) fn named_pd(&self) -> Option<Arc<Named>> {
        (!self.settings.pd_peers.is_empty()).then(|| self.named(TargetKey::Pd(0)))
    }

    /// The address is a Store's at present. While no Store is known, the Stores' port tells one.
    pub(crate) fn is_store(&self, address: SocketAddr) -> bool {
        match self.ownership.present_owner(address) {
            Some(target) => target.role() == Role::Store,
            None => self.stores.is_empty() && address.port() == self.settings.store_port,
        }
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
                // Until the round is over, an answer in it stands in for one that the last round lacked.
                self.answered_round.first.get_or_insert(first);
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
                Event::new(ping.ended, EventKind::Ping, sentence(ping))
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
            let answer = |remote| Answered { remote, at: ping.ended, took: ping.ended.since(ping.started) };
            store.answer = ping.remote.map(answer).or(store.answer);
        } else if ping.remote.is_some() || ping.outcome != PingOutcome::Deadline {
            store.silent = store.silent.saturating_add(1);
            store.silent_since.get_or_insert(ping.ended);
        } // Else DNS gave no address in time: nothing was sent, and nothing is said about the Store.
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
        let failed = self.rounds.failed;
        self.wants_sample |= counted && (failed == 1 || failed == policy.failure_threshold);
        // A round that proves nothing keeps nothing young.
        if counted {
            self.evidence_at = Some(self.evidence_at.map_or(round.ended, |at| at.max(round.ended)));
        }
        let silent = !round.asked.is_empty() && self.last_round.first.is_none();
        self.retry_at = silent.then(|| round.ended.max(round.started + MIN_SPACING).min(round.ended + RETRY));
    }

    /// Files one attempt on PD.
    pub(crate) fn pd(&mut self, report: &PdReport, policy: &VerdictPolicy, log: &mut EventLog) {
        for change in self.pd.observe(report, policy) {
            log.mention(change.cluster(self.id));
        }
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

    /// The kernel saw something go wrong towards one of the Stores.
    pub(crate) fn trigger(&mut self) {
        self.triggered = true;
    }
}

/// What a ping came to, in words.
fn sentence(ping: &Ping) -> String {
    let at = ping.remote.map(|remote| format!(" at {remote}")).unwrap_or_default();
    let does = if ping.outcome.answers() { "answers" } else { "does not answer" };
    let detail = ping.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{} {does}{at} ({}){detail}", ping.target.key, ping.outcome.as_str())
}

/// A fresh verdict; `ready` is settled when it is published.
pub(crate) fn verdict(reason: Reason, message: String, since: MonoTime) -> Verdict {
    let status = reason.status();
    Verdict { ready: status == Status::Ready, status, reason, message, since, carried: false }
}
