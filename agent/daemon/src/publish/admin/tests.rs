use super::*;
use crate::{
    ask,
    publish::testing::{FIRST_STORE, ago, cluster, finding, get, published, send, snapshot, store},
};
use axum::body::Body;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use storewatch_core::{id::TargetKey, snapshot::Snapshot, verdict::FindingCode};

fn admin(snapshot: Snapshot) -> Router {
    router(published(snapshot).1, ask::channel().0)
}

async fn body(snapshot: Snapshot, path: &str) -> Value {
    let answer = get(&admin(snapshot), path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    answer.json()
}

/// The date must be right to the second: clocks drift apart by less between two readings.
fn assert_date(value: &Value, at: storewatch_core::time::MonoTime) {
    let text = value.as_str().unwrap();
    let date: Timestamp = text.parse().unwrap();
    let expected = ClockPair::read().date(at);
    assert!((date.as_millisecond() - expected.as_millisecond()).abs() < 1000, "{text} is not {expected}");
    assert!(text.ends_with('Z') && text.len() == "2026-01-01T00:00:00.000Z".len(), "{text}");
}

#[tokio::test]
async fn the_snapshot_holds_everything() {
    let snapshot = snapshot();
    let body = body(snapshot, "/v1/snapshot").await;
    assert_eq!((&body["node"], &body["generation"]), (&json!("node-a"), &json!(412)));
    assert_date(&body["taken_at"], ago(2_000));
    assert_eq!(body["readiness"]["answered_store"], json!(FIRST_STORE.to_string()), "a string on this side");
    assert_eq!(body["readiness"]["unanswered_stores"][0], json!((FIRST_STORE + 1).to_string()));
    assert_eq!(body["readiness"]["ready"], json!(true));
    for (list, length) in [("pods", 2), ("stores", 3), ("sources", 2)] {
        assert_eq!(body[list].as_array().unwrap().len(), length, "{list}");
    }
    assert_eq!(body["pd"]["reachable"], json!(true));
}

#[tokio::test]
async fn pods_show_verdict_findings_and_counts() {
    let mut snapshot = snapshot();
    let mut suspected = finding(FindingCode::StaleTransportSuspected);
    suspected.mode = Some(storewatch_core::verdict::StaleMode::Dialing);
    suspected.confirms_at = Some(ago(0));
    snapshot.pods[1].findings = vec![suspected, finding(FindingCode::PdDown)];
    let pods = body(snapshot.clone(), "/v1/pods").await;
    let pod = body(snapshot, "/v1/pods/graph/server-1").await;
    // One pod's own answer says all that the list says of it, and more.
    for (field, value) in pods[1].as_object().unwrap() {
        assert_eq!(&pod[field], value, "{field}");
    }
    for (field, expected) in [
        ("namespace", json!("graph")),
        ("name", json!("server-1")),
        ("uid", json!("uid-of-server-1")),
        ("cluster", json!("default")),
        ("workload", json!("StatefulSet/server")),
        ("ips", json!(["10.244.0.6"])),
        ("host_network", json!(false)),
        ("status", json!("NotReady")),
        ("ready", json!(false)),
        ("reason", json!("PodCannotReachStores")),
        ("message", json!("because of PodCannotReachStores")),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
    assert_date(&pod["since"], ago(92_000));
    let stale = &pod["findings"][0];
    assert_eq!((&stale["code"], &stale["mode"]), (&json!("StaleTransportSuspected"), &json!("dialing")));
    assert_date(&stale["confirms_at"], ago(0));
    assert_date(&stale["since"], ago(5_000));
    assert_eq!(stale["remedy"], json!({"now": "start PD", "prevent": "run three"}));
    assert_eq!((&stale["severity"], &stale["target"]), (&json!("warning"), &json!("pd")));
    let plain = pod["findings"][1].as_object().unwrap();
    assert!(["mode", "confirms_at", "carried"].iter().all(|absent| !plain.contains_key(*absent)), "{plain:?}");
    assert_eq!(pod["targets"][0]["connects"], json!({"established": 3, "refused": 2}));
    assert_eq!(pod["targets"][1]["target"], json!("other"));
}

#[tokio::test]
async fn stores_and_pd_of_every_cluster() {
    let mut snapshot = snapshot();
    let mut prod = cluster(1, "prod");
    prod.stores = vec![store(1, TargetKey::Static(0), false)];
    (prod.stores[0].reported, prod.stores[0].last_ping, prod.stores[0].answering) = (None, None, None);
    (prod.pd.reachable, prod.pd.has_leader) = (Some(false), None);
    prod.pd.findings = vec![finding(FindingCode::PdDown)];
    snapshot.clusters.push(prod);

    let stores = body(snapshot.clone(), "/v1/stores").await;
    let listed = &stores[0];
    assert_eq!(listed["id"], json!(FIRST_STORE.to_string()));
    assert_eq!(
        (&listed["label"], &listed["address"]),
        (&json!(FIRST_STORE.to_string()), &json!("hugegraph-store-0:8500"))
    );
    assert_eq!((&listed["reported_state"], &listed["answering"]), (&json!("Up"), &json!(true)));
    assert_eq!(
        listed["last_ping"],
        json!({"outcome": "serving", "age_ms": 640, "dns_ms": null, "connect_ms": 0.312, "http2_ms": null,
               "rpc_ms": null, "detail": null})
    );
    let address = &listed["addresses"][0];
    assert_eq!((&address["ip"], &address["to"]), (&json!("10.0.0.7"), &json!(null)));
    assert_date(&address["from"], ago(60_000));
    let fixed = &stores[3];
    assert_eq!((&fixed["id"], &fixed["label"], &fixed["cluster"]), (&json!(null), &json!("static-0"), &json!("prod")));
    assert_eq!((&fixed["last_ping"], &fixed["answering"]), (&json!(null), &json!(null)));

    let pd = body(snapshot, "/v1/pd").await;
    assert_eq!((&pd["reachable"], &pd["has_leader"]), (&json!(false), &json!(null)), "as bad as the worst cluster");
    assert_eq!(pd["peers"].as_array().unwrap().len(), 2);
    assert_eq!(
        pd["peers"][0],
        json!({"cluster": "default", "peer": 0, "address": "hugegraph-pd-0:8686", "reachable": true, "last_error": null})
    );
    assert_eq!(pd["findings"][0]["code"], json!("PdDown"));
}

#[tokio::test]
async fn sources_say_how_they_are() {
    assert_eq!(
        body(snapshot(), "/v1/sources").await,
        json!([
            {"name": "pd", "state": "active", "detail": "", "lost": 0, "age_ms": 1100},
            {"name": "kernel", "state": "absent", "detail": "", "lost": 0, "age_ms": null},
        ])
    );
}

#[tokio::test]
async fn errors_are_problem_documents() {
    let router = admin(snapshot());
    for (path, status) in [
        ("/v1/pods/graph/absent", StatusCode::NOT_FOUND),
        ("/v1/pods/graph/%FF", StatusCode::BAD_REQUEST),
        ("/v1/pods/graph", StatusCode::NOT_FOUND),
        ("/v1/nothing", StatusCode::NOT_FOUND),
        ("/v1/snapshot?pretty=1", StatusCode::BAD_REQUEST),
    ] {
        let answer = get(&router, path).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.headers[header::CONTENT_TYPE], "application/problem+json", "{path}");
        let problem = answer.json();
        assert_eq!((&problem["status"], &problem["type"]), (&json!(status.as_u16()), &json!("about:blank")), "{path}");
        assert!(!problem["detail"].as_str().unwrap().is_empty() && problem["title"].is_string(), "{path}");
    }
    let request = Request::builder().method(Method::POST).uri("/v1/snapshot").body(Body::empty()).unwrap();
    let answer = send(&router, request).await;
    assert_eq!(
        (answer.status, &answer.headers[header::ALLOW]),
        (StatusCode::METHOD_NOT_ALLOWED, &"GET,HEAD".parse().unwrap())
    );
}

#[tokio::test]
async fn the_port_answers_to_the_names_of_loopback_only() {
    let router = loopback_router(published(snapshot()).1, ask::channel().0);
    let hosts = |names: &[&str]| {
        let mut request = Request::get("/v1/sources");
        for name in names {
            request = request.header(header::HOST, *name);
        }
        request.body(Body::empty()).unwrap()
    };
    for good in ["localhost", "LOCALHOST:9467", "127.0.0.1:9467", "127.8.8.8", "[::1]", "[::1]:9467", "localhost:"] {
        assert_eq!(send(&router, hosts(&[good])).await.status, StatusCode::OK, "{good}");
    }
    for bad in [
        "rebound.example",
        "localhost.rebound.example",
        "127.0.0.1.rebound.example",
        "10.0.0.1:9467",
        "[::2]",
        "[::1",
        "::1",
        "127.1",
        "2130706433",
        "localhost:9467@rebound.example",
        "",
        " ",
    ] {
        let answer = send(&router, hosts(&[bad])).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{bad:?}");
        assert_eq!(answer.json()["status"], json!(403));
    }
    assert_eq!(send(&router, hosts(&[])).await.status, StatusCode::FORBIDDEN);
    assert_eq!(send(&router, hosts(&["localhost", "rebound.example"])).await.status, StatusCode::FORBIDDEN);
    let http2 = Request::get("http://rebound.example/v1/sources").header(header::HOST, "localhost");
    assert_eq!(send(&router, http2.body(Body::empty()).unwrap()).await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        send(&router, Request::get("/nothing").body(Body::empty()).unwrap()).await.status,
        StatusCode::FORBIDDEN
    );
}
