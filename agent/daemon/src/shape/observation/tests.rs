//! Every value comes back as it went. The chains of variants are closed by matches without a wildcard: a variant that is
//! new in the core does not compile until it stands in its chain.

use super::*;
use proptest::prelude::*;
use storewatch_core::{
    connection::{
        AttemptCount, ConnectionChange, ConnectionEvent, Counted, InventorySample, KernelEvidence, SocketId,
        SocketOwner, SocketSample, TcpState,
    },
    endpoints::{Endpoint, EndpointsReport, Occupant, Service},
    id::{CgroupId, ClusterId, HostPort, NetnsId, PodRef, PodUid, TargetId, TargetKey},
    observation::Observation as Core,
    ping::{NameFailure, NameReport, PdReport, PeerReport, Phases, Ping, PingOutcome, Purpose as Why, RoundEnded},
    pod::{GateCondition, Manager, PodRecord, Wiring, Workload},
    process::{CommandLine, FlagValue, ProcessReport, ProcessState},
    source::{Loss, SourceName, SourceReport, SourceState},
    topology::{ListedStore, ReportedState},
};

fn at(millis: i64) -> MonoTime {
    MonoTime::from_millis(millis)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn evidence() -> KernelEvidence {
    KernelEvidence {
        from: Some(TcpState::SynSent),
        error: 111,
        soft_error: 113,
        reported: Some(0),
        retransmits: 255,
        no_source_port: true,
        in_process: true,
        reset_received: true,
        reset_sent: Some(15),
        unanswered: true,
    }
}

/// All values of a type, by a function that gives the one after each.
fn chain<T: Clone>(next: impl Fn(Option<&T>) -> Option<T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    while let Some(one) = next(all.last()) {
        all.push(one);
    }
    all
}

fn changes() -> Vec<ConnectionChange> {
    use ConnectionChange as Change;
    let state = TcpState::CloseWait;
    let known = chain(|last: Option<&Change>| match last {
        None => Some(Change::Begun),
        Some(Change::Begun) => Some(Change::Established { begun: Some(at(-1)) }),
        Some(Change::Established { .. }) => Some(Change::Failed { begun: Some(at(1)), evidence: evidence() }),
        Some(Change::Failed { .. }) => {
            Some(Change::Ended { begun: Some(at(2)), evidence: evidence(), bytes_received: Some(u64::MAX) })
        }
        Some(Change::Ended { .. }) => Some(Change::ResetReceived { state }),
        Some(Change::ResetReceived { .. }) => Some(Change::ResetSent { state: Some(state), reason: Some(11) }),
        Some(Change::ResetSent { .. }) => Some(Change::Retransmit { state, count: 3 }),
        Some(Change::Retransmit { .. }) => Some(Change::ErrorReported { errno: u16::MAX, state }),
        Some(Change::ErrorReported { .. }) => None,
    });
    let evidence = KernelEvidence::default();
    let unknown = [
        Change::Established { begun: None },
        Change::Failed { begun: None, evidence },
        Change::Ended { begun: None, evidence, bytes_received: None },
        Change::ResetSent { state: None, reason: None },
    ];
    [known, unknown.to_vec()].concat()
}

fn counted() -> Vec<Counted> {
    chain(|last| match last {
        None => Some(Counted::Begun),
        Some(Counted::Begun) => Some(Counted::Established),
        Some(Counted::Established) => Some(Counted::Failed(evidence())),
        Some(Counted::Failed(_)) => Some(Counted::Ended(evidence())),
        Some(Counted::Ended(_)) => Some(Counted::ResetsReceived),
        Some(Counted::ResetsReceived) => Some(Counted::ResetsSent),
        Some(Counted::ResetsSent) => Some(Counted::Retransmits),
        Some(Counted::Retransmits) => None,
    })
}

fn outcomes() -> Vec<PingOutcome> {
    chain(|last| match last {
        None => Some(PingOutcome::Serving),
        Some(PingOutcome::Serving) => Some(PingOutcome::NotAllowed),
        Some(PingOutcome::NotAllowed) => Some(PingOutcome::Refused),
        Some(PingOutcome::Refused) => Some(PingOutcome::Unreachable),
        Some(PingOutcome::Unreachable) => Some(PingOutcome::Deadline),
        Some(PingOutcome::Deadline) => Some(PingOutcome::Protocol),
        Some(PingOutcome::Protocol) => Some(PingOutcome::Identity),
        Some(PingOutcome::Identity) => None,
    })
}

fn states() -> Vec<ReportedState> {
    chain(|last| match last {
        None => Some(ReportedState::Unknown),
        Some(ReportedState::Unknown) => Some(ReportedState::Up),
        Some(ReportedState::Up) => Some(ReportedState::Offline),
        Some(ReportedState::Offline) => Some(ReportedState::Tombstone),
        Some(ReportedState::Tombstone) => Some(ReportedState::Pending),
        Some(ReportedState::Pending) => Some(ReportedState::Exiting),
        Some(ReportedState::Exiting) => Some(ReportedState::Other(-7)),
        Some(ReportedState::Other(_)) => None,
    })
}

fn target(key: TargetKey) -> TargetId {
    TargetId { cluster: ClusterId(u16::MAX), key }
}

fn owner(full: bool) -> SocketOwner {
    if full {
        SocketOwner { cgroup: Some(CgroupId(u64::MAX)), netns: Some(NetnsId(u32::MAX)), pid: Some(1) }
    } else {
        SocketOwner { cgroup: None, netns: None, pid: None }
    }
}

fn connections() -> Vec<Core> {
    let event = |(what, full): (_, bool)| ConnectionEvent {
        at: at(5),
        socket: SocketId(u64::MAX),
        owner: owner(true),
        local: address("10.0.0.1:40000"),
        remote: address("[fd00::2]:8500"),
        rtt: full.then(|| Duration::from_micros(71)),
        retransmits_total: full.then_some(u32::MAX),
        what,
    };
    let kinds = changes().into_iter().zip([true, false].into_iter().cycle());
    kinds.map(|kind| Core::Connection(event(kind))).collect()
}

fn attempts() -> Vec<Core> {
    let counts = counted().into_iter().zip([true, false].into_iter().cycle()).map(|(what, full)| AttemptCount {
        owner: full.then(|| owner(full)),
        remote: address("10.0.0.2:8500"),
        what,
        added: u64::MAX,
        last_begun: full.then(|| at(1)),
        last_ended: at(2),
    });
    vec![Core::Attempts { at: at(6), counts: counts.collect() }, Core::Attempts { at: at(7), counts: Vec::new() }]
}

fn inventories() -> Vec<Core> {
    let states = (1..=12).map(|number| TcpState::try_from(number).unwrap());
    let sockets = states.zip([true, false].into_iter().cycle()).map(|(state, full)| SocketSample {
        socket: SocketId(u64::from(full)),
        owner: owner(full),
        local: address("[::1]:1"),
        remote: address("[fd00::2]:8500"),
        state,
        bytes_received: full.then_some(1),
        bytes_acked: full.then_some(u64::MAX),
        unanswered: 3,
        retransmits: 4,
        retransmits_total: full.then_some(5),
        retransmitting: full,
        rtt: full.then(|| Duration::from_nanos(1_234_567_891)),
        last_received: full.then(|| at(-5)),
        last_sent: full.then(|| at(6)),
    });
    vec![Core::Inventory(InventorySample { at: at(8), ended: at(9), complete: false, sockets: sockets.collect() })]
}

fn pings() -> Vec<Core> {
    let kinds = outcomes().into_iter().zip([true, false].into_iter().cycle());
    let pings = kinds.map(|(outcome, full)| {
        Core::Ping(Ping {
            target: target(if full { TargetKey::Store(u64::MAX) } else { TargetKey::Static(3) }),
            remote: full.then(|| address("10.0.0.2:8500")),
            purpose: if full { Why::Round(u64::MAX) } else { Why::Contrast },
            fresh: full,
            started: at(1),
            ended: at(2),
            outcome,
            phases: Phases {
                dns: full.then(|| Duration::from_micros(1)),
                connect: full.then(|| Duration::from_micros(2)),
                http2: full.then(|| Duration::from_micros(3)),
                rpc: full.then(|| Duration::from_secs(40)),
            },
            identity: full.then(|| "store-1:8500".into()),
            detail: (!full).then(|| "\"no\"\n\u{e4}".into()),
        })
    });
    pings.collect()
}

fn pods() -> Vec<Core> {
    let pod = |full: bool| {
        Arc::new(PodRecord {
            cluster: ClusterId(1),
            pod: PodRef { namespace: "graph".into(), name: format!("server-{full}").into() },
            uid: PodUid(format!("uid-{full}").into()),
            workload: full.then(|| Workload { kind: "StatefulSet".into(), name: "server".into() }),
            ips: vec!["10.0.0.9".parse().unwrap(), "fd00::9".parse().unwrap()],
            host_network: full,
            cgroups: vec![CgroupId(1), CgroupId(2)],
            netns: full.then_some(NetnsId(4)),
            pids: vec![7],
            wiring: full.then(|| Wiring {
                probe: true,
                condition: Some(GateCondition { open: true, reason: "Why".into(), message: "so".into() }),
                ..Wiring::default()
            }),
            manager: if full { Manager::Docker("0123".into()) } else { Manager::Unknown },
        })
    };
    vec![Core::Pods { at: at(10), pods: vec![pod(true), pod(false)] }, Core::Pods { at: at(11), pods: Vec::new() }]
}

fn reports() -> Vec<Core> {
    let peer = |full: bool| PeerReport {
        peer: u16::MAX,
        alive: full,
        health_serving: full.then_some(true),
        auth_refused: !full,
        unresolved: full,
        error: full.then(|| "no way to 10.0.0.1".into()),
    };
    let list = states().into_iter().map(|state| ListedStore {
        id: u64::MAX,
        address: HostPort { host: "store-1".into(), port: 8500 },
        state,
    });
    let report = |list| PdReport {
        cluster: ClusterId(2),
        started: at(1),
        ended: at(2),
        peers: vec![peer(true), peer(false)],
        list,
    };
    vec![Core::Pd(report(Some(list.collect()))), Core::Pd(report(Some(Vec::new()))), Core::Pd(report(None))]
}

fn names() -> Vec<Core> {
    let answers = [
        Ok(vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]),
        Ok(Vec::new()),
        Err(NameFailure::NoSuchName),
        Err(NameFailure::NoAnswer),
    ];
    let report = |answer| NameReport { target: target(TargetKey::Pd(1)), at: at(3), v6: true, answer };
    answers.into_iter().map(|answer| Core::Name(report(answer))).collect()
}

fn services() -> Vec<Core> {
    let endpoint = |full: bool| Endpoint {
        hostname: full.then(|| "store-0".into()),
        ip: "10.0.0.9".parse().unwrap(),
        occupant: full.then(|| Occupant {
            pod: PodRef { namespace: "graph".into(), name: "store-0".into() },
            uid: PodUid("uid".into()),
            serving: full.then_some(false),
            terminating: full,
        }),
    };
    let service = Service {
        host: "store.graph.svc".into(),
        addresses: vec!["fd00::1".parse().unwrap()],
        endpoints: vec![endpoint(true), endpoint(false)],
    };
    vec![Core::Endpoints(EndpointsReport { cluster: ClusterId(1), at: at(5), services: vec![service] })]
}

fn exits() -> Vec<Core> {
    vec![Core::Exits { at: at(6), pods: [PodUid("uid".into())].into() }]
}

fn processes() -> Vec<Core> {
    let line = |full: bool| CommandLine {
        java: full,
        dns_ttl: full.then_some(FlagValue::Number(-1)),
        cache_ttl: full.then_some(FlagValue::Other),
        ..CommandLine::default()
    };
    let states = [
        ProcessState::Ended,
        ProcessState::Alive { started: at(7), command: None },
        ProcessState::Alive { started: at(7), command: Some(line(true)) },
        ProcessState::Alive { started: at(7), command: Some(line(false)) },
    ];
    vec![Core::Processes(states.into_iter().map(|state| ProcessReport { pid: 7, at: at(8), state }).collect())]
}

fn sources() -> Vec<Core> {
    let states = [SourceState::Active, SourceState::Degraded, SourceState::Absent].into_iter().cycle();
    let sources = SourceName::ALL.into_iter().zip(states);
    sources
        .map(|(source, state)| Core::Source(SourceReport { source, at: at(4), state, detail: "why".into() }))
        .collect()
}

/// Every variant with every variant of what it holds, each option with and without a value.
pub(crate) fn everything() -> Vec<Core> {
    let loss = Loss { source: SourceName::Kernel, at: at(1), lost: u64::MAX, counters: true };
    let round = RoundEnded {
        cluster: ClusterId(3),
        round: u64::MAX,
        started: at(1),
        ended: at(2),
        asked: vec![target(TargetKey::Store(1)), target(TargetKey::Static(2))],
        sweep_complete: true,
        late: true,
    };
    let kinds = chain(|last: Option<&Vec<Core>>| match last.and_then(|kind| kind.first()) {
        None => Some(connections()),
        Some(Core::Connection(_)) => Some(attempts()),
        Some(Core::Attempts { .. }) => Some(inventories()),
        Some(Core::Inventory(_)) => Some(pings()),
        Some(Core::Ping(_)) => Some(vec![Core::RoundEnded(round.clone())]),
        Some(Core::RoundEnded(_)) => Some(reports()),
        Some(Core::Pd(_)) => Some(names()),
        Some(Core::Name(_)) => Some(pods()),
        Some(Core::Pods { .. }) => Some(services()),
        Some(Core::Endpoints(_)) => Some(exits()),
        Some(Core::Exits { .. }) => Some(processes()),
        Some(Core::Processes(_)) => Some(sources()),
        Some(Core::Source(_)) => Some(vec![Core::Loss(loss)]),
        Some(Core::Loss(_)) => None,
    });
    kinds.concat()
}

#[test]
fn every_observation_comes_back_as_it_went() {
    let all = everything();
    for observation in &all {
        let text = serde_json::to_string(&observation.put()).unwrap();
        assert!(!text.contains('\n'), "one line: {text}");
        let back: Observation = serde_json::from_str(&text).unwrap();
        assert_eq!(&Core::take(back), observation, "{text}");
    }
    assert!(all.len() >= 40, "{}", all.len());
}

#[test]
fn what_is_not_known_is_refused() {
    for text in [
        "{\"weather\":{}}",
        "{\"loss\":{\"source\":\"Kernel\",\"at\":1,\"lost\":1,\"counters\":false,\"more\":1}}",
        "{\"loss\":{\"source\":\"Kernel\",\"at\":1,\"lost\":1}}",
        "{\"loss\":{\"source\":\"Weather\",\"at\":1,\"lost\":1,\"counters\":false}}",
        "{\"loss\":{\"source\":\"Kernel\",\"at\":1,\"lost\":-1,\"counters\":false}}",
    ] {
        assert!(serde_json::from_str::<Observation>(text).is_err(), "{text}");
    }
}

proptest! {
    /// A damaged line gives another value or an error, never a panic.
    #[test]
    fn damage_gives_a_value_or_an_error(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let all = everything();
        let mut text = serde_json::to_vec(&which.get(&all).put()).unwrap();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = serde_json::from_slice::<Observation>(&text).map(Core::take);
    }
}
