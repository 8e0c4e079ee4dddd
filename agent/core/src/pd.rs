//! PD as this node's own calls see it. Its word is a hint, and its absence a finding, never a reason once a list was
//! known.

use crate::{
    event::{Event, EventKind},
    findings::plural,
    id::{HostPort, TargetKey},
    memory::{PdMemory, PeerMemory},
    naming::Named,
    ping::{NameFailure, PdReport},
    policy::{ClusterSettings, VerdictPolicy},
    remedy::{self, Case},
    snapshot::{PdView, PeerView},
    time::MonoTime,
    verdict::{Facts, Finding, FindingCode, Reason, Remedy, Severity},
};

/// Peers whose trouble is told in one sentence.
const TOLD: usize = 3;

/// Consecutive reports that show the same, and since when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streak {
    /// How many.
    pub count: u32,
    /// Since when.
    pub since: Option<MonoTime>,
}

impl Streak {
    fn set(&mut self, holds: bool, at: MonoTime) {
        if holds {
            self.count = self.count.saturating_add(1);
            self.since.get_or_insert(at);
        } else {
            *self = Self::default();
        }
    }
}

/// What DNS said last about a peer's name: for A and AAAA, whether there was an address, or why not.
type Answers = [Option<Result<bool, NameFailure>>; 2];

/// PD of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Pd {
    pub(crate) checked: Option<MonoTime>,
    reachable: Option<bool>,
    has_leader: Option<bool>,
    peers: Vec<PeerView>,
    names: Vec<Answers>,
    /// Peers that were not asked for want of an address.
    unresolved: Vec<bool>,
    empty: Streak,
    silent: Streak,
    down: Streak,
    leaderless: Streak,
    refused: Streak,
    threshold: u32,
}

impl Pd {
    pub(crate) fn new(settings: &ClusterSettings) -> Self {
        let count = settings.pd_peers.len();
        let peers = settings
            .pd_peers
            .iter()
            .zip(0..)
            .map(|(address, peer)| PeerView { peer, address: address.clone(), reachable: None, last_error: None })
            .collect();
        Self {
            checked: None,
            reachable: None,
            has_leader: None,
            peers,
            names: vec![Answers::default(); count],
            unresolved: vec![false; count],
            empty: Streak::default(),
            silent: Streak::default(),
            down: Streak::default(),
            leaderless: Streak::default(),
            refused: Streak::default(),
            threshold: 1,
        }
    }

    /// Files one attempt; gives an event for each peer that answers no longer, or again.
    pub(crate) fn observe(&mut self, report: &PdReport, policy: &VerdictPolicy) -> Vec<Event> {
        self.threshold = policy.failure_threshold;
        self.checked = Some(report.ended);
        let mut changes = Vec::new();
        for peer in &report.peers {
            if let Some(view) = self.peers.get_mut(usize::from(peer.peer)) {
                if view.reachable != Some(peer.alive) {
                    let name = |alive: bool| if alive { "reachable" } else { "unreachable" };
                    let does = if peer.alive { "answers" } else { "does not answer" };
                    let error = peer.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
                    let message = format!("peer {} of pd ({}) {does}{error}", peer.peer, view.address);
                    changes.push(
                        Event::new(report.ended, EventKind::Ping, message)
                            .target("pd".into())
                            .outcome(name(peer.alive))
                            .change(view.reachable.map(|was| name(was).into()), Some(name(peer.alive).into())),
                    );
                }
                view.reachable = Some(peer.alive);
                view.last_error.clone_from(&peer.error);
            }
            if let Some(unresolved) = self.unresolved.get_mut(usize::from(peer.peer)) {
                *unresolved = peer.unresolved;
            }
        }
        let listed = report.list.is_some();
        let alive = listed || report.peers.iter().any(|peer| peer.alive);
        let refused = !listed && report.peers.iter().any(|peer| peer.auth_refused);
        let serving = report.peers.iter().any(|peer| peer.health_serving == Some(true));
        self.reachable = Some(alive);
        self.has_leader = Some(listed);
        // Silence neither confirms nor denies an empty list; and Stores that never count leave it empty.
        if let Some(list) = &report.list {
            self.empty.set(!list.iter().any(|store| store.state.pinged()), report.ended);
        }
        self.silent.set(!listed, report.ended);
        self.down.set(!alive, report.ended);
        self.refused.set(refused, report.ended);
        self.leaderless.set(!listed && serving && !refused, report.ended);
        changes
    }

    pub(crate) fn memory(&self) -> PdMemory {
        let peers = self.peers.iter().zip(&self.names).zip(&self.unresolved);
        let peer = |((peer, [v4, v6]), unresolved): ((&PeerView, &Answers), &bool)| PeerMemory {
            reachable: peer.reachable,
            last_error: peer.last_error.clone(),
            unresolved: *unresolved,
            v4: *v4,
            v6: *v6,
        };
        PdMemory {
            checked: self.checked,
            reachable: self.reachable,
            has_leader: self.has_leader,
            peers: peers.map(peer).collect(),
            empty: self.empty,
            silent: self.silent,
            down: self.down,
            leaderless: self.leaderless,
            refused: self.refused,
        }
    }

    /// Takes back what is known of the same peers.
    pub(crate) fn resume(&mut self, memory: PdMemory, policy: &VerdictPolicy) {
        let PdMemory { checked, reachable, has_leader, peers, empty, silent, down, leaderless, refused } = memory;
        (self.checked, self.reachable, self.has_leader) = (checked, reachable, has_leader);
        (self.empty, self.silent, self.down) = (empty, silent, down);
        (self.leaderless, self.refused) = (leaderless, refused);
        self.threshold = policy.failure_threshold;
        let own = self.peers.iter_mut().zip(&mut self.names).zip(&mut self.unresolved);
        for (PeerMemory { reachable, last_error, unresolved, v4, v6 }, ((peer, names), known)) in
            peers.into_iter().zip(own)
        {
            (peer.reachable, peer.last_error) = (reachable, last_error);
            (*names, *known) = ([v4, v6], unresolved);
        }
    }

    /// Files what DNS said about a peer's name, for one address family.
    pub(crate) fn name(&mut self, position: u16, v6: bool, answer: Result<bool, NameFailure>) {
        if let Some(answers) = self.names.get_mut(usize::from(position)) {
            answers[usize::from(v6)] = Some(answer);
        }
    }

    /// Why a peer's name has no address at present, if it has none.
    fn nameless(&self, position: usize) -> Option<&'static str> {
        let answers = self.names.get(position)?;
        if answers.iter().any(|answer| matches!(answer, None | Some(Ok(true)))) {
            return None;
        }
        Some(if answers.contains(&Some(Err(NameFailure::NoAnswer))) {
            "DNS does not answer for its name"
        } else if answers.contains(&Some(Err(NameFailure::NoSuchName))) {
            "its name does not exist"
        } else {
            "its name has no address"
        })
    }

    /// What is wrong with each peer, bounded.
    fn troubles(&self) -> String {
        let trouble = |(position, peer): (usize, &PeerView)| {
            let error = peer.last_error.as_deref().unwrap_or("no answer");
            let asked = !self.unresolved.get(position).copied().unwrap_or_default();
            let words = match (self.nameless(position), asked) {
                (Some(name), true) => format!("{name}, and the address known last does not answer ({error})"),
                (Some(name), false) => name.to_owned(),
                (None, _) => error.to_owned(),
            };
            format!("{}: {words}", peer.address)
        };
        let failing = || self.peers.iter().enumerate().filter(|(_, peer)| peer.reachable == Some(false));
        let mut told: Vec<_> = failing().take(TOLD).map(trouble).collect();
        if failing().count() > TOLD {
            told.push(format!("and {} more", failing().count() - TOLD));
        }
        told.join("; ")
    }

    /// What follows when no Store that counts was ever known.
    pub(crate) fn reason_without_stores(&self, policy: &VerdictPolicy) -> Reason {
        if self.empty.count >= policy.failure_threshold {
            Reason::NoStoreRegistered
        } else if self.silent.count >= policy.failure_threshold {
            Reason::StoreListUnknown
        } else {
            Reason::NoEvidenceYet
        }
    }

    pub(crate) fn peer_reachable(&self, position: u16) -> Option<bool> {
        self.peers.get(usize::from(position))?.reachable
    }

    /// What stands out.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let named = || self.peers.first().map(|peer| self.named(&peer.address));
        let finding = |code, streak: Streak, message: &dyn Fn() -> String, trouble: &dyn Fn() -> String| {
            let since = streak.since.filter(|_| streak.count >= self.threshold)?;
            let facts = Facts { attempts: Some(streak.count.into()), answers: Some(0), ..Facts::default() };
            let named = named();
            let case =
                Case { pod: None, target: named.as_ref(), mode: None, severity: Severity::Warning, facts: &facts };
            let trouble = Some(trouble()).filter(|text| !text.is_empty());
            Some(Finding {
                remedy: remedy::remedy(code, &case),
                code,
                mode: None,
                target: "pd".into(),
                since,
                confirms_at: None,
                message: message(),
                evidence: std::iter::once(format!("{} in a row", plural(streak.count.into(), "attempt")))
                    .chain(trouble)
                    .collect::<Vec<_>>()
                    .join("; "),
                facts,
                severity: Severity::Warning,
                carried: false,
            })
        };
        let troubles = || self.troubles();
        let none = String::new;
        let down = finding(FindingCode::PdDown, self.down, &|| self.down_words(), &troubles);
        let leaderless = || "PD's processes serve, but none gives the list of stores: they have no leader".into();
        let refused = || "PD refuses the list of stores for want of credentials".into();
        [
            down.map(|down| match self.peers.first().filter(|_| self.all_unresolved()) {
                Some(peer) => Finding { remedy: self.resolve(&peer.address), ..down },
                None => down,
            }),
            finding(FindingCode::PdNoLeader, self.leaderless, &leaderless, &troubles),
            finding(FindingCode::PdAuthRefused, self.refused, &refused, &none),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// No peer was asked, because none has an address.
    fn all_unresolved(&self) -> bool {
        !self.unresolved.is_empty() && self.unresolved.iter().all(|unresolved| *unresolved)
    }

    fn down_words(&self) -> String {
        let unresolved = self.unresolved.iter().filter(|unresolved| **unresolved).count();
        match unresolved {
            0 => "no PD peer's process answers".into(),
            _ if self.all_unresolved() => {
                "no PD peer could be asked: DNS gives no address for their names; whether PD runs is not known".into()
            }
            some => format!("no PD peer's process answers, and {some} of {} have no address in DNS", self.peers.len()),
        }
    }

    fn named(&self, address: &HostPort) -> Named {
        Named::new(TargetKey::Pd(0), address, self.peers.iter().map(|peer| &peer.address))
    }

    /// What to do about a name without an address.
    fn resolve(&self, address: &HostPort) -> Remedy {
        Remedy {
            now: format!(
                "getent hosts {} on this node. If DNS itself is well, the name in pd_peers is wrong, or nothing is there: {}",
                address.host,
                self.named(address).look()
            ),
            prevent: "PD's headless service with publishNotReadyAddresses, and more than one DNS server".into(),
        }
    }

    /// What is published about it.
    pub(crate) fn view(&self) -> PdView {
        PdView {
            reachable: self.reachable,
            has_leader: self.has_leader,
            peers: self.peers.clone(),
            findings: self.findings(),
        }
    }
}
