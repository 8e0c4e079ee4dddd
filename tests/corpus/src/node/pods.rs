//! What pods do: dials, connections, clients, and how the kernel tells of them.

use super::*;
use storewatch_core::{
    connection::{ConnectionChange, ConnectionEvent, InventorySample, SocketId, SocketSample},
    time::MonoTime,
};
use words::owner;

/// What a dial comes to: after how many seconds, and the kernel's evidence.
fn failure(how: &str) -> Option<(f64, KernelEvidence)> {
    let none = KernelEvidence::default();
    let dial = |error| KernelEvidence { from: Some(TcpState::SynSent), error, ..none };
    let unsent = |error| KernelEvidence { from: Some(TcpState::Close), error, in_process: true, ..none };
    Some(match how {
        "refused" => (0.001, KernelEvidence { reset_received: true, ..dial(111) }),
        "reset" => (0.001, KernelEvidence { reset_received: true, ..dial(104) }),
        "silent" => (30.0, KernelEvidence { retransmits: 8, in_process: true, ..dial(0) }),
        "gaveup" => (1.5, KernelEvidence { retransmits: 1, in_process: true, ..dial(0) }),
        "cancelled" => (0.001, KernelEvidence { in_process: true, ..dial(0) }),
        "timeout" => (7.0, KernelEvidence { retransmits: 2, ..dial(110) }),
        "arp110" => (3.0, KernelEvidence { retransmits: 2, ..dial(110) }),
        "noroute" => (3.1, KernelEvidence { retransmits: 2, ..dial(113) }),
        "icmp" => (0.001, KernelEvidence { reported: Some(0), in_process: true, ..dial(0) }),
        "hostunreach" => (1.0, KernelEvidence { reported: Some(113), retransmits: 1, ..dial(113) }),
        "netunreach" => (1.0, KernelEvidence { soft_error: 101, retransmits: 1, ..dial(101) }),
        "ports" => (0.0, KernelEvidence { in_process: true, no_source_port: true, ..dial(0) }),
        "localroute" => (0.0, unsent(22)),
        "prohibited" => (0.0, unsent(13)),
        "eperm" => (0.0, KernelEvidence { in_process: true, ..dial(1) }),
        "killed" => (0.5, KernelEvidence { in_process: true, ..dial(103) }),
        _ => return None,
    })
}

/// When SYNs are sent again: linear at first, then doubling (kernels from 6.5 on).
const SYNS: [f64; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 11.0, 19.0];

impl Node {
    pub(super) fn count(&mut self, connection: &Connection, what: Counted, begun: Option<MonoTime>, added: u64) {
        let key = (connection.who.clone(), connection.remote, what);
        let never = MonoTime::from_nanos(i64::MIN);
        let latest = self.latest.entry(key).or_insert(never);
        *latest = (*latest).max(begun.unwrap_or(*latest));
        let last_begun = (*latest > never).then_some(*latest);
        // The kernel's counters know cgroup and namespace only.
        let owner = connection.owner.map(|owner| SocketOwner { pid: None, ..owner });
        let (remote, last_ended) = (connection.remote, self.now);
        let known = self.counts.iter_mut().find(|c| c.owner == owner && c.remote == remote && c.what == what);
        match known {
            Some(count) => {
                count.added += added;
                count.last_begun = last_begun;
                count.last_ended = last_ended;
            }
            None => self.counts.push(AttemptCount { owner, remote, what, added, last_begun, last_ended }),
        }
    }

    fn detail(&mut self, connection: &Connection, what: ConnectionChange) {
        // What is summed is not told one by one.
        let Some(owner) = connection.owner else { return };
        let observation = Observation::Connection(ConnectionEvent {
            at: self.now,
            socket: SocketId(connection.id),
            owner,
            local: connection.local,
            remote: connection.remote,
            rtt: None,
            retransmits_total: None,
            what,
        });
        match self.details {
            Details::Off => {}
            Details::Backwards => self.held_details.push(observation),
            Details::Late(by) => self.schedule(self.now + by, Event::Detail(Box::new(observation))),
            Details::On if self.now < self.stopped_until => {
                self.schedule(self.stopped_until, Event::Detail(Box::new(observation)));
            }
            Details::On => self.observe(observation),
        }
    }

    fn socket(&mut self, who: &str, remote: SocketAddr) -> Connection {
        self.sequence += 1;
        let id = self.sequence;
        let port = u16::try_from(20_000 + id % 40_000).unwrap();
        let last = who.rsplit(':').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
        Connection {
            id,
            who: who.to_owned(),
            owner: owner(who).map(|owner| SocketOwner { pid: self.pid(who).or(owner.pid), ..owner }),
            local: SocketAddr::from(([10, 1, 0, u8::try_from(last % 250).unwrap()], port)),
            remote,
            begun: self.now,
            seen_begin: true,
            state: TcpState::SynSent,
            bytes: 0,
            flows: false,
            last_received: None,
            last_sent: None,
            stuck: None,
        }
    }

    /// Many dials at once, which the counters tell of and nothing else.
    pub(super) fn storm(&mut self, who: &str, remote: SocketAddr, how: &str, dials: u64) {
        let connection = self.socket(who, remote);
        let begun = Some(self.now);
        self.count(&connection, Counted::Begun, begun, dials);
        match failure(how) {
            None => self.count(&connection, Counted::Established, begun, dials),
            Some((_, evidence)) => self.count(&connection, Counted::Failed(evidence), begun, dials),
        }
    }

    /// Begins a dial and gives the socket's number.
    fn dial(&mut self, who: &str, remote: SocketAddr) -> u64 {
        let connection = self.socket(who, remote);
        let id = connection.id;
        self.detail(&connection, ConnectionChange::Begun);
        self.count(&connection, Counted::Begun, Some(self.now), 1);
        self.connections.insert(id, connection);
        id
    }

    pub(super) fn establish(&mut self, id: u64) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        connection.state = TcpState::Established;
        let begun = Some(connection.begun).filter(|_| connection.seen_begin);
        self.detail(&connection, ConnectionChange::Established { begun });
        self.count(&connection, Counted::Established, begun, 1);
        self.connections.insert(id, connection);
    }

    pub(super) fn dial_ends(&mut self, id: u64, evidence: KernelEvidence) {
        let Some(connection) = self.connections.get(&id).filter(|c| c.state == TcpState::SynSent).cloned() else {
            return;
        };
        self.connections.remove(&id);
        if evidence.reset_received {
            self.detail(&connection, ConnectionChange::ResetReceived { state: TcpState::SynSent });
            self.count(&connection, Counted::ResetsReceived, None, 1);
        }
        let begun = Some(connection.begun);
        self.detail(&connection, ConnectionChange::Failed { begun, evidence });
        self.count(&connection, Counted::Failed(evidence), begun, 1);
    }

    pub(super) fn close(&mut self, id: u64, how: &str) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let from = |state, error| KernelEvidence { from: Some(state), error, ..KernelEvidence::default() };
        let established = |error| from(TcpState::Established, error);
        let evidence = match how {
            "fin" => from(TcpState::LastAck, 0),
            "closed" => from(TcpState::FinWait2, 0),
            "reset" => KernelEvidence { reset_received: true, ..established(104) },
            "reset_late" => KernelEvidence { reset_received: true, ..from(TcpState::CloseWait, 32) },
            "killed" => established(103),
            "keepalive" => KernelEvidence { reset_sent: Some(15), ..established(110) },
            "keepalive_old" => established(110),
            "timeout" => KernelEvidence { retransmits: 15, unanswered: true, ..established(110) },
            "stalled" => KernelEvidence { retransmits: 3, unanswered: true, in_process: true, ..established(0) },
            "unread" => KernelEvidence { reset_sent: Some(11), in_process: true, ..established(0) },
            "unreachable" => {
                KernelEvidence { retransmits: 3, unanswered: true, soft_error: 113, in_process: true, ..established(0) }
            }
            other => panic!("no such ending: {other}"),
        };
        if evidence.reset_received {
            let state = evidence.from.unwrap();
            self.detail(&connection, ConnectionChange::ResetReceived { state });
            self.count(&connection, Counted::ResetsReceived, None, 1);
        }
        if evidence.reset_sent.is_some() {
            let (state, reason) = (evidence.from, evidence.reset_sent);
            self.detail(&connection, ConnectionChange::ResetSent { state, reason });
            self.count(&connection, Counted::ResetsSent, None, 1);
        }
        let begun = Some(connection.begun).filter(|_| connection.seen_begin);
        let bytes_received = Some(connection.bytes);
        self.detail(&connection, ConnectionChange::Ended { begun, evidence, bytes_received });
        self.count(&connection, Counted::Ended(evidence), begun, 1);
    }

    /// Begins a dial whose end the world decides, or `how` if given.
    pub(super) fn dial_as(&mut self, who: &str, remote: SocketAddr, how: &str) -> u64 {
        let blocked = self.is_blocked(who, remote);
        let how = match (how, blocked, self.host(remote)) {
            ("auto", true, _) | ("auto", _, Host::Silent) => "silent",
            ("auto", _, Host::Serves(_) | Host::Hung | Host::Denied | Host::Proxy) => "ok",
            ("auto", _, Host::Refused) => "refused",
            ("auto", _, Host::Gone) => "noroute",
            (how, _, _) => how,
        };
        let id = self.dial(who, remote);
        let now = self.now;
        let takes = |seconds: f64| now + Duration::from_secs_f64(seconds);
        match (how, failure(how)) {
            ("ok", _) => {
                self.establish(id);
                return id;
            }
            ("slow", _) => {
                self.schedule(takes(1.1), Event::Establish { id });
                self.schedule(takes(1.0), Event::Retransmit { id, count: 1 });
            }
            (_, Some((after, evidence))) => {
                self.schedule(takes(after), Event::DialEnds { id, evidence });
                if after > 1.0 {
                    self.schedule(takes(1.0), Event::Retransmit { id, count: 1 });
                }
            }
            (other, None) => panic!("no such dial: {other}"),
        }
        id
    }

    /// A segment is sent again, and the next time is set.
    pub(super) fn retransmit(&mut self, id: u64, count: u8) {
        let Some(connection) = self.connections.get(&id).cloned() else { return };
        let next = match (connection.state, connection.stuck) {
            (TcpState::SynSent, _) => {
                let next = SYNS.get(usize::from(count)).copied();
                next.map(|after| connection.begun + Duration::from_secs_f64(after))
            }
            // 0.2 s at first, twice as long each time, never more than two minutes.
            (_, Some(_)) => Some(self.now + Duration::from_millis(200 << count.min(9)).min(Duration::from_secs(120))),
            (_, None) => return,
        };
        self.detail(&connection, ConnectionChange::Retransmit { state: connection.state, count });
        self.count(&connection, Counted::Retransmits, None, 1);
        if let Some(next) = next {
            self.schedule(next, Event::Retransmit { id, count: count.saturating_add(1) });
        }
    }

    pub(super) fn is_blocked(&self, who: &str, remote: SocketAddr) -> bool {
        self.blocked.contains(&(who.to_owned(), None)) || self.blocked.contains(&(who.to_owned(), Some(remote)))
    }

    pub(super) fn client(&mut self, name: &str) {
        let Some(mut client) = self.clients.remove(name) else { return };
        self.schedule(self.now + CLIENT_TICK, Event::Client(name.to_owned()));
        let alive = client.connection.and_then(|id| self.connections.get(&id).cloned());
        match alive {
            Some(connection) if connection.state == TcpState::Established => {
                client.attempt = 0;
                let (id, remote) = (connection.id, connection.remote);
                let silent = self.is_blocked(&client.who, remote);
                let now = self.now;
                let known = self.connections.get_mut(&id).unwrap();
                match self.hosts.get(&remote).cloned().unwrap_or(Host::Gone) {
                    Host::Refused => {
                        self.close(id, "reset");
                        client.connection = None;
                        client.next = self.now + CLIENT_TICK;
                    }
                    Host::Serves(_) | Host::Denied | Host::Proxy if !silent => {
                        known.flows = true;
                        known.last_sent = Some(now);
                        known.stuck = None;
                    }
                    // The kernel of a process that is stopped takes what is sent to it.
                    Host::Hung if !silent => {
                        known.flows = false;
                        known.stuck = None;
                    }
                    _ => {
                        known.flows = false;
                        if known.stuck.is_none() {
                            known.stuck = Some(now);
                            self.schedule(now + Duration::from_millis(200), Event::Retransmit { id, count: 1 });
                        }
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
                    client.connection = Some(self.dial_as(&client.who, remote, "auto"));
                }
            }
            None => {}
        }
        self.clients.insert(name.to_owned(), client);
    }

    fn resolve(&self, to: &str) -> Option<SocketAddr> {
        address(to).or_else(|| match self.names.get(to) {
            Some(Name::Addresses(all)) => all.first().map(|ip| SocketAddr::new(*ip, 8500)),
            _ => None,
        })
    }

    /// Lets data arrive where it flows: up to now the world was as it is.
    pub(super) fn flow(&mut self) {
        let answers = |host: &Host| matches!(host, Host::Serves(_) | Host::Denied | Host::Proxy);
        let serves: BTreeSet<_> = self.hosts.iter().filter(|(_, host)| answers(host)).map(|(at, _)| *at).collect();
        let now = self.now;
        for connection in self.connections.values_mut() {
            let blocked = |to| self.blocked.contains(&(connection.who.clone(), to));
            if connection.flows
                && connection.last_received < Some(now)
                && serves.contains(&connection.remote)
                && !(blocked(None) || blocked(Some(connection.remote)))
            {
                connection.bytes += 100;
                connection.last_received = Some(now);
            }
        }
    }

    pub(super) fn sample(&mut self) -> InventorySample {
        let now = self.now;
        self.flow();
        let sockets = self
            .connections
            .values()
            .filter_map(|connection| {
                let syn = connection.state == TcpState::SynSent;
                let waits = connection.stuck.or(syn.then_some(connection.begun));
                let waited = waits.map_or(0.0, |since| now.since(since).as_secs_f64());
                // SYNs each second at first; data after 0.2 s, doubled each time.
                let retransmits = if syn { waited.min(5.0) } else { (waited / 0.2 + 1.0).log2() };
                Some(SocketSample {
                    socket: SocketId(connection.id),
                    owner: connection.owner?,
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
                    last_sent: connection.last_sent.filter(|_| !syn),
                })
            })
            .collect();
        InventorySample { at: now, ended: now, complete: true, sockets }
    }
}
