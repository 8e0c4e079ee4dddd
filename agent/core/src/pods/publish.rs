//! What is published about a pod.

use super::{Pod, TargetCounters};
use crate::{
    cluster::Cluster,
    connection::TcpState,
    dialers,
    id::TargetKey,
    ownership::Owner,
    remedy,
    snapshot::{Connections, PodTargetView, PodView, ProcessView},
    sockets::Socket,
    table::{ConnectionFilter, ConnectionView, Via},
    time::MonoTime,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

/// When something was seen last between a pod and a target.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    attempt: Option<MonoTime>,
    answer: Option<MonoTime>,
    received: Option<MonoTime>,
}

impl Pod {
    /// What is published about it.
    pub(crate) fn view(&self, cluster: &Cluster) -> PodView {
        let mut held: BTreeMap<Option<TargetKey>, Connections> = BTreeMap::new();
        // Where an address has had one owner only, that owner is looked up once for all its connections.
        let mut owners: BTreeMap<SocketAddr, Owner> = BTreeMap::new();
        for socket in self.containers.values().flat_map(|container| container.sockets.live()) {
            if socket.state == TcpState::SynSent {
                continue;
            }
            let owner = || cluster.ownership.owner(socket.remote, socket.origin());
            let owner = if cluster.ownership.is_contested(socket.remote) {
                owner()
            } else {
                *owners.entry(socket.remote).or_insert_with(owner)
            };
            let connections = held.entry(owner.target()).or_default();
            match owner {
                Owner::Current(_) => connections.current += 1,
                Owner::Former(_) => connections.previous += 1,
                Owner::Unknown => connections.unknown += 1,
            }
        }
        let times = self.times(cluster);
        let keys: BTreeSet<_> = self.counters.keys().chain(held.keys()).copied().collect();
        let none = TargetCounters::default();
        let stores = || cluster.stores.keys().map(|key| cluster.named(*key)).collect();
        let code = remedy::behind(self.verdict.reason);
        let behind = code.and_then(|code| self.findings.iter().find(|finding| finding.code == code));
        let client = dialers::best(self.containers.values().filter_map(|container| container.dialers.client()));
        PodView {
            record: Arc::clone(&self.record),
            verdict: self.verdict.clone(),
            findings: self.findings.clone(),
            evidence_at: self.evidence_at,
            remedy: behind
                .map(|finding| finding.remedy.clone())
                .or_else(|| remedy::advice(self.verdict.reason, (&self.record, client), stores, || cluster.named_pd())),
            guard: self.guard,
            processes: self
                .dialers()
                .map(|(pid, dialer)| ProcessView { pid, started: dialer.started, command: dialer.command })
                .collect(),
            targets: keys
                .into_iter()
                .map(|target| {
                    let Times { attempt, answer, received } = times.get(&target).copied().unwrap_or_default();
                    let counters = self.counters.get(&target).unwrap_or(&none);
                    PodTargetView {
                        target,
                        connects: counters.connects.iter().map(|(outcome, count)| (*outcome, *count)).collect(),
                        endings: counters.endings.iter().map(|(outcome, count)| (*outcome, *count)).collect(),
                        resets_received: counters.resets_received,
                        resets_sent: counters.resets_sent,
                        retransmits: counters.retransmits,
                        connections: held.get(&target).copied().unwrap_or_default(),
                        connect_duration: counters.connect_duration,
                        last_attempt: attempt,
                        last_answer: answer,
                        received,
                    }
                })
                .collect(),
            transitions: self.transitions.iter().map(|(reason, count)| (*reason, *count)).collect(),
        }
    }

    /// When something was seen last, per target.
    fn times(&self, cluster: &Cluster) -> BTreeMap<Option<TargetKey>, Times> {
        let mut all: BTreeMap<_, Times> = BTreeMap::new();
        for (address, remote) in self.containers.values().flat_map(|container| &container.remotes) {
            let owner = cluster.ownership.owner(*address, remote.last_activity.unwrap_or_default());
            let times = all.entry(owner.target()).or_default();
            times.attempt = times.attempt.max(remote.last_begun);
            times.answer = times.answer.max(remote.last_established);
            if matches!(owner, Owner::Current(_)) {
                times.received = times.received.max(remote.received.latest);
            }
        }
        all
    }

    /// Its connections that `filter` admits: live ones by remote address, then those that ended lately, the last first.
    /// Hands each to `take`, which makes it a [`ConnectionView`] or passes it over: whoever asks for a page of thousands
    /// needs no more than the number of the others.
    pub(crate) fn connections(
        &self,
        cluster: &Cluster,
        filter: &ConnectionFilter,
        mut take: impl FnMut(&dyn Fn() -> ConnectionView),
    ) {
        let mut owners: BTreeMap<SocketAddr, Owner> = BTreeMap::new();
        let mut admitted = |socket: &Socket| {
            if !filter.admits_socket(socket.state, socket.outcome) {
                return None;
            }
            let owner = || cluster.ownership.owner(socket.remote, socket.origin());
            let owner = if cluster.ownership.is_contested(socket.remote) {
                owner()
            } else {
                *owners.entry(socket.remote).or_insert_with(owner)
            };
            filter.admits_owner(owner.into(), owner.target()).then_some(owner)
        };
        let mut found = Vec::new();
        for (key, container) in &self.containers {
            let live = container.sockets.live();
            found.extend(live.filter_map(|socket| Some((key, container.foreign, socket, admitted(socket)?))));
        }
        found.sort_by_key(|(_, _, socket, _)| (socket.remote, socket.local));
        let live = found.len();
        for (key, container) in &self.containers {
            let ended = container.sockets.ended();
            found.extend(ended.filter_map(|socket| Some((key, container.foreign, socket, admitted(socket)?))));
        }
        found[live..].sort_by_key(|(_, _, socket, _)| Reverse(socket.ended));
        for (key, foreign, socket, owner) in found {
            take(&|| ConnectionView {
                cluster: self.record.cluster,
                pod: self.record.pod.clone(),
                uid: self.record.uid.clone(),
                container: *key,
                foreign,
                pid: socket.pid,
                target: owner.target(),
                local: socket.local,
                remote: socket.remote,
                owner: owner.into(),
                state: socket.state,
                outcome: socket.outcome,
                opened_at: socket.begun,
                established_at: socket.established,
                first_seen: socket.first_seen,
                last_used: socket.used(),
                rtt: socket.rtt,
                retransmits: socket.retransmits_total.max(socket.retransmits.into()),
                resets: socket.resets,
                bytes_received: socket.bytes_received,
                unanswered: socket.unanswered,
                waiting_since: socket.stuck_since,
                via: if self.proxied.contains(&socket.remote) {
                    Via::Proxy
                } else if cluster.services.is_service(socket.remote.ip()) {
                    Via::Service
                } else {
                    Via::Direct
                },
                ended: socket.ended,
            });
        }
    }
}
