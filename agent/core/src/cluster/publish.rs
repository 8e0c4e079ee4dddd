//! What is published about a cluster.

use super::Cluster;
use crate::{
    id::{TargetId, TargetKey},
    policy::VerdictPolicy,
    snapshot::{AddressView, ClusterView, NodeReadiness, StoreView},
    verdict::{Status, Verdict},
};
use std::sync::Arc;

impl Cluster {
    pub(super) fn addresses(&self, target: TargetKey) -> Vec<AddressView> {
        self.ownership
            .of(target)
            .map(|(address, tenure)| AddressView {
                ip: address.ip(),
                from: tenure.from,
                to: tenure.ended,
                source: tenure.sources(),
                identity: tenure.identity.as_ref().map(|(name, _)| Arc::clone(name)),
                against: tenure.against(),
                occupant: self.services.occupant(target, address).cloned(),
            })
            .collect()
    }

    /// What is published about it.
    pub(crate) fn view(&self, policy: &VerdictPolicy) -> ClusterView {
        let id = |key: &TargetKey| match key {
            TargetKey::Store(id) => Some(*id),
            TargetKey::Static(_) | TargetKey::Pd(_) => None,
        };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        // Between a lost channel and the end of the next round, who answered first may have fallen silent.
        let first = self.answered_round.first.filter(|(key, _, _)| self.answers(*key));
        let unanswered = self.answered_round.asked.iter().filter(|key| !self.answers(**key));
        let pd = self.pd.view();
        let stores_findings = self.store_findings.iter().filter(|(key, _)| key.is_some()).map(|(_, found)| found);
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
                answered_store: first.and_then(|(key, _, _)| id(&key)),
                answering: count(self.answering()),
                unanswered_stores: unanswered.filter_map(id).collect(),
                pd_reachable: pd.reachable,
                pd_checked: self.pd.checked,
                stores_at: self.list_at,
                store_millis: first.map(|(_, _, took)| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
                evidence_at: self.evidence_at,
                findings: stores_findings.flatten().chain(&pd.findings).cloned().collect(),
            },
            stores: self
                .stores
                .iter()
                .map(|(key, store)| StoreView {
                    target: TargetId { cluster: self.id, key: *key },
                    address: store.address.clone(),
                    name: self.named(*key).name.clone(),
                    reported: store.reported,
                    expected: store.expected(),
                    answering: store.answering,
                    last_ping: store.last_ping.clone(),
                    addresses: self.addresses(*key),
                    findings: self.store_findings.get(&Some(*key)).cloned().unwrap_or_default(),
                    pings: store.pings.iter().map(|(outcome, count)| (*outcome, *count)).collect(),
                    ping_durations: store.ping_durations,
                })
                .collect(),
            pd,
        }
    }

    /// What did not fit or was listed twice.
    pub(crate) fn dropped(&self) -> u64 {
        self.list_faults.saturating_add(self.ownership.dropped())
    }
}
