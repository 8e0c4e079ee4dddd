//! The newest events, held in memory, and how readers keep up with them.
//!
//! Two rings, one for what single connections came to: a storm of these must not push out the transition that it led to.
//! A reader holds no place and no copy, only how far it has read; who reads slower than things happen misses the oldest
//! and is told how many. Pushing takes a lock that readers hold for a few hundred reference counts at most.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use storewatch_core::event::Event;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Events in each ring. At some 400 bytes each both take 3 MiB when full. A whole node that leaves and returns is a few
/// thousand; on a quiet node this is weeks.
pub(crate) const HELD: usize = 4096;

/// Events read under one lock.
const BATCH: usize = 256;

/// Readers that follow at the same time: people and their scripts, not pods. Each costs a task and a wake-up per event.
pub(crate) const MAX_STREAMS: usize = 32;

/// The events, and who waits for more.
#[derive(Debug)]
pub(crate) struct Feed {
    rings: Mutex<[Ring; 2]>,
    /// Generation of the newest event.
    newest: watch::Sender<u64>,
    streams: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    /// How many were ever pushed out.
    dropped: u64,
    /// Generation of the last that was.
    dropped_to: u64,
}

/// How far a reader has come: how many of each ring it has behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor([u64; 2]);

/// What there is to read.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In order.
    pub(crate) events: Vec<Arc<Event>>,
    /// How many were pushed out before this reader came to them.
    pub(crate) missed: u64,
}

impl Ring {
    fn push(&mut self, event: Arc<Event>) {
        if self.events.len() >= HELD
            && let Some(oldest) = self.events.pop_front()
        {
            self.dropped += 1;
            self.dropped_to = oldest.generation;
        }
        self.events.push_back(event);
    }

    /// What lies behind the first `behind` of all that were ever pushed.
    fn from(&self, behind: u64) -> impl Iterator<Item = &Arc<Event>> {
        let skip = usize::try_from(behind.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        self.events.range(skip.min(self.events.len())..)
    }
}

impl Feed {
    pub(crate) fn new() -> Self {
        let streams = Arc::new(Semaphore::new(MAX_STREAMS));
        Self { rings: Mutex::default(), newest: watch::Sender::new(0), streams }
    }

    /// Adds what happened, oldest first, and wakes those who follow.
    pub(crate) fn push(&self, events: Vec<Event>) {
        let Some(newest) = events.last().map(|event| event.generation) else { return };
        {
            let mut rings = self.lock();
            for event in events {
                let ring = usize::from(event.kind.is_chatter());
                if let Some(ring) = rings.get_mut(ring) {
                    ring.push(Arc::new(event));
                }
            }
        }
        self.newest.send_replace(newest);
    }

    /// Generation of the newest event; 0 before the first.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Wakes with each push.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// A place among those who follow, if there is one.
    pub(crate) fn follow(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().ok()
    }

    /// The place after all events up to `generation`, and how many after it are no longer held (generations that were no
    /// events count too, so that it may be less).
    pub(crate) fn after(&self, generation: u64) -> (Cursor, u64) {
        let rings = self.lock();
        let mut missed = 0;
        let places = rings.each_ref().map(|ring| {
            missed += ring.dropped.min(ring.dropped_to.saturating_sub(generation));
            let behind = ring.events.partition_point(|event| event.generation <= generation);
            ring.dropped + behind as u64
        });
        (Cursor(places), missed)
    }

    /// What comes next, some hundreds at a time; nothing when the reader has caught up.
    pub(crate) fn read(&self, cursor: &mut Cursor) -> Batch {
        let rings = self.lock();
        let mut batch = Batch::default();
        for (ring, behind) in rings.iter().zip(&mut cursor.0) {
            batch.missed += ring.dropped.saturating_sub(*behind);
            *behind = ring.dropped.max(*behind);
        }
        let [news, chatter] = rings.each_ref();
        let Cursor([in_news, in_chatter]) = cursor;
        let (mut from_news, mut from_chatter) = (news.from(*in_news).peekable(), chatter.from(*in_chatter).peekable());
        while batch.events.len() < BATCH {
            let generation = |event: Option<&&Arc<Event>>| event.map(|event| event.generation);
            let news_first = match (generation(from_news.peek()), generation(from_chatter.peek())) {
                (Some(news), Some(chatter)) => news < chatter,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let (next, behind) =
                if news_first { (from_news.next(), &mut *in_news) } else { (from_chatter.next(), &mut *in_chatter) };
            batch.events.extend(next.cloned());
            *behind += 1;
        }
        batch
    }

    /// Nothing can panic while the lock is held, so a poisoned one is whole.
    fn lock(&self) -> MutexGuard<'_, [Ring; 2]> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::testing::event;
    use storewatch_core::event::EventKind::{Connection, Transition};

    fn generations(events: &[Arc<Event>]) -> Vec<u64> {
        events.iter().map(|event| event.generation).collect()
    }

    #[test]
    fn both_rings_are_read_as_one_and_from_any_place() {
        let feed = Feed::new();
        assert_eq!((feed.newest(), feed.after(0)), (0, (Cursor([0, 0]), 0)));
        feed.push(vec![event(1, Transition), event(2, Connection), event(4, Connection), event(5, Transition)]);
        feed.push(Vec::new());
        feed.push(vec![event(7, Connection)]);
        assert_eq!(feed.newest(), 7);
        for (since, expected) in [
            (0, vec![1, 2, 4, 5, 7]),
            (1, vec![2, 4, 5, 7]),
            (3, vec![4, 5, 7]),
            (5, vec![7]),
            (7, vec![]),
            (9, vec![]),
        ] {
            let (mut cursor, missed) = feed.after(since);
            let batch = feed.read(&mut cursor);
            assert_eq!((generations(&batch.events), batch.missed, missed), (expected, 0, 0), "since {since}");
            assert!(feed.read(&mut cursor).events.is_empty());
        }
    }

    #[test]
    fn a_storm_pushes_out_itself_only_and_who_is_slow_is_told_how_much() {
        let feed = Feed::new();
        feed.push(vec![event(1, Transition)]);
        let (mut slow, _) = feed.after(0);
        let storm = u64::try_from(HELD).unwrap() + 100;
        for generation in 2..2 + storm {
            feed.push(vec![event(generation, Connection)]);
        }
        let batch = feed.read(&mut slow);
        assert_eq!(batch.missed, 100);
        assert_eq!(generations(&batch.events)[..3], [1, 102, 103], "the transition is still there");
        assert_eq!(batch.events.len(), BATCH);
        let mut rest = 0;
        loop {
            let batch = feed.read(&mut slow);
            assert_eq!(batch.missed, 0, "told once");
            if batch.events.is_empty() {
                break;
            }
            rest += batch.events.len();
        }
        assert_eq!(rest + BATCH, HELD + 1);
        for (since, missed) in [(0, 100), (1, 100), (51, 50), (100, 1), (101, 0), (500, 0)] {
            assert_eq!(feed.after(since).1, missed, "since {since}");
        }
    }

    #[test]
    fn places_to_follow_are_bounded_and_given_back() {
        let feed = Feed::new();
        let places: Vec<_> = (0..MAX_STREAMS).map(|_| feed.follow().unwrap()).collect();
        assert!(feed.follow().is_none());
        drop(places);
        assert!(feed.follow().is_some());
    }
}
