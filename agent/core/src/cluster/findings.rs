//! What stands out about the Stores by this node's own calls.

use super::{Cluster, REUSE_MEMORY, SILENT};
use crate::{
    event::{Event, EventKind, EventLog},
    findings::{NodeWord, plural},
    id::TargetKey,
    ownership::OwnerChange,
    policy::VerdictPolicy,
    remedy::{self, Case},
    time::{MonoTime, short},
    verdict::{Facts, Finding, FindingCode, Severity},
};
use std::{cell::LazyCell, net::SocketAddr};

impl Cluster {
    /// What this node's own calls say about a target.
    pub(crate) fn node_word(&self, target: TargetKey) -> NodeWord {
        let Some(store) = self.stores.get(&target) else {
            let reachable = match target {
                TargetKey::Pd(position) => self.pd.peer_reachable(position),
                TargetKey::Store(_) | TargetKey::Static(_) => None,
            };
            let (answers, down) = (reachable == Some(true), reachable == Some(false));
            return NodeWord { answers, down, ..NodeWord::default() };
        };
        let silent = store.silent >= SILENT;
        let hung = silent && store.hung();
        NodeWord {
            answers: store.answering == Some(true),
            hung,
            down: silent && !hung && store.unreachable(),
            silent: store.silent,
            outcome: store.last_ping.as_ref().map(|ping| ping.outcome.as_str()),
            answer: store.answer,
        }
    }

    /// Where a target is at present: where it answered last, else where a source claims it.
    pub(crate) fn present_address(&self, target: TargetKey) -> Option<SocketAddr> {
        let answered = self.stores.get(&target).and_then(|store| store.answer).map(|answer| answer.remote);
        let owned = |address: &SocketAddr| self.ownership.tenure(target, *address).is_some_and(|t| t.ended.is_none());
        answered.filter(owned).or_else(|| {
            let claimed = self.ownership.of(target).filter(|(_, tenure)| tenure.claimed());
            claimed.max_by_key(|(_, tenure)| tenure.from).map(|(address, _)| address)
        })
    }

    pub(super) fn tell_owners(&mut self, log: &mut EventLog) {
        for change in self.ownership.take_changes() {
            let (began, target, address, at, message) = match change {
                OwnerChange::Began { target, address, at } => {
                    (true, target, address, at, format!("{target} is at {address}"))
                }
                OwnerChange::Ended { target, address, at } => {
                    (false, target, address, at, format!("{target} has left {address}"))
                }
                OwnerChange::Gone { target, address, at } => {
                    (false, target, address, at, format!("{target} is no longer listed; it was at {address}"))
                }
                OwnerChange::Back { target, address, at } => {
                    (true, target, address, at, format!("{target} is listed again, at {address}"))
                }
            };
            let (from, to) =
                (Some(address.to_string()).filter(|_| !began), Some(address.to_string()).filter(|_| began));
            log.push(
                Event::new(at, EventKind::Owner, message).cluster(self.id).target(target.to_string()).change(from, to),
            );
        }
    }

    /// What stands out about each Store and about PD, by this node's own calls alone.
    pub(super) fn find(&mut self, now: MonoTime, policy: &VerdictPolicy, log: &mut EventLog) {
        let mut all = Vec::new();
        for (key, store) in &self.stores {
            let word = self.node_word(*key);
            // Asked at every judgement, and of a hundred Stores few stand out.
            let named = LazyCell::new(|| self.named(*key));
            let finding = |code, message: String, evidence: String, facts: Facts| {
                let case =
                    Case { pod: None, target: Some(&named), mode: None, severity: Severity::Warning, facts: &facts };
                Finding {
                    remedy: remedy::remedy(code, &case),
                    code,
                    mode: None,
                    target: key.to_string(),
                    since: store.silent_since.unwrap_or(now),
                    confirms_at: None,
                    message,
                    evidence,
                    facts,
                    severity: Severity::Warning,
                    carried: false,
                }
            };
            let silent = |words: &str| {
                let last = store.answer.map_or_else(
                    || "it never answered this agent".into(),
                    |answer| format!("it answered last {} ago", short(now.since(answer.at))),
                );
                let outcome = word.outcome.unwrap_or("none");
                format!("{} in a row {words} ({outcome}); {last}", plural(store.silent.into(), "ping"))
            };
            let facts = || Facts { present: self.present_address(*key), ..Facts::default() };
            if word.down && store.expected() && store.silent >= policy.failure_threshold {
                let message = format!("{} does not answer this node", named.name);
                all.push(finding(FindingCode::StoreDown, message, silent("without an answer"), facts()));
            } else if word.hung && store.silent >= policy.failure_threshold {
                let message = format!("{} accepts connections and answers nothing", named.name);
                let evidence = silent("connected and ran into the time-out");
                all.push(finding(FindingCode::StoreHung, message, evidence, facts()));
            }
            for (address, tenure) in self.ownership.of(*key) {
                let other = self.ownership.present_owner(address).filter(|other| other != key);
                let recent = tenure.ended.is_none_or(|ended| now.since(ended) <= REUSE_MEMORY);
                let shown = other.filter(|_| recent);
                // What was seen there before this one was named there says that it was another's, not that it is.
                let seen = |other: TargetKey| {
                    let seen = self.ownership.tenure(other, address).and_then(|other| other.identity.clone());
                    seen.filter(|(_, at)| *at >= tenure.from)
                };
                if let Some((other, (name, at))) = shown.and_then(|other| Some((other, seen(other)?))) {
                    let facts = Facts { address: Some(address), left_at: tenure.ended, ..Facts::default() };
                    let message = format!(
                        "{address} was that of {} and is that of {} now",
                        named.lasting,
                        self.named(other).lasting
                    );
                    let evidence = format!("the process there named itself {name} {} ago", short(now.since(at)));
                    let told = finding(FindingCode::IpReused, message, evidence, facts);
                    for target in [*key, other] {
                        all.push(Finding { target: target.to_string(), since: at, ..told.clone() });
                    }
                }
            }
        }
        // PD's streaks know since when; what is published comes from them.
        let mut of_pd = self.pd.findings();
        for turn in self.book.settle(&mut all).into_iter().chain(self.pd_book.settle(&mut of_pd)) {
            log.mention(turn.event(now).cluster(self.id));
        }
        self.file_findings(all);
    }

    /// Under the Store that each is told of.
    pub(super) fn file_findings(&mut self, all: Vec<Finding>) {
        self.store_findings.clear();
        for finding in all {
            let key = self.stores.keys().find(|key| key.to_string() == finding.target).copied();
            self.store_findings.entry(key).or_default().push(finding);
        }
    }
}
