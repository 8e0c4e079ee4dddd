//! The rules: what the rounds and PD mean, and what the sources should do.

use super::{Cluster, Store, TRIGGER_SPACING, verdict};
use crate::{
    event::{Event, EventKind, EventLog},
    id::{TargetId, TargetKey},
    judge::Advance,
    pings::{self},
    policy::VerdictPolicy,
    request::Request,
    rounds::RoundState,
    time::MonoTime,
    topology::Target,
    verdict::{Reason, Status},
};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

impl Cluster {
    pub(super) fn reason(&self, now: MonoTime, policy: &VerdictPolicy) -> Reason {
        let expired = |at: Option<MonoTime>| at.is_some_and(|at| now.since(at) > policy.window);
        match self.rounds.state {
            // Only an answer keeps it: a first round without one, after a long pause, is no proof of either.
            RoundState::Answering if expired(self.rounds.last_answered) => Reason::EvidenceExpired,
            RoundState::Failing { .. } if expired(self.evidence_at) => Reason::EvidenceExpired,
            RoundState::Answering => Reason::StoreAnswering,
            RoundState::Failing { .. } => Reason::NoStoreAnswers,
            // A Store that has just appeared has not answered yet: only rounds end these two.
            RoundState::NoneYet
                if self.any_pinged() && matches!(self.live, Reason::NoStoreRegistered | Reason::StoreListUnknown) =>
            {
                self.live
            }
            RoundState::NoneYet if self.any_pinged() => Reason::NoEvidenceYet,
            RoundState::NoneYet => match self.pd.reason_without_stores(policy) {
                // One answer neither confirms nor denies what several in a row said.
                Reason::NoEvidenceYet if matches!(self.live, Reason::NoStoreRegistered | Reason::StoreListUnknown) => {
                    self.live
                }
                reason => reason,
            },
        }
    }

    /// The sentence for a reason; names no address.
    pub(crate) fn message(&self, reason: Reason) -> String {
        let asked = self.answered_round.asked.len();
        match reason {
            // The first answer decides before the first round is over.
            Reason::StoreAnswering if asked == 0 => "a store answered".into(),
            Reason::StoreAnswering if self.answering() == 0 && self.rounds.failed == 0 => {
                format!(
                    "none of {asked} stores answered the last round, which does not count: the agent was late or could \
                     not dial"
                )
            }
            // Between the first failed round and the last that the threshold allows.
            Reason::StoreAnswering if self.answering() == 0 => format!(
                "none of {asked} stores answered the last round; {} such rounds in a row so far",
                self.rounds.failed
            ),
            Reason::StoreAnswering => format!("{} of {asked} stores answered", self.answering()),
            Reason::NoStoreAnswers => format!("0 of {asked} stores answered"),
            Reason::NoStoreRegistered => "PD lists no store".into(),
            Reason::StoreListUnknown => "no store list is known and PD does not answer".into(),
            Reason::EvidenceExpired => "the last ping is too old to prove anything".into(),
            _ if self.never_proved() && self.rounds.failed > 0 => {
                "no store ever answered this node, and every ping timed out: the agent may be cut off".into()
            }
            _ => "no store was asked often enough yet".into(),
        }
    }

    /// How many of the last round's Stores answered.
    pub(super) fn answering(&self) -> usize {
        self.answered_round.asked.iter().filter(|key| self.answers(**key)).count()
    }

    pub(super) fn answers(&self, key: TargetKey) -> bool {
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
        self.find(now, policy, log);
        self.request(now, pods_present, advance);
    }

    pub(super) fn request(&mut self, now: MonoTime, pods_present: bool, advance: &mut Advance) {
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
    pub(super) fn targets(&self) -> impl Iterator<Item = Target> {
        self.stores.iter().filter(|(_, store)| store.pinged()).map(|(key, store)| Target {
            id: TargetId { cluster: self.id, key: *key },
            address: store.address.clone(),
            identity: store.address.host.parse::<IpAddr>().is_err().then(|| store.address.to_string().into()),
        })
    }

    /// A Store that counts is or was known.
    pub(super) fn any_pinged(&self) -> bool {
        self.stores.values().any(Store::pinged)
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

    /// No Store ever answered, and every ping ended in a time-out: this agent may be the one that is cut off.
    pub(crate) fn never_proved(&self) -> bool {
        !self.ever_answered && self.only_deadlines
    }

    /// What the rules say by the evidence of this run, as of the last judgement.
    pub(crate) fn live_reason(&self) -> Reason {
        self.live
    }
}
