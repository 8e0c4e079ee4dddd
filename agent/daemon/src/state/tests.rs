use super::{
    StateFile,
    age::{MAX_AGE, revive},
    disk,
    format::{Kept, MAX_BYTES, Refusal, decode, encode},
};
use crate::clock::ClockPair;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Duration,
};
use storewatch_core::{
    id::{CgroupId, ClusterId, ContainerKey, HostPort, NetnsId, PodRef, PodUid, TargetKey},
    memory::{ClusterMemory, ContainerMemory, Memory, PodMemory, TenureMemory, VerdictMemory},
    ownership::{Claim, ClaimSource, SuccessorClock, Tenure},
    pod::{GateCondition, Manager, PodRecord, Wiring, Workload},
    pods::ReachLatch,
    stale::StaleEntry,
    time::MonoTime,
    topology::{ListedStore, ReportedState},
    verdict::{Facts, Finding, FindingCode, Reason, Remedy, Severity, StaleMode},
};

const NODE: &str = "node-a";

fn at(millis: i64) -> MonoTime {
    MonoTime::from_millis(millis)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn host(text: &str) -> HostPort {
    HostPort::parse(text).unwrap()
}

fn verdict(reason: Reason, since: i64) -> VerdictMemory {
    VerdictMemory { reason, message: format!("\"{}\" \u{e4}\n", reason.as_str()), since: at(since) }
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

/// Every field with a value of its own, every variant of every enum, each option with and without a value.
fn everything() -> Memory {
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
        ever_answered: true,
        verdict: verdict(Reason::NoStoreAnswers, 77_000),
        tenures: targets
            .into_iter()
            .zip([(FORMER, Some(40)), ("[fd00::2]:8500", None), ("10.0.0.1:8686", Some(41))])
            .map(|(target, (remote, ended))| TenureMemory { target, address: address(remote), tenure: tenure(ended) })
            .collect(),
    };
    let container = |key, confirmed: Option<i64>| ContainerMemory {
        key,
        first_seen: at(50),
        stale: vec![(
            TargetKey::Store(u64::MAX - 1),
            address(FORMER),
            StaleEntry {
                since: at(51),
                mode: if confirmed.is_some() { StaleMode::Dialing } else { StaleMode::Holding },
                last_dial: confirmed.map(at),
                dials: u64::MAX,
                answers: u64::MAX - 2,
                last_answer: Some(at(55)),
                last_held: Some(at(53)),
                suspected: Some(at(54)),
                confirmed: confirmed.map(|millis| at(millis + 3)),
                carried: confirmed.is_some(),
            },
        )],
        baselines: vec![(TargetKey::Static(3), address("[fd00::2]:8500"), Duration::new(5, 6))],
        dialers: vec![(u32::MAX, at(56), vec![address(FORMER), address("[fd00::2]:8500")]), (1, at(57), Vec::new())],
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
        verdict: verdict(reason, 60_000),
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
    };
    let pods = ALL_REASONS.into_iter().enumerate().map(|(index, reason)| pod(index, reason)).collect();
    Memory { taken_at: at(90_000), clusters: vec![cluster], pods }
}

fn kept(memory: Memory, boot: Option<&str>, away: Duration) -> (Kept, ClockPair) {
    let clock = ClockPair::read();
    let taken = clock.date(clock.mono()) - away;
    (Kept { boot: boot.map(Into::into), taken, memory }, clock)
}

fn bytes() -> Vec<u8> {
    encode(&everything(), NODE, &Some("boot-1".into()), &ClockPair::read()).unwrap()
}

#[test]
fn every_field_comes_back() {
    let clock = ClockPair::read();
    let boot = Some("boot-1".to_owned());
    let bytes = encode(&everything(), NODE, &boot, &clock).unwrap();
    let kept = decode(&bytes, NODE).unwrap();
    assert_eq!(kept, Kept { boot, taken: clock.date(at(90_000)), memory: everything() });
    // The whole is one JSON document, for whoever looks into it.
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["state"]["memory"]["clusters"][0]["verdict"]["reason"], "NoStoreAnswers");
}

#[test]
fn no_changed_byte_and_no_cut_goes_unnoticed() {
    let mut memory = everything();
    memory.pods.truncate(1);
    let good = encode(&memory, NODE, &Some("boot-1".into()), &ClockPair::read()).unwrap();
    let intact = decode(&good, NODE).unwrap();
    for position in 0..good.len() {
        let mut bad = good.clone();
        for flip in [0x01, 0x20, 0x80] {
            bad[position] = good[position] ^ flip;
            if let Ok(kept) = decode(&bad, NODE) {
                assert_eq!(kept, intact, "a changed byte at {position} changed the meaning");
            }
        }
        let cut = decode(&good[..position], NODE).unwrap_err();
        assert!(matches!(cut, Refusal::Truncated | Refusal::Foreign), "cut at {position}: {cut}");
    }
}

/// Writes `bytes`, loads, and gives what was set aside.
fn after_load(bytes: &[u8]) -> (Option<Memory>, bool, Option<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    std::fs::write(&path, bytes).unwrap();
    let file = StateFile { path: path.clone(), node: NODE.into(), boot: Some("boot-1".into()) };
    (file.load(), path.exists(), std::fs::read(disk::aside(&path)).ok())
}

#[test]
fn each_kind_of_damage_is_set_aside_and_named() {
    let good = bytes();
    let text = String::from_utf8(good.clone()).unwrap();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "cut off"),
        (good[..good.len() / 2].to_vec(), "cut off"),
        (text.replacen("NoStoreAnswers", "StoreAnswering", 1).into_bytes(), "checksum"),
        (text.replacen("\"version\":2", "\"version\":3", 1).into_bytes(), "version is 3"),
        (text.replacen("storewatch-state", "otherwatch-state", 1).into_bytes(), "no state file"),
        (b"root:x:0:0:root:/root:/bin/sh\n".to_vec(), "no state file"),
        (b"{\"pods\": []}".to_vec(), "no state file"),
        (vec![0; 4096], "no state file"),
        (encode(&everything(), "node-b", &None, &ClockPair::read()).unwrap(), "\"node-b\""),
        (
            {
                // A right checksum over what no agent of this version writes.
                let content = b"{\"boot\":null,\"taken\":\"2026-01-01T00:00:00Z\",\"memory\":{}}";
                let sum = format!("{:08x}", crc32fast::hash(content));
                let head = format!(
                    "{{\"format\":\"storewatch-state\",\"version\":2,\"node\":\"node-a\",\"crc32\":\"{sum}\",\"state\":\n"
                );
                [head.as_bytes(), content, b"\n}\n"].concat()
            },
            "makes no sense",
        ),
    ];
    for (bytes, why) in cases {
        let refusal = decode(&bytes, NODE).unwrap_err();
        assert!(refusal.to_string().contains(why), "{refusal} is not {why:?}");
        assert_eq!(after_load(&bytes), (None, false, Some(bytes)), "{why}");
    }
    let (memory, there, aside) = after_load(&good);
    assert!(memory.is_some() && there && aside.is_none());
}

#[test]
fn what_is_too_large_is_neither_read_nor_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    std::fs::File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert!(matches!(disk::read(&path), Err(Refusal::TooLarge)));
    let file = StateFile { path: path.clone(), node: NODE.into(), boot: None };
    assert_eq!(file.load(), None);
    assert!(!path.exists() && disk::aside(&path).exists());

    let mut memory = everything();
    memory.clusters[0].verdict.message = "x".repeat(usize::try_from(MAX_BYTES).unwrap());
    assert!(file.store(&memory).unwrap_err().to_string().contains("more than"));
    assert!(!path.exists());
}

#[test]
fn what_is_no_file_is_left_alone_and_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [pipe.as_path(), folder.path()] {
        assert!(matches!(disk::read(path), Err(Refusal::NoFile)), "{}", path.display());
        let file = StateFile { path: path.into(), node: NODE.into(), boot: None };
        assert_eq!(file.load(), None);
        assert!(path.exists());
    }
    assert!(disk::read(&folder.path().join("none")).unwrap().is_none());
}

#[test]
fn a_write_makes_the_folder_and_replaces_for_root_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/state.json");
    disk::replace(&path, b"one").unwrap();
    // What an interrupted write left behind, with rights that are too wide.
    let leftover = path.with_file_name("state.json.new");
    std::fs::write(&leftover, b"half").unwrap();
    std::fs::set_permissions(&leftover, std::fs::Permissions::from_mode(0o666)).unwrap();
    disk::replace(&path, b"two").unwrap();
    assert_eq!(disk::read(&path).unwrap().unwrap(), b"two");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert!(!leftover.exists());

    let below_a_file = path.join("state.json");
    assert!(disk::replace(&below_a_file, b"three").is_err());
    assert_eq!(disk::read(&path).unwrap().unwrap(), b"two");
}

#[test]
fn on_the_same_boot_verdicts_stand_however_old() {
    let (kept, clock) = kept(everything(), Some("boot-1"), MAX_AGE * 10);
    // This machine has been up for longer than the memory says, so its instants are this boot's.
    assert!(clock.mono() > at(90_000));
    assert_eq!(revive(kept, &Some("boot-1".into()), &clock), Some(everything()));
}

#[test]
fn after_a_reboot_dates_stand_and_containers_do_not() {
    for boot in [Some("boot-0"), None] {
        let (kept, clock) = kept(everything(), boot, Duration::from_secs(3600));
        let revived = revive(kept, &boot.and(Some("boot-1".into())), &clock).unwrap();
        assert_eq!(revived.taken_at, clock.mono() - Duration::from_secs(3600));
        assert_eq!(revived.clusters[0].verdict.since, revived.taken_at - Duration::from_secs(13));
        assert_eq!(revived.clusters[0].list, everything().clusters[0].list);
        assert_eq!(revived.clusters[0].tenures.len(), 3);
        assert!(revived.pods.is_empty());
    }
    let (kept, clock) = kept(everything(), Some("boot-0"), MAX_AGE + Duration::from_secs(1));
    assert_eq!(revive(kept, &Some("boot-1".into()), &clock), None);
}

#[test]
fn a_wall_clock_that_was_set_back_puts_nothing_into_the_future() {
    let clock = ClockPair::read();
    let taken = clock.date(clock.mono()) + Duration::from_secs(86_400);
    let kept = Kept { boot: Some("boot-0".into()), taken, memory: everything() };
    let mut revived = revive(kept, &Some("boot-1".into()), &clock).unwrap();
    revived.map_times(|at| {
        assert!(at <= clock.mono());
        at
    });
}

#[test]
fn former_owners_are_forgotten_in_time_but_not_under_a_container_that_uses_them() {
    let (mut old, clock) = kept(everything(), Some("boot-1"), Duration::ZERO);
    old.memory.map_times(|at| at - MAX_AGE - Duration::from_secs(1_000));
    let boot = Some("boot-1".to_owned());
    let owners =
        |memory: &Memory| -> Vec<TargetKey> { memory.clusters[0].tenures.iter().map(|tenure| tenure.target).collect() };
    let revived = revive(old.clone(), &boot, &clock).unwrap();
    assert_eq!(owners(&revived), [TargetKey::Store(u64::MAX - 1), TargetKey::Static(3)], "Pd(4) left long ago");
    old.memory.pods.clear();
    let revived = revive(old, &boot, &clock).unwrap();
    assert_eq!(owners(&revived), [TargetKey::Static(3)], "what is owned at present has no age");
}

#[test]
fn this_boot_has_a_name() {
    let file = StateFile::new("/nowhere/state.json".into(), NODE);
    assert_eq!(file.boot.map(|id| id.len()), Some(36));
}
