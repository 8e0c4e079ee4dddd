//! What exists, and what PD claims about it.

use crate::id::{HostPort, TargetId};
use std::sync::Arc;

/// What PD says of a Store: a hint, 200 s late at times.
#[expect(missing_docs, reason = "PD's own names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportedState {
    Unknown,
    Up,
    Offline,
    Tombstone,
    Pending,
    Exiting,
    /// A number this version does not know.
    Other(i32),
}

impl ReportedState {
    /// Expected to answer: all but Offline, Exiting, Unknown, Pending and Tombstone.
    pub const fn expected(self) -> bool {
        matches!(self, Self::Up | Self::Other(_))
    }

    /// Pinged, and its answer counts: all but Pending and Tombstone.
    pub const fn pinged(self) -> bool {
        !matches!(self, Self::Pending | Self::Tombstone)
    }

    /// PD's name for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Up => "Up",
            Self::Offline => "Offline",
            Self::Tombstone => "Tombstone",
            Self::Pending => "Pending",
            Self::Exiting => "Exiting",
            Self::Other(_) => "Other",
        }
    }
}

/// A Store as PD lists it. Entries that cannot be used (no port, id 0) are left out by the source and told as its detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedStore {
    /// PD's id.
    pub id: u64,
    /// Where it says it listens.
    pub address: HostPort,
    /// PD's view of it.
    pub state: ReportedState,
}

/// A target as the pings should see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which.
    pub id: TargetId,
    /// Where.
    pub address: HostPort,
    /// The name that an answer must carry; `None` when it is given by address only.
    pub identity: Option<Arc<str>>,
}
