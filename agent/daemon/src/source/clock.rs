//! `CLOCK_MONOTONIC` as the timers see it.

use crate::clock;
use std::time::Duration;
use storewatch_core::time::MonoTime;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Ticks at once, and then whenever the clock shows a multiple of `period`. All that is done periodically is so done
/// together, by one wake-up: on a node at rest, waking up is most of what the agent costs. Ticks that were missed are left
/// out.
pub(super) fn every(period: Duration) -> Interval {
    let now = Instant::now();
    let phase = i64::try_from(period.as_nanos()).map_or(0, |period| clock::now().as_nanos().rem_euclid(period.max(1)));
    let begun = now.checked_sub(Duration::from_nanos(phase.unsigned_abs())).unwrap_or(now);
    let mut ticks = interval_at(begun, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// Gives the engine's clock from the runtime's, so that both agree, under paused time in tests too.
#[derive(Clone, Copy, Debug)]
pub struct SourceClock {
    instant: Instant,
    mono: MonoTime,
}

impl SourceClock {
    /// Reads both now.
    pub fn start() -> Self {
        Self { instant: Instant::now(), mono: clock::now() }
    }

    /// Now.
    pub fn now(&self) -> MonoTime {
        self.at(Instant::now())
    }

    /// The same instant on the engine's clock.
    pub fn at(&self, instant: Instant) -> MonoTime {
        self.mono + instant.saturating_duration_since(self.instant)
    }
}
