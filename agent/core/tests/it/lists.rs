//! Lists that make no sense: pods that come and go with each list, Stores that share an id or an address.

use crate::{
    any::{START, judge, record, target},
    bounds, how_many,
};
use proptest::{collection::vec, prelude::*};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use storewatch_core::{
    connection::{AttemptCount, Counted, SocketOwner},
    id::{CgroupId, ClusterId, HostPort, NetnsId, TargetKey},
    judge::Judge,
    observation::Observation,
    ping::{NameReport, PdReport, Phases, Ping, PingOutcome, Purpose, RoundEnded},
    pod::PodRecord,
    request::Request,
    time::MonoTime,
    topology::{ListedStore, ReportedState, Target},
    verdict::{Reason, Status},
};

/// A node whose Stores all answer.
struct World {
    judge: Judge,
    now: MonoTime,
    targets: Vec<Target>,
    round: u64,
}

impl World {
    fn new() -> Self {
        Self { judge: judge(START), now: START, targets: Vec::new(), round: 0 }
    }

    fn list(&mut self, list: Vec<ListedStore>) {
        let (started, ended) = (self.now, self.now);
        let report = PdReport { cluster: ClusterId(0), started, ended, peers: Vec::new(), list: Some(list) };
        self.judge.observe(Observation::Pd(report));
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        for request in self.judge.advance(self.now).requests {
            if let Request::Targets { targets, .. } = request {
                self.targets = targets;
            }
        }
    }

    /// A round that every target answers, under its own name if it has one.
    fn round(&mut self) {
        self.round += 1;
        let started = self.now - Duration::from_millis(3);
        for target in &self.targets {
            let host = target.address.host.parse().ok();
            self.judge.observe(Observation::Ping(Ping {
                target: target.id,
                remote: host.map(|ip| SocketAddr::new(ip, target.address.port)),
                purpose: Purpose::Round(self.round),
                fresh: self.round.is_multiple_of(10),
                started,
                ended: self.now,
                outcome: PingOutcome::Serving,
                phases: Phases::default(),
                identity: target.identity.clone(),
                detail: None,
            }));
        }
        self.judge.observe(Observation::RoundEnded(RoundEnded {
            cluster: ClusterId(0),
            round: self.round,
            started,
            ended: self.now,
            asked: self.targets.iter().map(|target| target.id).collect(),
            sweep_complete: true,
            late: false,
        }));
    }

    fn reason(&self) -> Reason {
        self.judge.snapshot(self.now).clusters[0].readiness.verdict.reason
    }
}

fn pod(number: u64) -> Arc<PodRecord> {
    let netns = Some(NetnsId(u32::try_from(number).unwrap() + 100));
    Arc::new(PodRecord { cluster: ClusterId(0), host_network: false, netns, ..PodRecord::clone(&record(number)) })
}

fn any_store() -> impl Strategy<Value = ListedStore> {
    let host = proptest::sample::select(vec!["store-1", "STORE-1.", "store-2", "10.0.0.1", "10.0.0.2", "fd00::1"]);
    let state = proptest::sample::select(vec![ReportedState::Up, ReportedState::Offline, ReportedState::Tombstone]);
    let port = proptest::sample::select(vec![8500u16, 8501]);
    (0u64..3, host, port, state).prop_map(|(id, host, port, state)| ListedStore {
        id,
        address: HostPort { host: host.into(), port },
        state,
    })
}

proptest! {
    #![proptest_config(how_many(48))]

    /// Whoever is on a list is ready while the Stores answer, however often it was not on the list before; and what all
    /// this leaves behind stays small.
    #[test]
    fn a_list_of_pods_that_flaps(lists in vec((vec(any::<bool>(), 6), 20u64..3_000, any::<bool>()), 1..80)) {
        let mut world = World::new();
        world.list(vec![ListedStore {
            id: 1,
            address: HostPort { host: "10.0.0.1".into(), port: 8500 },
            state: ReportedState::Up,
        }]);
        world.pass(1);
        for (listed, millis, fails) in lists {
            let pods: Vec<_> = (0..6).filter(|n| listed[usize::try_from(*n).unwrap()]).map(pod).collect();
            let count = pods.len();
            world.judge.observe(Observation::Pods { at: world.now, pods });
            // All of them dial all the time, listed or not; what fails is their own doing.
            let what = if fails { Counted::Begun } else { Counted::Established };
            let dial = |n: u64| AttemptCount {
                owner: Some(SocketOwner { cgroup: Some(CgroupId(n)), netns: None, pid: None }),
                remote: SocketAddr::from(([10, 0, 0, 1], 8500)),
                what,
                added: 1,
                last_begun: Some(world.now),
                last_ended: world.now,
            };
            world.judge.observe(Observation::Attempts { at: world.now, counts: (0..6).map(dial).collect() });
            world.round();
            world.pass(millis);
            let snapshot = world.judge.snapshot(world.now);
            prop_assert_eq!(snapshot.pods.len(), count);
            for pod in &snapshot.pods {
                prop_assert_eq!(pod.verdict.status, Status::Ready, "{:?}", pod.verdict);
            }
        }
        bounds::check(&world.judge.memory(world.now));
    }

    /// Ids given twice are counted, addresses shared by two are both asked, and while all answer the node is ready.
    #[test]
    fn any_list_of_stores(lists in vec((vec(any_store(), 0..7), vec((0u64..3, 0u8..3), 0..4), 100u64..60_000), 1..40)) {
        let mut world = World::new();
        let mut dropped = 0;
        let mut answered = false;
        for (list, names, millis) in lists {
            let mut ids: Vec<_> = list.iter().map(|store| store.id).collect();
            ids.sort_unstable();
            ids.dedup();
            dropped += u64::try_from(list.len() - ids.len()).unwrap();
            world.list(list);
            world.pass(5);
            for (id, last) in names {
                let target = target(TargetKey::Store(id));
                let answer = Ok(vec![[10, 0, 0, last].into()]);
                world.judge.observe(Observation::Name(NameReport { target, at: world.now, v6: false, answer }));
            }
            world.round();
            answered |= !world.targets.is_empty();
            world.pass(millis);
            let reason = world.reason();
            prop_assert!(
                reason.status() != Status::NotReady || (!answered && reason == Reason::NoStoreRegistered),
                "{:?}", reason
            );
        }
        let snapshot = world.judge.snapshot(world.now);
        prop_assert!(snapshot.dropped.targets >= dropped, "{:?}", snapshot.dropped);
        bounds::check(&world.judge.memory(world.now));
    }
}
