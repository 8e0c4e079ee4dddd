use super::*;
use crate::{
    ask, clock, engine,
    observe::{self, ObservationSender},
    publish::{self, testing::get},
    requests,
    state::Recorder,
};
use axum::Router;
use serde_json::{Value, json};
use std::{future::Future, sync::Arc, time::Duration};
use storewatch_core::{
    connection::{
        ConnectionChange, ConnectionEvent, InventorySample, KernelEvidence, SocketId, SocketOwner, SocketSample,
    },
    id::{CgroupId, ClusterId, HostPort, NetnsId, PodRef, PodUid},
    judge::Judge,
    observation::Observation,
    ping::PdReport,
    pod::{Manager, PodRecord},
    policy::{ClusterSettings, OnUnknown, Settings, StaleTransportAction, VerdictPolicy},
    time::MonoTime,
    topology::{ListedStore, ReportedState},
};
use tokio_util::sync::CancellationToken;

const STORE: u64 = 1_844_095_761_336_398_711;

fn judge() -> Judge {
    let policy = VerdictPolicy {
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
    };
    let cluster = ClusterSettings {
        name: "default".into(),
        pd_peers: vec![HostPort { host: "10.0.0.5".into(), port: 8686 }],
        stores: Vec::new(),
        store_port: 8500,
        pd_port: 8686,
    };
    let settings = Settings { node: "node-a".into(), clusters: vec![cluster], policy, kernel_off: false };
    Judge::new(settings, clock::now())
}

fn pod(n: u64) -> Arc<PodRecord> {
    Arc::new(PodRecord {
        cluster: ClusterId(0),
        pod: PodRef { namespace: if n == 9 { "other" } else { "graph" }.into(), name: format!("server-{n}").into() },
        uid: PodUid(format!("uid-{n}").into()),
        workload: None,
        ips: Vec::new(),
        host_network: false,
        cgroups: vec![CgroupId(n + 100)],
        netns: Some(NetnsId(u32::try_from(n).unwrap() + 100)),
        pids: Vec::new(),
        wiring: None,
        manager: Manager::Unknown,
    })
}

fn socket(id: u64, cgroup: u64, remote: &str, at: MonoTime) -> SocketSample {
    SocketSample {
        socket: SocketId(id),
        owner: SocketOwner { cgroup: Some(CgroupId(cgroup)), netns: Some(NetnsId(7)), pid: Some(4711) },
        local: "10.244.0.7:40000".parse().unwrap(),
        remote: remote.parse().unwrap(),
        state: TcpState::Established,
        bytes_received: Some(1_000),
        bytes_acked: Some(1),
        unanswered: 12,
        retransmits: 0,
        retransmits_total: Some(3),
        retransmitting: false,
        rtt: Some(Duration::from_micros(250)),
        last_received: Some(at - Duration::from_secs(7)),
        last_sent: Some(at - Duration::from_secs(9)),
    }
}

/// Store 1 at 10.0.0.1, pods 0, 1 and 9, and what they hold.
fn facts(sockets: Vec<SocketSample>, at: MonoTime) -> Vec<Observation> {
    let store =
        ListedStore { id: STORE, address: HostPort { host: "10.0.0.1".into(), port: 8500 }, state: ReportedState::Up };
    vec![
        Observation::Pd(PdReport {
            cluster: ClusterId(0),
            started: at,
            ended: at,
            peers: Vec::new(),
            list: Some(vec![store]),
        }),
        Observation::Pods { at, pods: [0, 1, 9].map(pod).to_vec() },
        Observation::Inventory(InventorySample { at, ended: at, complete: true, sockets }),
    ]
}

/// Runs `test` beside a real engine that knows `facts`. The sender goes on telling it more.
async fn beside_an_engine<F: Future<Output = ()>>(
    facts: Vec<Observation>,
    test: impl FnOnce(Router, ObservationSender) -> F,
) {
    let stop = CancellationToken::new();
    let mut judge = judge();
    facts.into_iter().for_each(|observation| judge.observe(observation));
    judge.advance(clock::now());
    let initial = Arc::new(judge.snapshot(clock::now()));
    let (publisher, publication) = publish::channel(initial, OnUnknown::Ready, stop.clone());
    let (sender, observations) = observe::channel();
    let (requests, _clusters, _kernel) = requests::channel(1);
    let (asker, questions) = ask::channel();
    let (tap, _recordings) = crate::recording::channel();
    let wiring = engine::Wiring { observations, requests, questions, publisher, recorder: Recorder::off(), tap };
    let router = publish::admin::router(publication, asker);
    let engine = engine::run(judge, wiring, stop.clone());
    let test = async {
        test(router, sender).await;
        stop.cancel();
    };
    tokio::join!(engine, test);
}

fn now() -> MonoTime {
    clock::now()
}

async fn rows(router: &Router, path: &str) -> Vec<Value> {
    let answer = get(router, path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    serde_json::from_str(&answer.text).unwrap()
}

#[tokio::test]
async fn a_connection_with_all_that_is_known_of_it() {
    let facts = facts(vec![socket(1, 100, "10.0.0.1:8500", now())], now());
    beside_an_engine(facts, async |router, sender| {
        let rows = rows(&router, "/v1/connections").await;
        let row = rows[0].as_object().unwrap();
        for (field, expected) in [
            ("namespace", json!("graph")),
            ("pod", json!("server-0")),
            ("uid", json!("uid-0")),
            ("cluster", json!("default")),
            ("target", json!(STORE.to_string())),
            ("local", json!("10.244.0.7:40000")),
            ("remote", json!("10.0.0.1:8500")),
            ("owner", json!("current")),
            ("state", json!("established")),
            ("outcome", json!("established")),
            ("opened_at", json!(null)),
            ("rtt_us", json!(250)),
            ("retransmits", json!(3)),
            ("resets", json!(0)),
            ("bytes_received", json!(1_000)),
            ("unanswered_bytes", json!(12)),
            ("via", json!("direct")),
            ("container", json!({"cgroup": 100, "listed": true})),
            ("pid", json!(4711)),
            ("ended_at", json!(null)),
        ] {
            assert_eq!(row[field], expected, "{field}");
        }
        let (age, idle) = (row["age_ms"].as_u64().unwrap(), row["idle_ms"].as_u64().unwrap());
        assert!(age < 5_000 && (7_000..12_000).contains(&idle), "age {age}, idle {idle}");
        assert!(!row.contains_key("unattributed"));

        // Its end stops its clocks.
        let ended = now();
        let evidence = KernelEvidence { from: Some(TcpState::LastAck), ..KernelEvidence::default() };
        let end = ConnectionEvent {
            at: ended,
            socket: SocketId(1),
            owner: SocketOwner { cgroup: Some(CgroupId(100)), netns: None, pid: None },
            local: "10.244.0.7:40000".parse().unwrap(),
            remote: "10.0.0.1:8500".parse().unwrap(),
            rtt: None,
            retransmits_total: Some(4),
            what: ConnectionChange::Ended {
                begun: Some(ended - Duration::from_secs(60)),
                evidence,
                bytes_received: None,
            },
        };
        sender.send(Observation::Connection(end)).await.unwrap();
        let row = &self::rows(&router, "/v1/connections?state=closed").await[0];
        assert_eq!(
            (&row["outcome"], &row["age_ms"], &row["retransmits"]),
            (&json!("peer_closed"), &json!(60_000), &json!(4))
        );
        assert!(row["opened_at"].is_string() && row["ended_at"].is_string());
        assert!(self::rows(&router, "/v1/connections?state=established").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn filters_pages_and_what_belongs_to_nobody() {
    let at = now();
    let mut sockets = vec![
        socket(1, 100, "10.0.0.1:8500", at),
        socket(2, 100, "10.0.0.7:8500", at),
        socket(3, 101, "10.0.0.1:8500", at),
        socket(4, 109, "10.0.0.5:8686", at),
    ];
    sockets.extend((10..13).map(|id| socket(id, 5_555, "10.0.0.1:8500", at)));
    beside_an_engine(facts(sockets, at), async |router, _sender| {
        for (filter, pods) in [
            ("", vec!["server-0", "server-0", "server-1", "server-9"]),
            ("?namespace=graph", vec!["server-0", "server-0", "server-1"]),
            ("?namespace=other", vec!["server-9"]),
            ("?pod=server-0", vec!["server-0", "server-0"]),
            ("?namespace=other&pod=server-0", vec![]),
            ("?target=pd", vec!["server-9"]),
            ("?target=other", vec!["server-0"]),
            ("?target=1844095761336398711", vec!["server-0", "server-1"]),
            ("?target=5", vec![]),
            ("?owner=unknown", vec!["server-0"]),
            ("?owner=previous", vec![]),
            (
                "?outcome=established&cluster=default&state=established",
                vec!["server-0", "server-0", "server-1", "server-9"],
            ),
            ("?outcome=reset", vec![]),
            ("?limit=2&offset=1", vec!["server-0", "server-1"]),
            ("?offset=4", vec![]),
        ] {
            let rows = rows(&router, &format!("/v1/connections{filter}")).await;
            let found: Vec<_> = rows.iter().map(|row| row["pod"].as_str().unwrap()).collect();
            assert_eq!(found, pods, "{filter}");
        }
        let headers = async |path: &str| {
            let headers = get(&router, path).await.headers;
            ["storewatch-total", "storewatch-truncated", "storewatch-unattributed"]
                .map(|name| headers[name].to_str().unwrap().to_owned())
        };
        assert_eq!(headers("/v1/connections").await, ["4", "false", "stranger=3"]);
        assert_eq!(headers("/v1/connections?limit=3").await, ["4", "true", "stranger=3"]);
        assert_eq!(headers("/v1/connections?limit=3&offset=1").await, ["4", "false", "stranger=3"]);
        assert_eq!(headers("/v1/connections?attributed=no&limit=1").await, ["3", "true", "stranger=3"]);
        let strangers = rows(&router, "/v1/connections?attributed=no").await;
        assert_eq!(strangers.len(), 3);
        let stranger = &strangers[0];
        assert_eq!((&stranger["pod"], &stranger["unattributed"]), (&json!(null), &json!("stranger")));
        assert_eq!((&stranger["pid"], &stranger["target"]), (&json!(4711), &json!(STORE.to_string())));
        assert_eq!(stranger["container"], json!({"cgroup": 5_555, "listed": false}));
    })
    .await;
}

#[tokio::test]
async fn a_wrong_question_names_its_key() {
    beside_an_engine(Vec::new(), async |router, _sender| {
        for (query, words) in [
            ("owner=mine", "`owner`: `mine` must be one of: current, previous, unknown"),
            ("outcome=dead", "`outcome`: `dead` must be one of: established, refused"),
            ("state=ESTAB", "`state`: `ESTAB` must be one of: established, syn_sent, syn_received"),
            ("target=store-1", "`target`: `store-1` must be the id of a Store, static-N, pd or other"),
            ("cluster=none", "`cluster`: `none` is not configured; there is default"),
            ("attributed=maybe", "`attributed`: `maybe` must be one of: yes, no"),
            ("limit=0", "`limit` must be from 1 to 10000, not 0"),
            ("limit=10001", "`limit` must be from 1 to 10000"),
            ("limit=-1", "`limit`: `-1` must be a whole number"),
            ("offset=1e3", "`offset`: `1e3` must be a whole number"),
            ("offset=99999999999999999999", "must be a whole number"),
            ("podd=a", "query key `podd` is unknown"),
            ("pod=a&pod=b", "query key `pod` is given twice"),
        ] {
            let answer = get(&router, &format!("/v1/connections?{query}")).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains(words), "{query}: {detail}");
        }
        assert!(rows(&router, "/v1/connections?offset=18446744073709551615").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_sockets_are_a_page_and_the_engine_goes_on() {
    let at = now();
    let sockets = (0..12_000).map(|id| {
        let remote = format!("10.0.{}.{}:8500", id % 200 / 50, id % 50 + 1);
        socket(id + 1, 100 + id % 2, &remote, at)
    });
    let sockets: Vec<_> = sockets.collect();
    beside_an_engine(facts(sockets, at), async |router, sender| {
        let answer = get(&router, "/v1/connections?limit=10000").await;
        assert_eq!(answer.headers["storewatch-truncated"], "false");
        // A container's memory is bounded: two pods are two thousand.
        assert_eq!(answer.json().as_array().unwrap().len(), 2 * 1024);
        let answers =
            futures_util::future::join_all((0..30).map(|_| get(&router, "/v1/connections?limit=10000"))).await;
        let refused = answers.iter().filter(|answer| answer.status == StatusCode::SERVICE_UNAVAILABLE);
        for refused in refused.clone() {
            assert_eq!(
                (&refused.headers[header::RETRY_AFTER], &refused.json()["status"]),
                (&"1".parse().unwrap(), &json!(503))
            );
        }
        let served = answers.iter().filter(|answer| answer.status == StatusCode::OK).count();
        assert!(served >= 8 && served + refused.count() == 30, "{served} were answered");
        // What is observed meanwhile is taken in.
        sender.send(Observation::Pods { at: now(), pods: vec![pod(9)] }).await.unwrap();
        let until = now() + Duration::from_secs(10);
        while !rows(&router, "/v1/connections").await.is_empty() {
            assert!(now() < until, "the new list is not seen");
        }
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_is_gone_is_a_problem_document() {
    let (asker, questions) = ask::channel();
    drop(questions);
    let (_, publication) = publish::testing::published(publish::testing::snapshot());
    let router = publish::admin::router(publication, asker);
    let answer = get(&router, "/v1/connections").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/problem+json");
    assert!(answer.json()["detail"].as_str().unwrap().contains("the engine has ended"));
}
