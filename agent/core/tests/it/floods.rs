//! Floods: more of everything than any node has, several times over. What is kept stays below its bounds, the heap does not
//! grow from one flood to the next, and what was dropped is counted.

use crate::{
    any::{START, judge, record, target},
    bounds, heap,
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{
    connection::{
        AttemptCount, ConnectionChange, ConnectionEvent, Counted, InventorySample, KernelEvidence, SocketId,
        SocketOwner, SocketSample, TcpState,
    },
    endpoints::{Endpoint, EndpointsReport, Occupant, Service},
    id::{CgroupId, ClusterId, HostPort, NetnsId, PodRef, PodUid, TargetKey},
    judge::{Judge, MAX_PODS},
    observation::Observation,
    ping::{NameReport, PdReport, Phases, Ping, PingOutcome, Purpose},
    pod::PodRecord,
    snapshot::Dropped,
    table::TableQuery,
    time::MonoTime,
    topology::{ListedStore, ReportedState},
};

/// Four floods of so many different things each are a hundred thousand.
const EACH: u32 = 25_000;

/// Observations between two judgements.
const BATCH: u32 = 1000;

/// What a judge may hold, whatever comes.
const MOST: i64 = 24 << 20;

/// Growth from one flood to the next that is none: maps whose fill varies.
const SLACK: i64 = 256 << 10;

const OWNER: SocketOwner = SocketOwner { cgroup: Some(CgroupId(1)), netns: None, pid: None };

fn address(n: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x0b00_0000 + n), 8500))
}

fn listed(id: u64, host: String) -> ListedStore {
    ListedStore { id, address: HostPort { host: host.into(), port: 8500 }, state: ReportedState::Up }
}

fn list(at: MonoTime, stores: Vec<ListedStore>) -> Observation {
    let list = Some(stores);
    Observation::Pd(PdReport { cluster: ClusterId(0), started: at, ended: at, peers: Vec::new(), list })
}

fn sample(at: MonoTime, sockets: Vec<SocketSample>) -> Observation {
    Observation::Inventory(InventorySample { at, ended: at, complete: true, sockets })
}

fn socket(n: u32) -> SocketSample {
    SocketSample {
        socket: SocketId(u64::from(n) + 1),
        owner: OWNER,
        local: SocketAddr::from(([10, 1, 0, 1], 4000)),
        remote: address(n),
        state: TcpState::Established,
        bytes_received: Some(1),
        bytes_acked: None,
        unanswered: 0,
        retransmits: 0,
        retransmits_total: None,
        retransmitting: false,
        rtt: None,
        last_received: None,
        last_sent: None,
    }
}

/// Lets one flood after the other come over a node with one pod and three Stores: `what` gives the observations that the
/// numbers stand for, at an instant. Gives what was dropped.
fn flood(mut what: impl FnMut(std::ops::Range<u32>, MonoTime) -> Vec<Observation>) -> Dropped {
    let mut now = START;
    let before = heap::held();
    let mut judge = judge(now);
    judge.observe(list(now, (1..4).map(|id| listed(id, format!("store-{id}"))).collect()));
    judge.observe(Observation::Pods { at: now, pods: vec![record(1)] });
    let mut held = Vec::new();
    for round in 0..4 {
        for from in (0..EACH).step_by(BATCH as usize) {
            now = now + Duration::from_millis(20);
            let numbers = round * EACH + from..round * EACH + (from + BATCH).min(EACH);
            what(numbers, now).into_iter().for_each(|observation| judge.observe(observation));
            let _ = judge.advance(now);
        }
        bounds::check(&judge.memory(now));
        held.push(heap::held() - before);
    }
    let growth = held[3] - held[1];
    assert!(held[3] <= MOST && growth <= SLACK, "after each flood {held:?} bytes are held");
    judge.snapshot(now).dropped
}

#[test]
fn attempts_at_a_hundred_thousand_addresses() {
    let refused = KernelEvidence { from: Some(TcpState::SynSent), error: 111, ..KernelEvidence::default() };
    let dropped = flood(|numbers, at| {
        let count = |n: u32, what| AttemptCount {
            owner: Some(OWNER),
            remote: address(n),
            what,
            added: 1,
            last_begun: Some(at),
            last_ended: at,
        };
        let counts = numbers.flat_map(|n| [count(n, Counted::Begun), count(n, Counted::Failed(refused))]);
        vec![Observation::Attempts { at, counts: counts.collect() }]
    });
    assert!(dropped.evidence >= u64::from(4 * EACH) - 200, "{dropped:?}");
}

#[test]
fn details_of_a_hundred_thousand_dials_by_as_many_processes() {
    flood(|numbers, at| {
        let detail = |n: u32| {
            Observation::Connection(ConnectionEvent {
                at,
                socket: SocketId(n.into()),
                owner: SocketOwner { pid: Some(n), ..OWNER },
                local: SocketAddr::from(([10, 1, 0, 1], 4000)),
                remote: address(n),
                rtt: None,
                retransmits_total: None,
                what: ConnectionChange::Begun,
            })
        };
        numbers.map(detail).collect()
    });
}

#[test]
fn evidence_of_a_hundred_thousand_strangers_and_as_many_containers() {
    let dropped = flood(|numbers, at| {
        let owner = |n: u32| match n % 2 {
            0 => SocketOwner { cgroup: Some(CgroupId(1_000_000 + u64::from(n))), netns: None, pid: None },
            // In the pod's network namespace: containers that no list knows.
            _ => SocketOwner { cgroup: Some(CgroupId(1_000_000 + u64::from(n))), netns: Some(NetnsId(1)), pid: None },
        };
        let count = |n: u32| AttemptCount {
            owner: Some(owner(n)),
            remote: address(1),
            what: Counted::Begun,
            added: 1,
            last_begun: Some(at),
            last_ended: at,
        };
        vec![Observation::Attempts { at, counts: numbers.map(count).collect() }]
    });
    assert!(dropped.evidence > 0, "{dropped:?}");
}

#[test]
fn samples_of_a_hundred_thousand_sockets() {
    let dropped = flood(|numbers, at| vec![sample(at, numbers.map(socket).collect())]);
    assert!(dropped.evidence > 0, "{dropped:?}");
}

#[test]
fn a_name_that_is_at_a_hundred_thousand_addresses() {
    let dropped = flood(|numbers, at| {
        let answers: Vec<_> = numbers.map(|n| address(n).ip()).collect();
        let report = |answer: &[IpAddr]| {
            let target = target(TargetKey::Store(1));
            Observation::Name(NameReport { target, at, v6: false, answer: Ok(answer.to_vec()) })
        };
        answers.chunks(100).map(report).collect()
    });
    assert!(dropped.targets > 0, "{dropped:?}");
}

#[test]
fn pings_that_name_a_hundred_thousand_stores() {
    flood(|numbers, at| {
        let ping = |n: u32| {
            Observation::Ping(Ping {
                target: target(TargetKey::Store(u64::from(n % 3) + 1)),
                remote: Some(address(n)),
                purpose: Purpose::Contrast,
                fresh: true,
                started: at,
                ended: at,
                outcome: PingOutcome::Serving,
                phases: Phases::default(),
                identity: Some(format!("store-{}:8500", n % 5).into()),
                detail: None,
            })
        };
        numbers.map(ping).collect()
    });
}

#[test]
fn lists_of_a_hundred_thousand_stores_with_ids_given_twice() {
    let dropped = flood(|numbers, at| {
        let store = |n: u32| listed(u64::from(n / 2), Ipv4Addr::from(0x0c00_0000 + n % 7000).to_string());
        vec![list(at, numbers.map(store).collect())]
    });
    assert!(dropped.targets > 0, "{dropped:?}");
}

#[test]
fn lists_of_a_hundred_thousand_pods() {
    let dropped = flood(|numbers, at| {
        let pod = |n: u32| Arc::new(PodRecord { cluster: ClusterId(0), ..PodRecord::clone(&record(n.into())) });
        let pods: Vec<_> = numbers.clone().flat_map(|n| [pod(n), pod(n + 500_000)]).collect();
        let count = |n: u32| AttemptCount {
            owner: Some(SocketOwner { cgroup: Some(CgroupId(n.into())), netns: None, pid: None }),
            remote: address(n),
            what: Counted::Begun,
            added: 1,
            last_begun: Some(at),
            last_ended: at,
        };
        vec![Observation::Pods { at, pods }, Observation::Attempts { at, counts: numbers.map(count).collect() }]
    });
    assert!(dropped.pods > 0, "{dropped:?}");
}

#[test]
fn services_with_a_hundred_thousand_endpoints() {
    flood(|numbers, at| {
        let endpoint = |n: u32| {
            let name: Arc<str> = format!("store-{}", n % 4).into();
            let pod = PodRef { namespace: "graph".into(), name: Arc::clone(&name) };
            let uid = PodUid(format!("uid-{n}").into());
            let occupant = Some(Occupant { pod, uid, serving: Some(true), terminating: false });
            Endpoint { hostname: Some(name), ip: address(n).ip(), occupant }
        };
        let services = |host: &str| Service {
            host: host.into(),
            addresses: Vec::new(),
            endpoints: numbers.clone().map(endpoint).collect(),
        };
        let services = vec![services("store-1"), services("store.graph.svc")];
        vec![Observation::Endpoints(EndpointsReport { cluster: ClusterId(0), at, services })]
    });
}

/// Everything at once, on one node.
#[test]
fn floods_are_bounded_and_counted() {
    let now = START;
    let mut judge: Judge = judge(now);
    judge.observe(list(now, (0..5_000).map(|id| listed(id % 3_000, format!("store-{id}"))).collect()));
    judge.observe(Observation::Pods { at: now, pods: (0..3_000).map(record).collect() });
    for block in 0..100u32 {
        let count = |n: u32| AttemptCount {
            owner: Some(OWNER),
            remote: address(block * 1000 + n),
            what: Counted::Begun,
            added: 1,
            last_begun: Some(now),
            last_ended: now,
        };
        judge.observe(Observation::Attempts { at: now, counts: (0..1000).map(count).collect() });
    }
    judge.observe(sample(now, (0..10_000).map(socket).collect()));
    let snapshot = judge.advance(now).snapshot.unwrap();
    assert!(snapshot.pods.len() <= MAX_PODS);
    assert!(snapshot.clusters[0].stores.len() <= 1024);
    let table = judge.table(&TableQuery::default());
    assert!(table.total <= 1024 + 32 && table.connections.len() == table.total);
    let dropped = snapshot.dropped;
    assert!(dropped.pods > 0 && dropped.targets > 0 && dropped.evidence >= 100_000 - 200, "{dropped:?}");
    bounds::check(&judge.memory(now));
}
