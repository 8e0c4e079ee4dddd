use super::{
    format::{Broken, Decoder, Fault, Header, Line, Reader, encode, encode_header},
    *,
};
use proptest::prelude::*;
use std::{collections::BTreeSet, io::BufReader, net::IpAddr, sync::Arc, time::Duration};
use storewatch_core::{
    connection::{AttemptCount, Counted, InventorySample, SocketId, SocketOwner, SocketSample, TcpState},
    id::{CgroupId, ClusterId, HostPort, NetnsId, PodRef, PodUid, TargetId, TargetKey},
    judge::Judge,
    ping::{Phases, Ping, PingOutcome, Purpose, RoundEnded},
    pod::{Manager, PodRecord, Workload},
    policy::{ClusterSettings, OnUnknown, StaleTransportAction, VerdictPolicy},
    verdict::{FindingCode, Reason, Severity, StaleMode},
};

fn at(millis: i64) -> MonoTime {
    MonoTime::from_millis(millis)
}

fn settings() -> Settings {
    Settings {
        node: "worker-7".into(),
        clusters: vec![ClusterSettings {
            name: "prod".into(),
            pd_peers: vec![HostPort::parse("pd-0.pd.graph.svc:8686").unwrap()],
            stores: vec![
                HostPort::parse("192.0.2.1:8500").unwrap(),
                HostPort::parse("Store-2.secret.svc.:8500").unwrap(),
            ],
            store_port: 8500,
            pd_port: 8686,
        }],
        policy: VerdictPolicy {
            failure_threshold: 2,
            success_threshold: 1,
            window: Duration::from_secs(150),
            stale_suspect_after: Duration::from_secs(60),
            stale_confirm_after: Duration::from_secs(240),
            stale_transport: StaleTransportAction::Degraded,
            min_other_ready: 1,
            on_unknown: OnUnknown::NotReady,
            ping_interval: Duration::from_secs(2),
            inventory_interval: Duration::from_secs(15),
        },
        kernel_off: true,
    }
}

const STORE: TargetId = TargetId { cluster: ClusterId(0), key: TargetKey::Static(0) };

fn ping(ended: i64, outcome: PingOutcome, round: u64) -> Observation {
    Observation::Ping(Ping {
        target: STORE,
        remote: Some("192.0.2.1:8500".parse().unwrap()),
        purpose: Purpose::Round(round),
        fresh: true,
        started: at(ended - 2),
        ended: at(ended),
        outcome,
        phases: Phases::default(),
        identity: Some("store-2.secret.svc.cluster.local:8500".into()),
        detail: Some("192.0.2.1 says: no".into()),
    })
}

fn round(ended: i64, number: u64) -> Observation {
    Observation::RoundEnded(RoundEnded {
        cluster: ClusterId(0),
        round: number,
        started: at(ended - 2),
        ended: at(ended),
        asked: vec![STORE],
        sweep_complete: true,
        late: false,
    })
}

fn pods(when: i64) -> Observation {
    let pod = PodRecord {
        cluster: ClusterId(0),
        pod: PodRef { namespace: "secret".into(), name: "server-0".into() },
        uid: PodUid("6d0f0c3e".into()),
        workload: Some(Workload { kind: "StatefulSet".into(), name: "server".into() }),
        ips: vec!["192.0.2.50".parse().unwrap()],
        host_network: false,
        cgroups: vec![CgroupId(9)],
        netns: Some(NetnsId(3)),
        pids: Vec::new(),
        wiring: None,
        manager: Manager::Unit("secret.service".into()),
    };
    Observation::Pods { at: at(when), pods: vec![Arc::new(pod)] }
}

/// An engine's turn.
fn turn(judge: &mut Judge, tap: &mut Tap, now: i64, observed: Vec<Observation>) {
    for observation in observed {
        tap.note(&observation);
        judge.observe(observation);
    }
    let advance = judge.advance(at(now));
    tap.judged(at(now), advance.snapshot.as_ref());
    tap.admit(judge, at(now));
}

/// A healthy node for 20 s; the Store refuses from then on.
fn life(judge: &mut Judge, tap: &mut Tap, turns: impl Iterator<Item = i64>) {
    for second in turns {
        let number = u64::try_from(second).unwrap();
        let now = 1_000_000 + second * 1000;
        let outcome = if second < 20 { PingOutcome::Serving } else { PingOutcome::Refused };
        let mut observed = vec![ping(now, outcome, number), round(now, number)];
        if second == 1 {
            observed.push(pods(now));
        }
        turn(judge, tap, now, observed);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// All lines that wait for a recorder.
fn drain(recording: &mut Recording) -> Vec<u8> {
    use futures_util::FutureExt;
    let mut bytes = Vec::new();
    while let Some(Some(lines)) = recording.next().now_or_never() {
        bytes.extend(lines);
    }
    bytes
}

/// What is recorded of [`life`] from second `from` on, without its last line.
fn recorded(from: i64) -> Vec<u8> {
    let (mut tap, recordings) = channel();
    let mut judge = Judge::new(settings(), at(1_000_000));
    life(&mut judge, &mut tap, 0..from);
    let mut recording = recordings.begin().unwrap();
    runtime().block_on(tap.asked());
    life(&mut judge, &mut tap, from..40);
    drain(&mut recording)
}

fn whole(from: i64) -> Vec<u8> {
    let mut bytes = recorded(from);
    bytes.extend(encode(&Line::End { why: "its time was over".into() }));
    bytes
}

fn play(bytes: &[u8]) -> Result<Replayed, Broken> {
    replay(BufReader::new(bytes))
}

fn verdicts(replayed: &Replayed) -> Vec<(i64, String)> {
    let verdict = |(Told { at, who, what }, _): &(Told, String)| match what {
        News::Verdict { to: Some(to), .. } => {
            let who = match who {
                Subject::Node(_) => "node",
                Subject::Pod { .. } => "pod",
            };
            Some((at.as_nanos() / 1_000_000 - 1_000_000, format!("{who} {}", to.as_str())))
        }
        _ => None,
    };
    replayed.told.iter().filter_map(verdict).collect()
}

#[test]
fn a_replay_tells_what_was_told_wherever_the_recording_begins() {
    for from in [0, 1, 2, 10, 20, 21] {
        let replayed = play(&whole(from)).unwrap();
        assert!(replayed.differences.is_empty(), "from {from}: {:?}", replayed.differences);
        assert_eq!(replayed.why.as_deref(), Some("its time was over"));
        assert!(replayed.broken.is_none() && replayed.missing.is_empty());
        // Each waits for the sample that may excuse it; there is no inventory here.
        let told = verdicts(&replayed);
        assert_eq!(told.last(), Some(&(22_000, "pod NoStoreAnswers".to_owned())), "from {from}: {told:?}");
        let findings: BTreeSet<_> = replayed.after.iter().flat_map(|(_, standing)| &standing.findings).collect();
        assert!(findings.iter().any(|mark| mark.code == FindingCode::StoreDown), "from {from}: {findings:?}");
    }
    let late = play(&whole(30)).unwrap();
    assert_eq!(verdicts(&late), []);
    assert!(late.before.iter().all(|(_, standing)| standing.reason == Reason::NoStoreAnswers), "{:?}", late.before);
}

#[test]
fn the_recorded_instants_are_dates() {
    let (header, line) = {
        let bytes = whole(5);
        let (mut reader, header) = Reader::open(BufReader::new(&*bytes)).unwrap();
        (header, reader.read_line().unwrap().unwrap())
    };
    assert!(matches!(line, Line::Start(_)));
    assert_eq!(header.at, at(1_005_000), "the judgement after which it began");
    let later = header.date_of(header.at + Duration::from_millis(1500));
    assert_eq!(later.as_nanosecond() - header.date.as_nanosecond(), 1_500_000_000);
    assert_eq!((header.node.as_str(), header.anonymized), ("worker-7", false));
}

#[test]
fn a_slow_recorder_loses_counts_and_holds_nobody_up() {
    let (mut tap, recordings) = channel();
    let mut judge = Judge::new(settings(), at(1_000_000));
    let mut slow = recordings.begin().unwrap();
    let mut fast = recordings.begin().unwrap();
    runtime().block_on(async {
        tap.asked().await;
        tap.asked().await;
    });
    turn(&mut judge, &mut tap, 1_000_000, vec![pods(1_000_000)]);
    let mut quick = Vec::new();
    let turns = 3000;
    for n in 1..=turns {
        let now = 1_000_000 + n * 100;
        turn(&mut judge, &mut tap, now, vec![ping(now, PingOutcome::Serving, 1)]);
        quick.extend(drain(&mut fast));
    }
    let mut bytes = drain(&mut slow);
    // There is room again: what follows says what is missing.
    turn(&mut judge, &mut tap, 1_400_000, vec![round(1_400_000, 1), ping(1_400_000, PingOutcome::Serving, 1)]);
    bytes.extend(drain(&mut slow));
    quick.extend(drain(&mut fast));
    for bytes in [&mut bytes, &mut quick] {
        bytes.extend(encode(&Line::End { why: "enough".into() }));
    }
    let replayed = play(&bytes).unwrap();
    let lost: u64 = replayed.missing.iter().map(|missing| missing.lost.observations).sum();
    assert_eq!(replayed.missing.len(), 1);
    assert_eq!(replayed.missing[0].at, at(1_400_000));
    assert_eq!(replayed.observations + lost, u64::try_from(turns).unwrap() + 2);
    assert!(lost > 1000, "{lost}");
    let complete = play(&quick).unwrap();
    assert_eq!((complete.observations, complete.missing.len()), (u64::try_from(turns).unwrap() + 2, 0));
}

fn inventory(now: i64, sockets: u16) -> Observation {
    let sockets = (1..=sockets).map(|port| SocketSample {
        socket: SocketId(0xffff_8880_0000_0000 + u64::from(port)),
        owner: SocketOwner { cgroup: Some(CgroupId(9)), netns: None, pid: None },
        local: (IpAddr::from([192, 0, 2, 50]), port).into(),
        remote: "192.0.2.1:8500".parse().unwrap(),
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
    });
    Observation::Inventory(InventorySample { at: at(now), ended: at(now), complete: true, sockets: sockets.collect() })
}

#[test]
fn the_queue_is_bounded_in_bytes() {
    let (mut tap, recordings) = channel();
    let mut judge = Judge::new(settings(), at(1_000_000));
    let mut recording = recordings.begin().unwrap();
    runtime().block_on(tap.asked());
    for n in 0..100 {
        turn(&mut judge, &mut tap, 1_020_000 + n, vec![inventory(1_020_000 + n, 5000)]);
    }
    let lines = drain(&mut recording);
    let judged = lines.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"judged\"")).count();
    assert!((5..20).contains(&judged), "about eight megabytes: {judged}");
}

#[test]
fn no_more_record_than_may_and_a_place_is_given_back() {
    let (mut tap, recordings) = channel();
    let mut judge = Judge::new(settings(), at(1_000_000));
    let mut running: Vec<_> = (0..MAX_RECORDERS).map(|_| recordings.begin().unwrap()).collect();
    assert_eq!(recordings.begin().unwrap_err(), Busy);
    for _ in 0..MAX_RECORDERS {
        runtime().block_on(tap.asked());
    }
    turn(&mut judge, &mut tap, 1_000_000, Vec::new());
    running.pop();
    let another = recordings.begin().unwrap();
    assert_eq!(recordings.begin().unwrap_err(), Busy);
    drop(another);
    // Whoever left is forgotten with the next judgement, and costs nothing.
    running.clear();
    turn(&mut judge, &mut tap, 1_001_000, Vec::new());
    turn(&mut judge, &mut tap, 1_002_000, Vec::new());
    assert!(recordings.begin().is_ok());
}

fn fault(bytes: &[u8]) -> String {
    match play(bytes) {
        Err(broken) => broken.to_string(),
        Ok(replayed) => replayed.broken.map(|broken| broken.to_string()).unwrap_or_default(),
    }
}

#[test]
fn what_is_no_whole_recording_is_refused_with_its_line() {
    let good = whole(30);
    assert_eq!(fault(&good), "");
    let text = String::from_utf8(good.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len();
    let join = |lines: &[&str]| format!("{}\n", lines.join("\n")).into_bytes();

    assert_eq!(fault(b""), "line 1: this is no recording of storewatch");
    assert_eq!(fault(b"PK\x03\x04"), "line 1: this is no recording of storewatch");
    assert_eq!(
        fault(b"{\"format\":\"storewatch-state\",\"version\":1}\n"),
        "line 1: this is no recording of storewatch"
    );
    assert_eq!(fault(&good[..20]), "line 1: the recording is cut off here");
    let newer = text.replacen("\"version\":2", "\"version\":99", 1).replacen("\"node\"", "\"knot\"", 1);
    let agent = env!("CARGO_PKG_VERSION");
    assert_eq!(
        fault(newer.as_bytes()),
        format!(
            "line 1: it has version 99 of the format (written by storewatch {agent}), and this storewatch reads version 2"
        )
    );
    // The clock's digits stand before, so the byte is not the same each time.
    let nodeless = fault(text.replacen("\"node\"", "\"knot\"", 1).as_bytes());
    assert!(nodeless.starts_with("line 1: the line makes no sense: missing field `node` (byte 1"), "{nodeless}");

    assert_eq!(fault(&join(&lines[..1])), "line 2: the recording is cut off here");
    assert_eq!(
        fault(&join(&[lines[0], lines[2]])),
        "line 2: the second line, and no other, holds what the agent knew at the start"
    );
    assert_eq!(fault(&join(&lines[..last - 1])), format!("line {last}: the recording is cut off here"));
    assert_eq!(fault(&good[..good.len() - 1]), format!("line {last}: the recording is cut off here"));
    assert!(fault(&good[..good.len() - 40]).starts_with(&format!("line {}: the recording is cut off", last - 1)));
    let twice = join(&[&lines[..], &lines[last - 1..]].concat());
    assert_eq!(fault(&twice), format!("line {}: there are lines after the end", last + 1));
    let mut back = lines.clone();
    back.swap(3, 4);
    assert_eq!(fault(&join(&back)), "line 5: time goes back");
    let senseless = text.replacen("{\"judged\":{\"at\":", "{\"judged\":{\"when\":", 1);
    assert!(
        fault(senseless.as_bytes()).starts_with("line 3: the line makes no sense: unknown field `when`"),
        "{}",
        fault(senseless.as_bytes())
    );

    // What stands before a break is told all the same.
    let cut = play(&join(&lines[..last - 1])).unwrap();
    assert_eq!(verdicts(&cut), verdicts(&play(&good).unwrap()));
    assert!(cut.why.is_none());
}

#[test]
fn an_endless_line_is_refused_before_it_fills_the_memory() {
    let header = encode_header(&Header::new("n", at(0)));
    let endless = std::io::Read::chain(&*header, std::io::repeat(b' '));
    let broken = replay(BufReader::new(endless)).unwrap_err();
    assert!(matches!(broken, Broken { line: 2, fault: Fault::TooLong }), "{broken}");
}

fn anonymized(bytes: &[u8]) -> Vec<u8> {
    let mut anonymizer = Anonymizer::default();
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        out.extend(match number {
            0 => encode_header(&anonymizer.header(decoder.header(line).unwrap())),
            _ => encode(&anonymizer.line(decoder.line(line).unwrap())),
        });
    }
    out
}

#[test]
fn an_anonymized_recording_names_nothing_and_tells_the_same() {
    let original = whole(10);
    let replaced = anonymized(&original);
    let text = String::from_utf8(replaced.clone()).unwrap();
    for secret in ["192.0.2", "worker", "server", "secret", "6d0f", "store-", "Store-", "pd-0", "prod", "says"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    assert_eq!(anonymized(&original), replaced, "the same each time");
    let (before, after) = (play(&original).unwrap(), play(&replaced).unwrap());
    assert!(after.header.anonymized && after.differences.is_empty(), "{:?}", after.differences);
    assert_eq!(verdicts(&before), verdicts(&after));
    assert_eq!(before.observations, after.observations);
}

#[test]
fn equal_names_stay_equal_and_families_and_loopback_stay() {
    let count = |remote: &str| AttemptCount {
        owner: None,
        remote: remote.parse().unwrap(),
        what: Counted::Begun,
        added: 1,
        last_begun: None,
        last_ended: at(0),
    };
    let remotes = [
        "192.0.2.9:1",
        "[2001:db8::9]:2",
        "127.0.0.1:3",
        "[::1]:4",
        "192.0.2.9:5",
        "192.0.2.10:6",
        "[::ffff:192.0.2.9]:7",
        "0.0.0.0:8",
    ];
    let counts = remotes.map(count).to_vec();
    let judgement = Judgement { at: at(0), observed: vec![Observation::Attempts { at: at(0), counts }] };
    let Line::Judged { judgement, .. } = Anonymizer::default().line(Line::Judged { judgement, told: Vec::new() })
    else {
        panic!("another line");
    };
    let Observation::Attempts { counts, .. } = &judgement.observed[0] else { panic!("another observation") };
    let got: Vec<_> = counts.iter().map(|count| count.remote.to_string()).collect();
    let wanted = [
        "10.0.0.1:1",
        "[fd00::1]:2",
        "127.0.0.1:3",
        "[::1]:4",
        "10.0.0.1:5",
        "10.0.0.2:6",
        "[::ffff:10.0.0.1]:7",
        "0.0.0.0:8",
    ];
    assert_eq!(got, wanted);
}

#[test]
fn every_observation_can_be_anonymized() {
    let observed = crate::shape::observation::tests::everything();
    let length = observed.len();
    let judgement = Judgement { at: at(0), observed };
    let marks = Mark {
        code: FindingCode::StaleTransport,
        mode: Some(StaleMode::Holding),
        target: "1".into(),
        severity: Severity::Critical,
    };
    let who = Subject::Node("prod".into());
    let told = vec![
        Told { at: at(0), who: who.clone(), what: News::Came(marks.clone()) },
        Told { at: at(0), who, what: News::Went(marks) },
    ];
    let line = Line::Judged { judgement, told };
    let text = encode(&line);
    let mut decoder = Decoder::default();
    decoder.header(&encode_header(&Header::new("n", at(0)))).unwrap();
    decoder
        .line(&encode(&Line::Start(Box::new(Start {
            settings: settings(),
            memory: Judge::new(settings(), at(0)).whole_memory(at(0)),
        }))))
        .unwrap();
    assert_eq!(decoder.line(&text).unwrap(), line);
    let Line::Judged { judgement, told } = Anonymizer::default().line(line) else { panic!("another line") };
    assert_eq!(judgement.observed.len(), length);
    assert_eq!(told[0].who, Subject::Node("cluster-1".into()));
    let text = String::from_utf8(encode(&Line::Judged { judgement, told })).unwrap();
    for secret in ["graph", "server-", "uid-t", "store-1", "\"why\"", "no way", "fd00::9"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

proptest! {
    /// Whatever is done to a recording, the replay says something about it.
    #[test]
    fn a_damaged_recording_gives_a_timeline_or_an_error(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::option::Probability>(), len in any::<prop::sample::Index>()) {
        let mut bytes = whole(20);
        let place = at.index(bytes.len());
        bytes[place] = byte;
        if f64::from(cut) > 0.5 {
            bytes.truncate(len.index(bytes.len()));
        }
        let _ = play(&bytes);
    }
}
