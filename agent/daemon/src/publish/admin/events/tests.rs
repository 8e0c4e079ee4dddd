use super::*;
use crate::{
    ask,
    publish::{
        Publisher, admin,
        feed::HELD,
        testing::{FIRST_STORE, event, get, published_with, send, snapshot},
    },
};
use axum::{Router, body::Body};
use futures_util::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use storewatch_core::{
    event::EventKind::{Connection, Finding, Transition},
    policy::OnUnknown,
};
use tokio_util::sync::CancellationToken;

struct Side {
    publisher: Publisher,
    router: Router,
    draining: CancellationToken,
}

/// The snapshot's generation is 412, so the events' are below.
fn side() -> Side {
    let draining = CancellationToken::new();
    let (publisher, publication) = published_with(snapshot(), OnUnknown::Ready, draining.clone());
    let router = admin::router(publication, ask::channel().0);
    Side { publisher, router, draining }
}

fn generations(events: &Value) -> Vec<u64> {
    events.as_array().unwrap().iter().map(|event| event["generation"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn everything_held_or_what_came_after() {
    let Side { publisher, router, .. } = side();
    assert_eq!(get(&router, "/v1/events").await.json(), json!([]));
    let mut plain = event(9, Transition);
    (plain.cluster, plain.pod, plain.target, plain.from, plain.to) = (None, None, None, None, None);
    publisher.tell(vec![event(4, Transition), event(6, Connection), plain]);

    let answer = get(&router, "/v1/events").await;
    let events = answer.json();
    assert_eq!(generations(&events), [4, 6, 9]);
    let first = events[0].as_object().unwrap();
    for (field, expected) in [
        ("kind", json!("transition")),
        ("cluster", json!("default")),
        ("namespace", json!("graph")),
        ("pod", json!("server-0")),
        ("target", json!(FIRST_STORE.to_string())),
        ("from", json!("one")),
        ("to", json!("two")),
        ("message", json!("number 4")),
    ] {
        assert_eq!(first[field], expected, "{field}");
    }
    assert!(!first.contains_key("outcome") && first["at"].as_str().unwrap().ends_with('Z'));
    let keys: Vec<_> = events[2].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["at", "generation", "kind", "message"]);
    assert_eq!(
        (&answer.headers["storewatch-generation"], &answer.headers["storewatch-lost"]),
        (&"9".parse().unwrap(), &"0".parse().unwrap())
    );

    for (query, expected) in [
        ("?since=0", vec![4, 6, 9]),
        ("?since=4", vec![6, 9]),
        ("?since=5", vec![6, 9]),
        ("?since=9", vec![]),
        // The snapshot's own generation is newer than the newest event.
        ("?since=412", vec![]),
        ("?kind=connection,finding", vec![6]),
        ("?namespace=graph&pod=server-0", vec![4, 6]),
        ("?pod=server-1", vec![]),
    ] {
        assert_eq!(generations(&get(&router, &format!("/v1/events{query}")).await.json()), expected, "{query}");
    }
    // From an earlier run: everything of this one is new.
    let answer = get(&router, "/v1/events?since=413").await;
    assert_eq!(
        (generations(&answer.json()), &answer.headers["storewatch-restarted"]),
        (vec![4, 6, 9], &"true".parse().unwrap())
    );
}

#[tokio::test]
async fn what_is_no_longer_held_is_said() {
    let Side { publisher, router, .. } = side();
    let last = u64::try_from(HELD).unwrap() + 10;
    publisher.tell((1..=last).map(|generation| event(generation, Connection)).collect());
    for (query, lost, length) in
        [("", "0", HELD), ("?since=0", "10", HELD + 1), ("?since=7", "3", HELD + 1), ("?since=10", "0", HELD)]
    {
        let answer = get(&router, &format!("/v1/events{query}")).await;
        assert_eq!(answer.headers["storewatch-lost"], lost, "{query}");
        let events = answer.json();
        assert_eq!(events.as_array().unwrap().len(), length, "{query}");
        if lost != "0" {
            assert_eq!((&events[0]["kind"], &events[0]["outcome"]), (&json!("loss"), &json!("events")));
            assert_eq!(events[0]["message"], format!("{lost} older events are no longer held"));
        }
        assert_eq!(generations(&events).last(), Some(&last));
    }
}

#[tokio::test]
async fn garbage_is_a_bad_request() {
    let Side { router, .. } = side();
    for (query, words) in [
        ("since=-1", "`since`: `-1` must be a whole number"),
        ("since=", "`since`: `` must be a whole number"),
        ("since=0x10", "must be a whole number"),
        ("since=18446744073709551616", "must be a whole number"),
        ("since=%F0%9F%92%A9", "must be a whole number"),
        ("kind=pings", "`kind`: `pings` must be one or more of: transition, connection, reset, ping"),
        ("kind=", "must be one or more of"),
        ("generation=1", "query key `generation` is unknown"),
    ] {
        for path in ["/v1/events", "/v1/events/stream"] {
            let answer = get(&router, &format!("{path}?{query}")).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}?{query}");
            assert!(answer.json()["detail"].as_str().unwrap().contains(words), "{query}: {}", answer.text);
        }
    }
    for id in ["", "abc", "-1", "1.5"] {
        let request = Request::get("/v1/events/stream").header("last-event-id", id).body(Body::empty()).unwrap();
        assert_eq!(send(&router, request).await.status, StatusCode::BAD_REQUEST, "{id:?}");
    }
}

/// One who reads a stream.
struct Reading {
    body: Body,
    text: String,
}

impl Reading {
    async fn open(router: &Router, path: &str, id: Option<u64>) -> (StatusCode, HeaderMap, Self) {
        let mut request = Request::get(path);
        if let Some(id) = id {
            request = request.header("Last-Event-ID", id);
        }
        let response = tower::ServiceExt::oneshot(router.clone(), request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, parts.headers, Self { body, text: String::new() })
    }

    /// The next event, without waiting for one: its kind, id and data.
    fn next(&mut self) -> Option<(String, u64, Value)> {
        while !self.text.contains("\n\n") {
            let frame = self.body.frame().now_or_never()??.unwrap();
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        let (block, rest) = self.text.split_once("\n\n").unwrap();
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap();
        let event =
            (field("event").to_owned(), field("id").parse().unwrap(), serde_json::from_str(field("data")).unwrap());
        self.text = rest.to_owned();
        Some(event)
    }

    fn ids(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.next()).map(|(_, id, _)| id).collect()
    }
}

#[tokio::test]
async fn a_stream_tells_as_it_happens_and_goes_on_where_a_reader_was() {
    let Side { publisher, router, .. } = side();
    publisher.tell(vec![event(1, Transition), event(2, Connection)]);
    let (status, headers, mut fresh) = Reading::open(&router, "/v1/events/stream", None).await;
    assert_eq!((status, &headers[header::CONTENT_TYPE]), (StatusCode::OK, &"text/event-stream".parse().unwrap()));
    assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(fresh.next(), None, "only what happens from now on");
    publisher.tell(vec![event(3, Finding), event(5, Connection)]);
    let (kind, id, data) = fresh.next().unwrap();
    assert_eq!((kind.as_str(), id, &data["kind"], &data["generation"]), ("finding", 3, &json!("finding"), &json!(3)));
    assert_eq!(fresh.ids(), [5]);

    for (path, id, expected) in [
        ("/v1/events/stream?since=0", None, vec![1, 2, 3, 5]),
        ("/v1/events/stream?since=1", None, vec![2, 3, 5]),
        ("/v1/events/stream?since=1", Some(3), vec![5]),
        ("/v1/events/stream", Some(0), vec![1, 2, 3, 5]),
        ("/v1/events/stream", Some(5), vec![]),
        ("/v1/events/stream?kind=transition,finding", Some(0), vec![1, 3]),
        ("/v1/events/stream?pod=server-1", Some(0), vec![]),
    ] {
        let (_, headers, mut reading) = Reading::open(&router, path, id).await;
        assert_eq!((reading.ids(), &headers["storewatch-lost"]), (expected, &"0".parse().unwrap()), "{path} {id:?}");
    }
    let (_, headers, mut reading) = Reading::open(&router, "/v1/events/stream", Some(1_000_000)).await;
    assert_eq!((reading.ids(), &headers["storewatch-restarted"]), (vec![1, 2, 3, 5], &"true".parse().unwrap()));
}

#[tokio::test]
async fn a_slow_reader_loses_with_a_count_and_holds_up_nobody() {
    let Side { publisher, router, .. } = side();
    publisher.tell(vec![event(1, Transition)]);
    let (_, _, mut slow) = Reading::open(&router, "/v1/events/stream?since=0", None).await;
    assert_eq!(slow.ids(), [1]);
    let last = u64::try_from(HELD).unwrap() * 3;
    for generation in 2..=last {
        publisher.tell(vec![event(generation, if generation == 5 { Transition } else { Connection })]);
    }
    let lost = last - 2 - u64::try_from(HELD).unwrap();
    let (kind, id, data) = slow.next().unwrap();
    assert_eq!((kind.as_str(), id), ("loss", 1), "whoever comes back with this id misses nothing that is held");
    assert_eq!(data["message"], format!("{lost} events were no longer held when this reader came to them"));
    let (kind, id, _) = slow.next().unwrap();
    assert_eq!((kind.as_str(), id), ("transition", 5), "the storm did not push it out");
    let rest = slow.ids();
    assert_eq!((rest.len(), rest.last()), (HELD, Some(&last)));
    assert!(rest.is_sorted());
    let (_, headers, mut late) = Reading::open(&router, "/v1/events/stream", Some(1)).await;
    assert_eq!(headers["storewatch-lost"].to_str().unwrap().parse::<u64>().unwrap(), lost);
    assert_eq!(late.next().unwrap().0, "loss");
}

#[tokio::test]
async fn the_streams_are_bounded_and_end_with_the_agent() {
    let Side { publisher, router, draining } = side();
    let mut readings = Vec::new();
    for _ in 0..MAX_STREAMS {
        let (status, _, reading) = Reading::open(&router, "/v1/events/stream", None).await;
        assert_eq!(status, StatusCode::OK);
        readings.push(reading);
    }
    let answer = get(&router, "/v1/events/stream").await;
    assert_eq!(
        (answer.status, &answer.headers[header::RETRY_AFTER]),
        (StatusCode::SERVICE_UNAVAILABLE, &"5".parse().unwrap())
    );
    assert_eq!(answer.json()["detail"], "32 readers follow already");
    readings.pop();
    let (status, _, mut reading) = Reading::open(&router, "/v1/events/stream", None).await;
    assert_eq!(status, StatusCode::OK, "who leaves makes room");

    assert_eq!(reading.next(), None);
    publisher.tell(vec![event(7, Transition)]);
    draining.cancel();
    for mut reading in readings.into_iter().chain([reading]) {
        assert!(reading.body.frame().now_or_never().unwrap().is_none(), "the stream has an end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_news_says_that_it_lives() {
    let Side { router, .. } = side();
    let (_, _, mut reading) = Reading::open(&router, "/v1/events/stream", None).await;
    let frame = tokio::time::timeout(KEEP_ALIVE * 2, reading.body.frame()).await.unwrap().unwrap().unwrap();
    assert!(frame.data_ref().unwrap().starts_with(b":"), "a comment: {frame:?}");
}
