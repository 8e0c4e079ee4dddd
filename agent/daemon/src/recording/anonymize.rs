//! Replaces what names a place: addresses, hosts, pods, namespaces, workloads, clusters and the node.
//!
//! Each name gets another one, the same throughout a file, in the order in which they appear; so what was equal stays
//! equal, what differed differs, and an address keeps its family. Loopback and unspecified addresses, ports, and the
//! numbers of Stores, cgroups, namespaces and processes stay: they name nothing outside the machine. The kernel's own
//! addresses of sockets, which tell about its memory, become small numbers. What is said in words (messages, details,
//! errors) is left out, since it may name anything; the replay makes its own.
//!
//! Every value is taken apart in full, so that one added to the core is decided about here.

use super::{
    Judgement, Start, Told,
    format::{Header, Line},
    told::{Mark, News, Subject},
};
use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};
use storewatch_core::{
    connection::{AttemptCount, ConnectionEvent, InventorySample, SocketId, SocketSample},
    endpoints::{Endpoint, EndpointsReport, Occupant, Service},
    id::{HostPort, PodRef, PodUid},
    observation::Observation,
    ping::{NameReport, PdReport, PeerReport, Ping},
    pod::{GateCondition, Manager, PodRecord, Wiring, Workload},
    policy::{ClusterSettings, Settings},
    source::SourceReport,
    topology::ListedStore,
};

mod memory;

/// Names of one kind that are told apart by counting. A recording that meets more (a scanner's addresses) tells the rest
/// apart by their hashes.
const MAX_COUNTED: usize = 1 << 20;

/// Numbers for values: 1, 2, 3 and so on in the order in which they appear.
#[derive(Debug)]
struct Numbers<T> {
    known: HashMap<T, u64>,
    hash: RandomState,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), hash: RandomState::new() }
    }
}

impl<T: Eq + Hash> Numbers<T> {
    fn number(&mut self, value: T) -> u64 {
        if let Some(number) = self.known.get(&value) {
            return *number;
        }
        let counted = self.known.len() as u64 + 1;
        if self.known.len() >= MAX_COUNTED {
            return counted + (self.hash.hash_one(value) >> 32);
        }
        self.known.insert(value, counted);
        counted
    }
}

/// The names of one file.
#[derive(Debug, Default)]
pub struct Anonymizer {
    v4: Numbers<Ipv4Addr>,
    v6: Numbers<Ipv6Addr>,
    hosts: Numbers<String>,
    namespaces: Numbers<Arc<str>>,
    pods: Numbers<Arc<str>>,
    uids: Numbers<Arc<str>>,
    workloads: Numbers<Arc<str>>,
    managers: Numbers<Arc<str>>,
    clusters: Numbers<Arc<str>>,
    sockets: Numbers<u64>,
}

impl Anonymizer {
    /// The first line.
    pub fn header(&mut self, header: Header) -> Header {
        let Header { agent, node: _, at, date, anonymized: _ } = header;
        Header { agent, node: "node".into(), at, date, anonymized: true }
    }

    /// Any other line.
    pub fn line(&mut self, line: Line) -> Line {
        match line {
            Line::Start(start) => Line::Start(Box::new(self.start(*start))),
            Line::Judged { judgement, told } => Line::Judged {
                judgement: self.judgement(judgement),
                told: told.into_iter().map(|told| self.told(told)).collect(),
            },
            line @ (Line::Lost { .. } | Line::End { .. }) => line,
        }
    }

    fn start(&mut self, start: Start) -> Start {
        let Start { settings, memory } = start;
        Start { settings: self.settings(settings), memory: self.memory(memory) }
    }

    fn judgement(&mut self, judgement: Judgement) -> Judgement {
        let Judgement { at, observed } = judgement;
        Judgement { at, observed: observed.into_iter().map(|observation| self.observation(observation)).collect() }
    }

    fn told(&mut self, told: Told) -> Told {
        let Told { at, who, what } = told;
        let who = match who {
            Subject::Node(cluster) => Subject::Node(self.cluster(&cluster)),
            Subject::Pod { pod, uid } => Subject::Pod { pod: self.pod(&pod), uid: self.uid(&uid) },
        };
        // Labels of targets are numbers.
        match &what {
            News::Verdict { from: _, to: _ } => {}
            News::Came(mark) | News::Went(mark) => {
                let Mark { code: _, mode: _, target: _, severity: _ } = mark;
            }
        }
        Told { at, who, what }
    }

    fn settings(&mut self, settings: Settings) -> Settings {
        let Settings { node: _, clusters, policy, kernel_off } = settings;
        let clusters = clusters
            .into_iter()
            .map(|ClusterSettings { name, pd_peers, stores, store_port, pd_port }| ClusterSettings {
                name: self.cluster(&name),
                pd_peers: self.host_ports(pd_peers),
                stores: self.host_ports(stores),
                store_port,
                pd_port,
            })
            .collect();
        Settings { node: "node".into(), clusters, policy, kernel_off }
    }

    fn record(&mut self, record: PodRecord) -> PodRecord {
        let PodRecord { cluster, pod, uid, workload, ips, host_network, cgroups, netns, pids, wiring, manager } =
            record;
        PodRecord {
            cluster,
            pod: self.pod(&pod),
            uid: self.uid(&uid),
            workload: workload
                .map(|Workload { kind, name }| Workload { kind, name: named("workload", self.workloads.number(name)) }),
            ips: ips.into_iter().map(|ip| self.ip(ip)).collect(),
            host_network,
            cgroups,
            netns,
            pids,
            wiring: wiring.map(unsaid_wiring),
            manager: match manager {
                Manager::Unit(unit) => Manager::Unit(named("unit", self.managers.number(unit))),
                Manager::Docker(id) => Manager::Docker(named("container", self.managers.number(id))),
                manager @ (Manager::Kubernetes | Manager::Unknown) => manager,
            },
        }
    }

    fn service(&mut self, service: Service) -> Service {
        let Service { host, addresses, endpoints } = service;
        let endpoints = endpoints
            .into_iter()
            .map(|Endpoint { hostname, ip, occupant }| Endpoint {
                hostname: hostname.map(|label| {
                    let name = self.name(&format!("{label}.{host}"));
                    name.split('.').next().unwrap_or_default().into()
                }),
                ip: self.ip(ip),
                occupant: occupant.map(|occupant| self.occupant(occupant)),
            })
            .collect();
        Service {
            addresses: addresses.into_iter().map(|ip| self.ip(ip)).collect(),
            endpoints,
            host: self.name(&host).into(),
        }
    }

    fn occupant(&mut self, occupant: Occupant) -> Occupant {
        let Occupant { pod, uid, serving, terminating } = occupant;
        Occupant { pod: self.pod(&pod), uid: self.uid(&uid), serving, terminating }
    }

    /// A name label by label, each told apart by all that stands behind it: what lies in one domain stays in one.
    fn name(&mut self, name: &str) -> String {
        let first = named("host", self.hosts.number(name.to_owned()));
        match name.split_once('.') {
            Some((_, rest)) if !rest.is_empty() => format!("{first}.{}", self.name(rest)),
            _ => first.to_string(),
        }
    }

    fn observation(&mut self, observation: Observation) -> Observation {
        match observation {
            Observation::Connection(event) => Observation::Connection(self.event(event)),
            Observation::Attempts { at, counts } => {
                Observation::Attempts { at, counts: counts.into_iter().map(|count| self.count(count)).collect() }
            }
            Observation::Inventory(sample) => {
                let InventorySample { at, ended, complete, sockets } = sample;
                let sockets = sockets.into_iter().map(|socket| self.sample(socket)).collect();
                Observation::Inventory(InventorySample { at, ended, complete, sockets })
            }
            Observation::Ping(ping) => Observation::Ping(self.ping(ping)),
            Observation::RoundEnded(round) => Observation::RoundEnded(round),
            Observation::Pd(report) => {
                let PdReport { cluster, started, ended, peers, list } = report;
                let peers = peers
                    .into_iter()
                    .map(|PeerReport { peer, alive, health_serving, auth_refused, unresolved, error }| PeerReport {
                        peer,
                        alive,
                        health_serving,
                        auth_refused,
                        unresolved,
                        error: error.map(|_| "".into()),
                    })
                    .collect();
                let list = list.map(|list| self.list(list));
                Observation::Pd(PdReport { cluster, started, ended, peers, list })
            }
            Observation::Name(report) => {
                let NameReport { target, at, v6, answer } = report;
                let answer = answer.map(|ips| ips.into_iter().map(|ip| self.ip(ip)).collect());
                Observation::Name(NameReport { target, at, v6, answer })
            }
            Observation::Pods { at, pods } => {
                let pods = pods.into_iter().map(|pod| Arc::new(self.record(Arc::unwrap_or_clone(pod)))).collect();
                Observation::Pods { at, pods }
            }
            Observation::Endpoints(report) => {
                let EndpointsReport { cluster, at, services } = report;
                let services = services.into_iter().map(|service| self.service(service)).collect();
                Observation::Endpoints(EndpointsReport { cluster, at, services })
            }
            Observation::Exits { at, pods } => {
                Observation::Exits { at, pods: pods.into_iter().map(|uid| self.uid(&uid)).collect() }
            }
            // Numbers and flags, nothing that names anybody.
            Observation::Processes(reports) => Observation::Processes(reports),
            Observation::Source(report) => {
                let SourceReport { source, at, state, detail: _ } = report;
                Observation::Source(SourceReport { source, at, state, detail: "".into() })
            }
            Observation::Loss(loss) => Observation::Loss(loss),
        }
    }

    fn event(&mut self, event: ConnectionEvent) -> ConnectionEvent {
        let ConnectionEvent { at, socket, owner, local, remote, rtt, retransmits_total, what } = event;
        let (local, remote, socket) = (self.address(local), self.address(remote), self.socket(socket));
        ConnectionEvent { at, socket, owner, local, remote, rtt, retransmits_total, what }
    }

    fn count(&mut self, count: AttemptCount) -> AttemptCount {
        let AttemptCount { owner, remote, what, added, last_begun, last_ended } = count;
        AttemptCount { owner, remote: self.address(remote), what, added, last_begun, last_ended }
    }

    fn sample(&mut self, sample: SocketSample) -> SocketSample {
        let SocketSample {
            socket,
            owner,
            local,
            remote,
            state,
            bytes_received,
            bytes_acked,
            unanswered,
            retransmits,
            retransmits_total,
            retransmitting,
            rtt,
            last_received,
            last_sent,
        } = sample;
        SocketSample {
            socket: self.socket(socket),
            owner,
            local: self.address(local),
            remote: self.address(remote),
            state,
            bytes_received,
            bytes_acked,
            unanswered,
            retransmits,
            retransmits_total,
            retransmitting,
            rtt,
            last_received,
            last_sent,
        }
    }

    fn ping(&mut self, ping: Ping) -> Ping {
        let Ping { target, remote, purpose, fresh, started, ended, outcome, phases, identity, detail } = ping;
        Ping {
            target,
            remote: remote.map(|remote| self.address(remote)),
            purpose,
            fresh,
            started,
            ended,
            outcome,
            phases,
            identity: identity.map(|name| self.identity(&name)),
            detail: detail.map(|_| "".into()),
        }
    }

    fn list(&mut self, list: Vec<ListedStore>) -> Vec<ListedStore> {
        list.into_iter()
            .map(|ListedStore { id, address, state }| ListedStore { id, address: self.host_port(address), state })
            .collect()
    }

    fn host_ports(&mut self, list: Vec<HostPort>) -> Vec<HostPort> {
        list.into_iter().map(|address| self.host_port(address)).collect()
    }

    fn host_port(&mut self, address: HostPort) -> HostPort {
        let host = match address.host.parse::<IpAddr>() {
            Ok(ip) => self.ip(ip).to_string().into(),
            // All spellings of one name are one host.
            Err(_) => match address.normal().0 {
                local if local == "localhost" => local.into(),
                name => self.name(&name).into(),
            },
        };
        HostPort { host, port: address.port }
    }

    /// The `host:port` that a process gives as its own.
    fn identity(&mut self, name: &str) -> Arc<str> {
        match HostPort::parse(name) {
            Some(address) => self.host_port(address).to_string().into(),
            None => named("host", self.hosts.number(name.to_owned())),
        }
    }

    fn address(&mut self, address: SocketAddr) -> SocketAddr {
        SocketAddr::new(self.ip(address.ip()), address.port())
    }

    fn ip(&mut self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => ip.into(),
            IpAddr::V4(ip) => {
                let [_, a, b, c] = low(self.v4.number(ip)).to_be_bytes();
                Ipv4Addr::new(10, a, b, c).into()
            }
            IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => ip.into(),
            IpAddr::V6(ip) => match ip.to_canonical() {
                // Another spelling of an IPv4 address.
                mapped @ IpAddr::V4(_) => match self.ip(mapped) {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().into(),
                    other => other,
                },
                IpAddr::V6(ip) => Ipv6Addr::from(0xfd00 << 112 | u128::from(self.v6.number(ip))).into(),
            },
        }
    }

    fn socket(&mut self, SocketId(id): SocketId) -> SocketId {
        // Zero stands for "not known".
        SocketId(if id == 0 { 0 } else { self.sockets.number(id) })
    }

    fn pod(&mut self, pod: &PodRef) -> PodRef {
        let PodRef { namespace, name } = pod;
        PodRef {
            namespace: named("namespace", self.namespaces.number(Arc::clone(namespace))),
            name: named("pod", self.pods.number(Arc::clone(name))),
        }
    }

    fn uid(&mut self, PodUid(uid): &PodUid) -> PodUid {
        PodUid(named("uid", self.uids.number(Arc::clone(uid))))
    }

    fn cluster(&mut self, name: &Arc<str>) -> Arc<str> {
        // The name of the one cluster of a configuration that names none.
        if &**name == "default" { Arc::clone(name) } else { named("cluster", self.clusters.number(Arc::clone(name))) }
    }
}

fn low(number: u64) -> u32 {
    u32::try_from(number & 0x00ff_ffff).unwrap_or_default()
}

fn named(kind: &str, number: u64) -> Arc<str> {
    format!("{kind}-{number}").into()
}

fn unsaid_wiring(wiring: Wiring) -> Wiring {
    let Wiring { probe, liveness, gate, condition, maintenance, terminating } = wiring;
    let condition =
        condition.map(|GateCondition { open, reason, message: _ }| GateCondition { open, reason, message: "".into() });
    Wiring { probe, liveness, gate, condition, maintenance, terminating }
}
