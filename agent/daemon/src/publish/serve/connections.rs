//! How many connections a listener holds, and who leaves when there is no room.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// Connections per listener. A node has a few hundred pods at most, each with a probe or two at a time; file descriptors
/// of the agent are needed elsewhere, too.
pub const MAX_CONNECTIONS: usize = 1024;

/// What a listener counted since start.
#[derive(Debug, Default)]
pub struct Counters {
    accepted: AtomicU64,
    evicted: AtomicU64,
    accept_failures: AtomicU64,
}

impl Counters {
    /// Connections accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections closed to make room.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Connections that could not be accepted, for want of file descriptors or memory.
    pub fn accept_failures(&self) -> u64 {
        self.accept_failures.load(Ordering::Relaxed)
    }

    pub(super) fn accept_failed(&self) {
        self.accept_failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    counters: Arc<Counters>,
    limit: usize,
    /// Orders connections by their last request; 0 is "none so far".
    ticks: AtomicU64,
    present: Mutex<HashMap<u64, Arc<Seat>>>,
}

#[derive(Debug)]
struct Seat {
    /// Tick of its arrival, and its name.
    arrived: u64,
    last_request: AtomicU64,
    evicted: CancellationToken,
}

/// One connection's place among the others, given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    seat: Arc<Seat>,
    connections: Arc<Connections>,
}

impl Connections {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self::with_limit(counters, MAX_CONNECTIONS)
    }

    pub(super) fn with_limit(counters: Arc<Counters>, limit: usize) -> Self {
        Self { counters, limit, ticks: AtomicU64::new(0), present: Mutex::new(HashMap::new()) }
    }

    /// A place for a newcomer. At the limit, the one that was idle longest is told to leave.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let seat =
            Arc::new(Seat { arrived: self.tick(), last_request: AtomicU64::new(0), evicted: CancellationToken::new() });
        let mut present = self.lock();
        if present.len() >= self.limit {
            let idle = present.values().min_by_key(|seat| (seat.last_request.load(Ordering::Relaxed), seat.arrived));
            if let Some(leaving) = idle.map(|seat| seat.arrived).and_then(|name| present.remove(&name)) {
                self.counters.evicted.fetch_add(1, Ordering::Relaxed);
                leaving.evicted.cancel();
            }
        }
        present.insert(seat.arrived, Arc::clone(&seat));
        Place { seat, connections: Arc::clone(self) }
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Nothing can panic while the lock is held, so a poisoned one is whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Seat>>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A request has begun.
    pub(super) fn used(&self) {
        self.seat.last_request.store(self.connections.tick(), Ordering::Relaxed);
    }

    /// No request has begun so far.
    pub(super) fn unused(&self) -> bool {
        self.seat.last_request.load(Ordering::Relaxed) == 0
    }

    /// Waits until the place is needed for another.
    pub(super) async fn evicted(&self) {
        self.seat.evicted.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.seat.arrived);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_leave_before_the_busy_and_the_old_before_the_new() {
        let connections = Arc::new(Connections::with_limit(Arc::default(), 3));
        let (busy, silent, later) = (connections.enter(), connections.enter(), connections.enter());
        busy.used();
        let fourth = connections.enter();
        assert!(silent.seat.evicted.is_cancelled());
        assert!(![&busy, &later, &fourth].iter().any(|place| place.seat.evicted.is_cancelled()));
        later.used();
        fourth.used();
        let fifth = connections.enter();
        assert!(busy.seat.evicted.is_cancelled(), "its last request is the oldest");
        assert_eq!((connections.counters.accepted(), connections.counters.evicted()), (5, 2));
        drop([busy, silent, later, fourth, fifth]);
        assert!(connections.lock().is_empty());
    }
}
