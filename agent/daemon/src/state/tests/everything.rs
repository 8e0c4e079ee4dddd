//! A memory in which every field has a value of its own, with every variant of every enum, and each option with and
//! without a value.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    time::Duration,
};
use storewatch_core::{
    connection::{
        AttemptCount, ConnectionChange, ConnectionEvent, ConnectionOutcome, Counted, SocketId, SocketOwner, TcpState,
    },
    endpoints::Occupant,
    id::{CgroupId, ClusterId, ContainerKey, HostPort, NetnsId, PodRef, PodUid, TargetKey},
    memory::{
        AddressPings, Answered, Attempt, ClusterMemory, ContainerMemory, Dialer, Early, EarlyEvidence, Evidence,
        KernelLoss, LastRound, Memory, NodeMemory, PdMemory, PeerMemory, PodMemory, Publication, Received, Remote,
        SocketMemory, SourceMemory, StoreMemory, Streak, TenureMemory, VerdictMemory,
    },
    ownership::{Claim, ClaimSource, SuccessorClock, Tenure},
    ping::{NameFailure, Phases, PingOutcome},
    pod::{GateCondition, Manager, PodRecord, Wiring, Workload},
    pods::ReachLatch,
    process::{CommandLine, FlagValue},
    rounds::{RoundState, Rounds},
    snapshot::LastPing,
    source::{SourceName, SourceState},
    stale::StaleEntry,
    time::MonoTime,
    topology::{ListedStore, ReportedState},
    verdict::{Facts, Finding, FindingCode, Reason, Remedy, Severity, StaleMode},
};

pub(super) fn at(millis: i64) -> MonoTime {
    MonoTime::from_millis(millis)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn host(text: &str) -> HostPort {
    HostPort::parse(text).unwrap()
}

fn verdict(reason: Reason, since: i64) -> VerdictMemory {
    let message = format!("\"{}\" \u{e4}\n", reason.as_str());
    VerdictMemory { reason, message, since: at(since), carried: since % 2 == 0 }
}

fn claim(last: i64, absent: Option<i64>) -> Claim {
    Claim { last: at(last), absent_since: absent.map(at), absent_last: absent.map(|absent| at(absent + 7)) }
}

fn tenure(ended: Option<i64>) -> Tenure {
    Tenure {
        from: at(-5_000),
        ended: ended.map(at),
        claims: BTreeMap::from([
            (ClaimSource::Config, claim(10, None)),
            (ClaimSource::Pd, claim(11, Some(20))),
            (ClaimSource::Dns, claim(12, Some(21))),
            (ClaimSource::Endpoints, claim(13, None)),
            (ClaimSource::Identity, claim(14, None)),
        ]),
        identity: ended.map(|ended| ("store-1".into(), at(ended - 1))),
        successor: SuccessorClock {
            answered: Duration::from_nanos(1_234_567_890_123),
            first: Some(at(30)),
            last: ended.map(at),
        },
    }
}

const ALL_REASONS: [Reason; 11] = [
    Reason::StoreAnswering,
    Reason::PassiveOnly,
    Reason::NoStoreAnswers,
    Reason::NoStoreRegistered,
    Reason::StoreListUnknown,
    Reason::PodCannotReachStores,
    Reason::StaleTransport,
    Reason::NoEvidenceYet,
    Reason::EvidenceExpired,
    Reason::PodSourceAbsent,
    Reason::Maintenance,
];

const ALL_FINDINGS: [FindingCode; 21] = [
    FindingCode::StaleTransportSuspected,
    FindingCode::StaleTransport,
    FindingCode::StoreDown,
    FindingCode::StoreHung,
    FindingCode::PathBlackhole,
    FindingCode::IpReused,
    FindingCode::ConnectionResets,
    FindingCode::IdleDrop,
    FindingCode::PoolCollapsed,
    FindingCode::Overloaded,
    FindingCode::LocalRoute,
    FindingCode::LocalPortsExhausted,
    FindingCode::KeepaliveDead,
    FindingCode::PdDown,
    FindingCode::PdNoLeader,
    FindingCode::PdAuthRefused,
    FindingCode::KernelEventsLost,
    FindingCode::AttemptsNotObservable,
    FindingCode::GuardHeld,
    FindingCode::AgentCannotReachStores,
    FindingCode::UnknownStoreAddress,
];

const FORMER: &str = "10.42.1.17:8500";

fn pinged() -> StoreMemory {
    StoreMemory {
        answering: Some(false),
        last_ping: Some(LastPing {
            outcome: PingOutcome::NotAllowed,
            at: at(46),
            phases: Phases { connect: Some(Duration::from_millis(1)), ..Phases::default() },
            detail: Some("no".into()),
        }),
        answer: Some(Answered { remote: address(FORMER), at: at(47), took: Duration::from_millis(2) }),
        silent: 5,
        silent_since: Some(at(48)),
    }
}

fn pd() -> PdMemory {
    let streak = |count| Streak { count, since: (count > 1).then(|| at(39)) };
    PdMemory {
        checked: Some(at(40)),
        reachable: Some(true),
        has_leader: Some(false),
        peers: vec![
            PeerMemory {
                reachable: Some(false),
                last_error: Some("no answer".into()),
                unresolved: true,
                v4: Some(Ok(true)),
                v6: Some(Err(NameFailure::NoAnswer)),
            },
            PeerMemory { v4: Some(Err(NameFailure::NoSuchName)), ..PeerMemory::default() },
        ],
        empty: streak(1),
        silent: streak(2),
        down: streak(3),
        leaderless: streak(4),
        refused: streak(5),
    }
}

fn dialer(known: bool) -> Dialer {
    let command = CommandLine {
        java: true,
        whole: true,
        dns_ttl: Some(FlagValue::Number(-1)),
        cache_ttl: Some(FlagValue::Other),
        security_manager: true,
        more_elsewhere: true,
    };
    Dialer {
        last: at(56),
        addresses: if known { BTreeSet::from([address(FORMER), address("[fd00::2]:8500")]) } else { BTreeSet::new() },
        started: known.then(|| at(55)),
        command: known.then_some(command),
    }
}

pub(super) fn evidence() -> Evidence {
    let times = |millis: i64| VecDeque::from([(at(millis), (), u64::MAX), (at(millis + 1), (), 1)]);
    let outcomes = |all: &[ConnectionOutcome]| all.iter().map(|outcome| (at(80), *outcome, 2)).collect();
    let remote = Remote {
        last_begun: Some(at(75)),
        last_established: Some(at(76)),
        begins: times(77),
        answers: times(78),
        failed: outcomes(&ConnectionOutcome::ALL[..9]),
        endings: outcomes(&ConnectionOutcome::ALL[9..]),
        slow: times(81),
        idle_drops: VecDeque::from([(at(82), Duration::from_secs(61), 1)]),
        attempts: VecDeque::from([Attempt {
            begun: at(83),
            ended: at(84),
            outcome: ConnectionOutcome::NoAnswerGivenUp,
            stuck: true,
            counted: true,
        }]),
        received: Received { earliest: Some(at(85)), latest: Some(at(86)) },
        last_activity: Some(at(87)),
        established: 7,
        few_since: Some(at(88)),
        clean_since: Some(at(89)),
    };
    let socket = |state| SocketMemory {
        id: SocketId(u64::MAX),
        local: address("10.42.0.5:40000"),
        remote: address(FORMER),
        state,
        pid: Some(u32::MAX),
        begun: Some(at(90)),
        established: Some(at(91)),
        first_seen: at(92),
        last_seen: at(93),
        bytes_received: Some(u64::MAX),
        received: Received { earliest: None, latest: Some(at(94)) },
        unanswered: 3,
        retransmits: u8::MAX,
        last_used: Some(at(95)),
        stuck_since: Some(at(96)),
        stuck_counted: Some(at(97)),
    };
    Evidence {
        remotes: vec![(address(FORMER), remote), (address("[fd00::2]:8500"), Remote::default())],
        sockets: TcpState::ALL.into_iter().map(socket).collect(),
    }
}

fn node() -> NodeMemory {
    let count = AttemptCount {
        owner: None,
        remote: address(FORMER),
        what: Counted::Begun,
        added: 1,
        last_begun: Some(at(98)),
        last_ended: at(99),
    };
    let event = ConnectionEvent {
        at: at(100),
        socket: SocketId(1),
        owner: SocketOwner { cgroup: Some(CgroupId(1)), netns: None, pid: None },
        local: address("10.42.0.5:40000"),
        remote: address(FORMER),
        rtt: None,
        retransmits_total: None,
        what: ConnectionChange::Established { begun: Some(at(101)) },
    };
    let source = |name| SourceMemory {
        name,
        state: SourceState::Degraded,
        detail: "why".into(),
        last: Some(at(102)),
        told: SourceState::Absent,
        told_detail: "why not".into(),
        told_at: at(103),
    };
    NodeMemory {
        pods_at: Some(at(104)),
        sampled: Some(at(105)),
        exits: Some((at(106), BTreeSet::from([PodUid("uid-1".into())]))),
        early: vec![
            Early { at: at(107), what: EarlyEvidence::Count(count) },
            Early { at: at(108), what: EarlyEvidence::Event(event) },
        ],
        sources: SourceName::ALL.into_iter().map(source).collect(),
        kernel_loss: Some(KernelLoss { since: at(109), last: at(110), lost: u64::MAX, counters: true }),
        publication: Some(Publication {
            looked_at: Some(at(111)),
            published_at: Some(at(112)),
            dirty: true,
            stale_ages: true,
            current: true,
        }),
    }
}

/// It.
pub(super) fn everything() -> Memory {
    let states = [
        ReportedState::Unknown,
        ReportedState::Up,
        ReportedState::Offline,
        ReportedState::Tombstone,
        ReportedState::Pending,
        ReportedState::Exiting,
        ReportedState::Other(-9),
    ];
    let targets = [TargetKey::Store(u64::MAX - 1), TargetKey::Static(3), TargetKey::Pd(4)];
    let cluster = ClusterMemory {
        name: "prod".into(),
        pd_peers: vec![host("hugegraph-pd-0.hugegraph-pd.graph.svc:8686"), host("[fd00::1]:8687")],
        stores: vec![host("10.0.0.9:8500")],
        list: states
            .into_iter()
            .zip(1_844_095_761_336_398_711..)
            .map(|(state, id)| ListedStore { id, address: host("store-1:8500"), state })
            .collect(),
        list_at: Some(at(31)),
        ever_answered: true,
        only_deadlines: true,
        verdict: verdict(Reason::NoStoreAnswers, 77_000),
        live: Reason::StoreListUnknown,
        rounds: Rounds {
            state: RoundState::Failing { began: at(32), ended: at(33) },
            first_failed: Some(at(34)),
            failed: 3,
            answered: 4,
            last_failed: Some(at(35)),
            last_answered: Some(at(36)),
            sweep_answered: true,
            counted: Some(u64::MAX),
        },
        last_round: LastRound {
            number: Some(7),
            first: Some((targets[0], at(37), Duration::from_millis(3))),
            asked: targets.to_vec(),
        },
        answered_round: LastRound::default(),
        evidence_at: Some(at(38)),
        pinged: vec![(targets[0], pinged()), (targets[1], StoreMemory::default())],
        addresses: vec![(
            address(FORMER),
            AddressPings {
                run_since: Some(at(42)),
                fresh_started: Some(at(43)),
                last: Some(at(44)),
                asked: Some(at(45)),
            },
        )],
        pd: pd(),
        gone: BTreeSet::from(targets),
        services: BTreeSet::from(["10.96.0.7".parse().unwrap()]),
        occupants: vec![(
            targets[0],
            address(FORMER),
            Occupant {
                pod: PodRef { namespace: "graph".into(), name: "store-1".into() },
                uid: PodUid("uid-s".into()),
                serving: Some(false),
                terminating: true,
            },
        )],
        findings: Vec::new(),
        tenures: targets
            .into_iter()
            .zip([(FORMER, Some(40)), ("[fd00::2]:8500", None), ("10.0.0.1:8686", Some(41))])
            .map(|(target, (remote, ended))| TenureMemory { target, address: address(remote), tenure: tenure(ended) })
            .collect(),
    };
    let container = |key, confirmed: Option<i64>| ContainerMemory {
        key,
        first_seen: at(50),
        foreign: confirmed.is_none(),
        last_evidence: Some(at(49)),
        stale: vec![(
            TargetKey::Store(u64::MAX - 1),
            address(FORMER),
            StaleEntry {
                since: at(51),
                mode: if confirmed.is_some() { StaleMode::Dialing } else { StaleMode::Holding },
                last_dial: confirmed.map(at),
                dials: u64::MAX,
                last_counted: Some(at(52)),
                answers: u64::MAX - 2,
                last_answer: Some(at(55)),
                last_held: Some(at(53)),
                suspected: Some(at(54)),
                confirmed: confirmed.map(|millis| at(millis + 3)),
                carried: confirmed.is_some(),
            },
        )],
        baselines: vec![(TargetKey::Static(3), address("[fd00::2]:8500"), Duration::new(5, 6))],
        dialers: vec![(u32::MAX, dialer(true)), (1, dialer(false))],
        evidence: confirmed.map(|_| evidence()),
        gap: confirmed.map(at),
    };
    let keys = [
        ContainerKey::Cgroup(CgroupId(u64::MAX)),
        ContainerKey::Netns(NetnsId(4_026_531_840)),
        ContainerKey::Process(u32::MAX),
    ];
    let managers =
        [Manager::Kubernetes, Manager::Unit("a.service".into()), Manager::Docker("0123".into()), Manager::Unknown];
    let facts = Facts {
        address: Some(address(FORMER)),
        left_at: Some(at(70)),
        present: Some(address("[fd00::2]:8500")),
        ping: Some(Duration::new(0, 7)),
        answering: Some(Duration::new(8, 9)),
        attempts: Some(u64::MAX),
        answers: Some(1),
        first_attempt: Some(at(71)),
        last_attempt: Some(at(72)),
        every_attempt: true,
        connections: Some(2),
        suspected_at: Some(at(73)),
        confirmed_at: Some(at(74)),
    };
    let pod = |index: usize, reason: Reason| PodMemory {
        cluster: "prod".into(),
        record: PodRecord {
            cluster: ClusterId(0),
            pod: PodRef { namespace: "graph".into(), name: format!("server-{index}").into() },
            uid: PodUid(format!("uid-{index}").into()),
            workload: (index.is_multiple_of(2)).then(|| Workload { kind: "StatefulSet".into(), name: "server".into() }),
            ips: vec!["10.42.0.5".parse().unwrap(), "fd00::5".parse().unwrap()],
            host_network: index % 2 == 1,
            cgroups: vec![CgroupId(1), CgroupId(u64::MAX)],
            netns: (index.is_multiple_of(2)).then_some(NetnsId(u32::MAX)),
            pids: vec![1, u32::MAX],
            wiring: (index % 2 == 1).then(|| Wiring {
                probe: true,
                liveness: true,
                gate: true,
                condition: Some(GateCondition { open: true, reason: "StoreAnswering".into(), message: "m".into() }),
                maintenance: true,
                terminating: true,
            }),
            manager: managers[index % managers.len()].clone(),
        },
        listed: index % 2 == 1,
        verdict: verdict(reason, 60_000),
        restored: index.is_multiple_of(2),
        reach: (reason == Reason::PodCannotReachStores).then(|| ReachLatch {
            since: at(61),
            containers: BTreeSet::from(keys),
            last_activity: at(62),
            carried: true,
        }),
        containers: vec![container(keys[0], Some(52)), container(keys[1], None), container(keys[2], None)],
        findings: ALL_FINDINGS
            .into_iter()
            .zip([None, Some(StaleMode::Dialing), Some(StaleMode::Holding)].into_iter().cycle())
            .map(|(code, mode)| Finding {
                code,
                mode,
                target: "1844095761336398711".to_owned(),
                since: at(63),
                confirms_at: Some(at(64)),
                message: "what stands out".to_owned(),
                evidence: "the numbers compared".to_owned(),
                facts: if mode.is_some() { facts } else { Facts::default() },
                remedy: Remedy { now: "this".to_owned(), prevent: "that".to_owned() },
                severity: Severity::Critical,
                carried: true,
            })
            .collect(),
        carried: Vec::new(),
    };
    let pods = ALL_REASONS.into_iter().enumerate().map(|(index, reason)| pod(index, reason)).collect();
    Memory { taken_at: at(90_000), watched_since: Some(at(59)), clusters: vec![cluster], pods, node: node() }
}
