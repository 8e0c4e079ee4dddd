//! PD: the list, and who is alive.

use crate::{BUDGET, host_port};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use storewatch_core::{ping::PeerReport, topology::ReportedState};
use storewatch_hugegraph::{
    fault::Fault,
    pd::{Attempt, PdPeers},
    testkit::{
        LocalPd,
        pd::{Listed, PdFault, PdState, UP},
    },
};
use tokio::time::Instant;
use tonic::Code;

fn listed() -> Vec<Listed> {
    let store = |id, state| Listed { id, address: format!("store-{id}.store.graph.svc:8500"), state };
    // Up, Up, Offline, Tombstone, Pending, and a number that no version has.
    vec![store(1_844_095_761_336_398_711, UP), store(2, UP), store(3, 2), store(4, 3), store(5, 4), store(6, -1)]
}

fn start(fault: PdFault) -> LocalPd {
    LocalPd::start(PdState { stores: listed(), fault }).unwrap()
}

async fn attempt(peers: &mut PdPeers, servers: &[&LocalPd], budget: Duration) -> (Attempt, Vec<Attempt>) {
    let addresses: Vec<SocketAddr> = servers.iter().map(|pd| pd.address).collect();
    let early = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&early);
    let done = peers
        .attempt(
            |peer| {
                let address = addresses[peer];
                async move { Ok(vec![address]) }
            },
            budget,
            |so_far| seen.lock().unwrap().push(so_far),
        )
        .await;
    let early = early.lock().unwrap().clone();
    (done, early)
}

fn peers(servers: &[&LocalPd]) -> PdPeers {
    PdPeers::new(servers.iter().map(|pd| host_port(pd.address)).collect())
}

/// One peer with a fault: (list given, alive, health serving, refused, words).
#[tokio::test]
async fn each_fault_of_a_single_peer_is_told() {
    let short = Duration::from_millis(200);
    for (fault, budget, list, alive, serving, refused, words) in [
        (PdFault::None, BUDGET, true, true, None, false, ""),
        (PdFault::Down, BUDGET, false, false, None, false, "refused"),
        (PdFault::Frozen, short, false, false, None, false, "http2"),
        (PdFault::NoLeader, short, false, true, Some(true), false, "list: no answer"),
        (PdFault::Answers(Code::Unavailable), BUDGET, false, true, Some(true), false, "Unavailable"),
        (PdFault::Answers(Code::Unauthenticated), BUDGET, false, true, Some(true), true, "Unauthenticated"),
        (PdFault::Answers(Code::PermissionDenied), BUDGET, false, true, Some(true), true, "PermissionDenied"),
        (PdFault::HeaderError(100), BUDGET, false, true, Some(true), false, "NOT_LEADER"),
        (PdFault::HeaderError(-1), BUDGET, false, true, Some(true), false, "PD error -1"),
    ] {
        let pd = start(PdFault::None);
        pd.state.send_modify(|state| state.fault = fault);
        let mut peers = peers(&[&pd]);
        let begin = Instant::now();
        let (done, report) = loop {
            let (done, _) = attempt(&mut peers, &[&pd], budget).await;
            let report = done.peers[0].clone();
            let told = report.error.as_deref().unwrap_or_default().contains(words);
            if done.list.is_some() == list && told || begin.elapsed() > Duration::from_secs(5) {
                break (done, report);
            }
        };
        assert_eq!(done.list.is_some(), list, "{fault:?}: {done:?}");
        assert_eq!((report.alive, report.auth_refused), (alive, refused), "{fault:?}: {report:?}");
        if !list {
            assert_eq!(report.health_serving, serving, "{fault:?}: {report:?}");
        }
        let error = report.error.as_deref().unwrap_or_default();
        assert!(error.contains(words), "{fault:?}: {error:?} does not say {words:?}");
    }
}

#[tokio::test]
async fn the_list_holds_every_state() {
    let pd = start(PdFault::None);
    let (done, _) = attempt(&mut peers(&[&pd]), &[&pd], BUDGET).await;
    let list = done.list.unwrap();
    let states: Vec<ReportedState> = list.stores.iter().map(|store| store.state).collect();
    use ReportedState::{Offline, Other, Pending, Tombstone, Up};
    assert_eq!(states, [Up, Up, Offline, Tombstone, Pending, Other(-1)]);
    assert_eq!(list.stores[0].id, 1_844_095_761_336_398_711);
    assert!(list.notes.is_empty());

    pd.state.send_modify(|state| state.stores.clear());
    let (done, _) = attempt(&mut peers(&[&pd]), &[&pd], BUDGET).await;
    assert_eq!(done.list.map(|list| list.stores), Some(vec![]), "an empty list is an answer");
}

#[tokio::test]
async fn a_hung_first_peer_costs_its_head_start_only() {
    for fault in [PdFault::NoLeader, PdFault::Frozen] {
        let (hung, good) = (start(fault), start(PdFault::None));
        let servers = [&hung, &good];
        let mut peers = peers(&servers);
        let begin = Instant::now();
        let (done, early) = attempt(&mut peers, &servers, BUDGET).await;
        assert!(done.list.is_some(), "{fault:?}");
        assert_eq!(done.peers.len(), 2);
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(240), "the first peer had its head start: {took:?}");
        if fault == PdFault::Frozen {
            // Its silence lasts the budget, and the list was told before.
            assert!(early.len() == 1 && early[0].list.is_some() && early[0].peers.len() == 1, "{early:?}");
            let PeerReport { peer, alive, .. } = done.peers[0];
            assert!(peer == 0 && !alive);
        }
        // The next attempt begins with the peer that gave the list.
        let begin = Instant::now();
        let (done, early) = attempt(&mut peers, &servers, BUDGET).await;
        assert!(done.list.is_some());
        let first = early.first().unwrap_or(&done);
        assert!(first.peers.iter().any(|peer| peer.peer == 1));
        if fault == PdFault::NoLeader {
            assert!(begin.elapsed() < Duration::from_millis(240), "{:?}", begin.elapsed());
        }
    }
}

#[tokio::test]
async fn a_dead_first_peer_costs_nothing() {
    let (dead, good) = (start(PdFault::Down), start(PdFault::None));
    let servers = [&dead, &good];
    let mut peers = peers(&servers);
    let begin = Instant::now();
    let (done, _) = attempt(&mut peers, &servers, BUDGET).await;
    assert!(done.list.is_some() && begin.elapsed() < Duration::from_millis(240), "{:?}", begin.elapsed());
    assert!(!done.peers[0].alive && done.peers[1].alive);
}

#[tokio::test]
async fn a_peer_without_an_address_was_not_asked() {
    let good = start(PdFault::None);
    let good = &good;
    let mut peers = peers(&[good, good]);
    let addresses = |position| async move {
        if position == 0 { Err(Fault::Unreachable("no such name".to_owned())) } else { Ok(vec![good.address]) }
    };
    let done = peers.attempt(addresses, BUDGET, |_| {}).await;
    let [nameless, asked] = done.peers.as_slice() else { panic!("{done:?}") };
    assert!(nameless.unresolved && !nameless.alive && !asked.unresolved && asked.alive, "{done:?}");
    assert!(done.list.is_some(), "it costs nothing");
}

#[tokio::test]
async fn without_a_leader_every_peer_lives_and_none_lists() {
    let servers = [start(PdFault::NoLeader), start(PdFault::NoLeader), start(PdFault::Answers(Code::Unavailable))];
    let servers: Vec<&LocalPd> = servers.iter().collect();
    let (done, early) = attempt(&mut peers(&servers), &servers, Duration::from_millis(400)).await;
    assert!(done.list.is_none() && early.is_empty());
    assert!(done.peers.iter().all(|peer| peer.alive && peer.health_serving == Some(true)), "{done:?}");
}
