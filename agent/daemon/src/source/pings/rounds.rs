//! When a round begins, what it asks, and when it is over.

use super::{
    Cadence,
    probe::{Done, Order, Prober},
};
use crate::{
    observe::{EngineEnded, ObservationSender},
    requests::{ClusterRequests, Prompt},
    source::{clock::SourceClock, status::SourceParts},
};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    ops::Bound,
    sync::Arc,
    time::Duration,
};
use storewatch_core::{
    id::{ClusterId, TargetId},
    observation::Observation,
    ping::{Ping, Purpose, RoundEnded},
    source::SourceState,
    time::MonoTime,
    topology::Target,
};
use tokio::time::{Instant, sleep_until};

/// Least distance between the begins of two rounds, so that both can count.
const SPACING: Duration = Duration::from_millis(150);
/// The same after a round that was answered, when a channel is lost: Stores that die together are not lost at one instant,
/// and only the round after the last loss shows that all are gone.
const LOSS_SPACING: Duration = Duration::from_millis(25);
/// While nothing answers, the least pause after the end of a round; far below the 250 ms that are allowed.
const PAUSE: Duration = Duration::from_millis(50);
/// What is added to the pause at random, in milliseconds.
const PAUSE_JITTER_MS: u64 = 20;
/// A channel that is lost again sooner than this triggers nothing: a peer that closes after each answer would set the pace.
const LOSS_LIMIT: Duration = Duration::from_secs(1);
/// Every so many pings of a target one is on a fresh connection, so that a kept one cannot hide what new ones meet.
const FRESH_EVERY: u32 = 10;
/// Contrast pings at one time; what comes beyond is dropped, and asked again if it matters.
const MOST_CONTRASTS: usize = 32;
/// The agent is late when it wakes this part of the budget after it should have: answers may have waited unread.
const LATE_PART: u32 = 4;
/// Less is not told from ordinary scheduling.
const LEAST_LATE: Duration = Duration::from_millis(20);

/// A target and what is known about pinging it.
struct Slot<K> {
    target: Target,
    kept: Option<K>,
    /// Tells the pings of this target from those of one that had its id before.
    generation: u64,
    answering: bool,
    pings: u32,
    loss_triggered: Option<Instant>,
}

/// A ping that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    generation: u64,
    /// The agent was late while it ran.
    late: bool,
}

/// A round that is not over.
#[derive(Debug)]
struct Round {
    number: u64,
    started: MonoTime,
    asked: BTreeSet<TargetId>,
    pending: BTreeSet<TargetId>,
    late: bool,
}

/// A ping that has ended.
struct Ended<K> {
    target: TargetId,
    /// `None` for a contrast.
    generation: Option<u64>,
    contrast: Option<SocketAddr>,
    started: MonoTime,
    done: Done<K>,
}

struct Rounds<P: Prober> {
    cadence: Cadence,
    cluster: ClusterId,
    prober: Arc<P>,
    status: Arc<SourceParts>,
    sender: ObservationSender,
    clock: SourceClock,
    slots: BTreeMap<TargetId, Slot<P::Kept>>,
    running: BTreeMap<TargetId, Running>,
    contrasts: BTreeSet<(TargetId, SocketAddr)>,
    calls: FuturesUnordered<BoxFuture<'static, Ended<P::Kept>>>,
    round: Option<Round>,
    /// Targets whose ping ended since the sweep began.
    swept: BTreeSet<TargetId>,
    /// A round of this sweep was late.
    sweep_late: bool,
    /// The last target asked in turn.
    cursor: Option<TargetId>,
    number: u64,
    generation: u64,
    pods_present: bool,
    last_begin: Option<Instant>,
    next: Instant,
    last_wake: Instant,
}

/// Pings one cluster's Stores until the engine ends.
pub(super) async fn run<P: Prober>(
    cadence: Cadence,
    part: usize,
    mut requests: ClusterRequests,
    prober: P,
    status: Arc<SourceParts>,
    sender: ObservationSender,
) -> Result<(), EngineEnded> {
    let now = Instant::now();
    let mut rounds = Rounds {
        cadence: Cadence { max_stores_per_round: cadence.max_stores_per_round.max(1), ..cadence },
        cluster: ClusterId(u16::try_from(part).unwrap_or(u16::MAX)),
        prober: Arc::new(prober),
        status,
        sender,
        clock: SourceClock::start(),
        slots: BTreeMap::new(),
        running: BTreeMap::new(),
        contrasts: BTreeSet::new(),
        calls: FuturesUnordered::new(),
        round: None,
        swept: BTreeSet::new(),
        sweep_late: false,
        cursor: None,
        number: 0,
        generation: 0,
        pods_present: false,
        last_begin: None,
        next: now,
        last_wake: now,
    };
    rounds.pods_present = *requests.pods_present.borrow_and_update();
    let targets = requests.targets.borrow_and_update().clone();
    rounds.retarget(targets).await?;
    loop {
        let prober = Arc::clone(&rounds.prober);
        let watching = rounds.late_after() / 2;
        let busy = !rounds.calls.is_empty();
        let idle = rounds.slots.is_empty();
        tokio::select! {
            () = sleep_until(rounds.next), if !idle => {
                rounds.woke();
                rounds.begin().await?;
            }
            Some(ended) = rounds.calls.next(), if busy => {
                rounds.woke();
                rounds.ended(ended).await?;
            }
            () = tokio::time::sleep(watching), if busy => rounds.woke(),
            () = prober.lost() => {
                rounds.woke();
                rounds.lost();
            }
            changed = requests.targets.changed() => {
                changed.map_err(|_| EngineEnded)?;
                let targets = requests.targets.borrow_and_update().clone();
                rounds.woke();
                rounds.retarget(targets).await?;
            }
            changed = requests.pods_present.changed() => {
                changed.map_err(|_| EngineEnded)?;
                let present = *requests.pods_present.borrow_and_update();
                rounds.woke();
                rounds.pods(present);
            }
            prompt = requests.prompts.recv() => {
                let prompt = prompt.ok_or(EngineEnded)?;
                rounds.woke();
                match prompt {
                    Prompt::Round => rounds.soon(Instant::now(), SPACING),
                    Prompt::Contrast { target, remote } => rounds.contrast(target, remote),
                }
            }
        }
    }
}

impl<P: Prober> Rounds<P> {
    /// How much later than due a wake-up makes the pings that run unreliable.
    fn late_after(&self) -> Duration {
        (self.cadence.timeout / LATE_PART).max(LEAST_LATE)
    }

    /// Called at every wake-up. While a ping runs there is one at least every half of [`Self::late_after`], so a longer gap
    /// means that the agent did not get to run.
    fn woke(&mut self) {
        let now = Instant::now();
        let late_after = self.late_after();
        if now.saturating_duration_since(self.last_wake) > late_after + late_after / 2 {
            for running in self.running.values_mut() {
                running.late = true;
            }
        }
        self.last_wake = now;
    }

    fn interval(&self) -> Duration {
        let interval = if self.pods_present { self.cadence.interval } else { self.cadence.idle_interval };
        // Never longer than configured; nodes that started together drift apart.
        interval.mul_f64(rand::random_range(0.95..=1.0))
    }

    /// Lets the next round begin at `at`, unless it begins earlier anyway or would be closer than `spacing` to the last.
    fn soon(&mut self, at: Instant, spacing: Duration) {
        let earliest = self.last_begin.map_or(at, |last| last + spacing);
        self.next = self.next.min(at.max(earliest));
    }

    fn anybody_answers(&self) -> bool {
        self.slots.values().any(|slot| slot.answering)
    }

    /// Begins a round, ending the last one if it is still open.
    async fn begin(&mut self) -> Result<(), EngineEnded> {
        let now = Instant::now();
        self.next = now + self.interval();
        let turn = self.turn();
        if turn.is_empty() {
            // Every target's ping still runs: there is nothing to ask, and what runs belongs to the open round.
            return Ok(());
        }
        self.close().await?;
        self.number += 1;
        self.last_begin = Some(now);
        let carried: BTreeSet<TargetId> = self.running.keys().copied().collect();
        let asked: BTreeSet<TargetId> = carried.iter().chain(&turn).copied().collect();
        let pending = asked.clone();
        self.round = Some(Round { number: self.number, started: self.clock.at(now), asked, pending, late: false });
        for target in turn {
            self.send(target, now);
        }
        Ok(())
    }

    /// The targets whose turn it is: in order, after the last one asked, without those whose ping still runs.
    fn turn(&mut self) -> Vec<TargetId> {
        let after = self.cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let until = self.cursor.map_or(Bound::Unbounded, Bound::Included);
        let ahead = self.slots.range((after, Bound::Unbounded));
        let behind = self.cursor.map(|_| self.slots.range((Bound::Unbounded, until))).into_iter().flatten();
        let turn: Vec<TargetId> = ahead
            .chain(behind)
            .map(|(target, _)| *target)
            .filter(|target| !self.running.contains_key(target))
            .take(self.cadence.max_stores_per_round)
            .collect();
        self.cursor = turn.last().copied().or(self.cursor);
        turn
    }

    fn send(&mut self, target: TargetId, now: Instant) {
        let Some(slot) = self.slots.get_mut(&target) else { return };
        slot.pings = slot.pings.wrapping_add(1);
        let kept = slot.kept.take().filter(|_| slot.pings % FRESH_EVERY != 0);
        let order = Order { target: slot.target.clone(), remote: None, deadline: now + self.cadence.timeout };
        let generation = slot.generation;
        self.running.insert(target, Running { generation, late: false });
        let (prober, started) = (Arc::clone(&self.prober), self.clock.at(now));
        self.calls.push(Box::pin(async move {
            let done = prober.ping(order, kept).await;
            Ended { target, generation: Some(generation), contrast: None, started, done }
        }));
    }

    fn contrast(&mut self, target: TargetId, remote: SocketAddr) {
        let Some(slot) = self.slots.get(&target) else { return };
        if self.contrasts.len() >= MOST_CONTRASTS || !self.contrasts.insert((target, remote)) {
            return;
        }
        let now = Instant::now();
        let order = Order { target: slot.target.clone(), remote: Some(remote), deadline: now + self.cadence.timeout };
        let (prober, started) = (Arc::clone(&self.prober), self.clock.at(now));
        self.calls.push(Box::pin(async move {
            let done = prober.ping(order, None).await;
            Ended { target, generation: None, contrast: Some(remote), started, done }
        }));
    }

    async fn ended(&mut self, ended: Ended<P::Kept>) -> Result<(), EngineEnded> {
        let Ended { target, generation, contrast, started, done } = ended;
        let Done { remote, fresh, outcome, phases, identity, detail, local, kept } = done;
        let purpose = if let Some(remote) = contrast {
            self.contrasts.remove(&(target, remote));
            Purpose::Contrast
        } else {
            let running = self.running.get(&target).copied().filter(|running| Some(running.generation) == generation);
            let (Some(running), Some(slot)) = (running, self.slots.get_mut(&target)) else {
                // The target is gone, or is another one now.
                return Ok(());
            };
            self.running.remove(&target);
            slot.answering = outcome.answers();
            slot.kept = kept;
            self.swept.insert(target);
            if let Some(round) = &mut self.round {
                round.pending.remove(&target);
                round.late |= running.late || local;
            }
            Purpose::Round(self.number)
        };
        let ended = self.clock.now();
        let ping = Ping { target, remote, purpose, fresh, started, ended, outcome, phases, identity, detail };
        self.sender.send(Observation::Ping(ping)).await?;
        if purpose != Purpose::Contrast {
            self.close_if_over().await?;
        }
        Ok(())
    }

    async fn close_if_over(&mut self) -> Result<(), EngineEnded> {
        if self.round.as_ref().is_some_and(|round| round.pending.is_empty()) {
            self.close().await?;
            if !self.anybody_answers() {
                let jitter = Duration::from_millis(rand::random_range(0..=PAUSE_JITTER_MS));
                self.soon(Instant::now() + PAUSE + jitter, SPACING + jitter);
            }
        }
        Ok(())
    }

    /// Tells the end of the open round, if there is one.
    async fn close(&mut self) -> Result<(), EngineEnded> {
        let Some(Round { number, started, asked, pending: _, late }) = self.round.take() else { return Ok(()) };
        if asked.is_empty() {
            return Ok(());
        }
        self.sweep_late |= late;
        let sweep_complete = self.slots.keys().all(|target| self.swept.contains(target));
        let late = self.sweep_late;
        if sweep_complete {
            self.swept.clear();
            self.sweep_late = false;
        }
        let ended = self.clock.now();
        let asked = asked.into_iter().collect();
        let round = RoundEnded { cluster: self.cluster, round: number, started, ended, asked, sweep_complete, late };
        self.sender.send(Observation::RoundEnded(round)).await?;
        self.tell(SourceState::Active, "").await
    }

    async fn tell(&mut self, state: SourceState, detail: &str) -> Result<(), EngineEnded> {
        let part = usize::from(self.cluster.0);
        if let Some(report) = self.status.set(part, self.clock.now(), state, detail) {
            self.sender.send(Observation::Source(report)).await?;
        }
        Ok(())
    }

    /// Looks for kept channels whose peer is gone: a Store that was killed is found so before the next round is due.
    fn lost(&mut self) {
        let now = Instant::now();
        let mut triggered = false;
        for slot in self.slots.values_mut().filter(|slot| slot.kept.as_ref().is_some_and(P::is_lost)) {
            slot.kept = None;
            if slot.loss_triggered.is_none_or(|last| now.saturating_duration_since(last) >= LOSS_LIMIT) {
                slot.loss_triggered = Some(now);
                triggered = true;
            }
        }
        if triggered {
            self.soon(now, if self.anybody_answers() { LOSS_SPACING } else { SPACING });
        }
    }

    fn pods(&mut self, present: bool) {
        if present && !self.pods_present {
            // A pod that arrives is served at once.
            self.soon(Instant::now(), SPACING);
        }
        self.pods_present = present;
    }

    async fn retarget(&mut self, targets: Option<Vec<Target>>) -> Result<(), EngineEnded> {
        let Some(targets) = targets else { return Ok(()) };
        self.prober.targets(&targets);
        let listed: BTreeSet<TargetId> = targets.iter().map(|target| target.id).collect();
        self.slots.retain(|id, _| listed.contains(id));
        let mut news = false;
        for target in targets {
            if self.slots.get(&target.id).is_some_and(|slot| slot.target == target) {
                continue;
            }
            news = true;
            self.generation += 1;
            let slot = Slot {
                kept: None,
                generation: self.generation,
                answering: false,
                pings: 0,
                loss_triggered: None,
                target,
            };
            self.slots.insert(slot.target.id, slot);
        }
        let generations: BTreeMap<TargetId, u64> = self.slots.iter().map(|(id, slot)| (*id, slot.generation)).collect();
        let present = |id: &TargetId, generation| generations.get(id) == Some(&generation);
        self.running.retain(|id, running| present(id, running.generation));
        self.swept.retain(|id| generations.contains_key(id));
        if let Some(round) = &mut self.round {
            round.asked.retain(|id| generations.contains_key(id));
            round.pending.retain(|id| self.running.contains_key(id));
        }
        if news {
            self.soon(Instant::now(), SPACING);
        }
        if self.slots.is_empty() {
            self.round = None;
            return self.tell(SourceState::Absent, "no Store is known yet").await;
        }
        self.close_if_over().await
    }
}
