//! The sources themselves: which answer, which do not, and what was lost.

use crate::time::MonoTime;
use std::sync::Arc;

/// A source (stable names).
#[expect(missing_docs, reason = "defined by their names in the public contract")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceName {
    Kernel,
    Inventory,
    Pd,
    Pings,
    Pods,
    Dns,
    Kubernetes,
}

impl SourceName {
    /// Every source, in the order of the contract.
    pub const ALL: [Self; 7] =
        [Self::Kernel, Self::Inventory, Self::Pd, Self::Pings, Self::Pods, Self::Dns, Self::Kubernetes];

    /// The stable name used in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Inventory => "inventory",
            Self::Pd => "pd",
            Self::Pings => "pings",
            Self::Pods => "pods",
            Self::Dns => "dns",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// How a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceState {
    /// It answers in full.
    Active,
    /// It answers in part.
    Degraded,
    /// It is not there, by configuration or by necessity.
    Absent,
}

impl SourceState {
    /// The stable name used in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Degraded => "degraded",
            Self::Absent => "absent",
        }
    }
}

/// A source's word about itself. Sent at start, on every change, and with every answer that refreshes its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// Which.
    pub source: SourceName,
    /// When.
    pub at: MonoTime,
    /// How it is.
    pub state: SourceState,
    /// Why, and how to get the rest; when active, what it cannot see all the same, or empty.
    pub detail: Arc<str>,
}

/// Something was dropped between a source and the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where.
    pub source: SourceName,
    /// When it was noticed.
    pub at: MonoTime,
    /// How many more since the last report, at least 1.
    pub lost: u64,
    /// True when counters ([`AttemptCount`](crate::connection::AttemptCount)) are no longer exact; false when only
    /// details are missing.
    pub counters: bool,
}
