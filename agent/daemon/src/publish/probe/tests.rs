use super::*;
use crate::publish::testing::{
    FIRST_STORE, ago, cluster, finding, get, get_from, now, pod, published, published_with, send, snapshot, verdict,
};
use axum::body::Body;
use http::{Method, Request, header};
use serde_json::json;
use std::{net::IpAddr, sync::Arc};
use storewatch_core::{
    policy::OnUnknown,
    snapshot::Snapshot,
    verdict::{FindingCode, Reason},
};
use tokio_util::sync::CancellationToken;

fn probe(snapshot: Snapshot) -> Router {
    router(published(snapshot).1)
}

fn changed(change: impl FnOnce(&mut Snapshot)) -> Router {
    let mut snapshot = snapshot();
    change(&mut snapshot);
    probe(snapshot)
}

#[tokio::test]
async fn the_node_answers_with_the_body_of_the_contract() {
    let answer = get(&probe(snapshot()), "/readiness").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(
        answer.json(),
        json!({
            "ready": true, "status": "Ready", "cluster": "default", "storage": "hstore", "reason": "StoreAnswering",
            "message": "because of StoreAnswering", "active_stores": 3, "answered_store": FIRST_STORE,
            "unanswered_stores": [FIRST_STORE + 1, FIRST_STORE + 2], "pd_reachable": true, "pd_checked_age_ms": 1100,
            "stores_age_ms": 1100, "store_millis": 3, "cached": true, "generation": 412, "age_ms": 640,
            "since_ms": 92000, "findings": [],
        })
    );
    assert!(answer.text.contains(&format!("\"answered_store\":{FIRST_STORE},")), "a number, every digit of it");
}

#[tokio::test]
async fn the_node_is_503_when_no_store_answers_and_says_what_is_not_known() {
    let router = changed(|snapshot| {
        let readiness = &mut snapshot.clusters[0].readiness;
        readiness.verdict = verdict(Reason::StoreListUnknown);
        readiness.verdict.carried = true;
        (readiness.answered_store, readiness.pd_reachable, readiness.pd_checked) = (None, None, None);
        (readiness.stores_at, readiness.store_millis, readiness.evidence_at) = (None, None, None);
        readiness.findings = [FindingCode::PdNoLeader, FindingCode::PdDown, FindingCode::PdDown].map(finding).to_vec();
    });
    let answer = get(&router, "/readiness").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let body = answer.json();
    assert_eq!((&body["ready"], &body["reason"]), (&json!(false), &json!("StoreListUnknown")));
    for unknown in ["answered_store", "pd_reachable", "pd_checked_age_ms", "stores_age_ms", "store_millis", "age_ms"] {
        assert_eq!(body.get(unknown), Some(&json!(null)), "{unknown}");
    }
    assert_eq!(body["findings"], json!(["PdDown", "PdNoLeader"]), "codes, each once");
    assert_eq!(body["carried"], json!(true));
    assert!(!answer.text.contains("10.0.0.1"), "findings carry addresses, the probe side does not");
}

#[tokio::test]
async fn of_several_clusters_all_must_be_ready_and_the_least_ready_one_speaks() {
    let both = changed(|snapshot| snapshot.clusters.push(cluster(1, "prod")));
    let answer = get(&both, "/readiness").await;
    assert_eq!((answer.status, &answer.json()["cluster"]), (StatusCode::OK, &json!("default")));

    let one_down = changed(|snapshot| {
        snapshot.clusters.push(cluster(1, "prod"));
        snapshot.clusters[1].readiness.verdict = verdict(Reason::NoStoreAnswers);
        snapshot.clusters[1].readiness.findings = vec![finding(FindingCode::StoreDown)];
    });
    let answer = get(&one_down, "/readiness").await;
    let body = answer.json();
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((&body["cluster"], &body["reason"]), (&json!("prod"), &json!("NoStoreAnswers")));
    assert_eq!(body["findings"], json!(["StoreDown"]));
    assert_eq!(
        body["clusters"],
        json!([
            {"cluster": "default", "ready": true, "status": "Ready", "reason": "StoreAnswering"},
            {"cluster": "prod", "ready": false, "status": "NotReady", "reason": "NoStoreAnswers"},
        ])
    );
    for (path, status) in [
        ("/readiness/clusters/default", StatusCode::OK),
        ("/readiness/clusters/prod", StatusCode::SERVICE_UNAVAILABLE),
        ("/readiness/clusters/test", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get(&one_down, path).await.status, status, "{path}");
    }
    let unknown = changed(|snapshot| {
        snapshot.clusters.push(cluster(1, "prod"));
        snapshot.clusters[0].readiness.verdict = verdict(Reason::NoEvidenceYet);
    });
    let answer = get(&unknown, "/readiness").await;
    assert_eq!((answer.status, &answer.json()["status"]), (StatusCode::OK, &json!("Unknown")), "less sure speaks");
}

#[tokio::test]
async fn pods_are_found_by_name_and_uid() {
    let router = probe(snapshot());
    for (path, status) in [
        ("/readiness/pods/graph/server-0", StatusCode::OK),
        ("/readiness/pods/graph/server%2D0", StatusCode::OK),
        ("/readiness/pods/graph/server-1", StatusCode::SERVICE_UNAVAILABLE),
        ("/readiness/pods/other/server-0", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph/server-2", StatusCode::NOT_FOUND),
        ("/readiness/uid/uid-of-server-0", StatusCode::OK),
        ("/readiness/uid/uid-of-server-1", StatusCode::SERVICE_UNAVAILABLE),
        ("/readiness/uid/uid-of-server-2", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get(&router, path).await.status, status, "{path}");
    }
    let body = get(&router, "/readiness/pods/graph/server-1").await.json();
    assert_eq!((&body["status"], &body["reason"]), (&json!("NotReady"), &json!("PodCannotReachStores")));
    assert_eq!(
        (&body["age_ms"], &body["active_stores"]),
        (&json!(500), &json!(3)),
        "the pod's age, its cluster's stores"
    );
}

#[tokio::test]
async fn a_pod_is_judged_by_its_own_cluster() {
    let router = changed(|snapshot| {
        let mut other = cluster(1, "prod");
        other.readiness.active_stores = 9;
        snapshot.clusters.push(other);
        Arc::make_mut(&mut snapshot.pods[1].record).cluster.0 = 1;
    });
    let body = get(&router, "/readiness/pods/graph/server-1").await.json();
    assert_eq!((&body["cluster"], &body["active_stores"]), (&json!("prod"), &json!(9)));
}

#[tokio::test]
async fn without_a_fresh_inventory_an_unknown_pod_is_unknown_and_the_configuration_decides() {
    let subjects = [
        "/readiness/pods/graph/absent",
        "/readiness/uid/absent",
        "/readiness/workloads/graph/absent",
        "/readiness/self",
    ];
    for (on_unknown, status) in
        [(OnUnknown::Ready, StatusCode::OK), (OnUnknown::NotReady, StatusCode::SERVICE_UNAVAILABLE)]
    {
        let mut stale = snapshot();
        stale.pods_fresh = false;
        let router = router(published_with(stale, on_unknown, CancellationToken::new()).1);
        for path in subjects {
            let answer = get_from(&router, path, IpAddr::from([10, 244, 9, 9])).await;
            assert_eq!(answer.status, status, "{path}");
            let body = answer.json();
            assert_eq!((&body["status"], &body["reason"]), (&json!("Unknown"), &json!("PodSourceAbsent")), "{path}");
            assert_eq!(body["ready"], json!(status == StatusCode::OK), "{path}");
        }
        let known = get(&router, "/readiness/pods/graph/server-1").await;
        assert_eq!(known.status, StatusCode::SERVICE_UNAVAILABLE, "what is known stays known");
    }
}

#[tokio::test]
async fn the_caller_is_known_by_its_connection_only() {
    let router = probe(snapshot());
    let from = |address: &str| address.parse::<IpAddr>().unwrap();
    for (address, status) in [
        ("10.244.0.5", StatusCode::OK),
        ("::ffff:10.244.0.5", StatusCode::OK),
        ("10.244.0.6", StatusCode::SERVICE_UNAVAILABLE),
        // The request names 10.244.0.5 in its forwarding headers.
        ("10.244.0.7", StatusCode::NOT_FOUND),
        ("::1", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(get_from(&router, "/readiness/self", from(address)).await.status, status, "{address}");
    }
    let answer = get(&router, "/readiness/self").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND, "a Unix socket has no address");
    assert!(!get_from(&router, "/readiness/self", from("10.244.0.7")).await.text.contains("10.244"));
}

#[tokio::test]
async fn an_address_that_several_pods_share_is_nobodys() {
    let node = IpAddr::from([192, 0, 2, 1]);
    let router = changed(|snapshot| {
        for name in ["host-0", "host-1"] {
            let mut shared = pod(name, node, Reason::StoreAnswering);
            Arc::make_mut(&mut shared.record).host_network = true;
            snapshot.pods.push(shared);
        }
    });
    let answer = get_from(&router, "/readiness/self", node).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert!(answer.json()["detail"].as_str().unwrap().contains("share"), "{}", answer.text);
}

#[tokio::test]
async fn of_a_workload_any_pod_is_enough_unless_all_are_required() {
    let router = probe(snapshot());
    for (path, status, speaker) in [
        ("/readiness/workloads/graph/server", StatusCode::OK, "Ready"),
        ("/readiness/workloads/graph/server?require=any", StatusCode::OK, "Ready"),
        ("/readiness/workloads/graph/server?require=all", StatusCode::SERVICE_UNAVAILABLE, "NotReady"),
        ("/readiness/workloads/graph/server?kind=StatefulSet", StatusCode::OK, "Ready"),
        ("/readiness/workloads/graph/server?kind=StatefulSet&require=all", StatusCode::SERVICE_UNAVAILABLE, "NotReady"),
    ] {
        let answer = get(&router, path).await;
        assert_eq!((answer.status, &answer.json()["status"]), (status, &json!(speaker)), "{path}");
        assert_eq!(answer.json()["pods"], json!({"total": 2, "ready": 1}), "{path}");
    }
    for (path, status) in [
        ("/readiness/workloads/graph/server?kind=Deployment", StatusCode::NOT_FOUND),
        ("/readiness/workloads/graph/absent", StatusCode::NOT_FOUND),
        ("/readiness/workloads/other/server", StatusCode::NOT_FOUND),
        ("/readiness/workloads/graph/server?require=most", StatusCode::BAD_REQUEST),
        ("/readiness/workloads/graph/server?kind=", StatusCode::BAD_REQUEST),
        ("/readiness/workloads/graph/server?require=all&require=all", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(get(&router, path).await.status, status, "{path}");
    }
    let all_down = changed(|snapshot| snapshot.pods[0].verdict = verdict(Reason::NoStoreAnswers));
    assert_eq!(get(&all_down, "/readiness/workloads/graph/server").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn liveness_is_the_engines_loop_and_nothing_else() {
    for (age, status) in [(0, StatusCode::OK), (9_999, StatusCode::OK), (10_000, StatusCode::SERVICE_UNAVAILABLE)] {
        let (publisher, publication) = published(snapshot());
        publisher.beat(ago(age));
        let answer = get(&router(publication), "/livez").await;
        assert_eq!((answer.status, &answer.json()["tick_age_ms"]), (status, &json!(age)));
    }
    let all_down = changed(|snapshot| snapshot.clusters[0].readiness.verdict = verdict(Reason::NoStoreAnswers));
    assert_eq!(get(&all_down, "/livez").await.status, StatusCode::OK);
    assert_eq!(get(&all_down, "/readyz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_agent_is_ready_between_its_first_answers_and_its_draining() {
    let starting = changed(|snapshot| {
        snapshot.synced = false;
        snapshot.sources[0].last = None;
    });
    let answer = get(&starting, "/readyz").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((&answer.json()["reason"], &answer.json()["waiting_for"]), (&json!("Starting"), &json!(["pd"])));

    let draining = CancellationToken::new();
    let (_publisher, publication) = published_with(snapshot(), OnUnknown::Ready, draining.clone());
    let router = router(publication);
    assert_eq!(get(&router, "/readyz").await.status, StatusCode::OK);
    draining.cancel();
    let answer = get(&router, "/readyz").await;
    assert_eq!((answer.status, &answer.json()["reason"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("Draining")));
    assert_eq!(get(&router, "/readiness").await.status, StatusCode::OK, "a restart of the agent changes no verdict");
}

const PATHS: [&str; 7] = [
    "/livez",
    "/readyz",
    "/readiness",
    "/readiness/clusters/default",
    "/readiness/pods/graph/server-0",
    "/readiness/uid/uid-of-server-0",
    "/readiness/workloads/graph/server",
];

#[tokio::test]
async fn every_path_takes_head_and_refuses_other_methods() {
    let router = probe(snapshot());
    for path in PATHS {
        let request = |method: Method| Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let head = send(&router, request(Method::HEAD)).await;
        assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""), "{path}");
        let length = get(&router, path).await.text.len().to_string();
        assert_eq!(head.headers[header::CONTENT_LENGTH], length.as_str(), "{path}");
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH, Method::TRACE] {
            let answer = send(&router, request(method.clone())).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert_eq!(answer.headers[header::ALLOW], "GET,HEAD", "{method} {path}");
            assert_eq!(answer.json()["status"], json!(405), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_answer_is_json_that_no_cache_keeps_and_unknown_query_keys_are_refused() {
    let router = probe(snapshot());
    for path in PATHS {
        let good = get(&router, path).await;
        assert!(good.json().is_object(), "{path}");
        assert_eq!(good.headers[header::CACHE_CONTROL], "no-store", "{path}");
        let bad = get(&router, &format!("{path}?verbose=1")).await;
        assert_eq!(bad.status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(bad.headers[header::CONTENT_TYPE], "application/problem+json", "{path}");
        assert_eq!(bad.headers[header::CACHE_CONTROL], "no-store", "{path}");
        assert!(bad.json()["detail"].as_str().unwrap().contains("verbose"), "{}", bad.text);
    }
}

#[tokio::test]
async fn malformed_requests_get_a_problem_document() {
    let router = probe(snapshot());
    let long = "x".repeat(254);
    for (path, status) in [
        ("/", StatusCode::NOT_FOUND),
        ("/metrics", StatusCode::NOT_FOUND),
        ("/readiness/", StatusCode::NOT_FOUND),
        ("/readiness/pods", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph/", StatusCode::NOT_FOUND),
        ("/readiness/pods//server-0", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph/server-0/", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph%2Fserver-0", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph/%00", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph/..%2F..", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph/%F0%9F%A6%80", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph/%FF", StatusCode::BAD_REQUEST),
        ("/readiness/uid/%C3", StatusCode::BAD_REQUEST),
        ("/readiness/pods/graph/%", StatusCode::NOT_FOUND),
        ("/readiness/pods/graph/%zz", StatusCode::NOT_FOUND),
        ("/readiness/uid/<script>", StatusCode::NOT_FOUND),
        ("/readiness?%FF=%FF", StatusCode::BAD_REQUEST),
        ("/readiness?=", StatusCode::BAD_REQUEST),
        (&format!("/readiness/uid/{long}"), StatusCode::BAD_REQUEST),
        (&format!("/readiness/clusters/{long}"), StatusCode::BAD_REQUEST),
        (&format!("/readiness/pods/{long}/a"), StatusCode::BAD_REQUEST),
        (&format!("/readiness/pods/a/{long}"), StatusCode::BAD_REQUEST),
        (&format!("/readiness/workloads/{long}/a"), StatusCode::BAD_REQUEST),
    ] {
        let Ok(request) = Request::get(path).body(Body::empty()) else {
            // What cannot be written as a request cannot be received either.
            assert!(path.contains('<'), "{path}");
            continue;
        };
        let answer = send(&router, request).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        let body = answer.json();
        assert_eq!(body["status"], json!(status.as_u16()), "{path}");
        assert!(answer.text.len() < 512, "{path}: what was sent is not sent back at length");
    }
    assert_eq!(now(), ago(0));
}

#[tokio::test]
async fn no_answer_names_an_address_or_a_host() {
    let router = changed(|snapshot| {
        snapshot.clusters[0].readiness.findings = vec![finding(FindingCode::PdDown)];
        snapshot.pods[0].findings = vec![finding(FindingCode::PdDown)];
    });
    for path in PATHS.into_iter().chain(["/readiness/self", "/nothing"]) {
        let answer = get_from(&router, path, IpAddr::from([10, 244, 0, 5])).await;
        for secret in ["10.", "hugegraph-", "8500", "node-a", "server-1"] {
            assert!(!answer.text.contains(secret), "{path} tells {secret}: {}", answer.text);
        }
    }
}
