//! Reading the clocks. The core never does.

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use storewatch_core::time::MonoTime;

/// `CLOCK_MONOTONIC`, the clock that the kernel's events are stamped with.
pub fn now() -> MonoTime {
    match clock_gettime(ClockId::CLOCK_MONOTONIC) {
        Ok(time) => MonoTime::from_nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec()),
        // The call fails for a wrong clock id or a bad pointer only, and both are fixed here.
        Err(_) => MonoTime::default(),
    }
}

/// Both clocks read at one instant, to show monotonic instants as dates.
#[derive(Clone, Copy, Debug)]
pub struct ClockPair {
    mono: MonoTime,
    wall: Timestamp,
}

impl ClockPair {
    /// Reads both now.
    pub fn read() -> Self {
        Self { mono: now(), wall: Timestamp::now() }
    }

    /// The date of a monotonic instant.
    pub fn date(&self, at: MonoTime) -> Timestamp {
        let nanos = i128::from(at.as_nanos()) - i128::from(self.mono.as_nanos());
        Timestamp::from_nanosecond(self.wall.as_nanosecond() + nanos).unwrap_or(self.wall)
    }

    /// The monotonic half.
    pub fn mono(&self) -> MonoTime {
        self.mono
    }
}
