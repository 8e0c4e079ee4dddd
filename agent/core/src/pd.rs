//! PD as this node's own calls see it. Its word is a hint, and its absence a finding, never a reason once a list was
//! known.

use crate::{
    event::{Event, EventKind},
    ping::PdReport,
    policy::{ClusterSettings, VerdictPolicy},
    snapshot::{PdView, PeerView},
    time::MonoTime,
    verdict::{Finding, FindingCode, Reason, Remedy, Severity},
};

/// Consecutive reports that show the same, and since when.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    count: u32,
    since: Option<MonoTime>,
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

/// PD of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Pd {
    pub(crate) checked: Option<MonoTime>,
    reachable: Option<bool>,
    has_leader: Option<bool>,
    peers: Vec<PeerView>,
    empty: Streak,
    silent: Streak,
    down: Streak,
    leaderless: Streak,
    refused: Streak,
    threshold: u32,
}

impl Pd {
    pub(crate) fn new(settings: &ClusterSettings) -> Self {
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

    fn findings(&self) -> Vec<Finding> {
        let finding = |code, streak: Streak, message: &str, severity, now: &str, prevent: &str| {
            let since = streak.since.filter(|_| streak.count >= self.threshold)?;
            Some(Finding {
                code,
                mode: None,
                target: "pd".into(),
                since,
                confirms_at: None,
                message: message.into(),
                evidence: format!("{} attempts in a row", streak.count),
                remedy: Remedy { now: now.into(), prevent: prevent.into() },
                severity,
                carried: false,
            })
        };
        [
            finding(
                FindingCode::PdDown,
                self.down,
                "no PD peer's process answers",
                Severity::Warning,
                "look at the PD pods and at the network between this node and them",
                "run three PD peers, on different nodes",
            ),
            finding(
                FindingCode::PdNoLeader,
                self.leaderless,
                "PD's processes serve, but none gives the list of stores: they have no leader",
                Severity::Warning,
                "look at the PD peers' raft logs; a majority of them must reach each other",
                "run three PD peers, on different nodes",
            ),
            finding(
                FindingCode::PdAuthRefused,
                self.refused,
                "PD refuses the list of stores for want of credentials",
                Severity::Warning,
                "name the stores in the configuration (key `stores`), or let PD answer this node",
                "keep the stores in the configuration",
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
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
