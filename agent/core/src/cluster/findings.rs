//! What stands out about the Stores by this node's own calls.

use super::{Cluster, REUSE_MEMORY, SILENT};
use crate::{
    event::{Event, EventKind, EventLog},
    findings::NodeWord,
    id::TargetKey,
    ownership::OwnerChange,
    policy::VerdictPolicy,
    time::MonoTime,
    verdict::{Finding, FindingCode, Remedy, Severity},
};

impl Cluster {
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
                // What was seen there before this one was named there says that it was another's, not that it is.
                let seen = |other: TargetKey| {
                    let seen = self.ownership.tenure(other, address).and_then(|other| other.identity.clone());
                    seen.filter(|(_, at)| *at >= tenure.from)
                };
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
        // PD's streaks know since when; what is published comes from them.
        let mut of_pd = self.pd.view().findings;
        for turn in self.book.settle(&mut all).into_iter().chain(self.pd_book.settle(&mut of_pd)) {
            log.mention(turn.event(now).cluster(self.id));
        }
        self.store_findings.clear();
        for finding in all {
            let key = self.stores.keys().find(|key| key.to_string() == finding.target).copied();
            if let Some(key) = key {
                self.store_findings.entry(key).or_default().push(finding);
            }
        }
    }
}
