//! The connection table: asked for, not published.

use crate::{
    attribution::Unattributed,
    connection::{ConnectionOutcome, SocketSample, TcpState},
    id::{ClusterId, ContainerKey, PodRef, PodUid, TargetKey},
    ownership::Owner,
    time::MonoTime,
};
use std::{net::SocketAddr, time::Duration};

/// Sockets of nobody that the judge sampled among the watched ports; those beyond are counted only. They explain what the
/// ports' other clients are, and a handful per program does.
pub(crate) const MAX_STRAYS: usize = 1024;

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
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Current, Self::Previous, Self::Unknown];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Previous => "previous",
            Self::Unknown => "unknown",
        }
    }
}

impl From<Owner> for OwnerView {
    fn from(owner: Owner) -> Self {
        match owner {
            Owner::Current(_) => Self::Current,
            Owner::Former(_) => Self::Previous,
            Owner::Unknown => Self::Unknown,
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
    /// Through a Service's address.
    Service,
}

impl Via {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Proxy => "proxy",
            Self::Service => "service",
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
    /// The container that it is evidence of.
    pub container: ContainerKey,
    /// That container is not in the pod's list: it is younger, or a proxy's.
    pub foreign: bool,
    /// The process that began it or holds it, in the initial pid namespace; `None` if unknown.
    pub pid: Option<u32>,
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
    /// `established` while it lives, else how it ended; `None` while it is being dialled.
    pub outcome: Option<ConnectionOutcome>,
    /// When it was begun, if that was seen.
    pub opened_at: Option<MonoTime>,
    /// When its handshake ended, if that was seen.
    pub established_at: Option<MonoTime>,
    /// When it was first seen.
    pub first_seen: MonoTime,
    /// When it was last known to be in use, as of the last sample; `None` if that is not known.
    pub last_used: Option<MonoTime>,
    /// Smoothed round trip.
    pub rtt: Option<Duration>,
    /// Segments sent again over its life; where the kernel's own count cannot be read, as far as details arrived.
    pub retransmits: u64,
    /// RSTs, as far as details arrived.
    pub resets: u64,
    /// Payload received; `None` if unknown.
    pub bytes_received: Option<u64>,
    /// Bytes written that the peer has not acknowledged.
    pub unanswered: u64,
    /// Since when it waits for an answer and sends again.
    pub waiting_since: Option<MonoTime>,
    /// How it reaches the target.
    pub via: Via,
    /// When it ended.
    pub ended: Option<MonoTime>,
}

/// A client socket towards a watched port that belongs to no judged pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayView {
    /// Why.
    pub reason: Unattributed,
    /// The cluster that knows its remote address.
    pub cluster: Option<ClusterId>,
    /// The target there, present or former.
    pub target: Option<TargetKey>,
    /// Who owns that address.
    pub owner: OwnerView,
    /// `established`; `None` while it is being dialled.
    pub outcome: Option<ConnectionOutcome>,
    /// What the sample showed.
    pub socket: SocketSample,
}

/// Which target a connection must be to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetFilter {
    /// This one; all peers of PD share a label.
    Labelled(TargetKey),
    /// None that a source knows.
    Other,
}

impl TargetFilter {
    /// Reads a label: a Store's id, `static-N`, `pd` or `other`. `None` for anything else.
    pub fn parse(label: &str) -> Option<Self> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        Some(match label {
            "other" => Self::Other,
            "pd" => Self::Labelled(TargetKey::Pd(0)),
            _ => match label.strip_prefix("static-") {
                Some(position) if number(position) => Self::Labelled(TargetKey::Static(position.parse().ok()?)),
                None if number(label) => Self::Labelled(TargetKey::Store(label.parse().ok()?)),
                _ => return None,
            },
        })
    }

    fn admits(self, target: Option<TargetKey>) -> bool {
        match (self, target) {
            (Self::Labelled(TargetKey::Pd(_)), Some(TargetKey::Pd(_))) => true,
            (Self::Labelled(wanted), Some(target)) => wanted == target,
            (Self::Other, target) => target.is_none(),
            (Self::Labelled(_), None) => false,
        }
    }
}

/// Which connections are asked for: all for which every given value holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFilter {
    /// Of pods of this cluster.
    pub cluster: Option<ClusterId>,
    /// Of pods in this namespace.
    pub namespace: Option<String>,
    /// Of pods of this name.
    pub pod: Option<String>,
    /// To this target.
    pub target: Option<TargetFilter>,
    /// To an address that belongs to its target in this way.
    pub owner: Option<OwnerView>,
    /// With this outcome so far.
    pub outcome: Option<ConnectionOutcome>,
    /// In this state.
    pub state: Option<TcpState>,
}

impl ConnectionFilter {
    /// By what is known of the pod alone.
    pub(crate) fn admits_pod(&self, cluster: ClusterId, pod: &PodRef) -> bool {
        self.cluster.is_none_or(|wanted| wanted == cluster)
            && self.namespace.as_ref().is_none_or(|wanted| **wanted == *pod.namespace)
            && self.pod.as_ref().is_none_or(|wanted| **wanted == *pod.name)
    }

    /// By what is known of the socket alone.
    pub(crate) fn admits_socket(&self, state: TcpState, outcome: Option<ConnectionOutcome>) -> bool {
        self.state.is_none_or(|wanted| wanted.as_str() == state.as_str())
            && self.outcome.is_none_or(|wanted| Some(wanted) == outcome)
    }

    /// By whose the remote address is.
    pub(crate) fn admits_owner(&self, owner: OwnerView, target: Option<TargetKey>) -> bool {
        self.owner.is_none_or(|wanted| wanted == owner) && self.target.is_none_or(|wanted| wanted.admits(target))
    }
}

/// A question to [`Judge::table`](crate::judge::Judge::table).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableQuery {
    /// Which connections.
    pub filter: ConnectionFilter,
    /// How many of them to leave out at the beginning.
    pub offset: usize,
    /// How many to give at most.
    pub limit: usize,
}

impl Default for TableQuery {
    fn default() -> Self {
        Self { filter: ConnectionFilter::default(), offset: 0, limit: usize::MAX }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// All events up to this generation are in it.
    pub generation: u64,
    /// When the reading of the latest sample of sockets began; `None` before the first.
    pub sampled_at: Option<MonoTime>,
    /// How many connections the filter admits.
    pub total: usize,
    /// Those asked for: by pod, live ones by remote address and then lately ended ones, the last first.
    pub connections: Vec<ConnectionView>,
    /// Sockets of the latest sample that belong to no judged pod, by the reason why.
    pub unattributed: Vec<(Unattributed, u64)>,
    /// The first of them, as far as the filter admits them.
    pub strays: Vec<StrayView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_are_written() {
        for key in [TargetKey::Store(1_844_095_761_336_398_711), TargetKey::Static(3), TargetKey::Pd(0)] {
            assert_eq!(TargetFilter::parse(&key.to_string()), Some(TargetFilter::Labelled(key)));
        }
        assert_eq!(TargetFilter::parse("other"), Some(TargetFilter::Other));
        for wrong in ["", "static-", "static--1", "static-70000", "+1", "-1", "1.0", "PD", "18446744073709551616", " 1"]
        {
            assert_eq!(TargetFilter::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_filter_admits_what_fulfils_all_of_it() {
        let pd = TargetFilter::Labelled(TargetKey::Pd(0));
        assert!(pd.admits(Some(TargetKey::Pd(2))) && !pd.admits(Some(TargetKey::Static(0))) && !pd.admits(None));
        assert!(TargetFilter::Other.admits(None) && !TargetFilter::Other.admits(Some(TargetKey::Pd(0))));
        let filter = ConnectionFilter {
            owner: Some(OwnerView::Previous),
            target: Some(TargetFilter::Labelled(TargetKey::Store(1))),
            state: Some(TcpState::SynRecv),
            ..ConnectionFilter::default()
        };
        assert!(filter.admits_owner(OwnerView::Previous, Some(TargetKey::Store(1))));
        assert!(!filter.admits_owner(OwnerView::Current, Some(TargetKey::Store(1))));
        assert!(!filter.admits_owner(OwnerView::Previous, Some(TargetKey::Store(2))));
        assert!(filter.admits_socket(TcpState::NewSynRecv, None), "the kernel's two names for one state");
        assert!(!filter.admits_socket(TcpState::SynSent, None));
    }
}
