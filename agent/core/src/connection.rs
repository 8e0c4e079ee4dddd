//! What the kernel told about connections of pods to watched ports.

use crate::{
    id::{CgroupId, NetnsId},
    time::MonoTime,
};
use std::{net::SocketAddr, time::Duration};

/// A socket while it lives: its kernel address, or 0 where the source does not know it (then the four-tuple identifies it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u64);

/// Whose socket: read from the socket itself, never from the running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketOwner {
    /// The creating container's cgroup; absent where the kernel did not say.
    pub cgroup: Option<CgroupId>,
    /// Its network namespace; absent where the source cannot know it.
    pub netns: Option<NetnsId>,
    /// The process (thread group) that created it or holds it now; a fallback only.
    pub pid: Option<u32>,
}

/// TCP states by their kernel numbers.
#[expect(missing_docs, reason = "the protocol's own names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TcpState {
    Established = 1,
    SynSent = 2,
    SynRecv = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Close = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
    NewSynRecv = 12,
}

impl TcpState {
    /// Every state, by number.
    pub const ALL: [Self; 12] = [
        Self::Established,
        Self::SynSent,
        Self::SynRecv,
        Self::FinWait1,
        Self::FinWait2,
        Self::TimeWait,
        Self::Close,
        Self::CloseWait,
        Self::LastAck,
        Self::Listen,
        Self::Closing,
        Self::NewSynRecv,
    ];

    /// The stable name used in JSON: that of RFC 9293.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Established => "established",
            Self::SynSent => "syn_sent",
            Self::SynRecv | Self::NewSynRecv => "syn_received",
            Self::FinWait1 => "fin_wait_1",
            Self::FinWait2 => "fin_wait_2",
            Self::TimeWait => "time_wait",
            Self::Close => "closed",
            Self::CloseWait => "close_wait",
            Self::LastAck => "last_ack",
            Self::Listen => "listen",
            Self::Closing => "closing",
        }
    }
}

impl TryFrom<u8> for TcpState {
    type Error = u8;
    fn try_from(number: u8) -> Result<Self, u8> {
        Ok(match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 => Self::SynRecv,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            7 => Self::Close,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            12 => Self::NewSynRecv,
            other => return Err(other),
        })
    }
}

/// What the kernel knew when a connection or an attempt ended: the classifier's whole input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KernelEvidence {
    /// The state that ended; `None` where only a coarse source saw it.
    pub from: Option<TcpState>,
    /// `sk_err` at the change (errno), 0 for none. May have been cleared by SO_ERROR on old kernels.
    pub error: u16,
    /// `sk_err_soft` (errno), 0 for none.
    pub soft_error: u16,
    /// The last `inet_sk_error_report` of this socket; `Some(0)` while SYN-SENT is an ICMP error that the owner already took.
    pub reported: Option<u16>,
    /// Retransmissions so far: of the SYN while connecting, of unanswered data when established. Saturates.
    pub retransmits: u8,
    /// No source port was ever chosen.
    pub no_source_port: bool,
    /// The change happened in the owner's own call (close, connect), not in softirq or timer context.
    pub in_process: bool,
    /// A RST from the peer was seen.
    pub reset_received: bool,
    /// A RST was sent, with the kernel's reason where it gives one (15: keep-alive, 11: unread data; 0: unknown).
    pub reset_sent: Option<u8>,
    /// Data was queued and unanswered at the end.
    pub unanswered: bool,
}

/// How an attempt or an established connection ended (stable names, see [`ConnectionOutcome::as_str`]).
#[expect(missing_docs, reason = "defined by their names in the public contract")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionOutcome {
    Established,
    Refused,
    Reset,
    NoAnswerKernel,
    NoAnswerGivenUp,
    IcmpUnreachable,
    HostUnreachable,
    NetUnreachable,
    Cancelled,
    LocalPorts,
    LocalRoute,
    PeerClosed,
    KeepaliveDead,
    UserTimeout,
    Stalled,
    KilledLocally,
    /// Closed by this side, in order (endings only).
    Closed,
    Unknown,
}

impl ConnectionOutcome {
    /// Every outcome, in the order of the contract.
    pub const ALL: [Self; 18] = [
        Self::Established,
        Self::Refused,
        Self::Reset,
        Self::NoAnswerKernel,
        Self::NoAnswerGivenUp,
        Self::IcmpUnreachable,
        Self::HostUnreachable,
        Self::NetUnreachable,
        Self::Cancelled,
        Self::LocalPorts,
        Self::LocalRoute,
        Self::PeerClosed,
        Self::KeepaliveDead,
        Self::UserTimeout,
        Self::Stalled,
        Self::KilledLocally,
        Self::Closed,
        Self::Unknown,
    ];

    /// The stable name used in metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Established => "established",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::NoAnswerKernel => "no_answer_kernel",
            Self::NoAnswerGivenUp => "no_answer_given_up",
            Self::IcmpUnreachable => "icmp_unreachable",
            Self::HostUnreachable => "host_unreachable",
            Self::NetUnreachable => "net_unreachable",
            Self::Cancelled => "cancelled",
            Self::LocalPorts => "local_ports",
            Self::LocalRoute => "local_route",
            Self::PeerClosed => "peer_closed",
            Self::KeepaliveDead => "keepalive_dead",
            Self::UserTimeout => "user_timeout",
            Self::Stalled => "stalled",
            Self::KilledLocally => "killed_locally",
            Self::Closed => "closed",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing that happened to one client socket towards a watched port. May be missing (rate limit, loss): details
/// explain, [`AttemptCount`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// When, by the kernel.
    pub at: MonoTime,
    /// Which socket.
    pub socket: SocketId,
    /// Whose.
    pub owner: SocketOwner,
    /// Own address; the port is 0 while none is chosen.
    pub local: SocketAddr,
    /// The address dialled; IPv4-mapped addresses are given as IPv4.
    pub remote: SocketAddr,
    /// Smoothed round trip at that time; `None` if unknown or never measured.
    pub rtt: Option<Duration>,
    /// Segments sent again over the connection's life so far, SYNs included; `None` if the source does not know.
    pub retransmits_total: Option<u32>,
    /// What.
    pub what: ConnectionChange,
}

/// The kinds of [`ConnectionEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionChange {
    /// A dial was begun (CLOSE to SYN-SENT).
    Begun,
    /// A dial succeeded.
    Established {
        /// When it was begun; `None` if that was not seen.
        begun: Option<MonoTime>,
    },
    /// A dial ended without success.
    Failed {
        /// When it was begun; `None` if that was not seen.
        begun: Option<MonoTime>,
        /// What the kernel knew.
        evidence: KernelEvidence,
    },
    /// An established connection ended.
    Ended {
        /// When it had been begun; `None` if that was not seen.
        begun: Option<MonoTime>,
        /// What the kernel knew.
        evidence: KernelEvidence,
        /// Payload received over its life, without the byte counted for a FIN; `None` if unknown.
        bytes_received: Option<u64>,
    },
    /// A RST arrived.
    ResetReceived {
        /// The state it hit.
        state: TcpState,
    },
    /// A RST was sent for this socket.
    ResetSent {
        /// The state it was sent from; `None` where the kernel does not tell.
        state: Option<TcpState>,
        /// The kernel's reason, where it gives one.
        reason: Option<u8>,
    },
    /// A segment was sent again.
    Retransmit {
        /// SYN-SENT: a SYN; otherwise data.
        state: TcpState,
        /// How many in a row so far.
        count: u8,
    },
    /// The kernel reported an error to the socket's owner.
    ErrorReported {
        /// errno; 0 where the owner had taken it already.
        errno: u16,
        /// The state it hit.
        state: TcpState,
    },
}

/// Growth of one kernel counter since the last reading. Exact until the kernel's map is full (then
/// [`Loss`](crate::source::Loss) says so).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptCount {
    /// Whose; `None` for the sum over all that are not selected.
    pub owner: Option<SocketOwner>,
    /// The address dialled; for a sum the port alone counts.
    pub remote: SocketAddr,
    /// What is counted.
    pub what: Counted,
    /// How many more since the last reading, at least 1.
    pub added: u64,
    /// The latest begin among all counted so far; `None` if never seen.
    pub last_begun: Option<MonoTime>,
    /// The latest end among all counted so far.
    pub last_ended: MonoTime,
}

/// What an [`AttemptCount`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Dials begun.
    Begun,
    /// Dials that succeeded.
    Established,
    /// Dials that ended otherwise, with this evidence.
    Failed(KernelEvidence),
    /// Established connections that ended, with this evidence.
    Ended(KernelEvidence),
    /// RSTs received.
    ResetsReceived,
    /// RSTs sent.
    ResetsSent,
    /// Segments sent again.
    Retransmits,
}

/// One client socket towards a watched port, as the inventory found it. Sockets without an owner process are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketSample {
    /// Which; `SocketId(0)` from the `/proc` fallback.
    pub socket: SocketId,
    /// Whose.
    pub owner: SocketOwner,
    /// Own address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Its TCP state.
    pub state: TcpState,
    /// Payload received over its life, without the byte counted for a FIN; `None` if the source does not know.
    pub bytes_received: Option<u64>,
    /// Payload the peer has acknowledged; `None` if the source does not know.
    pub bytes_acked: Option<u64>,
    /// Bytes written and not acknowledged yet.
    pub unanswered: u64,
    /// Retransmissions in a row of what is unanswered (of the SYN while connecting).
    pub retransmits: u8,
    /// Segments sent again over its life, SYNs included; `None` if the source does not know.
    pub retransmits_total: Option<u32>,
    /// The retransmit timer runs.
    pub retransmitting: bool,
    /// Smoothed round trip; `None` if unknown.
    pub rtt: Option<Duration>,
    /// When data last arrived; `None` if unknown.
    pub last_received: Option<MonoTime>,
    /// When data was last sent; `None` if unknown.
    pub last_sent: Option<MonoTime>,
}

/// All client sockets of the node towards watched ports, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventorySample {
    /// When reading began.
    pub at: MonoTime,
    /// When reading ended.
    pub ended: MonoTime,
    /// False when a budget cut it short: then a socket that is not listed may still exist.
    pub complete: bool,
    /// What was found.
    pub sockets: Vec<SocketSample>,
}
