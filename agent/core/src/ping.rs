//! What the agent's own calls told about Stores and PD.

use crate::{
    id::{ClusterId, TargetId},
    time::MonoTime,
    topology::ListedStore,
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// How a ping ended (stable names, see [`PingOutcome::as_str`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PingOutcome {
    /// The process answered as a Store does (OK or UNIMPLEMENTED).
    Serving,
    /// It answered UNAUTHENTICATED or PERMISSION_DENIED: alive, the ping is not allowed.
    NotAllowed,
    /// The connection was refused or reset.
    Refused,
    /// No route, host or network unreachable, or the name has no address and none was known.
    Unreachable,
    /// The budget ran out.
    Deadline,
    /// Something answered that is no Store: a proxy, HTTP/1, TLS, a malformed or oversized message.
    Protocol,
    /// A Store answered that names another one.
    Identity,
}

impl PingOutcome {
    /// The stable name used in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::NotAllowed => "not_allowed",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Deadline => "deadline",
            Self::Protocol => "protocol",
            Self::Identity => "identity",
        }
    }

    /// Whether it proves that the Store's process serves.
    pub const fn answers(self) -> bool {
        matches!(self, Self::Serving | Self::NotAllowed)
    }
}

/// Why a ping was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Part of the round with this number (they rise within a cluster).
    Round(u64),
    /// To compare with what a pod saw at the same address and port; always on a fresh connection.
    Contrast,
}

/// How long each phase took; a phase that was not reached or not needed is `None`.
#[expect(missing_docs, reason = "the phases' own names")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    pub dns: Option<Duration>,
    pub connect: Option<Duration>,
    pub http2: Option<Duration>,
    pub rpc: Option<Duration>,
}

/// One ping of one Store, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Whom.
    pub target: TargetId,
    /// The address used; `None` if none was known.
    pub remote: Option<SocketAddr>,
    /// Why.
    pub purpose: Purpose,
    /// On a connection made for this ping.
    pub fresh: bool,
    /// Begin.
    pub started: MonoTime,
    /// End.
    pub ended: MonoTime,
    /// How it ended.
    pub outcome: PingOutcome,
    /// Where the time went.
    pub phases: Phases,
    /// The address that the Store says is its own, as sent.
    pub identity: Option<Arc<str>>,
    /// What went wrong, in words, bounded in length; for operators on the admin side only.
    pub detail: Option<Arc<str>>,
}

/// A round of pings of one cluster is over. Its pings were observed before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundEnded {
    /// Of which cluster.
    pub cluster: ClusterId,
    /// Its number.
    pub round: u64,
    /// When its first ping was sent.
    pub started: MonoTime,
    /// When its last ping ended.
    pub ended: MonoTime,
    /// All that were asked in it.
    pub asked: Vec<TargetId>,
    /// With this round every target was asked since the sweep began (always true up to `max_stores_per_round` targets).
    pub sweep_complete: bool,
    /// The agent itself was late (scheduler, pause) or could not dial (no file descriptor, no local port): a failed round
    /// that is late does not count.
    pub late: bool,
}

/// What one PD peer showed in one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Position in the configuration.
    pub peer: u16,
    /// Its process answers at all: the list, a refusal, or its health service.
    pub alive: bool,
    /// Its health service says SERVING; `None` if it was not asked or did not answer.
    pub health_serving: Option<bool>,
    /// It refused for want of rights (UNAUTHENTICATED, PERMISSION_DENIED).
    pub auth_refused: bool,
    /// It was not even asked: no address is known for its name.
    pub unresolved: bool,
    /// What went wrong, in words, bounded in length.
    pub error: Option<Arc<str>>,
}

/// One attempt to get the list from PD, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdReport {
    /// Of which cluster.
    pub cluster: ClusterId,
    /// Begin.
    pub started: MonoTime,
    /// End.
    pub ended: MonoTime,
    /// The peers asked.
    pub peers: Vec<PeerReport>,
    /// The list, if any peer gave one (an empty list is an answer too).
    pub list: Option<Vec<ListedStore>>,
}

/// Why a look-up gave no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameFailure {
    /// The name does not exist: an answer.
    NoSuchName,
    /// A time-out, SERVFAIL or a broken answer: no answer.
    NoAnswer,
}

/// What DNS said about a target's name, for one address family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameReport {
    /// Whose name.
    pub target: TargetId,
    /// When the answer came.
    pub at: MonoTime,
    /// True: AAAA; false: A.
    pub v6: bool,
    /// The addresses (empty: the name exists without this family).
    pub answer: Result<Vec<IpAddr>, NameFailure>,
}
