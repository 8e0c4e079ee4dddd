//! The JSON shapes of the public interface, converted from the core by hand so that a change there cannot slip out.

pub(crate) mod connection;
pub(crate) mod detail;
pub(crate) mod event;
pub(crate) mod pod;
pub(crate) mod readiness;
pub(crate) mod snapshot;
pub(crate) mod source;
pub(crate) mod store;

use crate::clock::ClockPair;
use serde::{Serialize, Serializer};
use std::time::Duration;
use storewatch_core::time::MonoTime;

/// What turns instants into ages and dates: read once for a whole answer, so that its parts agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) now: MonoTime,
    pub(crate) dates: ClockPair,
}

impl Clocks {
    /// RFC 3339 with milliseconds, in UTC.
    pub(crate) fn date(&self, at: MonoTime) -> String {
        format!("{:.3}", self.dates.date(at))
    }

    pub(crate) fn age_ms(&self, at: MonoTime) -> u64 {
        whole_ms(self.now.since(at))
    }
}

/// Whole milliseconds.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds to the microsecond, for what takes less than one.
pub(crate) fn fine_ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

/// A Store's id: a number on the probe side, a decimal string on the admin side (ids exceed what JavaScript counts
/// exactly).
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreId {
    Number(u64),
    Text(u64),
}

impl Serialize for StoreId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(id) => serializer.serialize_u64(*id),
            Self::Text(id) => serializer.collect_str(id),
        }
    }
}
