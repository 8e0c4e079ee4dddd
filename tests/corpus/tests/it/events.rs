//! What happened, told once: each kind of event, and what must not be told twice.

use std::time::Duration;
use storewatch_core::{
    connection::{ConnectionChange, ConnectionEvent, SocketId, SocketOwner},
    event::{Event, EventKind, MAX_MESSAGE},
    id::CgroupId,
    judge::Judge,
    observation::Observation,
    source::{Loss, SourceName, SourceReport, SourceState},
    time::MonoTime,
};
use storewatch_tests_corpus::{
    node::{Node, settings},
    script::Script,
};

fn play(text: &str) -> Vec<Event> {
    let events = Node::run(Script::parse("test", text)).events;
    let mut last = 0;
    for event in &events {
        assert!(event.generation > last, "no two have one generation, and they rise: {event:?}");
        last = event.generation;
        assert!(!event.message.is_empty() && !event.message.contains('\n'), "{event:?}");
        let of_the_node =
            matches!(event.kind, EventKind::Source | EventKind::Loss) || event.outcome == Some("KernelEventsLost");
        assert_eq!(event.cluster.is_none(), of_the_node, "{event:?}");
    }
    events
}

/// Kind, whom, outcome, before, after.
fn gist(event: &Event) -> String {
    let or = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let pod = event.pod.as_ref().map(ToString::to_string);
    let (target, from, to) = (event.target.as_deref(), event.from.as_deref(), event.to.as_deref());
    let parts = [or(pod.as_deref()), or(target), or(event.outcome), or(from), or(to)];
    format!("{} {}", event.kind.as_str(), parts.join(" "))
}

fn of(events: &[Event], kind: EventKind) -> Vec<String> {
    events.iter().filter(|event| event.kind == kind).map(gist).collect()
}

fn count(events: &[Event], line: &str) -> usize {
    events.iter().filter(|event| gist(event) == line).count()
}

const WORLD: &str = "
0 pd up 1=store-1 2=store-2
0 dns store-1 10.0.0.1
0 dns store-2 10.0.0.2
0 host 10.0.0.1 serves store-1
0 host 10.0.0.2 serves store-2
0 pods server-0@100 server-1@101
";

#[test]
fn every_kind_is_told() {
    let text = format!(
        "{WORLD}
10 dial 100 10.0.0.1 ok a
11 dial 100 10.0.0.9 refused
12 close a reset
20 host 10.0.0.1 refused
30 loss kernel 7
31 source dns degraded
40 host 10.0.0.2 gone
60 pd down
100 end"
    );
    let events = play(&text);
    for kind in EventKind::ALL {
        let reset = kind == EventKind::Reset;
        assert!(reset || events.iter().any(|event| event.kind == kind), "no {} is told", kind.as_str());
    }
    for line in [
        "transition - - - NoEvidenceYet StoreAnswering",
        "transition graph/server-0 - - NoEvidenceYet StoreAnswering",
        "transition graph/server-0 - - StoreAnswering NoStoreAnswers",
        "transition - - - StoreAnswering NoStoreAnswers",
        "connection graph/server-0 1 established - -",
        "connection graph/server-0 1 reset - -",
        "connection graph/server-0 other refused - -",
        "ping - 1 serving - serving",
        "ping - 1 refused serving refused",
        "ping - pd reachable - reachable",
        "ping - pd unreachable reachable unreachable",
        "owner - 1 - - 10.0.0.1:8500",
        "finding - 1 StoreDown - StoreDown",
        "finding - pd PdDown - PdDown",
        "finding - - KernelEventsLost - KernelEventsLost",
        "source - - - - active",
        "source - - - active degraded",
        "loss - - kernel - -",
    ] {
        assert!(count(&events, line) > 0, "{line} is not among {:#?}", events.iter().map(gist).collect::<Vec<_>>());
    }
    // Once, however long it lasts: forty seconds of failing pings are one change.
    assert_eq!(count(&events, "ping - 1 refused serving refused"), 1);
    assert_eq!(count(&events, "ping - pd unreachable reachable unreachable"), 1);
    assert_eq!(count(&events, "finding - 1 StoreDown - StoreDown"), 1);
    let refused = events.iter().find(|event| gist(event) == "ping - 1 refused serving refused").unwrap();
    assert!(refused.message.starts_with("1 does not answer at 10.0.0.1:8500 (refused)"), "{}", refused.message);
}

#[test]
fn what_ends_is_told_too() {
    let text = format!(
        "{WORLD}\n20 host 10.0.0.1 refused\n40 host 10.0.0.1 serves store-1\n50 pd down\n70 pd up 1=store-1 2=store-2\n100 end"
    );
    let events = play(&text);
    for line in [
        "finding - 1 StoreDown StoreDown -",
        "ping - 1 serving refused serving",
        "finding - pd PdDown PdDown -",
        "ping - pd reachable unreachable reachable",
    ] {
        assert_eq!(count(&events, line), 1, "{line}: {:#?}", events.iter().map(gist).collect::<Vec<_>>());
    }
}

#[test]
fn ownership_is_told_as_it_changes() {
    let text = format!(
        "set stale_suspect_after 20\n{WORLD}
100 host 10.0.0.9 serves store-1
100 dns store-1 10.0.0.9
200 pd up 2=store-2
300 pd up 1=store-1 2=store-2
320 end"
    );
    let owners = of(&play(&text), EventKind::Owner);
    let of_first: Vec<_> = owners.iter().filter(|line| line.starts_with("owner - 1 ")).map(String::as_str).collect();
    assert_eq!(
        of_first,
        [
            "owner - 1 - - 10.0.0.1:8500",
            "owner - 1 - - 10.0.0.9:8500",
            "owner - 1 - 10.0.0.1:8500 -",
            "owner - 1 - 10.0.0.9:8500 -",
            "owner - 1 - - 10.0.0.9:8500",
        ]
    );
    // A restart is no change of owners.
    let restarted = format!("{WORLD}\n30 restart 5\n60 end");
    let events = Node::run(Script::parse("test", &restarted)).events;
    let began = events.iter().filter(|event| gist(event) == "owner - 1 - - 10.0.0.1:8500").count();
    assert_eq!(began, 1, "{:?}", of(&events, EventKind::Owner));
}

fn report(source: SourceName, at: MonoTime, state: SourceState, detail: &str) -> Observation {
    Observation::Source(SourceReport { source, at, state, detail: detail.into() })
}

#[test]
fn a_message_is_bounded() {
    let start = MonoTime::from_millis(1_000_000);
    let mut judge = Judge::new(settings(&Script::default()), start);
    judge.observe(report(SourceName::Pd, start, SourceState::Degraded, &"ü".repeat(100_000)));
    let events = judge.advance(start).events;
    let message = &events.first().unwrap().message;
    assert!(message.len() <= MAX_MESSAGE && message.ends_with("ü..."), "{}", message.len());
}

#[test]
fn a_source_is_told_when_its_state_or_its_cause_changes() {
    let start = MonoTime::from_millis(1_000_000);
    let mut judge = Judge::new(settings(&Script::default()), start);
    let mut told = |seconds: u64, state, detail: &str| -> Option<String> {
        let at = start + Duration::from_secs(seconds);
        judge.observe(report(SourceName::Pd, at, state, detail));
        let mut sources = judge.advance(at).events.into_iter().filter(|event| event.kind == EventKind::Source);
        let event = sources.next();
        assert!(sources.next().is_none());
        event.map(|event| event.message)
    };
    use SourceState::{Active, Degraded};
    assert_eq!(told(0, Active, "").as_deref(), Some("pd is active"));
    assert_eq!(told(1, Active, ""), None);
    assert_eq!(told(2, Degraded, "pd-0: refused").as_deref(), Some("pd is degraded: pd-0: refused"));
    assert_eq!(told(30, Degraded, "pd-0: refused"), None);
    assert_eq!(told(31, Degraded, "pd-0: timed out").as_deref(), Some("pd is degraded: pd-0: timed out"));
    // One that changes with every answer is told now and then, and the last word is not lost.
    assert_eq!(told(33, Degraded, "pd-0: refused"), None);
    assert_eq!(told(35, Degraded, "pd-0: timed out"), None);
    assert_eq!(told(39, Degraded, "pd-0: reset"), None);
    assert_eq!(told(41, Degraded, "pd-0: reset").as_deref(), Some("pd is degraded: pd-0: reset"));
    assert_eq!(told(42, Active, "").as_deref(), Some("pd is active"), "a change of state never waits");
}

/// Pod 100 has a new connection.
fn dial(n: u64, at: MonoTime) -> Observation {
    Observation::Connection(ConnectionEvent {
        at,
        socket: SocketId(n + 10),
        owner: SocketOwner { cgroup: Some(CgroupId(100)), netns: None, pid: None },
        local: "10.1.0.100:1000".parse().unwrap(),
        remote: "10.0.0.1:8500".parse().unwrap(),
        rtt: None,
        retransmits_total: None,
        what: ConnectionChange::Established { begun: None },
    })
}

#[test]
fn a_flood_leaves_room_for_what_follows_from_it_and_is_counted() {
    let text = format!("{WORLD}\n10 end");
    let mut node = Node::run(Script::parse("test", &text));
    let now = node.now + Duration::from_secs(1);
    for n in 0..3_000 {
        node.judge.observe(dial(n, now));
    }
    node.judge.observe(report(SourceName::Dns, now, SourceState::Absent, "gone"));
    let advance = node.judge.advance(now);
    let told = |kind| advance.events.iter().filter(|event| event.kind == kind).count();
    assert_eq!((told(EventKind::Connection), told(EventKind::Source)), (1024, 1));
    let loss = advance.events.iter().find(|event| event.kind == EventKind::Loss).unwrap();
    assert_eq!(
        (loss.outcome, loss.message.as_str()),
        (Some("events"), "1976 events came faster than they could be told")
    );
    assert_eq!(node.judge.snapshot(now).dropped.events, 1976);
    assert!(node.judge.advance(now).events.is_empty(), "told once");
}

#[test]
fn a_snapshot_shows_all_events_up_to_its_generation_and_singles_change_nothing_that_decides() {
    let mut node = Node::run(Script::parse("test", &format!("{WORLD}\n10 dial 100 10.0.0.1 ok a\n30 end")));
    // Until nothing is left to say.
    let mut now = node.now + Duration::from_secs(2);
    node.judge.advance(now);
    now = now + Duration::from_secs(2);
    node.judge.advance(now);
    let changes = node.judge.changes();

    node.judge.observe(dial(1, now));
    let told = node.judge.advance(now);
    let [event] = told.events.as_slice() else { panic!("{:?}", told.events) };
    assert!(event.kind == EventKind::Connection && told.snapshot.is_none_or(|s| s.generation >= event.generation));
    let refreshed = node.judge.advance(now + Duration::from_secs(1)).snapshot;
    assert!(refreshed.is_none_or(|snapshot| snapshot.generation >= event.generation));
    assert_eq!(node.judge.changes(), changes);

    now = now + Duration::from_secs(2);
    node.judge.observe(Observation::Loss(Loss { source: SourceName::Kernel, at: now, lost: 1, counters: false }));
    let advance = node.judge.advance(now);
    let newest = advance.events.iter().map(|event| event.generation).max();
    assert!(newest.is_some() && advance.snapshot.map(|snapshot| snapshot.generation) == newest);
    assert!(node.judge.changes() > changes);
}
