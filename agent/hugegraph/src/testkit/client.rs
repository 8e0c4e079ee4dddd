//! A client pod: what the network sees of a HugeGraph Server.
//!
//! Each channel is one HTTP/2 connection that behaves as grpc-java's does: it connects when a call needs it; a connection
//! that is lost is opened again by the next call; a failed attempt is followed by a growing pause (1 s, times 1.6, up to
//! 120 s, 20 % jitter, counted from the attempt's start) in which calls fail at once and nothing is sent; a call that runs
//! out of time leaves its connection open.

use crate::{connect::Connection, resolve::Resolver, store::GET_SCAN_STATE};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use storewatch_core::{id::HostPort, ping::Phases};
use storewatch_proto::store::{ScanState, SubStateReq};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at},
};

/// The first pause after a failed attempt.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest one.
const LONGEST_BACKOFF: Duration = Duration::from_secs(120);
/// How soon grpc-java looks a name up again, unless it is told otherwise.
const RESOLVE_GATE: Duration = Duration::from_secs(30);

/// What a client does with an address once it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolving {
    /// Keeps it for ever, as a JVM under a security manager does.
    Once,
    /// Looks the name up again when a connection is lost or cannot be made, at most every [`ClientPod::resolve_gate`].
    Again,
}

/// How a client pod behaves.
#[derive(Clone, Debug)]
pub struct ClientPod {
    /// The Stores that it uses.
    pub stores: Vec<HostPort>,
    /// Channels to each of them; HugeGraph up to 1.7.0 has about two.
    pub channels: usize,
    /// How often each channel makes a call.
    pub every: Duration,
    /// How long a call may take.
    pub call_timeout: Duration,
    /// How long a connection attempt may take.
    pub connect_timeout: Duration,
    /// What happens to addresses.
    pub resolving: Resolving,
    /// How long an address is kept at least.
    pub resolve_gate: Duration,
}

impl ClientPod {
    /// Two channels to each Store, a call every 200 ms, Java's time-outs, and addresses kept for ever.
    pub fn new(stores: Vec<HostPort>) -> Self {
        Self {
            stores,
            channels: 2,
            every: Duration::from_millis(200),
            call_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(30),
            resolving: Resolving::Once,
            resolve_gate: RESOLVE_GATE,
        }
    }

    /// Runs until the future is dropped.
    pub async fn run(&self, resolver: Arc<Resolver>, stats: Arc<ClientStats>) {
        let mut channels = JoinSet::new();
        for store in &self.stores {
            for _ in 0..self.channels {
                let channel = Channel {
                    store: store.clone(),
                    pod: self.clone(),
                    resolver: Arc::clone(&resolver),
                    stats: Arc::clone(&stats),
                    address: None,
                    looked_up: None,
                    backoff: FIRST_BACKOFF,
                    jitter: 0x9e37_79b9_7f4a_7c15 ^ (channels.len() as u64),
                };
                channels.spawn(channel.run());
            }
        }
        while channels.join_next().await.is_some() {}
    }
}

/// What a client pod has seen.
#[derive(Debug, Default)]
pub struct ClientStats {
    /// Calls that were answered.
    pub answered: AtomicU64,
    /// Calls that were not.
    pub failed: AtomicU64,
    /// Connections made.
    pub connected: AtomicU64,
    /// Attempts that failed.
    pub connect_failed: AtomicU64,
}

#[derive(Debug)]
struct Channel {
    store: HostPort,
    pod: ClientPod,
    resolver: Arc<Resolver>,
    stats: Arc<ClientStats>,
    address: Option<SocketAddr>,
    looked_up: Option<Instant>,
    backoff: Duration,
    jitter: u64,
}

impl Channel {
    async fn run(mut self) {
        let mut calls = interval(self.pod.every);
        calls.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            calls.tick().await;
            // Idle: this call opens the connection, and fails with it.
            let connection = self.connect().await;
            while !connection.is_closed() {
                self.call(&connection).await;
                calls.tick().await;
            }
        }
    }

    async fn call(&self, connection: &Connection) {
        let deadline = Instant::now() + self.pod.call_timeout;
        let answer = connection.unary::<_, ScanState>(GET_SCAN_STATE, &SubStateReq::default(), deadline).await;
        let counter = if answer.is_ok() { &self.stats.answered } else { &self.stats.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// One attempt after the other until one succeeds; calls due meanwhile fail.
    async fn connect(&mut self) -> Connection {
        loop {
            let begin = Instant::now();
            if let Some(remote) = self.resolve().await {
                let deadline = begin + self.pod.connect_timeout;
                let opened = Connection::open(remote, &self.store, deadline, None, &mut Phases::default()).await;
                if let Ok(connection) = opened {
                    self.stats.connected.fetch_add(1, Ordering::Relaxed);
                    self.backoff = FIRST_BACKOFF;
                    return connection;
                }
            }
            self.stats.connect_failed.fetch_add(1, Ordering::Relaxed);
            let until = begin + self.jittered(self.backoff);
            self.backoff = self.backoff.mul_f64(1.6).min(LONGEST_BACKOFF);
            self.fail_calls_until(until).await;
        }
    }

    async fn fail_calls_until(&self, until: Instant) {
        let mut calls = interval(self.pod.every);
        calls.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while timeout_at(until, calls.tick()).await.is_ok() {
            self.stats.failed.fetch_add(1, Ordering::Relaxed);
        }
        sleep_until(until).await;
    }

    async fn resolve(&mut self) -> Option<SocketAddr> {
        let gated = self.looked_up.is_some_and(|at| at.elapsed() < self.pod.resolve_gate);
        let keep = self.address.is_some() && (self.pod.resolving == Resolving::Once || gated);
        if !keep {
            self.looked_up = Some(Instant::now());
            let lookup = self.resolver.look_up(&self.store.host, Duration::from_secs(5)).await;
            if let Some(ip) = lookup.addresses().next() {
                self.address = Some(SocketAddr::new(ip, self.store.port));
            }
        }
        self.address
    }

    /// Plus or minus 20 %, from a small generator of its own: nothing here needs more.
    fn jittered(&mut self, pause: Duration) -> Duration {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        #[expect(clippy::cast_precision_loss, reason = "a thousand steps are exact")]
        let part = (self.jitter % 1000) as f64 / 1000.0;
        pause.mul_f64(0.8 + 0.4 * part)
    }
}
