//! The source against PD peers on loopback.

use super::*;
use crate::observe::{self, ObservationReceiver};
use storewatch_hugegraph::testkit::{
    LocalPd,
    pd::{Listed, PdFault, PdState, UP},
};
use tokio::time::timeout;

const CADENCE: Cadence = Cadence {
    interval: Duration::from_millis(50),
    idle_interval: Duration::from_millis(500),
    pd_interval: Duration::from_millis(400),
    dns_interval: Duration::from_secs(10),
    timeout: Duration::from_millis(200),
    max_stores_per_round: 16,
};

fn listed() -> Vec<Listed> {
    vec![Listed { id: 7, address: "store-0.store.graph.svc:8500".into(), state: UP }]
}

fn start(peers: &[&LocalPd]) -> (ObservationReceiver, JoinSet<Result<(), EngineEnded>>) {
    let peers =
        peers.iter().map(|pd| HostPort { host: pd.address.ip().to_string().into(), port: pd.address.port() }).collect();
    let (sender, observations) = observe::channel();
    let mut task = JoinSet::new();
    task.spawn(run(CADENCE, vec![peers], Arc::new(Names::default()), sender));
    (observations, task)
}

async fn report(observations: &mut ObservationReceiver, what: &str, holds: impl Fn(&PdReport) -> bool) -> PdReport {
    let wait = async {
        loop {
            if let Observation::Pd(report) = observations.recv().await.unwrap()
                && holds(&report)
            {
                return report;
            }
        }
    };
    timeout(Duration::from_secs(10), wait).await.unwrap_or_else(|_| panic!("never: {what}"))
}

#[tokio::test]
async fn the_list_is_read_at_its_interval_and_often_without_one() {
    let pd = LocalPd::start(PdState::default()).unwrap();
    let (mut observations, _task) = start(&[&pd]);
    // Empty: no list is known, so the next attempt comes after `interval`.
    let first = report(&mut observations, "an empty list", |report| report.list.as_deref() == Some(&[])).await;
    let second = report(&mut observations, "another", |report| report.list.is_some()).await;
    assert!(second.started.since(first.started) < CADENCE.pd_interval / 2);
    pd.state.send_modify(|state| state.stores = listed());
    let known = |report: &PdReport| report.list.as_ref().is_some_and(|list| list.len() == 1 && list[0].id == 7);
    let first = report(&mut observations, "the list", known).await;
    let second = report(&mut observations, "the list again", known).await;
    let gap = second.started.since(first.started);
    assert!(gap >= CADENCE.pd_interval.mul_f64(0.85), "{gap:?}");
    // PD does not answer: often again.
    pd.state.send_modify(|state| state.fault = PdFault::Down);
    let silent = |report: &PdReport| report.list.is_none() && !report.peers[0].alive;
    let first = report(&mut observations, "silence", silent).await;
    let second = report(&mut observations, "silence again", silent).await;
    assert!(second.started.since(first.started) < CADENCE.pd_interval / 2);
}

#[tokio::test]
async fn a_list_does_not_wait_for_a_frozen_peer() {
    let frozen = LocalPd::start(PdState { stores: listed(), fault: PdFault::Frozen }).unwrap();
    let good = LocalPd::start(PdState { stores: listed(), fault: PdFault::None }).unwrap();
    let (mut observations, _task) = start(&[&frozen, &good]);
    let early = report(&mut observations, "the list alone", |report| report.peers.len() == 1).await;
    assert!(early.list.is_some() && early.peers[0].peer == 1);
    let whole = report(&mut observations, "the whole attempt", |report| report.peers.len() == 2).await;
    assert!(!whole.peers[0].alive && whole.peers[1].alive && whole.list == early.list);
}

#[tokio::test]
async fn the_source_says_what_is_wrong_with_which_peer() {
    let pd = LocalPd::start(PdState { stores: listed(), fault: PdFault::NoLeader }).unwrap();
    let (mut observations, _task) = start(&[&pd]);
    let detail = timeout(Duration::from_secs(10), async {
        loop {
            if let Observation::Source(report) = observations.recv().await.unwrap() {
                assert_eq!(report.source, SourceName::Pd);
                if report.state == SourceState::Degraded {
                    return report.detail;
                }
            }
        }
    })
    .await
    .unwrap();
    assert!(detail.contains(&pd.address.to_string()) && detail.contains("no answer"), "{detail}");
}

#[tokio::test]
async fn a_cluster_without_peers_is_absent_and_ends_nothing() {
    let (sender, mut observations) = observe::channel();
    let mut task: JoinSet<Result<(), EngineEnded>> = JoinSet::new();
    task.spawn(run(CADENCE, vec![vec![]], Arc::new(Names::default()), sender));
    let Some(Observation::Source(report)) = observations.recv().await else { panic!("no word") };
    assert_eq!(report.state, SourceState::Absent);
    assert!(timeout(Duration::from_millis(100), task.join_next()).await.is_err());
}
