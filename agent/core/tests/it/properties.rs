//! Disorder: whatever comes in whatever order, the judge stays bounded, does not panic, never asks to be called in the
//! past, and its verdicts keep their own rules.

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
    event::MAX_PENDING,
    id::{CgroupId, ClusterId, HostPort, NetnsId, PodRef, PodUid, TargetId, TargetKey},
    judge::{Judge, MAX_PODS},
    observation::Observation,
    ping::{NameFailure, NameReport, PdReport, PeerReport, Phases, Ping, PingOutcome, Purpose, RoundEnded},
    pod::{PodRecord, Workload},
    policy::{ClusterSettings, OnUnknown, Settings, StaleTransportAction, VerdictPolicy},
    snapshot::Snapshot,
    source::{Loss, SourceName, SourceReport, SourceState},
    table::TableQuery,
    time::MonoTime,
    topology::{ListedStore, ReportedState},
    verdict::Status,
};

fn judge(now: MonoTime) -> Judge {
    Judge::new(settings(), now)
}

fn settings() -> Settings {
    Settings {
        node: "node-a".into(),
        clusters: vec![ClusterSettings {
            name: "default".into(),
            pd_peers: vec![HostPort { host: "pd-0".into(), port: 8686 }],
            stores: Vec::new(),
            store_port: 8500,
            pd_port: 8686,
        }],
        policy: VerdictPolicy {
            failure_threshold: 2,
            success_threshold: 1,
            window: Duration::from_secs(150),
            stale_suspect_after: Duration::from_secs(60),
            stale_confirm_after: Duration::from_secs(240),
            stale_transport: StaleTransportAction::NotReady,
            min_other_ready: 1,
            on_unknown: OnUnknown::Ready,
            ping_interval: Duration::from_secs(2),
            inventory_interval: Duration::from_secs(15),
        },
        kernel_off: false,
    }
}

fn target(key: TargetKey) -> TargetId {
    TargetId { cluster: ClusterId(0), key }
}

fn record(number: u64) -> Arc<PodRecord> {
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
    })
}

fn any_key() -> impl Strategy<Value = TargetKey> {
    prop_oneof![
        (0u64..4).prop_map(TargetKey::Store),
        (0u16..2).prop_map(TargetKey::Static),
        (0u16..3).prop_map(TargetKey::Pd)
    ]
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
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

/// Any observation, at an instant within 20 minutes of the start, before or after.
fn any_observation() -> impl Strategy<Value = Observation> {
    let at = (-600_000i64..600_000).prop_map(|millis| MonoTime::from_millis(1_000_000 + millis));
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
    let loss = (at, any::<u64>(), any::<bool>())
        .prop_map(|(at, lost, counters)| Observation::Loss(Loss { source: SourceName::Kernel, at, lost, counters }));
    prop_oneof![
        4 => ping, 2 => round, 1 => pd, 1 => name, 1 => pods, 4 => attempts, 4 => connection, 3 => inventory, 1 => source,
        1 => loss,
    ]
}

fn check(snapshot: &Snapshot) {
    for pod in &snapshot.pods {
        let verdict = &pod.verdict;
        assert_eq!(verdict.status, verdict.reason.status());
        assert_eq!(verdict.ready, verdict.status != Status::NotReady, "on_unknown is ready");
        // Served without authentication: no address, no host.
        assert!(!verdict.message.contains("10.0.0.") && !verdict.message.contains("store-"), "{}", verdict.message);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Observations in any order, with time standing still, jumping ahead and (in the stamps) back.
    #[test]
    fn any_order_of_anything(steps in vec((any_observation(), 0i64..40_000), 1..120), restart in 0usize..120) {
        let mut now = MonoTime::from_millis(1_000_000);
        let mut judge = judge(now);
        for (index, (observation, pass)) in steps.into_iter().enumerate() {
            judge.observe(observation);
            now = now + Duration::from_millis(u64::try_from(pass / 3).unwrap());
            if index == restart {
                let mut memory = judge.memory(now);
                memory.map_times(|at| at);
                judge = self::judge(now);
                judge.restore(memory, now);
            }
            let advance = judge.advance(now);
            prop_assert!(advance.next.is_none_or(|next| next > now), "it would spin");
            prop_assert!(advance.events.len() <= MAX_PENDING);
            if let Some(snapshot) = &advance.snapshot {
                check(snapshot);
            }
            let table = judge.table(&TableQuery { limit: 3, ..TableQuery::default() });
            prop_assert!(table.connections.len() == table.total.min(3));
            prop_assert!(table.strays.len() as u64 <= table.unattributed.iter().map(|(_, count)| count).sum());
        }
    }

    /// The same observations at the same instants give the same verdicts.
    #[test]
    fn the_same_twice(steps in vec((any_observation(), 0u64..5_000), 1..60)) {
        let play = || {
            let mut now = MonoTime::from_millis(1_000_000);
            let mut judge = judge(now);
            let mut said = Vec::new();
            for (observation, pass) in steps.clone() {
                judge.observe(observation);
                now = now + Duration::from_millis(pass);
                let advance = judge.advance(now);
                said.push((advance.snapshot, advance.events, advance.requests));
            }
            said
        };
        prop_assert_eq!(play(), play());
    }
}

/// A pod that dials 100 000 addresses, once each, and a list of as many pods and Stores.
#[test]
fn floods_are_bounded_and_counted() {
    let now = MonoTime::from_millis(1_000_000);
    let mut judge = judge(now);
    let stores: Vec<_> = (0..5_000)
        .map(|id| ListedStore {
            id: id % 3_000,
            address: HostPort { host: format!("store-{id}").into(), port: 8500 },
            state: ReportedState::Up,
        })
        .collect();
    judge.observe(Observation::Pd(PdReport {
        cluster: ClusterId(0),
        started: now,
        ended: now,
        peers: Vec::new(),
        list: Some(stores),
    }));
    judge.observe(Observation::Pods { at: now, pods: (0..3_000).map(record).collect() });
    let owner = SocketOwner { cgroup: Some(CgroupId(1)), netns: None, pid: None };
    for block in 0..100u32 {
        let counts = (0..1000u32)
            .map(|n| AttemptCount {
                owner: Some(owner),
                remote: SocketAddr::from((Ipv4Addr::from(0x0b00_0000 + block * 1000 + n), 8500)),
                what: Counted::Begun,
                added: 1,
                last_begun: Some(now),
                last_ended: now,
            })
            .collect();
        judge.observe(Observation::Attempts { at: now, counts });
    }
    let sockets = (0..10_000u32)
        .map(|n| SocketSample {
            socket: SocketId(u64::from(n) + 1),
            owner,
            local: SocketAddr::from(([10, 1, 0, 1], 4000)),
            remote: SocketAddr::from((Ipv4Addr::from(0x0c00_0000 + n), 8500)),
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
        })
        .collect();
    judge.observe(Observation::Inventory(InventorySample { at: now, ended: now, complete: true, sockets }));
    let snapshot = judge.advance(now).snapshot.unwrap();
    assert!(snapshot.pods.len() <= MAX_PODS);
    assert!(snapshot.clusters[0].stores.len() <= 1024);
    let table = judge.table(&TableQuery::default());
    assert!(table.total <= 1024 + 32 && table.connections.len() == table.total);
    let dropped = snapshot.dropped;
    assert!(dropped.pods > 0 && dropped.targets > 0 && dropped.evidence >= 100_000 - 200, "{dropped:?}");
}

/// Time that this thread has spent on a processor, which other load on the machine does not change.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// 100 pods, 20 Stores, 10 000 sockets are judged, and what that costs is printed:
/// `cargo test --release -p storewatch-core --test it large_node -- --nocapture`.
#[test]
fn a_large_node_is_judged() {
    let mut now = MonoTime::from_millis(1_000_000);
    let mut judge = judge(now);
    let stores = (1..=20).map(|id| ListedStore {
        id,
        address: HostPort { host: format!("10.0.1.{id}").into(), port: 8500 },
        state: ReportedState::Up,
    });
    let list = Some(stores.collect());
    judge.observe(Observation::Pd(PdReport {
        cluster: ClusterId(0),
        started: now,
        ended: now,
        peers: Vec::new(),
        list,
    }));
    let pods: Vec<_> = (0..100u64)
        .map(|n| {
            let mut pod = PodRecord::clone(&record(n));
            (pod.cluster, pod.host_network, pod.netns) =
                (ClusterId(0), false, Some(NetnsId(u32::try_from(n).unwrap())));
            Arc::new(pod)
        })
        .collect();
    judge.observe(Observation::Pods { at: now, pods });
    let remote = |n: u64| SocketAddr::from(([10, 0, 1, u8::try_from(n % 20 + 1).unwrap()], 8500));
    let owner = |n: u64| SocketOwner { cgroup: Some(CgroupId(n % 100)), netns: None, pid: None };
    let sample = |now: MonoTime, bytes: u64| {
        let sockets = (0..10_000u64).map(|n| SocketSample {
            socket: SocketId(n + 1),
            owner: owner(n),
            local: SocketAddr::from(([10, 1, 0, 1], 4000)),
            remote: remote(n / 100),
            state: TcpState::Established,
            bytes_received: Some(bytes),
            bytes_acked: None,
            unanswered: 0,
            retransmits: 0,
            retransmits_total: None,
            retransmitting: false,
            rtt: None,
            last_received: Some(now),
            last_sent: Some(now),
        });
        Observation::Inventory(InventorySample { at: now, ended: now, complete: true, sockets: sockets.collect() })
    };
    judge.observe(sample(now, 1));
    judge.advance(now);
    let (mut ticks, mut samples, mut storms) = (Vec::new(), Vec::new(), Vec::new());
    for second in 0..30u64 {
        now = now + Duration::from_secs(1);
        let observation = sample(now, second + 2);
        let begin = on_cpu();
        judge.observe(observation);
        samples.push(on_cpu() - begin);
        let begin = on_cpu();
        judge.advance(now);
        ticks.push(on_cpu() - begin);
        let counts = (0..2_000)
            .map(|n| AttemptCount {
                owner: Some(owner(n)),
                remote: remote(n / 100),
                what: Counted::Failed(KernelEvidence {
                    from: Some(TcpState::SynSent),
                    error: 111,
                    ..KernelEvidence::default()
                }),
                added: 1,
                last_begun: Some(now),
                last_ended: now,
            })
            .collect();
        let begin = on_cpu();
        judge.observe(Observation::Attempts { at: now, counts });
        storms.push(on_cpu() - begin);
    }
    // The kernel's clock is coarser than one tick: only the sum tells.
    let mean = |times: &[Duration]| times.iter().sum::<Duration>() / 30;
    let (tick, sample, storm) = (mean(&ticks), mean(&samples), mean(&storms));
    eprintln!("tick {tick:?}, sample of 10 000 sockets {sample:?}, 2 000 counters {storm:?} (means of 30)");
    assert_eq!(judge.snapshot(now).pods.len(), 100);
}
