//! How many connections a listener holds, and who leaves when there is no room.

use crate::runtime::limits;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};
use tokio::sync::Notify;

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
    /// Orders arrivals and requests; a connection's last request is 0 while there was none.
    ticks: AtomicU64,
    present: Mutex<HashMap<u64, Arc<Seat>>>,
}

/// What is known of one connection. A request touches nothing here that another connection waits for.
#[derive(Debug)]
struct Seat {
    /// Tick of its arrival, and its name.
    arrived: u64,
    last_request: AtomicU64,
    /// Requests without a complete answer.
    open: AtomicUsize,
    http2: AtomicBool,
    evicted: AtomicBool,
    /// Wakes the connection to be told that it must leave, or end in order.
    told: Notify,
}

/// One connection's place among the others, given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    seat: Arc<Seat>,
    connections: Arc<Connections>,
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Open(Arc<Seat>);

/// What a connection is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Its place is needed.
    Leave,
    /// Answer what is in progress, and take nothing new.
    Drain,
}

impl Connections {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self::with_limit(counters, limits::connections().min(MAX_CONNECTIONS))
    }

    pub(super) fn with_limit(counters: Arc<Counters>, limit: usize) -> Self {
        Self { counters, limit, ticks: AtomicU64::new(0), present: Mutex::new(HashMap::new()) }
    }

    /// A place for a newcomer. At the limit, the one that was idle longest is told to leave.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let seat = Arc::new(Seat {
            arrived: self.tick(),
            last_request: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            http2: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            told: Notify::new(),
        });
        let mut present = self.lock();
        if present.len() >= self.limit {
            let order = |seat: &&Arc<Seat>| (seat.is_open(), seat.last_request.load(Ordering::Relaxed), seat.arrived);
            let idle = present.values().min_by_key(order).map(|seat| seat.arrived);
            if let Some(leaving) = idle.and_then(|name| present.remove(&name)) {
                self.counters.evicted.fetch_add(1, Ordering::Relaxed);
                leaving.evicted.store(true, Ordering::Release);
                leaving.told.notify_one();
            }
        }
        present.insert(seat.arrived, Arc::clone(&seat));
        Place { seat, connections: Arc::clone(self) }
    }

    /// Tells every connection to end in order.
    pub(super) fn drain(&self) {
        self.lock().values().for_each(|seat| seat.told.notify_one());
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Nothing can panic while the lock is held, so a poisoned one is whole.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Seat>>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }
}

impl Place {
    /// A request has begun; it is in progress until the answer is complete.
    pub(super) fn open(&self, http2: bool) -> Open {
        self.seat.last_request.store(self.connections.tick(), Ordering::Relaxed);
        self.seat.open.fetch_add(1, Ordering::Relaxed);
        if http2 {
            self.seat.http2.store(true, Ordering::Relaxed);
        }
        Open(Arc::clone(&self.seat))
    }

    /// Whether no request was in progress since `*seen` was set by the last call. An HTTP/2 connection that was used once
    /// may wait for its next use; that its peer lives is asked by HTTP/2 itself.
    pub(super) fn idle_since(&self, seen: &mut u64) -> bool {
        let last = self.seat.last_request.load(Ordering::Relaxed);
        let idle = last == *seen && !self.seat.is_open() && !self.seat.http2.load(Ordering::Relaxed);
        *seen = last;
        idle
    }

    /// Waits for a word. Cancel-safe.
    pub(super) async fn told(&self) -> Word {
        self.seat.told.notified().await;
        if self.seat.evicted.load(Ordering::Acquire) { Word::Leave } else { Word::Drain }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.seat.arrived);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn word(place: &Place) -> Option<Word> {
        place.told().now_or_never()
    }

    #[test]
    fn the_silent_leave_first_then_those_idle_longest_and_the_busy_last() {
        let connections = Arc::new(Connections::with_limit(Arc::default(), 3));
        let [used, silent, busy] = [(); 3].map(|()| connections.enter());
        drop(used.open(false));
        let request = busy.open(false);
        let fourth = connections.enter();
        assert_eq!(word(&silent), Some(Word::Leave));
        assert_eq!([&used, &busy, &fourth].map(word), [None; 3]);
        drop(fourth.open(false));
        drop(used.open(false));
        let fifth = connections.enter();
        assert_eq!(word(&fourth), Some(Word::Leave), "its last request is older than the first one's");
        drop(fifth.open(false));
        let sixth = connections.enter();
        assert_eq!((word(&used), word(&busy)), (Some(Word::Leave), None), "a request in progress goes on");
        drop(request);
        drop(sixth.open(false));
        let seventh = connections.enter();
        assert_eq!(word(&busy), Some(Word::Leave));
        assert_eq!((connections.counters.accepted(), connections.counters.evicted()), (7, 4));
        connections.drain();
        assert_eq!([&fifth, &sixth, &seventh].map(word), [Some(Word::Drain); 3]);
        drop([used, silent, busy, fourth, fifth, sixth, seventh]);
        assert!(connections.lock().is_empty());
    }

    #[test]
    fn idle_is_who_did_nothing_between_two_looks() {
        let connections = Arc::new(Connections::new(Arc::default()));
        let (place, mut seen) = (connections.enter(), 0);
        assert!(place.idle_since(&mut seen), "no request at all");
        let request = place.open(false);
        assert!(!place.idle_since(&mut seen));
        assert!(!place.idle_since(&mut seen), "still in progress");
        drop(request);
        assert!(place.idle_since(&mut seen));
        drop(place.open(true));
        assert!(!place.idle_since(&mut seen) && !place.idle_since(&mut seen), "HTTP/2 asks by itself");
    }
}
