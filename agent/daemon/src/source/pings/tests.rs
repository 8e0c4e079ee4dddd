//! The scheduler under paused time, with Stores that follow a script.

mod wire;

use super::{
    Cadence,
    probe::{Done, Order, Prober},
    rounds,
};
use crate::{
    observe::{self, ObservationReceiver},
    requests::{self, RequestSender},
    source::status::SourceParts,
};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use storewatch_core::{
    id::{ClusterId, HostPort, TargetId, TargetKey},
    observation::Observation,
    ping::{Phases, Ping, PingOutcome, Purpose, RoundEnded},
    request::Request,
    source::{SourceName, SourceState},
    topology::Target,
};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, advance, sleep, sleep_until},
};

const CLUSTER: ClusterId = ClusterId(0);
const CADENCE: Cadence = Cadence {
    interval: Duration::from_secs(2),
    idle_interval: Duration::from_secs(20),
    pd_interval: Duration::from_secs(10),
    dns_interval: Duration::from_secs(10),
    timeout: Duration::from_secs(1),
    max_stores_per_round: 16,
};

/// What a scripted Store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Answers,
    Refuses,
    /// This machine has no descriptor for the call.
    Unsent,
    Hangs,
}

/// One ping as the prober saw it.
#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    target: u64,
    kept: bool,
    remote: Option<SocketAddr>,
}

#[derive(Debug, Default)]
struct World {
    stores: Mutex<BTreeMap<u64, Store>>,
    seen: Mutex<Vec<Seen>>,
    channels: Mutex<BTreeMap<u64, Arc<AtomicBool>>>,
    lost: Notify,
}

impl World {
    fn set(&self, store: u64, does: Store) {
        self.stores.lock().unwrap().insert(store, does);
    }

    /// The peer of this Store's kept channel goes away.
    fn lose(&self, store: u64) {
        self.channels.lock().unwrap()[&store].store(true, Ordering::Relaxed);
        self.lost.notify_one();
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn pings_of(&self, store: u64) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.target == store && seen.remote.is_none()).collect()
    }
}

struct Script(Arc<World>);

impl Prober for Script {
    type Kept = Arc<AtomicBool>;

    fn targets(&self, _: &[Target]) {}

    async fn ping(&self, order: Order, kept: Option<Self::Kept>) -> Done<Self::Kept> {
        let TargetKey::Store(store) = order.target.id.key else { unreachable!("the tests use listed Stores") };
        let fresh = kept.is_none();
        self.0.seen.lock().unwrap().push(Seen {
            at: Instant::now(),
            target: store,
            kept: !fresh,
            remote: order.remote,
        });
        let does = self.0.stores.lock().unwrap().get(&store).copied().unwrap_or(Store::Refuses);
        let outcome = match does {
            Store::Answers => {
                sleep(Duration::from_millis(1)).await;
                PingOutcome::Serving
            }
            Store::Refuses => PingOutcome::Refused,
            Store::Unsent => PingOutcome::Unreachable,
            Store::Hangs => {
                sleep_until(order.deadline).await;
                PingOutcome::Deadline
            }
        };
        let kept = outcome.answers().then(|| kept.unwrap_or_default());
        if let (Some(kept), None) = (&kept, order.remote) {
            self.0.channels.lock().unwrap().insert(store, Arc::clone(kept));
        }
        Done {
            remote: order.remote,
            fresh,
            outcome,
            phases: Phases::default(),
            identity: None,
            detail: None,
            local: matches!(does, Store::Unsent),
            kept,
        }
    }

    fn is_lost(kept: &Self::Kept) -> bool {
        kept.load(Ordering::Relaxed)
    }

    async fn lost(&self) {
        self.0.lost.notified().await;
    }
}

struct Bench {
    world: Arc<World>,
    requests: RequestSender,
    observations: ObservationReceiver,
    tasks: JoinSet<Result<(), observe::EngineEnded>>,
    begin: Instant,
}

fn target(id: u64) -> Target {
    let address = HostPort { host: "store".into(), port: 8500 };
    Target { id: TargetId { cluster: CLUSTER, key: TargetKey::Store(id) }, address, identity: None }
}

impl Bench {
    fn start(cadence: Cadence, stores: &[(u64, Store)]) -> Self {
        let world = Arc::new(World::default());
        for (id, does) in stores {
            world.set(*id, *does);
        }
        let (sender, observations) = observe::channel();
        let (requests, clusters, _) = requests::channel(1);
        requests.route(Request::PodsPresent { cluster: CLUSTER, present: true });
        let targets = stores.iter().map(|(id, _)| target(*id)).collect();
        requests.route(Request::Targets { cluster: CLUSTER, targets });
        let mut tasks = JoinSet::new();
        let status = Arc::new(SourceParts::new(SourceName::Pings, 1));
        let script = Script(Arc::clone(&world));
        tasks.spawn(rounds::run(cadence, 0, clusters.into_iter().next().unwrap(), script, status, sender));
        Self { world, requests, observations, tasks, begin: Instant::now() }
    }

    fn prompt_round(&self) {
        self.requests.route(Request::Round { cluster: CLUSTER });
    }

    fn at(&self, seen: &Seen) -> Duration {
        seen.at - self.begin
    }

    fn observed(&mut self) -> Vec<Observation> {
        std::iter::from_fn(|| self.observations.try_recv()).collect()
    }

    fn rounds(&mut self) -> (Vec<Ping>, Vec<RoundEnded>) {
        let (mut pings, mut rounds) = (Vec::new(), Vec::new());
        for observation in self.observed() {
            match observation {
                Observation::Ping(ping) => pings.push(ping),
                Observation::RoundEnded(round) => rounds.push(round),
                _ => {}
            }
        }
        assert!(self.tasks.try_join_next().is_none(), "the scheduler ended");
        (pings, rounds)
    }
}

/// Begins of rounds, from the pings seen: what was sent at one instant is one round.
fn begins(seen: &[Seen]) -> Vec<Instant> {
    let mut begins: Vec<Instant> = seen.iter().filter(|seen| seen.remote.is_none()).map(|seen| seen.at).collect();
    begins.dedup();
    begins
}

#[tokio::test(start_paused = true)]
async fn all_are_asked_at_once_every_interval_and_every_tenth_is_fresh() {
    let mut bench = Bench::start(CADENCE, &[(1, Store::Answers), (2, Store::Answers), (3, Store::Refuses)]);
    sleep(Duration::from_secs(60)).await;
    let begins = begins(&bench.world.seen());
    assert!((30..=33).contains(&begins.len()), "{}", begins.len());
    for pair in begins.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap <= CADENCE.interval && gap >= CADENCE.interval.mul_f64(0.94), "{gap:?}");
    }
    let pings = bench.world.pings_of(1);
    let fresh: Vec<usize> = (1..=pings.len()).filter(|n| !pings[n - 1].kept).collect();
    assert_eq!(fresh, [1, 10, 20, 30]);
    assert!(bench.world.pings_of(3).iter().all(|ping| !ping.kept), "after a failure the next ping is fresh");
    let (pings, rounds) = bench.rounds();
    assert_eq!(pings.len(), begins.len() * 3);
    assert!(rounds.iter().all(|round| round.asked.len() == 3 && round.sweep_complete && !round.late));
    assert!(rounds.windows(2).all(|pair| pair[0].round < pair[1].round));
    assert!(pings.iter().all(|ping| ping.ended >= ping.started));
}

#[tokio::test(start_paused = true)]
async fn a_hung_store_delays_nobody_and_is_asked_once_at_a_time() {
    let cadence = Cadence { timeout: Duration::from_secs(7), ..CADENCE };
    let mut bench = Bench::start(cadence, &[(1, Store::Answers), (2, Store::Hangs)]);
    sleep(Duration::from_millis(10)).await;
    let (pings, rounds) = bench.rounds();
    assert_eq!(pings.len(), 1, "the first answer is told at once");
    assert!(rounds.is_empty(), "the round is not over");
    sleep(Duration::from_secs(20)).await;
    let answering = bench.world.pings_of(1);
    assert!((10..=12).contains(&answering.len()), "{}", answering.len());
    let hung = bench.world.pings_of(2);
    assert!(hung.windows(2).all(|pair| pair[1].at - pair[0].at >= cadence.timeout), "{hung:?}");
    assert!(hung.len() >= 2);
    let (pings, rounds) = bench.rounds();
    // Rounds follow one another, and each names its own pings: those seen between two ends carry its number.
    let numbers: Vec<u64> = rounds.iter().map(|round| round.round).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let ended = pings.iter().find(|ping| ping.outcome == PingOutcome::Deadline).unwrap();
    let Purpose::Round(number) = ended.purpose else { panic!("{ended:?}") };
    let covering = rounds.iter().find(|round| round.round == number).unwrap();
    assert!(covering.sweep_complete && covering.asked.len() == 2);
    let cut = rounds.iter().find(|round| round.round == number - 1).unwrap();
    assert!(!cut.sweep_complete, "a round that the hung one outlived did not cover all");
}

#[tokio::test(start_paused = true)]
async fn while_nothing_answers_rounds_follow_soon_but_not_too_close() {
    for (does, lasts) in [(Store::Refuses, Duration::ZERO), (Store::Hangs, CADENCE.timeout)] {
        let mut bench = Bench::start(CADENCE, &[(1, does), (2, does)]);
        sleep(Duration::from_secs(30)).await;
        let begins = begins(&bench.world.seen());
        for pair in begins.windows(2) {
            let gap = pair[1] - pair[0];
            assert!(gap >= Duration::from_millis(150), "{does:?}: {gap:?}");
            assert!(gap - lasts <= Duration::from_millis(250), "{does:?}: {gap:?}");
        }
        assert!(begins.len() >= 24, "{does:?}: {}", begins.len());
        assert!(bench.rounds().1.iter().all(|round| round.sweep_complete && !round.late), "{does:?}");
        bench.world.set(2, Store::Answers);
        sleep(Duration::from_millis(1260)).await;
        assert!(bench.rounds().0.iter().any(|ping| ping.outcome == PingOutcome::Serving), "{does:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_prompts_is_spread() {
    let bench = Bench::start(CADENCE, &[(1, Store::Answers)]);
    for _ in 0..300 {
        bench.prompt_round();
        sleep(Duration::from_millis(5)).await;
    }
    let begins = begins(&bench.world.seen());
    assert!(begins.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(150)), "{begins:?}");
    assert!((9..=11).contains(&begins.len()), "{}", begins.len());
}

#[tokio::test(start_paused = true)]
async fn a_lost_channel_begins_a_round_at_once_but_does_not_set_the_pace() {
    let bench = Bench::start(CADENCE, &[(1, Store::Answers), (2, Store::Answers)]);
    sleep(Duration::from_millis(500)).await;
    bench.world.lose(1);
    sleep(Duration::from_millis(2)).await;
    let pings = bench.world.pings_of(1);
    assert_eq!(pings.len(), 2);
    assert_eq!(bench.at(&pings[1]).as_millis(), 500);
    assert!(!pings[1].kept, "what is lost is not used");
    assert_eq!(bench.world.pings_of(2).len(), 2, "a round asks all");
    // A peer that closes after every answer.
    for _ in 0..100 {
        sleep(Duration::from_millis(20)).await;
        bench.world.lose(1);
    }
    let begins = begins(&bench.world.seen());
    assert!(begins.len() <= 2 + 4, "{begins:?}");
}

#[tokio::test(start_paused = true)]
async fn stores_that_die_one_after_the_other_are_all_known_dead_soon() {
    let mut bench = Bench::start(CADENCE, &[(1, Store::Answers), (2, Store::Answers), (3, Store::Answers)]);
    sleep(Duration::from_millis(1500)).await;
    bench.rounds();
    for store in 1..=3 {
        bench.world.set(store, Store::Refuses);
        bench.world.lose(store);
        sleep(Duration::from_millis(3)).await;
    }
    let last = Instant::now();
    sleep(Duration::from_millis(230)).await;
    let (pings, rounds) = bench.rounds();
    let answered: Vec<u64> = pings
        .iter()
        .filter(|ping| ping.outcome.answers())
        .filter_map(|ping| if let Purpose::Round(number) = ping.purpose { Some(number) } else { None })
        .collect();
    let failed: Vec<&RoundEnded> = rounds.iter().filter(|round| !answered.contains(&round.round)).collect();
    assert!(failed.len() >= 2, "{:?} after the last: {rounds:?}", last.elapsed());
    assert!(failed[1].started.since(failed[0].started) >= Duration::from_millis(150));
}

#[tokio::test(start_paused = true)]
async fn with_more_than_fit_into_a_round_all_have_their_turn() {
    let cadence = Cadence { max_stores_per_round: 2, ..CADENCE };
    let stores: Vec<(u64, Store)> = (1..=5).map(|id| (id, Store::Refuses)).collect();
    let mut bench = Bench::start(cadence, &stores);
    sleep(Duration::from_secs(5)).await;
    let (_, rounds) = bench.rounds();
    assert!(rounds.len() >= 20);
    assert!(rounds.iter().all(|round| round.asked.len() == 2));
    let mut covered = std::collections::BTreeSet::new();
    for round in &rounds {
        covered.extend(round.asked.iter().copied());
        assert_eq!(round.sweep_complete, covered.len() == 5, "{round:?}");
        if round.sweep_complete {
            covered.clear();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_in_which_the_agent_was_late_says_so() {
    let mut bench = Bench::start(CADENCE, &[(1, Store::Hangs)]);
    sleep(Duration::from_millis(100)).await;
    // The process is stopped for three seconds: the clock goes on, nothing runs.
    advance(Duration::from_secs(3)).await;
    sleep(Duration::from_millis(1)).await;
    let (_, rounds) = bench.rounds();
    assert!(rounds.len() == 1 && rounds[0].late, "{rounds:?}");
    sleep(Duration::from_secs(5)).await;
    let (_, rounds) = bench.rounds();
    assert!(rounds.len() >= 3 && rounds.iter().all(|round| !round.late), "{rounds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_round_that_could_not_be_sent_says_so() {
    let mut bench = Bench::start(CADENCE, &[(1, Store::Unsent), (2, Store::Refuses)]);
    sleep(Duration::from_secs(5)).await;
    let (_, rounds) = bench.rounds();
    assert!(rounds.len() >= 3 && rounds.iter().all(|round| round.late), "{rounds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_contrast_is_fresh_at_its_address_and_outside_of_rounds() {
    let mut bench = Bench::start(CADENCE, &[(1, Store::Answers)]);
    sleep(Duration::from_millis(500)).await;
    let remote: SocketAddr = "10.0.0.9:8500".parse().unwrap();
    for _ in 0..5 {
        bench.requests.route(Request::Contrast { target: target(1).id, remote });
    }
    // Of somebody unknown: nothing can be asked.
    bench.requests.route(Request::Contrast { target: target(7).id, remote });
    sleep(Duration::from_millis(100)).await;
    let contrasts: Vec<Seen> = bench.world.seen().into_iter().filter(|seen| seen.remote.is_some()).collect();
    assert_eq!(contrasts.len(), 1, "one at a time for each address");
    assert!(!contrasts[0].kept && contrasts[0].remote == Some(remote));
    let (pings, rounds) = bench.rounds();
    let contrasts: Vec<&Ping> = pings.iter().filter(|ping| ping.purpose == Purpose::Contrast).collect();
    assert!(contrasts.len() == 1 && contrasts[0].fresh && contrasts[0].remote == Some(remote));
    assert_eq!(rounds.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_pings_rarely_until_a_pod_arrives() {
    let bench = Bench::start(CADENCE, &[(1, Store::Answers)]);
    bench.requests.route(Request::PodsPresent { cluster: CLUSTER, present: false });
    sleep(Duration::from_secs(61)).await;
    let idle = bench.world.pings_of(1).len();
    assert!((4..=6).contains(&idle), "{idle}");
    bench.requests.route(Request::PodsPresent { cluster: CLUSTER, present: true });
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.world.pings_of(1).len(), idle + 1, "served at once");
    sleep(Duration::from_secs(10)).await;
    assert!(bench.world.pings_of(1).len() >= idle + 6);
}

#[tokio::test(start_paused = true)]
async fn targets_come_and_go_while_their_pings_run() {
    let mut bench = Bench::start(CADENCE, &[(1, Store::Hangs), (2, Store::Answers)]);
    sleep(Duration::from_millis(300)).await;
    bench.world.set(3, Store::Answers);
    let mut moved = target(2);
    moved.address = HostPort { host: "elsewhere".into(), port: 8501 };
    bench.requests.route(Request::Targets { cluster: CLUSTER, targets: vec![moved, target(3)] });
    sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.world.pings_of(3).len(), 1, "a new one is pinged at once");
    let second = bench.world.pings_of(2);
    assert!(second.len() == 2 && !second[1].kept, "another address needs another channel: {second:?}");
    sleep(Duration::from_secs(3)).await;
    let (pings, rounds) = bench.rounds();
    assert!(pings.iter().all(|ping| ping.outcome == PingOutcome::Serving), "what is gone is not told: {pings:?}");
    assert!(rounds.iter().all(|round| !round.asked.contains(&target(1).id)), "{rounds:?}");
    bench.requests.route(Request::Targets { cluster: CLUSTER, targets: vec![] });
    sleep(Duration::from_secs(30)).await;
    let before = bench.world.seen().len();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(bench.world.seen().len(), before);
    let absent = bench
        .observed()
        .into_iter()
        .any(|observation| matches!(observation, Observation::Source(report) if report.state == SourceState::Absent));
    assert!(absent, "without a Store the source is absent");
}
