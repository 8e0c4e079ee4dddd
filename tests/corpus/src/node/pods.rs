//! What pods do: dials, connections, clients, and how the kernel tells of them.

use super::*;
use crate::script::address;
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};
use storewatch_core::{
    connection::{
        AttemptCount, ConnectionChange, ConnectionEvent, Counted, InventorySample, KernelEvidence, SocketId,
        SocketOwner, SocketSample, TcpState,
    },
    id::{CgroupId, NetnsId},
    observation::Observation,
    time::MonoTime,
};

impl Node {
    pub(super) fn owner(cgroup: u64) -> SocketOwner {
        let netns = u32::try_from(1000 + cgroup).unwrap();
        SocketOwner { cgroup: Some(CgroupId(cgroup)), netns: Some(NetnsId(netns)), pid: None }
    }

    pub(super) fn count(&mut self, cgroup: u64, remote: SocketAddr, what: Counted, begun: Option<MonoTime>) {
        let latest = self.latest.entry((cgroup, remote, what)).or_insert(MonoTime::from_nanos(i64::MIN));
        *latest = (*latest).max(begun.unwrap_or(*latest));
        let last_begun = (*latest > MonoTime::from_nanos(i64::MIN)).then_some(*latest);
        let owner = Some(Self::owner(cgroup));
        let known = self.counts.iter_mut().find(|c| c.owner == owner && c.remote == remote && c.what == what);
        match known {
            Some(count) => {
                count.added += 1;
                count.last_begun = last_begun;
                count.last_ended = self.now;
            }
            None => {
                self.counts.push(AttemptCount { owner, remote, what, added: 1, last_begun, last_ended: self.now });
            }
        }
    }

    pub(super) fn detail(&mut self, connection: &Connection, what: ConnectionChange) {
        if self.details {
            self.observe(Observation::Connection(ConnectionEvent {
                at: self.now,
                socket: SocketId(connection.id),
                owner: Self::owner(connection.cgroup),
                local: connection.local,
                remote: connection.remote,
                rtt: None,
                retransmits_total: None,
                what,
            }));
        }
    }

    /// Begins a dial and gives the socket's number.
    pub(super) fn dial(&mut self, cgroup: u64, remote: SocketAddr) -> u64 {
        self.sequence += 1;
        let id = self.sequence;
        let port = u16::try_from(20_000 + id % 40_000).unwrap();
        let connection = Connection {
            id,
            cgroup,
            local: SocketAddr::from(([10, 1, 0, u8::try_from(cgroup % 250).unwrap()], port)),
            remote,
            begun: self.now,
            seen_begin: true,
            state: TcpState::SynSent,
            bytes: 0,
            flows: false,
            last_received: None,
            stuck: None,
        };
        self.detail(&connection, ConnectionChange::Begun);
        self.count(cgroup, remote, Counted::Begun, Some(self.now));
        self.connections.insert(id, connection);
        id
    }

    pub(super) fn establish(&mut self, id: u64) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        connection.state = TcpState::Established;
        let begun = Some(connection.begun).filter(|_| connection.seen_begin);
        self.detail(&connection, ConnectionChange::Established { begun });
        self.count(connection.cgroup, connection.remote, Counted::Established, begun);
        self.connections.insert(id, connection);
    }

    pub(super) fn dial_ends(&mut self, id: u64, evidence: KernelEvidence) {
        let Some(connection) = self.connections.get(&id).filter(|c| c.state == TcpState::SynSent).cloned() else {
            return;
        };
        self.connections.remove(&id);
        let begun = Some(connection.begun);
        self.detail(&connection, ConnectionChange::Failed { begun, evidence });
        self.count(connection.cgroup, connection.remote, Counted::Failed(evidence), begun);
    }

    pub(super) fn close(&mut self, id: u64, how: &str) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let from = |state, error| KernelEvidence { from: Some(state), error, ..KernelEvidence::default() };
        let evidence = match how {
            "fin" => from(TcpState::LastAck, 0),
            "closed" => from(TcpState::FinWait2, 0),
            "reset" => KernelEvidence { reset_received: true, ..from(TcpState::Established, 104) },
            "killed" => from(TcpState::Established, 103),
            "keepalive" => KernelEvidence { reset_sent: Some(15), ..from(TcpState::Established, 110) },
            "timeout" => KernelEvidence { retransmits: 15, unanswered: true, ..from(TcpState::Established, 110) },
            "stalled" => KernelEvidence { retransmits: 3, unanswered: true, ..from(TcpState::Established, 0) },
            other => panic!("no such ending: {other}"),
        };
        if how == "reset" {
            self.count(connection.cgroup, connection.remote, Counted::ResetsReceived, None);
        }
        let begun = Some(connection.begun).filter(|_| connection.seen_begin);
        let bytes_received = Some(connection.bytes);
        self.detail(&connection, ConnectionChange::Ended { begun, evidence, bytes_received });
        self.count(connection.cgroup, connection.remote, Counted::Ended(evidence), begun);
    }

    /// Begins a dial whose end the world decides, or `how` if given.
    pub(super) fn dial_as(&mut self, cgroup: u64, remote: SocketAddr, how: &str) -> u64 {
        let blocked = self.is_blocked(cgroup, remote);
        let how = match (how, blocked, self.host(remote)) {
            ("auto", true, _) | ("auto", _, Host::Silent) => "silent",
            ("auto", _, Host::Serves(_) | Host::Hung) => "ok",
            ("auto", _, Host::Refused) => "refused",
            ("auto", _, Host::Gone) => "noroute",
            (how, _, _) => how,
        };
        let id = self.dial(cgroup, remote);
        let dial = |error| KernelEvidence { from: Some(TcpState::SynSent), error, ..KernelEvidence::default() };
        let (after, evidence) = match how {
            "ok" => {
                self.establish(id);
                return id;
            }
            "refused" => (0.001, KernelEvidence { reset_received: true, ..dial(111) }),
            "noroute" => (3.1, KernelEvidence { retransmits: 2, ..dial(113) }),
            "silent" => (30.0, KernelEvidence { retransmits: 8, in_process: true, ..dial(0) }),
            "cancelled" => (0.001, KernelEvidence { in_process: true, ..dial(0) }),
            "ports" => (0.0, KernelEvidence { in_process: true, no_source_port: true, ..dial(0) }),
            other => panic!("no such dial: {other}"),
        };
        self.schedule(self.now + Duration::from_secs_f64(after), Event::DialEnds { id, evidence });
        id
    }

    pub(super) fn is_blocked(&self, cgroup: u64, remote: SocketAddr) -> bool {
        self.blocked.contains(&(cgroup, None)) || self.blocked.contains(&(cgroup, Some(remote)))
    }

    pub(super) fn client(&mut self, name: &str) {
        let Some(mut client) = self.clients.remove(name) else { return };
        self.schedule(self.now + CLIENT_TICK, Event::Client(name.to_owned()));
        let alive = client.connection.and_then(|id| self.connections.get(&id).cloned());
        match alive {
            Some(connection) if connection.state == TcpState::Established => {
                client.attempt = 0;
                let (id, remote) = (connection.id, connection.remote);
                let silent = self.is_blocked(client.cgroup, remote);
                let known = self.connections.get_mut(&id).unwrap();
                match self.hosts.get(&remote).cloned().unwrap_or(Host::Gone) {
                    Host::Refused => {
                        self.close(id, "reset");
                        client.connection = None;
                        client.next = self.now + CLIENT_TICK;
                    }
                    Host::Serves(_) if !silent => {
                        known.flows = true;
                        known.stuck = None;
                    }
                    Host::Hung if !silent => known.flows = false,
                    _ => {
                        known.flows = false;
                        known.stuck.get_or_insert(self.now);
                    }
                }
            }
            Some(_) => {}
            None if self.now >= client.next => {
                let fresh = |at: MonoTime, ttl: Option<Duration>| ttl.is_none_or(|ttl| self.now.since(at) < ttl);
                let cached = client.cached.filter(|(_, at)| fresh(*at, client.ttl)).map(|(address, _)| address);
                if let Some(remote) = cached.or_else(|| self.resolve(&client.to)) {
                    if cached.is_none() {
                        client.cached = Some((remote, self.now));
                    }
                    let backoff = 1.6f64.powi(i32::try_from(client.attempt).unwrap()).min(120.0);
                    client.attempt += 1;
                    client.next = self.now + Duration::from_secs_f64(backoff);
                    client.connection = Some(self.dial_as(client.cgroup, remote, "auto"));
                }
            }
            None => {}
        }
        self.clients.insert(name.to_owned(), client);
    }

    pub(super) fn resolve(&self, to: &str) -> Option<SocketAddr> {
        address(to).or_else(|| match self.names.get(to) {
            Some(Name::Addresses(all)) => all.first().map(|ip| SocketAddr::new(*ip, 8500)),
            _ => None,
        })
    }

    pub(super) fn sample(&mut self) -> InventorySample {
        let now = self.now;
        let serves: BTreeSet<_> =
            self.hosts.iter().filter(|(_, host)| matches!(host, Host::Serves(_))).map(|(at, _)| *at).collect();
        let sockets = self
            .connections
            .values_mut()
            .map(|connection| {
                if connection.flows && serves.contains(&connection.remote) {
                    connection.bytes += 100;
                    connection.last_received = Some(now);
                }
                let syn = connection.state == TcpState::SynSent;
                let waits = connection.stuck.or(syn.then_some(connection.begun));
                let waited = waits.map_or(0.0, |since| now.since(since).as_secs_f64());
                // SYNs each second at first; data after 0.2 s, doubled each time.
                let retransmits = if syn { waited.min(5.0) } else { (waited / 0.2 + 1.0).log2() };
                SocketSample {
                    socket: SocketId(connection.id),
                    owner: Self::owner(connection.cgroup),
                    local: connection.local,
                    remote: connection.remote,
                    state: connection.state,
                    bytes_received: Some(connection.bytes),
                    bytes_acked: None,
                    unanswered: u64::from(connection.stuck.is_some()) * 100,
                    retransmits: retransmits as u8,
                    retransmits_total: None,
                    retransmitting: connection.stuck.is_some(),
                    rtt: None,
                    last_received: connection.last_received,
                    last_sent: connection.last_received,
                }
            })
            .collect();
        InventorySample { at: now, ended: now, complete: true, sockets }
    }
}
