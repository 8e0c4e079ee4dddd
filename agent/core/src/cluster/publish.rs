//! What is published about a cluster, and what survives a restart.

use super::Cluster;
use crate::{
    id::{TargetId, TargetKey},
    memory::{ClusterMemory, TenureMemory, VerdictMemory},
    policy::VerdictPolicy,
    snapshot::{AddressView, ClusterView, NodeReadiness, StoreView},
    time::MonoTime,
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
                    name: self.named(*key).name.clone(),
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

    /// What did not fit or was listed twice.
    pub(crate) fn dropped(&self) -> u64 {
        self.list_faults.saturating_add(self.ownership.dropped())
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

    /// Goes on where another judge stood, once what preceded it has been played here.
    pub(crate) fn resume(&mut self, memory: ClusterMemory, now: MonoTime) {
        let fits = memory.fits(&self.settings);
        let ClusterMemory { name: _, pd_peers: _, stores: _, list, ever_answered, verdict, tenures } = memory;
        self.ever_answered |= ever_answered;
        let same = |target: &TargetKey| fits || matches!(target, TargetKey::Store(_));
        let tenures = tenures.into_iter().filter(|memory| same(&memory.target));
        self.ownership.replace(tenures.map(|TenureMemory { target, address, tenure }| (target, address, tenure)));
        if !list.is_empty() {
            self.list = Some(list);
            self.rebuild(now);
        }
        let VerdictMemory { reason, message, since } = verdict;
        self.restored = self.live.status() == Status::Unknown && reason.status() != Status::Unknown;
        self.verdict = Verdict { carried: self.restored, ..crate::cluster::verdict(reason, message, since) };
    }
}
