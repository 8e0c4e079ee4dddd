//! One cluster as this node's own calls see it: its Stores, its rounds of pings, its PD, and whether the node reaches
//! its storage.

use crate::{
    event::{Event, EventKind, EventLog},
    id::{ClusterId, HostPort, TargetId, TargetKey},
    judge::Advance,
    pd::Pd,
    ping::{PdReport, Ping, PingOutcome, Purpose, RoundEnded},
    policy::{ClusterSettings, VerdictPolicy},
    request::Request,
    rounds::{MIN_SPACING, RoundState, Rounds},
    snapshot::{ClusterView, Histogram, LastPing, NodeReadiness, StoreView},
    time::MonoTime,
    topology::{ListedStore, ReportedState, Target},
    verdict::{Reason, Status, Verdict},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

/// Stores of one cluster that are kept; a real cluster has tens. What PD lists beyond is counted as a fault of the list.
pub const MAX_STORES: usize = 1024;

/// While nothing answers, a round is asked for at latest this long after the last one.
const RETRY: Duration = Duration::from_millis(250);

/// Least distance between two rounds that the kernel's news trigger.
const TRIGGER_SPACING: Duration = Duration::from_millis(500);

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
    /// PD's last list that was not empty.
    list: Option<Vec<ListedStore>>,
    list_at: Option<MonoTime>,
    list_faults: u64,
    ever_answered: bool,
    /// Every ping so far ended in a time-out.
    only_deadlines: bool,
    last_round: LastRound,
    answered_round: LastRound,
    evidence_at: Option<MonoTime>,
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
            list: None,
            list_at: None,
            list_faults: 0,
            ever_answered: false,
            only_deadlines: true,
            last_round: LastRound::default(),
            answered_round: LastRound::default(),
            evidence_at: None,
            verdict: verdict(Reason::NoEvidenceYet, "no Store was asked yet".into(), now),
            retry_at: None,
            triggered: false,
            requested_round: None,
            told_targets: None,
            told_present: None,
        };
        cluster.rebuild();
        cluster
    }

    /// Makes the Stores from the configuration and PD's list. A configured Store that PD lists too is PD's.
    fn rebuild(&mut self) {
        let mut old = std::mem::take(&mut self.stores);
        for listed in self.list.iter().flatten() {
            if self.stores.len() >= MAX_STORES || self.stores.contains_key(&TargetKey::Store(listed.id)) {
                self.list_faults = self.list_faults.saturating_add(1);
                continue;
            }
            let key = TargetKey::Store(listed.id);
            let mut store = old.remove(&key).unwrap_or_else(|| Store::new(listed.address.clone(), Some(listed.state)));
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
        self.ever_answered |= answers;
        self.only_deadlines &= ping.outcome == PingOutcome::Deadline;
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
        self.rounds.ended(round, policy);
        self.evidence_at = Some(self.evidence_at.map_or(round.ended, |at| at.max(round.ended)));
        let silent = !round.asked.is_empty() && self.last_round.first.is_none();
        self.retry_at = silent.then(|| round.ended.max(round.started + MIN_SPACING).min(round.ended + RETRY));
    }

    /// Files one attempt on PD.
    pub(crate) fn pd(&mut self, report: &PdReport, policy: &VerdictPolicy) {
        self.pd.observe(report, policy);
        if let Some(list) = &report.list
            && !list.is_empty()
        {
            self.list_at = Some(report.ended);
            self.list = Some(list.clone());
            self.rebuild();
        }
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
    fn message(&self, reason: Reason) -> String {
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
        let reason = self.reason(now, policy);
        if reason != self.verdict.reason {
            log.push(
                Event::new(now, EventKind::Transition, self.message(reason))
                    .cluster(self.id)
                    .change(Some(self.verdict.reason.as_str().into()), Some(reason.as_str().into())),
            );
            self.verdict = verdict(reason, String::new(), now);
        }
        self.verdict.message = self.message(reason);
        self.request(now, pods_present, advance);
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
                findings: pd.findings.clone(),
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
                    addresses: Vec::new(),
                    findings: Vec::new(),
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
