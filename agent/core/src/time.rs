//! The clock the kernel stamps with.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// An instant of `CLOCK_MONOTONIC`, in nanoseconds since boot.
///
/// Signed, because what a state file remembers may lie before the present boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoTime(i64);

impl MonoTime {
    /// The instant `nanos` nanoseconds after boot.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after boot.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The next whole second after this instant. What happens once a second happens then, so that it happens together.
    #[must_use]
    pub const fn next_second(self) -> Self {
        const SECOND: i64 = 1_000_000_000;
        Self(self.0.saturating_add(SECOND - self.0.rem_euclid(SECOND)))
    }

    /// How long ago `earlier` was; zero when it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }
}

impl Add<Duration> for MonoTime {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for MonoTime {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
    }
}

/// A duration for people: `0.3ms`, `340ms`, `12s`, `4m52s`, `3h07m`, `2d04h`.
pub fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        // A ping takes less than a millisecond on one node.
        0 if duration.as_millis() < 10 && duration.subsec_micros() % 1000 >= 50 => {
            format!("{:.1}ms", f64::from(duration.subsec_micros()) / 1000.0)
        }
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}
