//! The connection table: asked for, not published.

use crate::{
    connection::{ConnectionOutcome, TcpState},
    id::{ClusterId, PodRef, PodUid, TargetKey},
    time::MonoTime,
};
use std::{net::SocketAddr, time::Duration};

/// Who owns a connection's remote address (stable names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerView {
    /// The target owns it now.
    Current,
    /// It did when the connection was begun.
    Previous,
    /// No source knows.
    Unknown,
}

impl OwnerView {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Previous => "previous",
            Self::Unknown => "unknown",
        }
    }
}

/// How a connection reaches its target (stable names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Via {
    /// As far as this node can see, itself.
    Direct,
    /// Another container of the pod dials the same address.
    Proxy,
}

impl Via {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Proxy => "proxy",
        }
    }
}

/// A connection of a judged pod, live or lately ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionView {
    /// The pod's cluster.
    pub cluster: ClusterId,
    /// The pod.
    pub pod: PodRef,
    /// Its identity.
    pub uid: PodUid,
    /// The target, present or former; `None` for an address that no source knows.
    pub target: Option<TargetKey>,
    /// Own address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Who owns that.
    pub owner: OwnerView,
    /// Its state; CLOSE once it has ended.
    pub state: TcpState,
    /// `established` while it lives, else how it ended; `None` while it is being dialled or if it is older than the agent.
    pub outcome: Option<ConnectionOutcome>,
    /// When it was begun, if that was seen.
    pub opened_at: Option<MonoTime>,
    /// When it was first seen.
    pub first_seen: MonoTime,
    /// When it was last seen in use, as sampled.
    pub last_used: Option<MonoTime>,
    /// Smoothed round trip.
    pub rtt: Option<Duration>,
    /// Segments sent again, as far as details arrived.
    pub retransmits: u64,
    /// RSTs, likewise.
    pub resets: u64,
    /// Payload received; `None` if unknown.
    pub bytes_received: Option<u64>,
    /// How it reaches the target.
    pub via: Via,
    /// When it ended.
    pub ended: Option<MonoTime>,
}
