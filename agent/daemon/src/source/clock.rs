//! `CLOCK_MONOTONIC` as the timers see it.

use crate::clock;
use storewatch_core::time::MonoTime;
use tokio::time::Instant;

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
