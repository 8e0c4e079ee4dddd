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
    connection::{AttemptCount, Counted, KernelEvidence, TcpState},
    id::{ClusterId, TargetId, TargetKey},
    judge::Judge,
    observation::Observation,
    ping::{PdReport, Ping, Purpose, RoundEnded},
    pod::PodRecord,
    request::Request,
    source::{Loss, SourceName, SourceReport, SourceState},
    time::MonoTime,
    topology::{ListedStore, Target},
};

mod pings;
mod pods;
mod report;
mod words;

pub(crate) use words::settings;
use words::{listed, pod};

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
    pub(crate) now: MonoTime,
    pub(crate) judge: Judge,
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
    /// Something was observed since the last judgement.
    touched: bool,
    details: bool,
    inventory: bool,
    late: bool,
    /// This node's own pings get no answer.
    blind: bool,
    paused: bool,
    told: BTreeMap<String, String>,
    findings: BTreeMap<String, BTreeSet<String>>,
    pub(crate) output: String,
    /// Everything that the judge told as it happened.
    pub(crate) events: Vec<storewatch_core::event::Event>,
}

impl Node {
    /// Plays a whole script and gives what the judge said.
    pub(crate) fn play(script: Script) -> String {
        Self::run(script).output
    }

    /// Plays a whole script and gives the node as it was at its end.
    pub(crate) fn run(script: Script) -> Self {
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
            touched: true,
            details: true,
            inventory: true,
            late: false,
            blind: false,
            paused: false,
            told: BTreeMap::new(),
            findings: BTreeMap::new(),
            output: String::new(),
            events: Vec::new(),
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
            let wake = matches!(event, Event::Wake);
            node.handle(event);
            if wake || std::mem::take(&mut node.touched) {
                node.advance();
            }
        }
        node
    }

    fn observe(&mut self, observation: Observation) {
        self.touched = true;
        self.judge.observe(observation);
    }

    fn schedule(&mut self, at: MonoTime, event: Event) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), event);
    }

    fn source(&mut self, source: SourceName, state: SourceState) {
        let report = SourceReport { source, at: self.now, state, detail: "".into() };
        self.observe(Observation::Source(report));
    }

    fn advance(&mut self) {
        let advance = self.judge.advance(self.now);
        self.events.extend(advance.events);
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
                self.observe(Observation::Ping(ping));
                if let Some(ended) = ended {
                    self.schedule(self.now, Event::RoundEnd(ended));
                }
            }
            Event::RoundEnd(round) => self.observe(Observation::RoundEnded(round)),
            Event::Pd => {
                let took = Duration::from_millis(5);
                let report = self.pd_report(self.now, self.now + took);
                self.schedule(self.now + took, Event::PdEnd(report));
            }
            Event::PdEnd(report) => {
                let next = if report.list.is_some() { 10 } else { 2 };
                self.observe(Observation::Pd(report));
                self.schedule(self.now + Duration::from_secs(next), Event::Pd);
            }
            Event::Dns => {
                self.dns();
                self.schedule(self.now + DNS, Event::Dns);
            }
            Event::Reading => {
                let counts = std::mem::take(&mut self.counts);
                if !counts.is_empty() {
                    self.observe(Observation::Attempts { at: self.now, counts });
                }
                self.schedule(self.now + READING, Event::Reading);
            }
            Event::Sample { repeat } => {
                if self.inventory {
                    let sample = self.sample();
                    self.observe(Observation::Inventory(sample));
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
            "loss" => self.observe(Observation::Loss(Loss {
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
        self.observe(Observation::Pods { at: self.now, pods: self.pods.clone() });
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
}
