//! A simulated node: pings, DNS, PD, kernel counters, inventory and clients, in one thread and in simulated time.
//!
//! It answers the judge's requests as the real sources would, with fixed latencies, so that the instants in a scenario's
//! ending are those of the rules and not of a scheduler.

use crate::script::{Script, Step, address};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{
    connection::{
        AttemptCount, ConnectionChange, ConnectionEvent, Counted, InventorySample, KernelEvidence, SocketId,
        SocketOwner, SocketSample, TcpState,
    },
    id::{CgroupId, ClusterId, HostPort, NetnsId, PodRef, PodUid, TargetId, TargetKey},
    judge::Judge,
    observation::Observation,
    ping::{NameFailure, NameReport, PdReport, PeerReport, Phases, Ping, PingOutcome, Purpose, RoundEnded},
    pod::{PodRecord, Workload},
    policy::{ClusterSettings, OnUnknown, Settings, StaleTransportAction, VerdictPolicy},
    request::Request,
    snapshot::Snapshot,
    source::{Loss, SourceName, SourceReport, SourceState},
    time::MonoTime,
    topology::{ListedStore, ReportedState, Target},
    verdict::Finding,
};

const TIMEOUT: Duration = Duration::from_secs(1);
const READING: Duration = Duration::from_millis(500);
const DNS: Duration = Duration::from_secs(10);
const CLIENT_TICK: Duration = Duration::from_millis(500);

/// How an address behaves.
#[derive(Clone, Debug, PartialEq)]
enum Host {
    Serves(Option<Arc<str>>),
    Refused,
    Silent,
    Hung,
    Gone,
}

#[derive(Clone, Debug)]
enum Name {
    Addresses(Vec<IpAddr>),
    Nx,
    Silent,
}

#[derive(Clone, Debug)]
enum Pd {
    Up(Vec<ListedStore>),
    Down,
    NoLeader,
    Refused,
}

#[derive(Clone, Debug)]
enum Event {
    Step(usize),
    Round,
    Ping(Ping),
    RoundEnd(RoundEnded),
    Pd,
    PdEnd(PdReport),
    Dns,
    Reading,
    Sample { repeat: bool },
    Client(String),
    DialEnds { id: u64, evidence: KernelEvidence },
    Wake,
}

#[derive(Clone, Debug)]
struct Connection {
    id: u64,
    cgroup: u64,
    local: SocketAddr,
    remote: SocketAddr,
    begun: MonoTime,
    seen_begin: bool,
    state: TcpState,
    bytes: u64,
    flows: bool,
    last_received: Option<MonoTime>,
    stuck: Option<MonoTime>,
}

/// A gRPC channel: redials with back-off, resolves its name for ever or with a TTL.
#[derive(Clone, Debug)]
struct Client {
    cgroup: u64,
    to: String,
    ttl: Option<Duration>,
    cached: Option<(SocketAddr, MonoTime)>,
    connection: Option<u64>,
    attempt: u32,
    next: MonoTime,
}

pub(crate) struct Node {
    script: Script,
    now: MonoTime,
    judge: Judge,
    queue: BTreeMap<(MonoTime, u64), Event>,
    sequence: u64,
    hosts: BTreeMap<SocketAddr, Host>,
    names: BTreeMap<String, Name>,
    blocked: BTreeSet<(u64, Option<SocketAddr>)>,
    pd: Pd,
    targets: Vec<Target>,
    resolved: BTreeMap<TargetKey, SocketAddr>,
    kept: BTreeMap<TargetKey, SocketAddr>,
    round: u64,
    in_flight: usize,
    round_asked: Vec<TargetId>,
    round_started: MonoTime,
    next_round: MonoTime,
    pods: Vec<Arc<PodRecord>>,
    connections: BTreeMap<u64, Connection>,
    handles: BTreeMap<String, u64>,
    clients: BTreeMap<String, Client>,
    counts: Vec<AttemptCount>,
    latest: HashMap<(u64, SocketAddr, Counted), MonoTime>,
    details: bool,
    inventory: bool,
    late: bool,
    /// This node's own pings get no answer.
    blind: bool,
    paused: bool,
    told: BTreeMap<String, String>,
    findings: BTreeMap<String, BTreeSet<String>>,
    pub(crate) output: String,
}

impl Node {
    /// Plays a whole script and gives what the judge said.
    pub(crate) fn play(script: Script) -> String {
        let start = MonoTime::from_millis(1_000_000);
        let judge = Judge::new(settings(&script), start);
        let mut node = Self {
            now: start,
            judge,
            queue: BTreeMap::new(),
            sequence: 0,
            hosts: BTreeMap::new(),
            names: BTreeMap::new(),
            blocked: BTreeSet::new(),
            pd: Pd::Down,
            targets: Vec::new(),
            resolved: BTreeMap::new(),
            kept: BTreeMap::new(),
            round: 0,
            in_flight: 0,
            round_asked: Vec::new(),
            round_started: start,
            next_round: start,
            pods: Vec::new(),
            connections: BTreeMap::new(),
            handles: BTreeMap::new(),
            clients: BTreeMap::new(),
            counts: Vec::new(),
            latest: HashMap::new(),
            details: true,
            inventory: true,
            late: false,
            blind: false,
            paused: false,
            told: BTreeMap::new(),
            findings: BTreeMap::new(),
            output: String::new(),
            script,
        };
        for (index, step) in node.script.steps.clone().iter().enumerate() {
            node.schedule(start + step.at, Event::Step(index));
        }
        for name in [SourceName::Kernel, SourceName::Inventory, SourceName::Pods, SourceName::Dns] {
            node.source(name, SourceState::Active);
        }
        node.schedule(start, Event::Pd);
        node.schedule(start, Event::Dns);
        node.schedule(start + READING, Event::Reading);
        node.schedule(start, Event::Sample { repeat: true });
        while let Some(((at, _), event)) = node.queue.pop_first() {
            node.now = node.now.max(at);
            if let Event::Step(index) = event
                && node.script.steps[index].word(0) == "end"
            {
                break;
            }
            node.handle(event);
            node.advance();
        }
        node.output
    }

    fn schedule(&mut self, at: MonoTime, event: Event) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), event);
    }

    fn source(&mut self, source: SourceName, state: SourceState) {
        let report = SourceReport { source, at: self.now, state, detail: "".into() };
        self.judge.observe(Observation::Source(report));
    }

    fn advance(&mut self) {
        let advance = self.judge.advance(self.now);
        for request in advance.requests {
            match request {
                Request::Targets { targets, .. } => {
                    self.targets = targets;
                    for target in self.targets.clone() {
                        if let Ok(ip) = target.address.host.parse() {
                            self.resolved.insert(target.id.key, SocketAddr::new(ip, target.address.port));
                        }
                    }
                    self.dns();
                    self.schedule(self.now, Event::Round);
                }
                Request::Round { .. } => {
                    self.next_round = self.now;
                    self.schedule(self.now, Event::Round);
                }
                Request::Contrast { target, remote } => {
                    let ping = self.ping(target, Some(remote), Purpose::Contrast, true);
                    self.schedule(ping.ended, Event::Ping(ping));
                }
                Request::Inventory => {
                    self.schedule(self.now + Duration::from_millis(5), Event::Sample { repeat: false })
                }
                Request::PodsPresent { .. } | Request::Ports(_) | Request::Selected { .. } => {}
            }
        }
        if let Some(snapshot) = advance.snapshot {
            self.tell(&snapshot);
        }
        if let Some(next) = advance.next {
            assert!(next > self.now, "the judge must not ask to be called in the past: it would spin");
            self.queue.retain(|_, event| !matches!(event, Event::Wake));
            self.schedule(next, Event::Wake);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Step(index) => {
                let step = self.script.steps[index].clone();
                self.step(&step);
            }
            Event::Round => self.start_round(),
            Event::Ping(ping) => {
                if ping.outcome.answers() {
                    self.kept.insert(ping.target.key, ping.remote.unwrap());
                } else {
                    self.kept.remove(&ping.target.key);
                }
                if matches!(ping.purpose, Purpose::Round(_)) {
                    self.in_flight -= 1;
                }
                let ended = (self.in_flight == 0 && matches!(ping.purpose, Purpose::Round(_))).then(|| RoundEnded {
                    cluster: ClusterId(0),
                    round: self.round,
                    started: self.round_started,
                    ended: self.now,
                    asked: self.round_asked.clone(),
                    sweep_complete: true,
                    late: std::mem::take(&mut self.late),
                });
                self.judge.observe(Observation::Ping(ping));
                if let Some(ended) = ended {
                    self.schedule(self.now, Event::RoundEnd(ended));
                }
            }
            Event::RoundEnd(round) => self.judge.observe(Observation::RoundEnded(round)),
            Event::Pd => {
                let took = Duration::from_millis(5);
                let report = self.pd_report(self.now, self.now + took);
                self.schedule(self.now + took, Event::PdEnd(report));
            }
            Event::PdEnd(report) => {
                let next = if report.list.is_some() { 10 } else { 2 };
                self.judge.observe(Observation::Pd(report));
                self.schedule(self.now + Duration::from_secs(next), Event::Pd);
            }
            Event::Dns => {
                self.dns();
                self.schedule(self.now + DNS, Event::Dns);
            }
            Event::Reading => {
                let counts = std::mem::take(&mut self.counts);
                if !counts.is_empty() {
                    self.judge.observe(Observation::Attempts { at: self.now, counts });
                }
                self.schedule(self.now + READING, Event::Reading);
            }
            Event::Sample { repeat } => {
                if self.inventory {
                    let sample = self.sample();
                    self.judge.observe(Observation::Inventory(sample));
                }
                if repeat {
                    let interval = self.script.setting("inventory_interval", 15.0);
                    self.schedule(self.now + interval, Event::Sample { repeat });
                }
            }
            Event::Client(name) => self.client(&name),
            Event::DialEnds { id, evidence } => self.dial_ends(id, evidence),
            Event::Wake => {}
        }
    }

    fn host(&self, at: SocketAddr) -> Host {
        self.hosts.get(&at).cloned().unwrap_or(Host::Gone)
    }

    fn start_round(&mut self) {
        if self.in_flight > 0 || self.targets.is_empty() || self.now < self.next_round || self.paused {
            return;
        }
        self.round += 1;
        self.round_started = self.now;
        self.next_round = self.now + self.script.setting("ping_interval", 2.0);
        self.schedule(self.next_round, Event::Round);
        self.round_asked = self.targets.iter().map(|target| target.id).collect();
        self.in_flight = self.targets.len();
        for target in self.targets.clone() {
            let remote = self.resolved.get(&target.id.key).copied();
            let fresh = self.round.is_multiple_of(10) || self.kept.get(&target.id.key).copied() != remote;
            let ping = self.ping(target.id, remote, Purpose::Round(self.round), fresh);
            self.schedule(ping.ended, Event::Ping(ping));
        }
    }

    fn ping(&self, target: TargetId, remote: Option<SocketAddr>, purpose: Purpose, fresh: bool) -> Ping {
        let millis = Duration::from_millis;
        let expected = self.targets.iter().find(|known| known.id == target).and_then(|target| target.identity.clone());
        let (outcome, took, identity) =
            match remote.map(|remote| if self.blind { Host::Silent } else { self.host(remote) }) {
                None => (PingOutcome::Unreachable, millis(1), None),
                Some(Host::Serves(identity)) => {
                    let wrong = expected.is_some() && identity.is_some() && expected != identity;
                    (if wrong { PingOutcome::Identity } else { PingOutcome::Serving }, millis(3), identity)
                }
                Some(Host::Refused) => (PingOutcome::Refused, millis(1), None),
                Some(Host::Silent | Host::Hung | Host::Gone) => (PingOutcome::Deadline, TIMEOUT, None),
            };
        let hung = remote.is_some_and(|remote| self.host(remote) == Host::Hung);
        let connect = (hung || took < millis(4)).then(|| millis(1));
        Ping {
            target,
            remote,
            purpose,
            fresh,
            started: self.now,
            ended: self.now + took,
            outcome,
            phases: Phases { connect, ..Phases::default() },
            identity,
            detail: None,
        }
    }

    fn pd_report(&self, started: MonoTime, ended: MonoTime) -> PdReport {
        let peer = |alive, serving, auth_refused| PeerReport {
            peer: 0,
            alive,
            health_serving: serving,
            auth_refused,
            error: None,
        };
        let (peer, list) = match &self.pd {
            Pd::Up(list) => (peer(true, None, false), Some(list.clone())),
            Pd::Down => (peer(false, None, false), None),
            Pd::NoLeader => (peer(true, Some(true), false), None),
            Pd::Refused => (peer(true, Some(true), true), None),
        };
        PdReport { cluster: ClusterId(0), started, ended, peers: vec![peer], list }
    }

    fn dns(&mut self) {
        let mut asked: Vec<(TargetId, HostPort)> =
            self.targets.iter().map(|target| (target.id, target.address.clone())).collect();
        let pd = TargetId { cluster: ClusterId(0), key: TargetKey::Pd(0) };
        asked.push((pd, HostPort { host: "pd-0".into(), port: 8686 }));
        for (target, address) in asked {
            let Some(answer) = self.names.get(&*address.host).cloned() else { continue };
            for v6 in [false, true] {
                let answer = match &answer {
                    Name::Addresses(all) => {
                        let all: Vec<_> = all.iter().filter(|ip| ip.is_ipv6() == v6).copied().collect();
                        if let Some(first) = all.first() {
                            let known = self.resolved.get(&target.key);
                            if known.is_none_or(|known| !all.contains(&known.ip())) {
                                self.resolved.insert(target.key, SocketAddr::new(*first, address.port));
                            }
                        }
                        Ok(all)
                    }
                    Name::Nx => Err(NameFailure::NoSuchName),
                    Name::Silent => Err(NameFailure::NoAnswer),
                };
                self.judge.observe(Observation::Name(NameReport { target, at: self.now, v6, answer }));
            }
        }
    }

    fn owner(cgroup: u64) -> SocketOwner {
        let netns = u32::try_from(1000 + cgroup).unwrap();
        SocketOwner { cgroup: Some(CgroupId(cgroup)), netns: Some(NetnsId(netns)), pid: None }
    }

    fn count(&mut self, cgroup: u64, remote: SocketAddr, what: Counted, begun: Option<MonoTime>) {
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

    fn detail(&mut self, connection: &Connection, what: ConnectionChange) {
        if self.details {
            self.judge.observe(Observation::Connection(ConnectionEvent {
                at: self.now,
                socket: SocketId(connection.id),
                owner: Self::owner(connection.cgroup),
                local: connection.local,
                remote: connection.remote,
                what,
            }));
        }
    }

    /// Begins a dial and gives the socket's number.
    fn dial(&mut self, cgroup: u64, remote: SocketAddr) -> u64 {
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

    fn establish(&mut self, id: u64) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        connection.state = TcpState::Established;
        let begun = Some(connection.begun).filter(|_| connection.seen_begin);
        self.detail(&connection, ConnectionChange::Established { begun });
        self.count(connection.cgroup, connection.remote, Counted::Established, begun);
        self.connections.insert(id, connection);
    }

    fn dial_ends(&mut self, id: u64, evidence: KernelEvidence) {
        let Some(connection) = self.connections.get(&id).filter(|c| c.state == TcpState::SynSent).cloned() else {
            return;
        };
        self.connections.remove(&id);
        let begun = Some(connection.begun);
        self.detail(&connection, ConnectionChange::Failed { begun, evidence });
        self.count(connection.cgroup, connection.remote, Counted::Failed(evidence), begun);
    }

    fn close(&mut self, id: u64, how: &str) {
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
    fn dial_as(&mut self, cgroup: u64, remote: SocketAddr, how: &str) -> u64 {
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

    fn is_blocked(&self, cgroup: u64, remote: SocketAddr) -> bool {
        self.blocked.contains(&(cgroup, None)) || self.blocked.contains(&(cgroup, Some(remote)))
    }

    fn client(&mut self, name: &str) {
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

    fn resolve(&self, to: &str) -> Option<SocketAddr> {
        address(to).or_else(|| match self.names.get(to) {
            Some(Name::Addresses(all)) => all.first().map(|ip| SocketAddr::new(*ip, 8500)),
            _ => None,
        })
    }

    fn sample(&mut self) -> InventorySample {
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
                    retransmitting: connection.stuck.is_some(),
                    rtt: None,
                    last_received: connection.last_received,
                    last_sent: connection.last_received,
                }
            })
            .collect();
        InventorySample { at: now, ended: now, complete: true, sockets }
    }

    fn step(&mut self, step: &Step) {
        match step.word(0) {
            "pods" => {
                self.pods = step.rest(1).iter().map(|text| Arc::new(pod(text))).collect();
                self.list();
            }
            "pd" => {
                self.pd = match step.word(1) {
                    "down" => Pd::Down,
                    "noleader" => Pd::NoLeader,
                    "refused" => Pd::Refused,
                    "empty" => Pd::Up(Vec::new()),
                    "up" => Pd::Up(step.rest(2).iter().map(|text| listed(text)).collect()),
                    other => panic!("line {}: no such PD: {other}", step.line),
                };
            }
            "dns" => {
                let answer = match step.word(2) {
                    "nx" => Name::Nx,
                    "silent" => Name::Silent,
                    _ => Name::Addresses(step.rest(2).iter().map(|ip| ip.parse().unwrap()).collect()),
                };
                self.names.insert(step.word(1).into(), answer);
            }
            "host" => {
                let at = step.address(1);
                let identity = step.words.get(3).map(|name| format!("{name}:{}", at.port()).into());
                let host = match step.word(2) {
                    "serves" => Host::Serves(identity),
                    "refused" => Host::Refused,
                    "silent" => Host::Silent,
                    "hung" => Host::Hung,
                    "gone" => Host::Gone,
                    other => panic!("line {}: no such host: {other}", step.line),
                };
                let lost = host == Host::Refused && self.kept.values().any(|kept| *kept == at);
                self.hosts.insert(at, host);
                if lost {
                    // A kept channel that breaks is noticed at once.
                    self.next_round = self.now;
                    self.schedule(self.now + Duration::from_millis(1), Event::Round);
                }
            }
            "block" | "unblock" => {
                let key = (step.number(1), step.words.get(2).and_then(|text| address(text)));
                if step.word(0) == "block" {
                    self.blocked.insert(key);
                } else {
                    self.blocked.remove(&key);
                }
            }
            "client" => {
                let ttl = step.words.get(4).map(|text| crate::script::seconds(text));
                let client = Client {
                    cgroup: step.number(1),
                    to: step.word(3).into(),
                    ttl,
                    cached: None,
                    connection: None,
                    attempt: 0,
                    next: self.now,
                };
                self.clients.insert(step.word(2).into(), client);
                self.schedule(self.now, Event::Client(step.word(2).into()));
            }
            "dial" => {
                let id = self.dial_as(step.number(1), step.address(2), step.word(3));
                if let Some(handle) = step.words.get(4) {
                    self.handles.insert(handle.clone(), id);
                }
            }
            "have" => {
                // Older than the agent: nothing was seen of its begin.
                let (details, counts) = (std::mem::take(&mut self.details), self.counts.clone());
                let id = self.dial_as(step.number(1), step.address(2), "ok");
                (self.details, self.counts) = (details, counts);
                let connection = self.connections.get_mut(&id).unwrap();
                connection.seen_begin = false;
                self.handles.insert(step.word(3).into(), id);
            }
            "flow" | "quiet" | "stick" => {
                let id = self.handles[step.word(1)];
                let now = self.now;
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.flows = step.word(0) == "flow";
                    connection.stuck = (step.word(0) == "stick").then_some(now);
                    if connection.flows {
                        connection.last_received = Some(now);
                    }
                }
            }
            "close" => self.close(self.handles[step.word(1)], step.word(2)),
            "exit" => {
                let cgroup = step.number(1);
                self.connections.retain(|_, connection| connection.cgroup != cgroup);
                self.clients.retain(|_, client| client.cgroup != cgroup);
            }
            "source" => {
                let name = SourceName::ALL.into_iter().find(|name| name.as_str() == step.word(1)).unwrap();
                let states = [SourceState::Active, SourceState::Degraded, SourceState::Absent];
                let state = states.into_iter().find(|state| state.as_str() == step.word(2)).unwrap();
                self.source(name, state);
            }
            "loss" => self.judge.observe(Observation::Loss(Loss {
                source: SourceName::Kernel,
                at: self.now,
                lost: step.number(2),
                counters: step.words.get(3).is_some(),
            })),
            "details" => self.details = step.word(1) == "on",
            "inventory" => self.inventory = step.word(1) == "on",
            "blind" => self.blind = step.word(1) == "on",
            "pause" => self.paused = step.word(1) == "on",
            "late" => self.late = true,
            "restart" => self.restart(crate::script::seconds(step.word(1))),
            other => panic!("line {}: no such command: {other}", step.line),
        }
    }

    fn list(&mut self) {
        self.judge.observe(Observation::Pods { at: self.now, pods: self.pods.clone() });
    }

    fn restart(&mut self, away: Duration) {
        let memory = self.judge.memory(self.now);
        self.now = self.now + away;
        self.judge = Judge::new(settings(&self.script), self.now);
        self.judge.restore(memory, self.now);
        self.targets.clear();
        self.kept.clear();
        self.counts.clear();
        self.latest.clear();
        self.in_flight = 0;
        self.next_round = self.now;
        self.queue.retain(|_, event| {
            !matches!(event, Event::Round | Event::Ping(_) | Event::RoundEnd(_) | Event::Pd | Event::PdEnd(_))
        });
        let _ = writeln!(self.output, "{} restart", self.time());
        self.advance();
        self.source(SourceName::Inventory, SourceState::Active);
        self.list();
        self.schedule(self.now + Duration::from_millis(20), Event::Pd);
        self.schedule(self.now + Duration::from_millis(40), Event::Round);
        self.schedule(self.now + Duration::from_millis(60), Event::Sample { repeat: false });
    }

    fn time(&self) -> String {
        let millis = (self.now.as_nanos() / 1_000_000) - 1_000_000;
        format!("{}.{:03}", millis / 1000, millis % 1000)
    }

    fn tell(&mut self, snapshot: &Snapshot) {
        let mut subjects = Vec::new();
        for cluster in &snapshot.clusters {
            subjects.push(("node".to_owned(), &cluster.readiness.verdict, &cluster.readiness.findings));
        }
        for pod in &snapshot.pods {
            subjects.push((pod.record.pod.name.to_string(), &pod.verdict, &pod.findings));
        }
        let mut lines = Vec::new();
        for (name, verdict, findings) in &subjects {
            let carried = if verdict.carried { " carried" } else { "" };
            let said = format!("{} {}{carried}", verdict.status.as_str(), verdict.reason.as_str());
            if self.told.get(name) != Some(&said) {
                lines.push(format!("{name} {said}"));
                self.told.insert(name.clone(), said);
            }
            let now: BTreeSet<_> = findings.iter().map(finding).collect();
            let before = self.findings.insert(name.clone(), now.clone()).unwrap_or_default();
            lines.extend(now.difference(&before).map(|finding| format!("{name} + {finding}")));
            lines.extend(before.difference(&now).map(|finding| format!("{name} - {finding}")));
        }
        let gone: Vec<_> =
            self.told.keys().filter(|name| subjects.iter().all(|(known, _, _)| known != *name)).cloned().collect();
        for name in gone {
            self.told.remove(&name);
            self.findings.remove(&name);
            lines.push(format!("{name} gone"));
        }
        for line in lines {
            let _ = writeln!(self.output, "{} {line}", self.time());
        }
    }
}

fn finding(finding: &Finding) -> String {
    let mode = finding.mode.map(|mode| format!(" {}", mode.as_str())).unwrap_or_default();
    let target = if finding.target.is_empty() { String::new() } else { format!(" {}", finding.target) };
    let carried = if finding.carried { " carried" } else { "" };
    format!("{}{mode}{target} {}{carried}", finding.code.as_str(), finding.severity.as_str())
}

/// `NAME[%UID]@CGROUP[+CGROUP][:WORKLOAD]`; without a workload it is `server`, `:-` is none.
fn pod(text: &str) -> PodRecord {
    let (name, place) = text.split_once('@').unwrap_or_else(|| panic!("no cgroup: {text}"));
    let (cgroups, workload) = place.split_once(':').unwrap_or((place, "server"));
    let cgroups: Vec<u64> = cgroups.split('+').map(|number| number.parse().unwrap()).collect();
    let (name, uid) = name.split_once('%').unwrap_or((name, name));
    PodRecord {
        cluster: ClusterId(0),
        pod: PodRef { namespace: "graph".into(), name: name.into() },
        uid: PodUid(uid.into()),
        workload: (workload != "-").then(|| Workload { kind: "StatefulSet".into(), name: workload.into() }),
        ips: Vec::new(),
        host_network: false,
        netns: Some(NetnsId(u32::try_from(1000 + cgroups[0]).unwrap())),
        cgroups: cgroups.into_iter().map(CgroupId).collect(),
        pids: Vec::new(),
    }
}

/// `ID=HOST[:PORT][/STATE]`.
fn listed(text: &str) -> ListedStore {
    let (id, rest) = text.split_once('=').unwrap_or_else(|| panic!("no id: {text}"));
    let (host, state) = rest.split_once('/').unwrap_or((rest, "Up"));
    let state = [
        ReportedState::Unknown,
        ReportedState::Up,
        ReportedState::Offline,
        ReportedState::Tombstone,
        ReportedState::Pending,
        ReportedState::Exiting,
    ]
    .into_iter()
    .find(|known| known.as_str() == state)
    .unwrap();
    let address = HostPort::parse(host).unwrap_or_else(|| HostPort { host: host.into(), port: 8500 });
    ListedStore { id: id.parse().unwrap(), address, state }
}

fn settings(script: &Script) -> Settings {
    let stores = script.settings.get("stores").map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
    Settings {
        node: "node-a".into(),
        clusters: vec![ClusterSettings {
            name: "default".into(),
            pd_peers: vec![HostPort { host: "pd-0".into(), port: 8686 }],
            stores: stores.unwrap_or_default().iter().map(|text| HostPort::parse(text).unwrap()).collect(),
            store_port: 8500,
            pd_port: 8686,
        }],
        policy: VerdictPolicy {
            failure_threshold: script.count("failure_threshold", 2),
            success_threshold: script.count("success_threshold", 1),
            window: script.setting("window", 150.0),
            stale_suspect_after: script.setting("stale_suspect_after", 60.0),
            stale_confirm_after: script.setting("stale_confirm_after", 240.0),
            stale_transport: match script.settings.get("stale_transport").map(String::as_str) {
                Some("degraded") => StaleTransportAction::Degraded,
                _ => StaleTransportAction::NotReady,
            },
            min_other_ready: script.count("min_other_ready", 1),
            on_unknown: OnUnknown::Ready,
            ping_interval: script.setting("ping_interval", 2.0),
            inventory_interval: script.setting("inventory_interval", 15.0),
        },
        kernel_off: false,
    }
}
