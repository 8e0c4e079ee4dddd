//! What happens, as it is told: `/v1/events`, its stream, and `storewatch events`.

use crate::daemon::{Daemon, FIRST_STORE, Storage};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    time::Instant,
};
use storewatch_hugegraph::testkit::{pd::PdFault, store::StoreFault};

const POD: &str = "/readiness/pods/graph/server-0";

fn ready(daemon: &Daemon) {
    daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready" && body["unanswered_stores"] == json!([]));
}

fn is(event: &Value, kind: &str, from: &str, to: &str) -> bool {
    event["kind"] == kind && event["from"] == from && event["to"] == to
}

#[test]
fn the_stream_tells_a_fault_from_the_ping_to_the_verdict_and_back() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    ready(&daemon);
    let mut stream = daemon.stream("/v1/events/stream", "");
    assert!(
        stream.head.starts_with("HTTP/1.") && stream.head.contains("content-type: text/event-stream"),
        "{}",
        stream.head
    );

    storage.all_stores(&StoreFault::Down);
    let id = json!(FIRST_STORE.to_string());
    let ping = stream.until("a ping fails", |event| event["kind"] == "ping" && event["target"] == id);
    assert_eq!(
        (&ping["from"], &ping["to"], &ping["outcome"]),
        (&json!("serving"), &json!("refused"), &json!("refused"))
    );
    let pod = stream.until("the pod leaves", |event| event["pod"] == "server-0" && event["kind"] == "transition");
    assert!(is(&pod, "transition", "StoreAnswering", "NoStoreAnswers") && pod["namespace"] == "graph", "{pod}");
    // The snapshot is at least as new as any event that was told.
    let (_, snapshot) = daemon.admin("/v1/snapshot");
    assert!(snapshot["generation"].as_u64() >= pod["generation"].as_u64());
    let held = daemon.admin("/v1/events?kind=finding").1;
    assert!(
        held.as_array().unwrap().iter().any(|event| event["outcome"] == "StoreDown" && event["to"] == "StoreDown"),
        "{held:#}"
    );

    // A client that lost its connection comes back with what it has.
    drop(stream);
    storage.all_stores(&StoreFault::None);
    ready(&daemon);
    let id = pod["generation"].as_u64().unwrap();
    let mut stream = daemon.stream("/v1/events/stream?since=0", &format!("Last-Event-ID: {id}\r\n"));
    let first = stream.until("anything", |_| true);
    assert!(first["generation"].as_u64() > Some(id), "{first}");
    stream.until("the pod is back", |event| {
        event["pod"] == "server-0" && is(event, "transition", "NoStoreAnswers", "StoreAnswering")
    });

    // PD is told too, and each failing attempt is not an event of its own.
    storage.pd.state.send_modify(|state| state.fault = PdFault::Down);
    stream.until("pd goes", |event| is(event, "ping", "reachable", "unreachable") && event["target"] == "pd");
    stream.until("it is a finding", |event| event["outcome"] == "PdDown" && event["to"] == "PdDown");
    let begun = Instant::now();
    let rounds = |body: &Value| body["age_ms"].as_u64();
    let mut seen = 0;
    while seen < 5 {
        let age = rounds(&daemon.get(POD).unwrap().1);
        seen += u32::from(age < Some(50));
        assert!(begun.elapsed().as_secs() < 30);
    }
    let told = daemon.admin("/v1/events?kind=ping").1;
    let of_pd =
        told.as_array().unwrap().iter().filter(|event| event["target"] == "pd" && event["to"] == "unreachable").count();
    assert_eq!(of_pd, 1, "{told:#}");
}

#[test]
fn the_cause_of_a_degraded_source_is_told() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    ready(&daemon);
    let mut stream = daemon.stream("/v1/events/stream?since=0&kind=source", "");
    storage.pd.state.send_modify(|state| state.fault = PdFault::Down);
    let told = stream
        .until("pd", |event| event["to"] == "degraded" && event["message"].as_str().unwrap().starts_with("pd is"));
    let cause = told["message"].as_str().unwrap();
    assert!(cause.contains(&storage.pd.address.to_string()), "{cause}");
    storage.pd.state.send_modify(|state| state.fault = PdFault::NoLeader);
    // The same state, another cause.
    let told = stream.until("pd again", |event| event["message"].as_str().unwrap().starts_with("pd is"));
    assert_eq!((&told["from"], &told["to"]), (&json!("degraded"), &json!("degraded")), "{told}");
    assert_ne!(told["message"].as_str().unwrap(), cause);
}

fn follow(daemon: &Daemon, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_storewatch"))
        .args(["events", "--follow", "--agent", &daemon.address()])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads the child's output up to the first line with all of these words.
fn until(lines: &mut impl Iterator<Item = std::io::Result<String>>, words: &[&str]) -> String {
    let found = lines.map(|line| line.unwrap()).find(|line| words.iter().all(|word| line.contains(word)));
    found.unwrap_or_else(|| panic!("no line has {words:?}"))
}

fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_follower_sees_what_was_and_what_comes_and_ends_with_the_agent() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    ready(&daemon);
    let mut table = follow(&daemon, &[]);
    let mut lines = BufReader::new(table.stdout.take().unwrap()).lines();
    until(&mut lines, &["TIME", "GENERATION", "KIND", "MESSAGE"]);
    until(&mut lines, &["transition", "graph/server-0", "NoEvidenceYet -> StoreAnswering"]);
    let mut json = follow(&daemon, &["-o", "json", "--kind", "transition", "--pod", "graph/server-0"]);
    let mut objects = BufReader::new(json.stdout.take().unwrap()).lines();
    until(&mut objects, &["\"StoreAnswering\""]);

    storage.all_stores(&StoreFault::Down);
    until(&mut lines, &["transition", "graph/server-0", "StoreAnswering -> NoStoreAnswers", "0 of 3 stores"]);
    let line = until(&mut objects, &["NoStoreAnswers"]);
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["kind"], &event["pod"]), (&json!("transition"), &json!("server-0")));

    // Ctrl-C is an end in order.
    kill(nix::unistd::Pid::from_raw(json.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!((json.wait().unwrap().code(), errors(&mut json).as_str()), (Some(0), ""));

    let begun = Instant::now();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    assert!(begun.elapsed().as_secs() < 5, "a stream held up the end of the agent");
    assert_eq!(table.wait().unwrap().code(), Some(1));
    let said = errors(&mut table);
    assert!(said.contains("has ended the stream") && said.lines().count() == 1, "{said}");
    assert_eq!(follow(&daemon, &[]).wait().unwrap().code(), Some(2), "and now nobody answers");
}

#[test]
fn an_agent_that_is_killed_ends_its_followers_with_a_word() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    ready(&daemon);
    let mut child = follow(&daemon, &["--kind", "transition"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    until(&mut lines, &["StoreAnswering"]);
    // It follows once what comes next is seen.
    storage.all_stores(&StoreFault::Down);
    until(&mut lines, &["NoStoreAnswers"]);
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(errors(&mut child).lines().count(), 1);

    // From an earlier run: said, and everything of this run is given.
    storage.all_stores(&StoreFault::None);
    daemon.start_again();
    ready(&daemon);
    let ended = Command::new(env!("CARGO_BIN_EXE_storewatch"))
        .args(["events", "--since", "1000000", "--agent", &daemon.address()])
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("has restarted since"));
    assert!(String::from_utf8_lossy(&ended.stdout).contains("kernel is absent"), "the first word of every run");
}

#[test]
fn readers_that_do_not_read_are_bounded_and_hold_up_nothing() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    ready(&daemon);
    let streams: Vec<_> = (0..32).map(|_| daemon.stream("/v1/events/stream?since=0", "")).collect();
    assert!(streams.iter().all(|stream| stream.head.contains(" 200 ")));
    let refused = daemon.stream("/v1/events/stream", "");
    assert!(refused.head.contains(" 503 ") && refused.head.contains("retry-after: 5"), "{}", refused.head);
    for path in ["/v1/events?since=-1", "/v1/events?since=latest", "/v1/events/stream?since=1.5", "/v1/events?untl=3"] {
        let (code, problem) = daemon.admin(path);
        assert_eq!((code, &problem["status"]), (400, &json!(400)), "{path}");
    }
    // Things go on as ever.
    storage.all_stores(&StoreFault::Down);
    daemon.until(POD, |code, _| code == 503);
    storage.all_stores(&StoreFault::None);
    daemon.until(POD, |code, _| code == 200);
    let begun = Instant::now();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    assert!(begun.elapsed().as_secs() < 5, "readers that do not read held up the end");
}
