//! A simulated node: pings, DNS, PD, kernel counters, inventory and clients, in one thread and in simulated time.
//!
//! It answers the judge's requests as the real sources would, with fixed latencies, so that the instants at which things
//! are said are those of the rules and not of a scheduler. What a dial comes to is written as the kernel would show it:
//!
//! | `dial` | Evidence |
//! |---|---|
//! | `ok`, `slow` | established at once; after 1.1 s and one SYN more |
//! | `refused`, `reset` | a RST in SYN-SENT, `sk_err` 111; 104 |
//! | `silent`, `gaveup`, `cancelled` | closed by the owner, `sk_err` 0: after 30 s and 8 SYNs more; 1.5 s and 1; at once and 0 |
//! | `timeout`, `arp110` | `sk_err` 110 after 7 s and 2 SYNs more; after 3 s |
//! | `noroute` | ARP fails: `sk_err` 113 after 3.1 s |
//! | `icmp` | an ICMP error that the owner took: `sk_err` 0, reported 0 |
//! | `hostunreach`, `netunreach` | `sk_err` 113 after 1 s; 101, soft 101 |
//! | `ports` | no source port was chosen |
//! | `localroute`, `prohibited`, `eperm` | never left CLOSE, 22; 13; refused by the own filter, 1 |
//! | `killed` | SOCK_DESTROY, `sk_err` 103 |
//!
//! | `close` | Evidence |
//! |---|---|
//! | `fin`, `closed` | the peer's end; this side's |
//! | `reset`, `reset_late` | RST on ESTABLISHED, 104; in CLOSE-WAIT, 32 |
//! | `keepalive`, `keepalive_old` | 110 with the kernel's reason 15; without it |
//! | `timeout` | 110 after 15 retransmissions of data |
//! | `stalled` | closed by the owner while data was retransmitted |
//! | `unread` | closed with unread data: a RST was sent, reason 11 |
//! | `unreachable` | closed while retransmitting, soft error 113 |
//! | `killed` | 103 |

use crate::{
    course::{Course, NODE, Span},
    script::{Script, Step, address},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use storewatch::recording::{Timeline, Told};
use storewatch_core::{
    connection::{AttemptCount, Counted, KernelEvidence, SocketOwner, TcpState},
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

mod agent;
mod pings;
mod pods;
mod processes;
mod steps;
pub mod watch;
mod words;

pub use words::settings;

const TIMEOUT: Duration = Duration::from_secs(1);
const READING: Duration = Duration::from_millis(500);
const DNS: Duration = Duration::from_secs(10);
const CLIENT_TICK: Duration = Duration::from_millis(500);

/// When every situation begins.
const START: MonoTime = MonoTime::from_millis(1_000_000);

/// How an address behaves.
#[derive(Clone, Debug, PartialEq)]
enum Host {
    Serves(Option<Arc<str>>),
    /// Answers that the ping is not allowed.
    Denied,
    /// A proxy answers in the Store's place.
    Proxy,
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
    /// Its names have no address.
    Nameless,
    NoLeader,
    Refused,
}

/// How single events arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Details {
    On,
    Off,
    Late(Duration),
    /// All of one reading, the last first.
    Backwards,
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
    Detail(Box<Observation>),
    Client(String),
    Look { repeat: bool },
    DialEnds { id: u64, evidence: KernelEvidence },
    Establish { id: u64 },
    Retransmit { id: u64, count: u8 },
    Wake,
}

impl Event {
    /// It is the agent's own doing, and waits while the agent stands still.
    fn is_the_agents(&self) -> bool {
        match self {
            Self::Round
            | Self::Ping(_)
            | Self::RoundEnd(_)
            | Self::Pd
            | Self::PdEnd(_)
            | Self::Dns
            | Self::Reading
            | Self::Sample { .. }
            | Self::Detail(_)
            | Self::Look { .. }
            | Self::Wake => true,
            Self::Step(_)
            | Self::Client(_)
            | Self::DialEnds { .. }
            | Self::Establish { .. }
            | Self::Retransmit { .. } => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Connection {
    id: u64,
    who: String,
    owner: Option<SocketOwner>,
    local: SocketAddr,
    remote: SocketAddr,
    begun: MonoTime,
    seen_begin: bool,
    state: TcpState,
    bytes: u64,
    flows: bool,
    last_received: Option<MonoTime>,
    last_sent: Option<MonoTime>,
    stuck: Option<MonoTime>,
}

/// A gRPC channel: redials with back-off, resolves its name for ever or with a TTL.
#[derive(Clone, Debug)]
struct Client {
    who: String,
    to: String,
    ttl: Option<Duration>,
    cached: Option<(SocketAddr, MonoTime)>,
    connection: Option<u64>,
    attempt: u32,
    next: MonoTime,
}

/// The node, its agent, and the world around.
pub struct Node {
    script: Script,
    /// The present.
    pub now: MonoTime,
    /// The judge of the agent that runs.
    pub judge: Judge,
    /// All that the judge told as it happened.
    pub events: Vec<storewatch_core::event::Event>,
    watchers: Vec<watch::Watcher>,
    queue: BTreeMap<(MonoTime, u64), Event>,
    sequence: u64,
    hosts: BTreeMap<SocketAddr, Host>,
    names: BTreeMap<String, Name>,
    blocked: BTreeSet<(String, Option<SocketAddr>)>,
    pd: Pd,
    targets: Vec<Target>,
    resolved: BTreeMap<TargetKey, SocketAddr>,
    kept: BTreeMap<TargetKey, SocketAddr>,
    round: u64,
    in_flight: usize,
    round_asked: Vec<TargetId>,
    round_started: MonoTime,
    round_completes: bool,
    next_round: MonoTime,
    /// The next target of a sweep that does not fit into one round.
    next_target: usize,
    pods: Vec<Arc<PodRecord>>,
    connections: BTreeMap<u64, Connection>,
    handles: BTreeMap<String, u64>,
    clients: BTreeMap<String, Client>,
    processes: BTreeMap<u32, processes::Process>,
    /// Of each container, who dials.
    running: BTreeMap<String, u32>,
    /// The processes that the judge wants looked after.
    asked: Vec<u32>,
    counts: Vec<AttemptCount>,
    latest: HashMap<(String, SocketAddr, Counted), MonoTime>,
    held_details: Vec<Observation>,
    /// Something was observed since the last judgement, or it is time for the next.
    touched: bool,
    /// Where the next judgement stands in the queue.
    wake: Option<(MonoTime, u64)>,
    details: Details,
    inventory: bool,
    late: bool,
    stopped_until: MonoTime,
    /// This node's own pings get no answer.
    blind: bool,
    paused: bool,
    timeline: Timeline,
    carried: BTreeMap<String, MonoTime>,
    course: Course,
}

impl Node {
    /// Plays a whole script and gives what was said.
    pub fn play(script: Script) -> Course {
        Self::run(script).course
    }

    /// Plays a whole script and gives the node as it is at its end.
    pub fn run(script: Script) -> Self {
        let mut node = Self::new(script);
        node.go();
        node
    }

    fn new(script: Script) -> Self {
        let judge = Judge::new(settings(&script), START);
        Self {
            now: START,
            judge,
            events: Vec::new(),
            watchers: Vec::new(),
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
            round_started: START,
            round_completes: true,
            next_round: START,
            next_target: 0,
            pods: Vec::new(),
            connections: BTreeMap::new(),
            handles: BTreeMap::new(),
            clients: BTreeMap::new(),
            processes: BTreeMap::new(),
            running: BTreeMap::new(),
            asked: Vec::new(),
            counts: Vec::new(),
            latest: HashMap::new(),
            held_details: Vec::new(),
            touched: true,
            wake: None,
            details: Details::On,
            inventory: true,
            late: false,
            stopped_until: START,
            blind: false,
            paused: false,
            timeline: Timeline::default(),
            carried: BTreeMap::new(),
            course: Course::default(),
            script,
        }
    }

    fn go(&mut self) {
        for (index, step) in self.script.steps.clone().iter().enumerate() {
            self.schedule(START + step.at, Event::Step(index));
        }
        for name in [SourceName::Kernel, SourceName::Inventory, SourceName::Pods, SourceName::Dns] {
            self.source(name, SourceState::Active);
        }
        self.schedule(START, Event::Pd);
        self.schedule(START, Event::Dns);
        self.schedule(START + READING, Event::Reading);
        self.schedule(START, Event::Sample { repeat: true });
        self.schedule(START, Event::Look { repeat: true });
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = self.now.max(at);
            if event.is_the_agents() && self.now < self.stopped_until {
                self.schedule(self.stopped_until, event);
                continue;
            }
            if let Event::Step(index) = event
                && self.script.steps[index].word(0) == "end"
            {
                break;
            }
            self.touched |= matches!(event, Event::Wake);
            self.handle(event);
            // What comes at one instant is judged together, as the engine does with what waits.
            let more = self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= self.now);
            if self.touched && !more {
                self.touched = false;
                self.advance();
            }
        }
        self.finish();
    }

    fn observe(&mut self, observation: Observation) {
        self.touched = true;
        self.watchers.iter_mut().for_each(|watcher| watcher.note(&observation));
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

    fn handle(&mut self, event: Event) {
        match event {
            Event::Step(index) => {
                let step = self.script.steps[index].clone();
                self.flow();
                self.step(&step);
            }
            Event::Round => self.start_round(),
            Event::Ping(ping) => self.ping_ended(ping),
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
                for detail in std::mem::take(&mut self.held_details).into_iter().rev() {
                    self.observe(detail);
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
            Event::Detail(observation) => self.observe(*observation),
            Event::Client(name) => self.client(&name),
            Event::Look { repeat } => {
                self.look();
                if repeat {
                    self.schedule(self.now + processes::LOOK, Event::Look { repeat });
                }
            }
            Event::DialEnds { id, evidence } => self.dial_ends(id, evidence),
            Event::Establish { id } => self.establish(id),
            Event::Retransmit { id, count } => self.retransmit(id, count),
            Event::Wake => {}
        }
    }

    fn host(&self, at: SocketAddr) -> Host {
        self.hosts.get(&at).cloned().unwrap_or(Host::Gone)
    }

    /// Seconds since the begin.
    fn seconds(&self) -> f64 {
        seconds(self.now)
    }
}

fn seconds(at: MonoTime) -> f64 {
    (at.as_nanos() - START.as_nanos()) as f64 / 1e9
}
