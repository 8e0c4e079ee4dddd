//! Anything that a source may say, sensible or not.

use proptest::{collection::vec, prelude::*};
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
    id::{CgroupId, ClusterId, HostPort, NetnsId, PodRef, PodUid, TargetId, TargetKey},
    judge::Judge,
    observation::Observation,
    ping::{NameFailure, NameReport, PdReport, PeerReport, Phases, Ping, PingOutcome, Purpose, RoundEnded},
    pod::{Manager, PodRecord, Workload},
    policy::{ClusterSettings, OnUnknown, Settings, StaleTransportAction, VerdictPolicy},
    process::{CommandLine, FlagValue, ProcessReport, ProcessState},
    source::{Loss, SourceName, SourceReport, SourceState},
    time::MonoTime,
    topology::{ListedStore, ReportedState},
};

/// When everything begins.
pub(crate) const START: MonoTime = MonoTime::from_millis(1_000_000);

/// A judge with the usual settings that knows nothing yet.
pub(crate) fn judge(now: MonoTime) -> Judge {
    let seconds = Duration::from_secs;
    let policy = VerdictPolicy {
        failure_threshold: 2,
        success_threshold: 1,
        window: seconds(150),
        stale_suspect_after: seconds(60),
        stale_confirm_after: seconds(240),
        stale_transport: StaleTransportAction::NotReady,
        min_other_ready: 1,
        on_unknown: OnUnknown::Ready,
        ping_interval: seconds(2),
        inventory_interval: seconds(15),
    };
    let cluster = ClusterSettings {
        name: "default".into(),
        pd_peers: vec![HostPort { host: "pd-0".into(), port: 8686 }],
        stores: Vec::new(),
        store_port: 8500,
        pd_port: 8686,
    };
    Judge::new(Settings { node: "node-a".into(), clusters: vec![cluster], policy, kernel_off: false }, now)
}

pub(crate) fn target(key: TargetKey) -> TargetId {
    TargetId { cluster: ClusterId(0), key }
}

pub(crate) fn record(number: u64) -> Arc<PodRecord> {
    Arc::new(PodRecord {
        cluster: ClusterId(u16::from(number % 17 == 16)),
        pod: PodRef { namespace: "graph".into(), name: format!("server-{number}").into() },
        uid: PodUid(format!("uid-{number}").into()),
        workload: Some(Workload { kind: "StatefulSet".into(), name: "server".into() }),
        ips: Vec::new(),
        host_network: number % 5 == 4,
        cgroups: vec![CgroupId(number)],
        netns: Some(NetnsId(u32::try_from(number % 7).unwrap())),
        pids: vec![1],
        wiring: None,
        manager: Manager::Unknown,
    })
}

fn any_key() -> impl Strategy<Value = TargetKey> {
    prop_oneof![
        (0u64..4).prop_map(TargetKey::Store),
        (0u16..2).prop_map(TargetKey::Static),
        (0u16..3).prop_map(TargetKey::Pd)
    ]
}

pub(crate) fn any_address() -> impl Strategy<Value = SocketAddr> {
    (0u8..6, prop_oneof![Just(8500u16), Just(8686), Just(0)])
        .prop_map(|(last, port)| SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), port)))
}

fn any_evidence() -> impl Strategy<Value = KernelEvidence> {
    let state = prop_oneof![Just(None), (1u8..13).prop_map(|number| TcpState::try_from(number).ok())];
    let error = prop_oneof![Just(0u16), Just(111), Just(110), Just(104), Just(113), any::<u16>()];
    (state, error, any::<u16>(), any::<Option<u16>>(), any::<u8>(), any::<[bool; 4]>()).prop_map(
        |(from, error, soft_error, reported, retransmits, [no_source_port, in_process, reset_received, unanswered])| {
            KernelEvidence {
                from,
                error,
                soft_error,
                reported,
                retransmits,
                no_source_port,
                in_process,
                reset_received,
                reset_sent: None,
                unanswered,
            }
        },
    )
}

fn any_owner() -> impl Strategy<Value = SocketOwner> {
    (proptest::option::of(0u64..6), proptest::option::of(0u32..8), proptest::option::of(0u32..2))
        .prop_map(|(cgroup, netns, pid)| SocketOwner { cgroup: cgroup.map(CgroupId), netns: netns.map(NetnsId), pid })
}

fn any_outcome() -> impl Strategy<Value = PingOutcome> {
    proptest::sample::select(vec![
        PingOutcome::Serving,
        PingOutcome::NotAllowed,
        PingOutcome::Refused,
        PingOutcome::Unreachable,
        PingOutcome::Deadline,
        PingOutcome::Protocol,
        PingOutcome::Identity,
    ])
}

fn any_name() -> impl Strategy<Value = Option<Arc<str>>> {
    proptest::sample::select(vec![None, Some("store-1:8500".into()), Some("10.0.0.1:8500".into()), Some(":::".into())])
}

fn any_list() -> impl Strategy<Value = Option<Vec<ListedStore>>> {
    let state = proptest::sample::select(vec![
        ReportedState::Up,
        ReportedState::Offline,
        ReportedState::Tombstone,
        ReportedState::Pending,
        ReportedState::Other(9),
    ]);
    let host = proptest::sample::select(vec!["store-1", "STORE-1.", "10.0.0.1", "10.0.0.2", "fd00::1", ""]);
    let store = (0u64..4, host, state).prop_map(|(id, host, state)| ListedStore {
        id,
        address: HostPort { host: host.into(), port: 8500 },
        state,
    });
    proptest::option::of(vec(store, 0..6))
}

/// Any instant: mostly within ten minutes of the start, before or after, and now and then one that no clock shows.
fn any_instant() -> impl Strategy<Value = MonoTime> + Clone {
    prop_oneof![
        30 => (-600_000i64..600_000).prop_map(|millis| MonoTime::from_millis(1_000_000 + millis)),
        1 => proptest::sample::select(vec![i64::MIN, -1, 0, 1, i64::MAX]).prop_map(MonoTime::from_nanos),
    ]
}

/// Any observation at any instant.
pub(crate) fn any_observation() -> impl Strategy<Value = Observation> {
    let at = any_instant();
    let ping =
        (at.clone(), any_key(), proptest::option::of(any_address()), any_outcome(), any_name(), 0u64..5, any::<bool>())
            .prop_map(|(ended, key, remote, outcome, identity, round, fresh)| {
                Observation::Ping(Ping {
                    target: target(key),
                    remote,
                    purpose: if round == 0 { Purpose::Contrast } else { Purpose::Round(round) },
                    fresh,
                    started: ended - Duration::from_millis(3),
                    ended,
                    outcome,
                    phases: Phases::default(),
                    identity,
                    detail: None,
                })
            });
    let round = (at.clone(), 0u64..5, vec(any_key(), 0..4), any::<bool>(), any::<bool>()).prop_map(
        |(ended, round, asked, sweep_complete, late)| {
            Observation::RoundEnded(RoundEnded {
                cluster: ClusterId(0),
                round,
                started: ended - Duration::from_secs(1),
                ended,
                asked: asked.into_iter().map(target).collect(),
                sweep_complete,
                late,
            })
        },
    );
    let pd = (at.clone(), any_list(), 0u16..3, any::<[bool; 3]>()).prop_map(
        |(ended, list, peer, [alive, refused, serving])| {
            let peer = PeerReport {
                peer,
                alive,
                health_serving: Some(serving),
                auth_refused: refused,
                unresolved: serving,
                error: Some("no".into()),
            };
            Observation::Pd(PdReport { cluster: ClusterId(0), started: ended, ended, peers: vec![peer], list })
        },
    );
    let addresses = vec((0u8..6).prop_map(|last| IpAddr::from([10, 0, 0, last])), 0..4);
    let answer =
        prop_oneof![addresses.prop_map(Ok), Just(Err(NameFailure::NoSuchName)), Just(Err(NameFailure::NoAnswer))];
    let name = (at.clone(), any_key(), any::<bool>(), answer)
        .prop_map(|(at, key, v6, answer)| Observation::Name(NameReport { target: target(key), at, v6, answer }));
    let pods = (at.clone(), vec(0u64..20, 0..6))
        .prop_map(|(at, pods)| Observation::Pods { at, pods: pods.into_iter().map(record).collect() });
    let what = prop_oneof![
        Just(Counted::Begun),
        Just(Counted::Established),
        any_evidence().prop_map(Counted::Failed),
        any_evidence().prop_map(Counted::Ended),
        Just(Counted::ResetsReceived),
        Just(Counted::Retransmits),
    ];
    let count = (
        proptest::option::of(any_owner()),
        any_address(),
        what,
        any::<u64>(),
        proptest::option::of(at.clone()),
        at.clone(),
    )
        .prop_map(|(owner, remote, what, added, last_begun, last_ended)| AttemptCount {
            owner,
            remote,
            what,
            added,
            last_begun,
            last_ended,
        });
    let attempts = (at.clone(), vec(count, 0..6)).prop_map(|(at, counts)| Observation::Attempts { at, counts });
    let change = prop_oneof![
        Just(ConnectionChange::Begun),
        proptest::option::of(at.clone()).prop_map(|begun| ConnectionChange::Established { begun }),
        (proptest::option::of(at.clone()), any_evidence())
            .prop_map(|(begun, evidence)| ConnectionChange::Failed { begun, evidence }),
        (proptest::option::of(at.clone()), any_evidence(), any::<Option<u64>>())
            .prop_map(|(begun, evidence, bytes_received)| ConnectionChange::Ended { begun, evidence, bytes_received }),
        any::<u8>().prop_map(|count| ConnectionChange::Retransmit { state: TcpState::SynSent, count }),
        Just(ConnectionChange::ResetReceived { state: TcpState::Established }),
    ];
    let connection = (at.clone(), 0u64..6, any_owner(), any_address(), any_address(), change).prop_map(
        |(at, socket, owner, local, remote, what)| {
            Observation::Connection(ConnectionEvent {
                at,
                socket: SocketId(socket),
                owner,
                local,
                remote,
                rtt: None,
                retransmits_total: None,
                what,
            })
        },
    );
    let sample = (
        0u64..6,
        any_owner(),
        any_address(),
        any_address(),
        1u8..13,
        any::<[Option<u64>; 2]>(),
        any::<u8>(),
        at.clone(),
    )
        .prop_map(|(socket, owner, local, remote, state, [bytes_received, bytes_acked], retransmits, seen)| {
            SocketSample {
                socket: SocketId(socket),
                owner,
                local,
                remote,
                state: TcpState::try_from(state).unwrap(),
                bytes_received,
                bytes_acked,
                unanswered: bytes_acked.unwrap_or(0),
                retransmits,
                retransmits_total: Some(u32::from(retransmits) * 3),
                retransmitting: retransmits > 0,
                rtt: None,
                last_received: Some(seen),
                last_sent: None,
            }
        });
    let inventory = (at.clone(), vec(sample, 0..6), any::<bool>()).prop_map(|(at, sockets, complete)| {
        Observation::Inventory(InventorySample { at, ended: at + Duration::from_millis(20), complete, sockets })
    });
    let source =
        (at.clone(), proptest::sample::select(SourceName::ALL.to_vec()), 0u8..3).prop_map(|(at, source, state)| {
            let state = [SourceState::Active, SourceState::Degraded, SourceState::Absent][usize::from(state)];
            Observation::Source(SourceReport { source, at, state, detail: "".into() })
        });
    let state = prop_oneof![
        2 => Just(ProcessState::Ended),
        3 => (at.clone(), proptest::option::of((any::<[bool; 4]>(), any::<Option<i64>>()))).prop_map(
            |(started, line)| {
                let command = line.map(|([java, whole, security_manager, more_elsewhere], ttl)| CommandLine {
                    java,
                    whole,
                    dns_ttl: ttl.map(FlagValue::Number),
                    cache_ttl: ttl.map(|_| FlagValue::Other),
                    security_manager,
                    more_elsewhere,
                });
                ProcessState::Alive { started, command }
            }
        ),
    ];
    let process = (0u32..3, at.clone(), state).prop_map(|(pid, at, state)| ProcessReport { pid, at, state });
    let processes = vec(process, 0..4).prop_map(Observation::Processes);
    let loss = (at, any::<u64>(), any::<bool>())
        .prop_map(|(at, lost, counters)| Observation::Loss(Loss { source: SourceName::Kernel, at, lost, counters }));
    prop_oneof![
        4 => ping, 2 => round, 1 => pd, 1 => name, 1 => pods, 4 => attempts, 4 => connection, 3 => inventory, 1 => source,
        1 => loss, 2 => processes,
    ]
}
