use super::*;
use crate::{
    clock::ClockPair,
    publish::{
        admin,
        testing::{FIRST_STORE, ago, finding, get, now, published, snapshot, verdict},
    },
};
use storewatch_core::{
    guard::GuardView,
    snapshot::Snapshot,
    verdict::{Facts, FindingCode, Reason, Remedy, Severity, StaleMode},
};

const PLAIN: Style = Style { colours: false };

/// What the agent answers for the snapshot's second pod.
async fn detail(snapshot: &Snapshot) -> Detail {
    let router = admin::router(published(snapshot.clone()).1, crate::ask::channel().0);
    let answer = get(&router, "/v1/pods/graph/server-1").await;
    serde_json::from_str(&answer.text).unwrap_or_else(|error| panic!("{error}: {}", answer.text))
}

/// Dates of the answer are those of the test's own boot, so "now" is read from the same clocks; half a second later, for
/// two readings of two clocks never agree in full.
async fn shown(snapshot: &Snapshot) -> String {
    let later = now() + std::time::Duration::from_millis(500);
    show(&detail(snapshot).await, ClockPair::read().date(later), PLAIN)
}

fn with(reason: Reason, findings: Vec<storewatch_core::verdict::Finding>) -> Snapshot {
    let mut snapshot = snapshot();
    snapshot.pods[1].verdict = verdict(reason);
    snapshot.pods[1].findings = findings;
    snapshot
}

/// The lines of a block, by their headings.
fn headings(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("  ")?.split("  ").next())
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn a_stale_transport_reads_like_a_note() {
    let json = r#"{"namespace":"graph","name":"hugegraph-server-0","status":"NotReady","ready":false,"reason":"StaleTransport",
    "workload":"StatefulSet/hugegraph-server","message":"m","since":"2026-11-30T14:07:08.100Z",
    "findings":[{"code":"StaleTransport","mode":"dialing","target":"7","since":"2026-11-30T14:07:08.100Z",
      "message":"every attempt goes to 10.42.1.17:8500, which stopped being hugegraph-store-1 4m52s ago",
      "evidence":"9 attempts, 0 answers, the last 8s ago; hugegraph-store-1 answers this node at its present address 10.42.1.18:8500 in 2ms, for 4m51s so far",
      "facts":{"address":"10.42.1.17:8500","left_at":"2026-11-30T14:03:08.000Z","attempts":9,"answers":0,"first_attempt":"2026-11-30T14:03:09.000Z",
        "last_attempt":"2026-11-30T14:07:52.000Z","every_attempt":true,"suspected_at":"2026-11-30T14:04:10.000Z","confirmed_at":"2026-11-30T14:07:08.100Z"},
      "remedy":{"now":"kubectl delete pod -n graph hugegraph-server-0","prevent":"-Dsun.net.inetaddr.ttl=30 is not on its command line"},"severity":"critical"}],
    "guard":{"reason":"StaleTransport","holds":false,"needed":1,"free":1,"suspected":0,"others":1},
    "others":[{"name":"hugegraph-server-1","status":"Ready","reaches":["7"]}],
    "stores":[{"label":"7","name":"hugegraph-store-1","address":"hugegraph-store-1.x.graph.svc:8500"}]}"#;
    let detail: Detail = serde_json::from_str(json).unwrap();
    let text = show(&detail, "2026-11-30T14:08:00Z".parse().unwrap(), PLAIN);
    let expected = "\
graph/hugegraph-server-0    NotReady    StaleTransport (dialing)    since 51s
  Why       every attempt since 14:03 UTC went to 10.42.1.17:8500, which stopped being hugegraph-store-1 4m52s ago: 9 attempts, 0 answers, the last 8s ago
            hugegraph-store-1 answers this node at its present address 10.42.1.18:8500 in 2ms, for 4m51s so far; the other pod of this workload reaches it
            the guard lets it leave: of 1 other pod of its workload on this node 1 is ready and free of this, and 1 must be (verdict.min_other_ready)
  When      14:03:08 hugegraph-store-1 left 10.42.1.17:8500; 14:03:09 first attempt there; 14:04:10 suspected; 14:07:08 confirmed; 14:07:08 NotReady (UTC)
  Until     data arrives from the store's present address, no socket to the former one is left, and for verdict.window none is dialled; or its process or container is restarted
  Now       kubectl delete pod -n graph hugegraph-server-0
  Prevent   -Dsun.net.inetaddr.ttl=30 is not on its command line
";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn a_pod_that_is_well_says_what_was_seen() {
    let text = shown(&with(Reason::StoreAnswering, Vec::new())).await;
    let expected = "\
graph/server-1    Ready    StoreAnswering    since 1m32s
  Why       the node reaches the storage
            1 of 3 stores answer this node: hugegraph-store-0 in 0.3ms, hugegraph-store-0 refused (640ms ago), hugegraph-store-0 refused (640ms ago)
            this pod holds 2 connections to present addresses and 1 to former ones, data arrived 3s ago, 5 dials (the last 9s ago), 2 not answered
            nothing speaks against this pod
";
    assert_eq!(text, expected);
    let mut quiet = with(Reason::StoreAnswering, Vec::new());
    quiet.pods[1].targets.clear();
    assert!(
        shown(&quiet).await.contains("this pod's own connections are not seen: "),
        "the kernel source is absent here"
    );
    quiet.sources.clear();
    assert!(shown(&quiet).await.contains("has dialled no store since the agent watches it; silence proves nothing"));
}

#[tokio::test]
async fn an_unknown_verdict_says_what_is_missing_and_what_settles_it() {
    let rows = [
        (Reason::NoEvidenceYet, "an answer: 3 stores asked, and none has ever answered this agent"),
        (Reason::EvidenceExpired, "anything newer: the youngest evidence is 500ms old"),
        (Reason::PodSourceAbsent, "a list of this node's pods"),
    ];
    for (reason, missing) in rows {
        let mut snapshot = with(reason, Vec::new());
        snapshot.sources[1].detail = "no CAP_BPF".into();
        snapshot.pods[1].remedy = Some(Remedy { now: "wait".into(), prevent: "patience".into() });
        let text = shown(&snapshot).await;
        assert!(text.contains(&format!("\n  Missing   {missing}\n            ")), "{text}");
        assert!(text.contains("\n            kernel (absent): no CAP_BPF\n"), "{text}");
        assert_eq!(text.contains("stores answer this node: "), reason == Reason::NoEvidenceYet, "{text}");
        assert!(text.contains("Unknown counts as ready (verdict.on_unknown)"), "{text}");
        assert_eq!(headings(&text), ["Why", "Missing", "Now", "Prevent"], "{text}");
    }
    let mut nothing = with(Reason::NoEvidenceYet, Vec::new());
    nothing.clusters[0].stores.clear();
    assert!(
        shown(&nothing).await.contains("Missing   a list of stores: neither PD nor the configuration has named one")
    );
    nothing.clusters[0].stores = snapshot().clusters[0].stores.clone();
    nothing.clusters[0].stores[0].last_ping = None;
    assert!(shown(&nothing).await.contains("Missing   pings: 2 of 3 stores were asked so far"));
}

#[tokio::test]
async fn every_reason_and_every_finding_makes_whole_sentences() {
    let facts = Facts {
        address: Some("10.0.0.7:8500".parse().unwrap()),
        left_at: Some(ago(300_000)),
        attempts: Some(1),
        answers: Some(0),
        first_attempt: Some(ago(200_000)),
        last_attempt: Some(ago(8_000)),
        suspected_at: Some(ago(100_000)),
        ..Facts::default()
    };
    for reason in Reason::ALL {
        for code in FindingCode::ALL {
            for (mode, severity) in [
                (None, Severity::Info),
                (Some(StaleMode::Holding), Severity::Warning),
                (Some(StaleMode::Dialing), Severity::Critical),
            ] {
                let found = storewatch_core::verdict::Finding {
                    mode,
                    severity,
                    target: FIRST_STORE.to_string(),
                    facts: if mode == Some(StaleMode::Dialing) { facts } else { Facts::default() },
                    ..finding(code)
                };
                let text = shown(&with(reason, vec![found])).await;
                let head = text.lines().next().unwrap();
                assert!(head.starts_with(&format!(
                    "graph/server-1    {}    {}",
                    reason.status().as_str(),
                    reason.as_str()
                )));
                assert!(head.ends_with("since 1m32s"), "{head}");
                assert!(
                    text.contains("\n  Why       ")
                        && text.contains("\n  Now       ")
                        && text.contains("\n  Prevent   "),
                    "{text}"
                );
                for line in text.lines() {
                    let broken = line.ends_with([' ', ':', ',', ';'])
                        || line.contains("  null")
                        || line.contains(": :")
                        || line.contains("None");
                    assert!(!broken, "{reason:?} {code:?}: {line:?}");
                }
                let behind =
                    Story::new(&detail(&with(reason, vec![finding(code)])).await, Timestamp::now()).behind().is_some();
                assert!(behind || text.contains(code.as_str()), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn the_worst_finding_comes_first_and_that_behind_the_verdict_not_again() {
    let found = |code, severity| storewatch_core::verdict::Finding { severity, ..finding(code) };
    let text = shown(&with(
        Reason::PodCannotReachStores,
        vec![
            found(FindingCode::PoolCollapsed, Severity::Info),
            found(FindingCode::PathBlackhole, Severity::Critical),
            found(FindingCode::PdDown, Severity::Warning),
        ],
    ))
    .await;
    let heads: Vec<_> =
        text.lines().filter(|line| line.contains("since")).map(|line| line.split("    ").next().unwrap()).collect();
    assert_eq!(heads, ["graph/server-1", "  PdDown at PD", "  PoolCollapsed at PD"]);
}

#[tokio::test]
async fn what_holds_of_several_targets_is_said_once() {
    let of = |store: u64, message: &str| storewatch_core::verdict::Finding {
        target: (FIRST_STORE + store).to_string(),
        message: message.into(),
        ..finding(FindingCode::PoolCollapsed)
    };
    let text = shown(&with(Reason::StoreAnswering, vec![of(0, "few to a"), of(1, "few to b")])).await;
    let expected = "
  PoolCollapsed at hugegraph-store-0, hugegraph-store-0    warning    since 5s
  Why       few to a: 3 of 3 peers
            few to b: 3 of 3 peers
  Now       start PD
  Prevent   run three
";
    assert!(text.ends_with(expected), "{text}");
    // What two of three say must not look as if one said it.
    let some = vec![of(0, "one"), of(1, "two"), of(2, "two")];
    let text = shown(&with(Reason::StoreAnswering, some)).await;
    assert_eq!(text.matches("two: 3 of 3 peers").count(), 2, "{text}");
}

#[tokio::test]
async fn the_guard_and_a_restart_are_told() {
    let mut snapshot = with(Reason::StaleTransport, vec![finding(FindingCode::StaleTransport)]);
    snapshot.pods[1].guard =
        Some(GuardView { reason: Reason::StaleTransport, holds: false, needed: 0, free: 0, suspected: 0, others: 1 });
    snapshot.pods[1].verdict.carried = true;
    let text = shown(&snapshot).await;
    assert!(text.contains("the guard is off (verdict.min_other_ready: 0)"), "{text}");
    assert!(text.contains("this is from before the agent's restart"), "{text}");
}

#[test]
fn what_came_over_the_wire_does_not_steer_the_terminal() {
    let json = r#"{"namespace":"g","name":"a\u001b[2J","status":"Ready","ready":true,"reason":"StoreAnswering",
    "findings":[{"code":"X\n","remedy":{"now":"\u001b]0;x","prevent":"\u0007"},"message":"\r"}]}"#;
    let text = show(&serde_json::from_str(json).unwrap(), Timestamp::now(), PLAIN);
    assert!(!text.chars().any(|char| char.is_control() && char != '\n'), "{text:?}");
}
