//! What counts as a Store's answer.

use crate::{BUDGET, host_port};
use std::{net::TcpListener, sync::Arc, time::Duration};
use storewatch_core::ping::PingOutcome;
use storewatch_hugegraph::{
    call::LARGEST_MESSAGE,
    connect::Connection,
    store::{StoreAnswer, StorePing},
    testkit::{LocalStore, store::StoreFault},
};
use tokio::{sync::Notify, time::Instant};
use tonic::Code;

const NAME: &str = "store-0.store.graph.svc:8500";

async fn ping(store: &LocalStore, identity: Option<&str>, kept: Option<Connection>, budget: Duration) -> StoreAnswer {
    let ping = StorePing {
        remote: store.address,
        authority: &host_port(store.address),
        identity,
        deadline: Instant::now() + budget,
    };
    ping.send(kept, None).await
}

/// One row: the fault, the outcome, and a part of the words that tell it.
#[tokio::test]
async fn each_fault_has_its_outcome() {
    use PingOutcome::{Deadline, Identity, NotAllowed, Protocol, Refused, Serving};
    let short = Duration::from_millis(150);
    let rows = [
        (StoreFault::None, Serving, "", BUDGET),
        (StoreFault::Answers(Code::Unimplemented), Serving, "Unimplemented", BUDGET),
        (StoreFault::Answers(Code::Unauthenticated), NotAllowed, "Unauthenticated", BUDGET),
        (StoreFault::Answers(Code::PermissionDenied), NotAllowed, "PermissionDenied", BUDGET),
        (StoreFault::Answers(Code::Unavailable), Protocol, "Unavailable", BUDGET),
        (StoreFault::Answers(Code::Internal), Protocol, "Internal", BUDGET),
        (StoreFault::Answers(Code::ResourceExhausted), Protocol, "ResourceExhausted", BUDGET),
        (StoreFault::Answers(Code::DeadlineExceeded), Deadline, "DeadlineExceeded", BUDGET),
        (StoreFault::Names("store-1.store.graph.svc:8500".into()), Identity, "store-1", BUDGET),
        (StoreFault::Names("STORE-0.store.graph.svc.cluster.local.:8500".into()), Serving, "", BUDGET),
        (StoreFault::Names(String::new()), Serving, "", BUDGET),
        (StoreFault::Down, Refused, "refused", BUDGET),
        (StoreFault::Frozen, Deadline, "http2", short),
        (StoreFault::Hangs, Deadline, "rpc", short),
        (StoreFault::GoAway, Protocol, "too_many_pings", BUDGET),
        (StoreFault::Http1, Protocol, "HTTP/1", BUDGET),
        (StoreFault::Tls, Protocol, "TLS", BUDGET),
        (StoreFault::Closes, Refused, "by the peer", BUDGET),
        (StoreFault::Huge(LARGEST_MESSAGE + 1), Protocol, "above", Duration::from_secs(10)),
        (StoreFault::WrongMessage, Protocol, "malformed", BUDGET),
        (StoreFault::EndlessTrailers, Protocol, "excessive", Duration::from_secs(5)),
        (StoreFault::EndlessMessage, Protocol, "flow-control", Duration::from_secs(5)),
        (StoreFault::ProxyRefuses(403), Protocol, "proxy", BUDGET),
        (StoreFault::ProxyRefuses(404), Protocol, "proxy", BUDGET),
        (StoreFault::ProxyAnswers, Protocol, "envoy", BUDGET),
        (StoreFault::Html, Protocol, "text/html", BUDGET),
        (StoreFault::NoStatus, Protocol, "no grpc-status", BUDGET),
    ];
    let store = LocalStore::start(Some(NAME)).unwrap();
    for (fault, outcome, words, budget) in rows {
        store.fault.send_replace(fault.clone());
        let begin = Instant::now();
        // A switch takes effect as soon as the server's task has run: until then the old answer may come.
        let answer = loop {
            let answer = ping(&store, Some(NAME), None, budget).await;
            let told = answer.detail.as_deref().unwrap_or_default().contains(words);
            if answer.outcome == outcome && told || begin.elapsed() > Duration::from_secs(20) {
                break answer;
            }
        };
        assert_eq!(answer.outcome, outcome, "{fault:?}: {answer:?}");
        let detail = answer.detail.as_deref().unwrap_or_default();
        assert!(detail.contains(words), "{fault:?}: {detail:?} does not say {words:?}");
        assert!(detail.chars().count() <= 300 && !detail.contains('\n'), "{fault:?}: {detail:?}");
        assert_eq!(answer.kept.is_some(), outcome.answers(), "{fault:?}");
        assert!(answer.fresh);
    }
}

#[tokio::test]
async fn a_deadline_is_kept_and_names_its_phase() {
    let store = LocalStore::start(None).unwrap();
    store.fault.send_replace(StoreFault::Hangs);
    let begin = Instant::now();
    let answer = ping(&store, None, None, Duration::from_millis(200)).await;
    let took = begin.elapsed();
    assert_eq!(answer.outcome, PingOutcome::Deadline);
    assert!((Duration::from_millis(200)..Duration::from_millis(600)).contains(&took), "{took:?}");
    let phases = answer.phases;
    assert!(phases.connect.is_some() && phases.http2.is_some() && phases.rpc.is_some(), "{phases:?}");

    // Nobody accepts and the backlog is full: the kernel drops the SYN, and the connect phase takes it all.
    let listener = socket_with_full_backlog();
    let remote = listener.0.local_addr().unwrap();
    let ping = StorePing {
        remote,
        authority: &host_port(remote),
        identity: None,
        deadline: Instant::now() + Duration::from_millis(200),
    };
    let answer = ping.send(None, None).await;
    assert_eq!(answer.outcome, PingOutcome::Deadline);
    assert!(answer.detail.as_deref().unwrap_or_default().contains("connect"), "{answer:?}");
    assert!(answer.phases.http2.is_none() && answer.phases.rpc.is_none());
}

/// A listener that nobody accepts from, and as many connections as fill its queue.
fn socket_with_full_backlog() -> (TcpListener, Vec<std::net::TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: the descriptor is open; listen(2) on a listening socket changes its backlog.
    let result = unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) };
    assert_eq!(result, 0);
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        held.push(stream);
        assert!(held.len() < 100, "the backlog never fills");
    }
    (listener, held)
}

#[tokio::test]
async fn a_kept_connection_is_used_again_and_its_loss_is_told() {
    let store = LocalStore::start(None).unwrap();
    let lost = Arc::new(Notify::new());
    let authority = host_port(store.address);
    let order = |budget: Duration| StorePing {
        remote: store.address,
        authority: &authority,
        identity: None,
        deadline: Instant::now() + budget,
    };
    let first = order(BUDGET).send(None, Some(Arc::clone(&lost))).await;
    assert!(first.fresh && first.kept.is_some());
    let second = order(BUDGET).send(first.kept, Some(Arc::clone(&lost))).await;
    assert!(!second.fresh && second.outcome == PingOutcome::Serving);
    assert!(second.phases.connect.is_none() && second.phases.rpc.is_some());

    store.fault.send_replace(StoreFault::Down);
    tokio::time::timeout(BUDGET, lost.notified()).await.expect("the loss is told at once");
    let kept = second.kept.unwrap();
    assert!(kept.is_closed());
    let third = order(BUDGET).send(Some(kept), Some(Arc::clone(&lost))).await;
    assert_eq!(third.outcome, PingOutcome::Refused);
    assert!(third.fresh && third.kept.is_none());

    store.fault.send_replace(StoreFault::None);
    let begin = Instant::now();
    while order(BUDGET).send(None, None).await.outcome != PingOutcome::Serving {
        assert!(begin.elapsed() < Duration::from_secs(5), "it never came back");
    }
}

#[tokio::test]
async fn a_frozen_store_does_not_answer_on_a_kept_connection_until_it_thaws() {
    let store = LocalStore::start(None).unwrap();
    let kept = ping(&store, None, None, BUDGET).await.kept;
    store.fault.send_replace(StoreFault::Frozen);
    let answer = ping(&store, None, kept, Duration::from_millis(150)).await;
    assert_eq!(answer.outcome, PingOutcome::Deadline);
    assert!(!answer.fresh && answer.kept.is_none());
    store.fault.send_replace(StoreFault::None);
    assert_eq!(ping(&store, None, None, BUDGET).await.outcome, PingOutcome::Serving);
}

#[tokio::test]
async fn dropping_a_connection_closes_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = listener.local_addr().unwrap();
    let authority = host_port(remote);
    let open = async {
        let deadline = Instant::now() + Duration::from_millis(100);
        Connection::open(remote, &authority, deadline, None, &mut Default::default()).await
    };
    let (opened, accepted) = tokio::join!(open, listener.accept());
    assert!(opened.is_err(), "nobody greeted");
    let mut stream = accepted.unwrap().0;
    let mut all = Vec::new();
    // The given-up handshake closes its socket: reading comes to an end.
    let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut all);
    tokio::time::timeout(BUDGET, read).await.expect("the socket is closed").ok();
    assert!(all.starts_with(b"PRI * HTTP/2.0"));
}
