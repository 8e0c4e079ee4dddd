//! What is kept of a cluster, and how it is taken back.

use super::{Cluster, Store};
use crate::{
    findings::Book,
    id::TargetKey,
    memory::{ClusterMemory, StoreMemory, TenureMemory, VerdictMemory},
    ownership::Ownership,
    pings::MAX_ADDRESSES,
    policy::{ClusterSettings, VerdictPolicy},
    time::MonoTime,
    verdict::Verdict,
};
use std::sync::Arc;

impl ClusterMemory {
    /// It was configured as it is now, so that positions mean the same.
    fn fits(&self, settings: &ClusterSettings) -> bool {
        self.pd_peers == settings.pd_peers && self.stores == settings.stores
    }
}

impl Store {
    fn memory(&self) -> StoreMemory {
        StoreMemory {
            answering: self.answering,
            last_ping: self.last_ping.clone(),
            answer: self.answer,
            silent: self.silent,
            silent_since: self.silent_since,
        }
    }

    fn resume(&mut self, memory: StoreMemory) {
        let StoreMemory { answering, last_ping, answer, silent, silent_since } = memory;
        (self.answering, self.last_ping, self.answer) = (answering, last_ping, answer);
        (self.silent, self.silent_since) = (silent, silent_since);
    }
}

impl Cluster {
    pub(crate) fn memory(&self) -> ClusterMemory {
        ClusterMemory {
            name: Arc::clone(&self.settings.name),
            pd_peers: self.settings.pd_peers.clone(),
            stores: self.settings.stores.clone(),
            list: self.list.clone().unwrap_or_default(),
            list_at: self.list_at,
            ever_answered: self.ever_answered,
            only_deadlines: self.only_deadlines,
            verdict: self.verdict.memory(),
            live: self.live,
            rounds: self.rounds.clone(),
            last_round: self.last_round.clone(),
            answered_round: self.answered_round.clone(),
            evidence_at: self.evidence_at,
            pinged: self.stores.iter().map(|(key, store)| (*key, store.memory())).collect(),
            addresses: self.address_pings.iter().map(|(address, pings)| (*address, *pings)).collect(),
            pd: self.pd.memory(),
            tenures: self
                .ownership
                .all()
                .map(|(target, address, tenure)| TenureMemory { target, address, tenure: tenure.clone() })
                .collect(),
            gone: self.ownership.gone().clone(),
            services: self.services.addresses.clone(),
            occupants: self
                .services
                .occupants
                .iter()
                .map(|((target, address), occupant)| (*target, *address, occupant.clone()))
                .collect(),
            findings: self.store_findings.values().flatten().cloned().collect(),
        }
    }

    /// Goes on where another one stood. What it knew of positions in another configuration is left out.
    pub(crate) fn resume(&mut self, memory: ClusterMemory, policy: &VerdictPolicy) {
        let fits = memory.fits(&self.settings);
        let same = |target: &TargetKey| fits || matches!(target, TargetKey::Store(_));
        let ClusterMemory {
            name: _,
            pd_peers: _,
            stores: _,
            list,
            list_at,
            ever_answered,
            only_deadlines,
            verdict,
            live,
            rounds,
            last_round,
            answered_round,
            evidence_at,
            pinged,
            addresses,
            pd,
            tenures,
            gone,
            services,
            occupants,
            findings,
        } = memory;
        (self.list, self.list_at) = (Some(list).filter(|list| !list.is_empty()), list_at);
        self.arrange();
        for (key, word) in pinged.into_iter().filter(|(key, _)| same(key)) {
            if let Some(store) = self.stores.get_mut(&key) {
                store.resume(word);
            }
        }
        let tenures = tenures.into_iter().filter(|memory| same(&memory.target));
        let tenures = tenures.map(|TenureMemory { target, address, tenure }| (target, address, tenure));
        self.ownership = Ownership::resume(tenures, self.listed(), gone.into_iter().filter(same).collect());
        self.services.addresses = services;
        let occupants = occupants.into_iter().map(|(target, address, occupant)| ((target, address), occupant));
        let ownership = &self.ownership;
        let owned = |(target, address): &(TargetKey, _)| ownership.tenure(*target, *address).is_some();
        self.services.occupants = occupants.filter(|(key, _)| owned(key)).collect();
        if fits {
            self.pd.resume(pd, policy);
        }
        (self.ever_answered, self.only_deadlines) = (ever_answered, only_deadlines);
        (self.rounds, self.last_round, self.answered_round) = (rounds, last_round, answered_round);
        self.evidence_at = evidence_at;
        self.address_pings = addresses.into_iter().take(MAX_ADDRESSES).collect();
        self.live = live;
        self.verdict = Verdict::resume(verdict);
        self.restored = self.verdict.carried;
        self.book = Book::of(&findings);
        self.pd_book = Book::of(&self.pd.findings());
        self.file_findings(findings);
    }

    /// What the configuration and PD's list give as addresses holds from now on, whatever was known before.
    pub(crate) fn reclaim(&mut self, now: MonoTime) {
        self.claim_peers(now);
        self.claim_literals(now);
    }
}

impl Verdict {
    pub(crate) fn memory(&self) -> VerdictMemory {
        let Self { ready: _, status: _, reason, message, since, carried } = self;
        VerdictMemory { reason: *reason, message: message.clone(), since: *since, carried: *carried }
    }

    /// `ready` is settled when it is published.
    pub(crate) fn resume(memory: VerdictMemory) -> Self {
        let VerdictMemory { reason, message, since, carried } = memory;
        Self { carried, ..super::verdict(reason, message, since) }
    }
}
