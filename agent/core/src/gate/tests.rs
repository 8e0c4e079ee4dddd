use super::*;

fn at(seconds: f64) -> MonoTime {
    MonoTime::from_nanos((seconds * 1e9) as i64)
}

fn verdict(reason: Reason) -> Verdict {
    crate::cluster::verdict(reason, "words".into(), at(0.0))
}

fn condition(open: bool, reason: &str) -> GateCondition {
    GateCondition { open, reason: reason.into(), message: "words".into() }
}

fn wiring(condition: Option<GateCondition>) -> Wiring {
    Wiring { gate: true, condition, ..Wiring::default() }
}

#[test]
fn what_the_nodes_own_agent_writes() {
    let (opened, closed) = (condition(true, "StoreAnswering"), condition(false, "NoStoreAnswers"));
    let unknown = condition(true, "NoEvidenceYet");
    let absent = condition(true, AGENT_ABSENT);
    for (name, present, reason, age, due) in [
        ("a new pod", None, Reason::StoreAnswering, 5.0, Due::Now(opened.clone())),
        ("nothing changed", Some(opened.clone()), Reason::StoreAnswering, 500.0, Due::Nothing),
        ("the Stores are gone", Some(opened.clone()), Reason::NoStoreAnswers, 500.0, Due::Now(closed.clone())),
        ("the Stores are back", Some(closed.clone()), Reason::StoreAnswering, 500.0, Due::Now(opened.clone())),
        (
            "Unknown is open",
            Some(closed.clone()),
            Reason::EvidenceExpired,
            5.0,
            Due::Now(condition(true, "EvidenceExpired")),
        ),
        ("a young agent leaves a shut gate", Some(closed.clone()), Reason::NoEvidenceYet, 5.0, Due::At(at(30.0))),
        ("a young agent leaves an open gate", Some(opened.clone()), Reason::NoEvidenceYet, 5.0, Due::At(at(30.0))),
        ("but not for ever", Some(closed.clone()), Reason::NoEvidenceYet, 30.0, Due::Now(unknown.clone())),
        ("a new pod of a young agent", None, Reason::NoEvidenceYet, 5.0, Due::Now(unknown)),
        ("back from absence", Some(absent.clone()), Reason::StoreAnswering, 5.0, Due::Now(opened.clone())),
        ("back from absence, shut", Some(absent), Reason::NoStoreAnswers, 5.0, Due::Now(closed.clone())),
        (
            "out of judgement",
            Some(closed.clone()),
            Reason::Maintenance,
            500.0,
            Due::Now(condition(true, "Maintenance")),
        ),
    ] {
        assert_eq!(Keeper::default().due(&wiring(present), &verdict(reason), at(0.0), at(age)), due, "{name}");
    }
    let mut others = Keeper::default();
    let ungated = Wiring { gate: false, ..wiring(None) };
    let going = Wiring { terminating: true, ..wiring(Some(opened)) };
    for wiring in [ungated, going] {
        assert_eq!(others.due(&wiring, &verdict(Reason::NoStoreAnswers), at(0.0), at(99.0)), Due::Nothing);
    }
}

#[test]
fn writes_are_spaced_and_not_repeated_while_the_watch_lags() {
    let mut keeper = Keeper::default();
    let (opened, closed) = (condition(true, "StoreAnswering"), condition(false, "NoStoreAnswers"));
    let (well, ill) = (verdict(Reason::StoreAnswering), verdict(Reason::NoStoreAnswers));
    let shows = |condition: &GateCondition| wiring(Some(condition.clone()));
    let due = |keeper: &mut Keeper, shown: &GateCondition, verdict: &Verdict, now: f64| {
        keeper.due(&shows(shown), verdict, at(0.0), at(now))
    };
    assert_eq!(due(&mut keeper, &opened, &ill, 100.0), Due::Now(closed.clone()));
    keeper.wrote(closed.clone(), at(100.0));
    assert_eq!(due(&mut keeper, &opened, &ill, 100.1), Due::Nothing, "the watch shows the old one still");
    assert_eq!(due(&mut keeper, &opened, &well, 100.2), Due::At(at(101.0)), "a flip waits");
    assert_eq!(due(&mut keeper, &closed, &well, 101.0), Due::Now(opened.clone()));
    keeper.wrote(opened.clone(), at(101.0));
    let passive = verdict(Reason::PassiveOnly);
    assert_eq!(due(&mut keeper, &opened, &passive, 102.0), Due::At(at(111.0)), "another reason can wait longer");
    assert_eq!(due(&mut keeper, &closed, &well, 105.0), Due::Now(opened.clone()), "someone else wrote after the echo");

    let mut lagging = Keeper::default();
    lagging.wrote(closed.clone(), at(200.0));
    assert_eq!(due(&mut lagging, &opened, &ill, 209.0), Due::Nothing);
    assert_eq!(due(&mut lagging, &opened, &ill, 210.0), Due::Now(closed), "in the end the watch is believed");
}

#[test]
fn a_write_that_failed_is_tried_again_later_and_later() {
    let mut keeper = Keeper::default();
    let (gate, ill) = (wiring(None), verdict(Reason::NoStoreAnswers));
    let mut waits = Vec::new();
    for _ in 0..9 {
        keeper.failed(at(100.0), 1.0);
        let Due::At(next) = keeper.due(&gate, &ill, at(0.0), at(100.0)) else { panic!("it must wait") };
        waits.push(next.since(at(100.0)).as_millis());
    }
    assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    assert_eq!(back_off(3, Duration::from_secs(1), Duration::from_secs(9), 0.0), Duration::from_secs(2));
    assert_eq!(back_off(u32::MAX, Duration::from_secs(1), Duration::from_secs(9), 7.0), Duration::from_secs(9));
}

#[test]
fn an_agent_is_absent_when_its_lease_does_not_change() {
    let lease = |since: f64, age: u64| Some(SeenLease { since: at(since), age_then: Duration::from_secs(age) });
    for (name, gated_since, lease, now, absent) in [
        ("renewed just now", 0.0, lease(100.0, 0), 119.0, false),
        ("one renewal was missed", 0.0, lease(100.0, 0), 141.0, false),
        ("lapsed", 0.0, lease(100.0, 0), 160.0, true),
        ("just elected: the date shortens the wait", 100.0, lease(100.0, 40), 130.0, true),
        ("just elected, a live agent", 100.0, lease(100.0, 19), 130.0, false),
        ("a clock an hour ahead", 100.0, lease(100.0, 3600), 129.0, false),
        ("never had one", 100.0, None, 159.0, false),
        ("never had one, for long", 100.0, None, 160.0, true),
        ("an old Lease, and the first gated pod for hours", 1000.0, lease(0.0, 0), 1005.0, false),
        ("an old Lease that nobody takes up", 1000.0, lease(0.0, 0), 1030.0, true),
    ] {
        assert_eq!(Elsewhere { gated_since: at(gated_since), lease }.absent(at(now)), absent, "{name}");
    }
}

#[test]
fn the_elected_agent_only_opens() {
    for (name, wiring, opened) in [
        ("shut", wiring(Some(condition(false, "NoStoreAnswers"))), true),
        ("never written", wiring(None), true),
        ("open already", wiring(Some(condition(true, "StoreAnswering"))), false),
        ("going away", Wiring { terminating: true, ..wiring(None) }, false),
        ("no gate", Wiring::default(), false),
    ] {
        assert_eq!(opens(&wiring), opened, "{name}");
    }
}

#[test]
fn one_pod_of_a_workload_may_leave_at_a_time() {
    let member = |text: &str| {
        let mut words = text.split(' ');
        let name = words.next().unwrap();
        let words: Vec<_> = words.collect();
        let workload = name.split('-').next().unwrap();
        Member {
            uid: PodUid(name.into()),
            namespace: "graph".into(),
            workload: Workload { kind: "StatefulSet".into(), name: workload.into() },
            serves: words.contains(&"serves"),
            asks: words.iter().find_map(|word| word.strip_prefix("asks=")).map(Into::into),
            granted: words.contains(&"granted"),
        }
    };
    for (members, least, leave) in [
        ("a-0 serves asks=S,a-1 serves", 1, "a-0"),
        ("a-0 serves asks=S,a-1 serves asks=S", 1, ""),
        ("a-0 serves asks=S,a-1 serves asks=S,a-2 serves", 1, "a-0"),
        ("a-0 serves asks=S,a-1 granted asks=S,a-2 serves", 1, "a-1"),
        ("a-0 serves asks=S,a-1 serves asks=P", 1, "a-0"),
        ("a-0 serves asks=S,a-1", 1, ""),
        ("a-0 serves asks=S,a-1 serves", 2, ""),
        ("a-0 serves asks=S", 0, "a-0"),
        ("a-0 serves,a-1 granted", 0, ""),
        ("a-0 serves asks=S,b-0 serves", 1, ""),
        ("a-0 asks=S,a-1 serves,b-0 asks=S,b-1 serves", 1, "a-0,b-0"),
    ] {
        let list: Vec<_> = members.split(',').map(member).collect();
        let granted: Vec<_> = grants(&list, least).into_iter().map(|uid| uid.0.to_string()).collect();
        assert_eq!(granted.join(","), leave, "{members}");
    }
}
