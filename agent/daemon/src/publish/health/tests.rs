use super::*;
use crate::publish::{
    Publisher,
    testing::{published, published_with, snapshot, verdict},
};
use std::time::Duration;
use storewatch_core::{policy::OnUnknown, verdict::Reason};
use storewatch_proto::health::health_client::HealthClient;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Streaming};

fn client(publication: &Publication) -> HealthClient<Router> {
    HealthClient::new(router(publication.clone()))
}

fn request(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

async fn check(publication: &Publication, service: &str) -> Result<ServingStatus, Code> {
    match client(publication).check(request(service)).await {
        Ok(response) => Ok(response.into_inner().status()),
        Err(status) => Err(status.code()),
    }
}

async fn next(stream: &mut Streaming<HealthCheckResponse>) -> ServingStatus {
    stream.message().await.unwrap().expect("the stream goes on").status()
}

fn publish(publisher: &Publisher, change: impl FnOnce(&mut Snapshot)) {
    let mut snapshot = snapshot();
    change(&mut snapshot);
    publisher.publish(Arc::new(snapshot));
}

#[tokio::test]
async fn check_answers_for_node_pods_and_workloads() {
    let (publisher, publication) = published(snapshot());
    for (service, expected) in [
        ("", Ok(ServingStatus::Serving)),
        ("pod/graph/server-0", Ok(ServingStatus::Serving)),
        ("pod/graph/server-1", Ok(ServingStatus::NotServing)),
        ("workload/graph/server", Ok(ServingStatus::Serving)),
        ("pod/graph/absent", Err(Code::NotFound)),
        ("workload/graph/absent", Err(Code::NotFound)),
        ("pod/graph", Err(Code::NotFound)),
        ("pod/graph/server-0/more", Err(Code::NotFound)),
        ("/", Err(Code::NotFound)),
        ("node", Err(Code::NotFound)),
    ] {
        assert_eq!(check(&publication, service).await, expected, "{service:?}");
    }
    publish(&publisher, |snapshot| snapshot.clusters[0].readiness.verdict = verdict(Reason::NoStoreAnswers));
    assert_eq!(check(&publication, "").await, Ok(ServingStatus::NotServing));
}

#[tokio::test]
async fn nothing_serves_before_the_first_snapshot() {
    let (publisher, publication) = published(Snapshot { generation: 0, ..snapshot() });
    for service in ["", "pod/graph/server-0", "pod/graph/absent"] {
        assert_eq!(check(&publication, service).await, Ok(ServingStatus::NotServing), "{service:?}");
    }
    let mut stream = client(&publication).watch(request("")).await.unwrap().into_inner();
    assert_eq!(next(&mut stream).await, ServingStatus::NotServing);
    publish(&publisher, |_| ());
    assert_eq!(next(&mut stream).await, ServingStatus::Serving);
}

#[tokio::test]
async fn while_the_inventory_is_not_fresh_the_configuration_decides() {
    for (on_unknown, expected) in
        [(OnUnknown::Ready, ServingStatus::Serving), (OnUnknown::NotReady, ServingStatus::NotServing)]
    {
        let stale = Snapshot { pods_fresh: false, ..snapshot() };
        let (_publisher, publication) = published_with(stale, on_unknown, CancellationToken::new());
        assert_eq!(check(&publication, "pod/graph/absent").await, Ok(expected));
    }
}

#[tokio::test]
async fn watch_tells_each_change_once() {
    let (publisher, publication) = published(snapshot());
    let mut stream = client(&publication).watch(request("pod/graph/server-2")).await.unwrap().into_inner();
    assert_eq!(next(&mut stream).await, ServingStatus::ServiceUnknown, "unknown, and the stream stays open");
    let named = |snapshot: &mut Snapshot, reason| {
        let pod = crate::publish::testing::pod("server-2", [10, 244, 0, 7].into(), reason);
        snapshot.pods.push(pod);
    };
    publish(&publisher, |snapshot| named(snapshot, Reason::StoreAnswering));
    assert_eq!(next(&mut stream).await, ServingStatus::Serving);
    publish(&publisher, |snapshot| named(snapshot, Reason::StoreAnswering));
    publish(&publisher, |snapshot| named(snapshot, Reason::PassiveOnly));
    publish(&publisher, |snapshot| named(snapshot, Reason::NoStoreAnswers));
    assert_eq!(next(&mut stream).await, ServingStatus::NotServing, "what did not change it was not told");
    publish(&publisher, |_| ());
    assert_eq!(next(&mut stream).await, ServingStatus::ServiceUnknown);
}

#[tokio::test]
async fn watch_ends_with_the_agent() {
    let draining = CancellationToken::new();
    let (publisher, publication) = published_with(snapshot(), OnUnknown::Ready, draining.clone());
    let mut drained = client(&publication).watch(request("")).await.unwrap().into_inner();
    assert_eq!(next(&mut drained).await, ServingStatus::Serving);
    draining.cancel();
    assert_eq!(drained.message().await.unwrap_err().code(), Code::Unavailable);

    let (_, publication) = (publisher, published(snapshot()).1);
    let mut orphaned = client(&publication).watch(request("")).await.unwrap().into_inner();
    assert_eq!(next(&mut orphaned).await, ServingStatus::Serving, "the last word of an engine that is gone");
    assert_eq!(orphaned.message().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn watchers_are_bounded_and_a_place_is_free_again_when_one_leaves() {
    let (_publisher, publication) = published(snapshot());
    let mut client = client(&publication);
    let mut streams = Vec::new();
    for _ in 0..MAX_WATCHERS {
        streams.push(client.watch(request("")).await.unwrap());
    }
    assert_eq!(client.watch(request("")).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(check(&publication, "").await, Ok(ServingStatus::Serving));
    streams.pop();
    client.watch(request("")).await.unwrap();
}

#[tokio::test]
async fn a_request_of_no_sensible_size_is_refused() {
    let (_publisher, publication) = published(snapshot());
    assert_eq!(check(&publication, &"x".repeat(MAX_REQUEST + 1)).await, Err(Code::OutOfRange));
    let answer = tokio::time::timeout(Duration::from_secs(5), check(&publication, "")).await;
    assert_eq!(answer, Ok(Ok(ServingStatus::Serving)));
}
