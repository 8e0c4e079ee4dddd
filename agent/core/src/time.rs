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
