//! The table of names under paused time, with a scripted DNS.

use super::*;
use crate::observe::{self, ObservationReceiver};
use std::net::Ipv4Addr;
use storewatch_core::{
    id::{ClusterId, TargetKey},
    ping::NameFailure,
};
use tokio::{task::JoinSet, time::sleep};

const INTERVAL: Duration = Duration::from_secs(10);

/// What DNS says now, and when it was asked.
#[derive(Debug)]
struct Dns {
    says: Mutex<Result<Vec<IpAddr>, NameFailure>>,
    takes: Mutex<Duration>,
    asked: Mutex<Vec<Instant>>,
}

impl LookUp for Dns {
    async fn look_up(&self, _: &str, budget: Duration) -> Lookup {
        self.asked.lock().unwrap().push(Instant::now());
        let takes = *self.takes.lock().unwrap();
        sleep(takes.min(budget)).await;
        let says = if takes > budget { Err(NameFailure::NoAnswer) } else { self.says.lock().unwrap().clone() };
        let v6 = says.clone().map(|_| Vec::new());
        Lookup { v4: says, v6, detail: None, took: takes }
    }
}

struct Bench {
    names: Arc<Names>,
    dns: Arc<Dns>,
    observations: ObservationReceiver,
    _task: JoinSet<Result<(), EngineEnded>>,
}

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn store() -> HostPort {
    HostPort { host: "s-0.s.graph.svc".into(), port: 8500 }
}

fn target() -> TargetId {
    TargetId { cluster: ClusterId(0), key: TargetKey::Store(1) }
}

impl Bench {
    fn start() -> Self {
        let dns = Arc::new(Dns {
            says: Mutex::new(Ok(vec![ip(1)])),
            takes: Mutex::new(Duration::from_millis(3)),
            asked: Mutex::default(),
        });
        let names = Arc::new(Names::default());
        let (sender, observations) = observe::channel();
        let mut task = JoinSet::new();
        let (shared, script) = (Arc::clone(&names), Arc::clone(&dns));
        task.spawn(async move { shared.run(&*script, INTERVAL, &sender).await });
        Self { names, dns, observations, _task: task }
    }

    fn watch(&self) {
        self.names.replace(|_| true, [(target(), &store())]);
    }

    fn says(&self, says: Result<Vec<IpAddr>, NameFailure>) {
        *self.dns.says.lock().unwrap() = says;
    }

    fn asked(&self) -> usize {
        self.dns.asked.lock().unwrap().len()
    }

    fn observed(&mut self) -> (Vec<NameReport>, Vec<SourceReport>) {
        let (mut names, mut sources) = (Vec::new(), Vec::new());
        while let Some(observation) = self.observations.try_recv() {
            match observation {
                Observation::Name(report) => names.push(report),
                Observation::Source(report) => sources.push(report),
                other => panic!("{other:?}"),
            }
        }
        (names, sources)
    }

    async fn find(&self) -> Result<Found, NoAddress> {
        self.names.find(&store(), Instant::now() + Duration::from_secs(1)).await
    }
}

fn remote(last: u8) -> SocketAddr {
    SocketAddr::new(ip(last), 8500)
}

#[tokio::test(start_paused = true)]
async fn the_first_ping_waits_and_later_ones_do_not() {
    let mut bench = Bench::start();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.observed().1[0].state, SourceState::Absent, "no name yet");
    bench.watch();
    let found = bench.find().await;
    assert_eq!(found, Ok(Found { remote: remote(1), dns: Some(Duration::from_millis(3)) }));
    assert_eq!(bench.find().await, Ok(Found { remote: remote(1), dns: None }), "the look-up's time is told once");
    let (names, sources) = bench.observed();
    assert_eq!(names.len(), 2, "one claim for each family: {names:?}");
    assert!(!names[0].v6 && names[0].answer == Ok(vec![ip(1)]) && names[1].v6 && names[1].answer == Ok(vec![]));
    assert_eq!(sources.last().unwrap().state, SourceState::Active);

    sleep(Duration::from_secs(60)).await;
    assert!((6..=8).contains(&bench.asked()), "{}", bench.asked());
    // A DNS that hangs delays no ping that has an address.
    *bench.dns.takes.lock().unwrap() = Duration::from_secs(30);
    sleep(INTERVAL).await;
    let begin = Instant::now();
    assert_eq!(bench.find().await.map(|found| found.remote), Ok(remote(1)));
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_up_keeps_the_last_address_and_is_told() {
    for (failure, silent) in [(NameFailure::NoAnswer, true), (NameFailure::NoSuchName, false)] {
        let mut bench = Bench::start();
        bench.watch();
        bench.find().await.unwrap();
        bench.says(Err(failure));
        sleep(INTERVAL * 2).await;
        assert_eq!(bench.find().await.map(|found| found.remote), Ok(remote(1)), "{failure:?}");
        let (names, sources) = bench.observed();
        assert_eq!(names.last().unwrap().answer, Err(failure));
        let last = sources.last().unwrap();
        assert!(last.state == SourceState::Degraded && last.detail.contains("s-0.s.graph.svc"), "{last:?}");

        // A name that never had one.
        let other = HostPort { host: "other".into(), port: 1 };
        bench.names.replace(|_| true, [(target(), &other)]);
        let none = bench.names.find(&other, Instant::now() + Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(none.silent, silent, "{failure:?}");
        bench.says(Ok(vec![ip(2)]));
        sleep(INTERVAL).await;
        assert!(bench.names.find(&other, Instant::now()).await.is_ok());
        assert_eq!(bench.observed().1.last().unwrap().state, SourceState::Active);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_ping_looks_the_name_up_soon_and_not_too_often() {
    let bench = Bench::start();
    bench.watch();
    bench.find().await.unwrap();
    bench.says(Ok(vec![ip(2)]));
    for _ in 0..100 {
        bench.names.failed(&store(), Some(ip(1)));
        sleep(Duration::from_millis(50)).await;
    }
    assert!((5..=7).contains(&bench.asked()), "5 s of failures: {}", bench.asked());
    assert_eq!(bench.find().await.map(|found| found.remote), Ok(remote(2)), "the new address is used");
}

#[tokio::test(start_paused = true)]
async fn of_several_addresses_the_present_one_stays_until_it_fails() {
    let bench = Bench::start();
    bench.watch();
    bench.find().await.unwrap();
    bench.says(Ok(vec![ip(3), ip(2), ip(1)]));
    sleep(INTERVAL).await;
    assert_eq!(bench.find().await.map(|found| found.remote), Ok(remote(1)));
    bench.names.failed(&store(), Some(ip(1)));
    let next = bench.find().await.unwrap().remote;
    assert_ne!(next, remote(1));
    // A failure at an address that is not preferred any more changes nothing.
    bench.names.failed(&store(), Some(ip(1)));
    assert_eq!(bench.find().await.map(|found| found.remote), Ok(next));
}

#[tokio::test(start_paused = true)]
async fn literals_need_no_look_up_and_targets_that_go_take_their_names_along() {
    let bench = Bench::start();
    let literal = HostPort { host: "fd00::7".into(), port: 8500 };
    bench.names.replace(|_| true, [(target(), &literal)]);
    let found = bench.names.find(&literal, Instant::now()).await.unwrap();
    assert_eq!(found.remote.to_string(), "[fd00::7]:8500");
    bench.watch();
    bench.find().await.unwrap();
    bench.names.replace(|_| true, []);
    let before = bench.asked();
    sleep(INTERVAL * 5).await;
    assert_eq!(bench.asked(), before);
    assert!(bench.find().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn more_names_than_are_looked_up_at_once_wait_their_turn() {
    let bench = Bench::start();
    *bench.dns.takes.lock().unwrap() = Duration::from_secs(1);
    let hosts: Vec<HostPort> =
        (0..40).map(|number| HostPort { host: format!("s-{number}.s").into(), port: 8500 }).collect();
    let targets = hosts.iter().zip(0..).map(|(host, id)| (TargetId { key: TargetKey::Store(id), ..target() }, host));
    bench.names.replace(|_| true, targets);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(bench.asked(), AT_ONCE);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(bench.asked(), 40);
    for host in &hosts {
        assert!(bench.names.find(host, Instant::now()).await.is_ok(), "{host}");
    }
}
