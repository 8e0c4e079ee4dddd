//! Stale transports: a container that dials, or holds, an address that its target has left.

use crate::{time::MonoTime, verdict::StaleMode};

/// What one container does with one former address of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleEntry {
    /// The first evidence.
    pub since: MonoTime,
    /// How it shows.
    pub mode: StaleMode,
}
