//! The whole source against Stores on loopback, in real time.

use super::{CADENCE, CLUSTER};
use crate::{
    observe::{self, ObservationReceiver},
    requests::{self, RequestSender},
    source::{names::Names, pings},
};
use std::{sync::Arc, time::Duration};
use storewatch_core::{
    id::{HostPort, TargetId, TargetKey},
    observation::Observation,
    ping::{Ping, PingOutcome, Purpose, RoundEnded},
    request::Request,
    topology::Target,
};
use storewatch_hugegraph::testkit::{LocalStore, store::StoreFault};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

struct Node {
    stores: Vec<LocalStore>,
    requests: RequestSender,
    observations: ObservationReceiver,
    _tasks: JoinSet<Result<(), observe::EngineEnded>>,
}

impl Node {
    fn start(count: u64) -> Self {
        let stores: Vec<LocalStore> = (0..count).map(|_| LocalStore::start(None).unwrap()).collect();
        let (sender, observations) = observe::channel();
        let (requests, clusters, _) = requests::channel(1);
        let targets = stores
            .iter()
            .zip(1..)
            .map(|(store, id)| Target {
                id: TargetId { cluster: CLUSTER, key: TargetKey::Store(id) },
                address: HostPort { host: store.address.ip().to_string().into(), port: store.address.port() },
                identity: None,
            })
            .collect();
        requests.route(Request::PodsPresent { cluster: CLUSTER, present: true });
        requests.route(Request::Targets { cluster: CLUSTER, targets });
        let mut tasks = JoinSet::new();
        tasks.spawn(pings::run(CADENCE, clusters, Arc::new(Names::default()), sender));
        Self { stores, requests, observations, _tasks: tasks }
    }

    fn all(&self, fault: &StoreFault) {
        for store in &self.stores {
            store.fault.send_replace(fault.clone());
        }
    }

    async fn until<T>(&mut self, what: &str, mut takes: impl FnMut(Observation) -> Option<T>) -> T {
        let wait = async {
            loop {
                if let Some(taken) = takes(self.observations.recv().await.unwrap()) {
                    return taken;
                }
            }
        };
        timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("never: {what}"))
    }

    async fn round(&mut self) -> (Vec<Ping>, RoundEnded) {
        let mut pings = Vec::new();
        self.until("the end of a round", move |observation| match observation {
            Observation::Ping(ping) => {
                pings.push(ping);
                None
            }
            Observation::RoundEnded(round) => Some((std::mem::take(&mut pings), round)),
            _ => None,
        })
        .await
    }

    /// Two rounds without an answer that count: what the default thresholds ask for.
    async fn two_failed_rounds(&mut self) -> Duration {
        let begin = Instant::now();
        let mut failed: Vec<RoundEnded> = Vec::new();
        while failed.len() < 2 {
            let (pings, round) = self.round().await;
            let answered = pings.iter().any(|ping| ping.outcome.answers());
            let spaced = failed.last().is_none_or(|last| round.started.since(last.started).as_millis() >= 150);
            if answered || round.late || !round.sweep_complete {
                failed.clear();
            } else if spaced {
                failed.push(round);
            }
        }
        begin.elapsed()
    }
}

#[tokio::test]
async fn killed_stores_are_known_dead_at_once_and_alive_soon_after_they_return() {
    let mut node = Node::start(3);
    let (pings, round) = node.round().await;
    assert!(pings.len() == 3 && pings.iter().all(|ping| ping.outcome == PingOutcome::Serving && ping.fresh));
    assert!(pings.iter().all(|ping| ping.identity.is_some() && ping.phases.http2.is_some()), "{pings:?}");
    assert_eq!(round.asked.len(), 3);
    let (pings, _) = node.round().await;
    assert!(pings.iter().all(|ping| ping.outcome == PingOutcome::Serving && !ping.fresh), "kept channels");

    node.all(&StoreFault::Down);
    let took = node.two_failed_rounds().await;
    assert!(took < Duration::from_millis(300), "{took:?}");

    node.stores[1].fault.send_replace(StoreFault::None);
    let begin = Instant::now();
    let ping = node
        .until("an answer", |observation| match observation {
            Observation::Ping(ping) if ping.outcome.answers() => Some(ping),
            _ => None,
        })
        .await;
    assert!(ping.fresh && ping.target.key == TargetKey::Store(2), "a recovery is seen on a fresh connection: {ping:?}");
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn frozen_stores_are_known_hung_within_two_budgets() {
    let mut node = Node::start(2);
    node.round().await;
    node.all(&StoreFault::Frozen);
    let took = node.two_failed_rounds().await;
    assert!(took > CADENCE.timeout && took < Duration::from_millis(4300), "{took:?}");
}

#[tokio::test]
async fn a_contrast_goes_to_its_own_address() {
    let mut node = Node::start(1);
    let elsewhere = LocalStore::start(None).unwrap();
    node.round().await;
    let target = TargetId { cluster: CLUSTER, key: TargetKey::Store(1) };
    node.requests.route(Request::Contrast { target, remote: elsewhere.address });
    let ping = node
        .until("the contrast", |observation| match observation {
            Observation::Ping(ping) if ping.purpose == Purpose::Contrast => Some(ping),
            _ => None,
        })
        .await;
    assert!(ping.fresh && ping.remote == Some(elsewhere.address) && ping.outcome == PingOutcome::Serving);
    assert_eq!(ping.identity.as_deref(), Some(elsewhere.address.to_string().as_str()));
}
