//! How a call can fail before a gRPC status arrives, told apart by what happened and where.

use std::{error::Error, fmt, io};
use storewatch_core::ping::PingOutcome;

/// Longest text about a failure that is handed on, in characters: it may come from a stranger.
const LONGEST_TEXT: usize = 200;

/// The parts of a call, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Looking up the name.
    Dns,
    /// The TCP handshake.
    Connect,
    /// Waiting for the server's SETTINGS frame, its first.
    Http2,
    /// Request to trailers.
    Rpc,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Http2 => "http2",
            Self::Rpc => "rpc",
        })
    }
}

/// What the kernel says when this machine has no descriptor, memory or local port for a call, or forbids it.
const LOCAL: [i32; 7] =
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EADDRNOTAVAIL, libc::EPERM, libc::EACCES];

/// A call that ended without a gRPC status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nobody listens.
    #[error("connection refused")]
    Refused,
    /// The peer reset an established connection.
    #[error("connection reset by the peer ({0})")]
    Reset(Phase),
    /// The peer closed an established connection without an answer.
    #[error("connection closed by the peer ({0})")]
    Closed(Phase),
    /// No way there, with the kernel's word for it.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The call never left this machine, for want of something of its own; says nothing of the peer.
    #[error("not sent: {0}")]
    Local(String),
    /// The budget ran out.
    #[error("no answer within the budget ({0})")]
    Deadline(Phase),
    /// The peer ended the connection in HTTP/2's own way.
    #[error("GOAWAY: {0}")]
    GoAway(String),
    /// Something answered that does not speak as HugeGraph does.
    #[error("{0}")]
    Protocol(String),
}

impl Fault {
    /// A [`Fault::Protocol`] with its text cut to a bounded length.
    pub fn protocol(text: impl AsRef<str>) -> Self {
        Self::Protocol(bounded(text.as_ref()))
    }

    /// The outcome by which it is counted.
    pub fn outcome(&self) -> PingOutcome {
        match self {
            Self::Refused | Self::Reset(_) | Self::Closed(_) => PingOutcome::Refused,
            Self::Unreachable(_) | Self::Local(_) => PingOutcome::Unreachable,
            Self::Deadline(_) => PingOutcome::Deadline,
            Self::GoAway(_) | Self::Protocol(_) => PingOutcome::Protocol,
        }
    }

    /// It says something of this machine alone.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// The connection is gone, which says nothing yet about the process at its other end.
    pub fn lost_connection(&self) -> bool {
        matches!(self, Self::Reset(_) | Self::Closed(_) | Self::GoAway(_))
    }

    /// From a socket's error.
    pub fn from_io(error: &io::Error, phase: Phase) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Self::Reset(phase),
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected => {
                Self::Closed(phase)
            }
            // The kernel's own patience (tcp_syn_retries, tcp_retries2) can be shorter than the budget.
            io::ErrorKind::TimedOut => Self::Deadline(phase),
            _ if error.raw_os_error().is_some_and(|code| LOCAL.contains(&code)) => {
                Self::Local(bounded(&error.to_string()))
            }
            _ => Self::Unreachable(bounded(&error.to_string())),
        }
    }

    /// From hyper's error, by what lies beneath it.
    pub fn from_hyper(error: &hyper::Error, phase: Phase) -> Self {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(present) = cause {
            if let Some(error) = present.downcast_ref::<io::Error>() {
                return Self::from_io(error, phase);
            }
            if let Some(error) = present.downcast_ref::<h2::Error>() {
                if let Some(error) = error.get_io() {
                    return Self::from_io(error, phase);
                }
                if error.is_go_away() && error.is_remote() {
                    return Self::GoAway(bounded(&error.to_string()));
                }
                return Self::protocol(match (error.is_remote(), error.reason()) {
                    (true, Some(reason)) => format!("the peer reset the stream: {}", reason.description()),
                    (false, Some(reason)) => format!("the peer breaks the rules of HTTP/2: {}", reason.description()),
                    (_, None) => format!("HTTP/2: {error}"),
                });
            }
            cause = present.source();
        }
        if error.is_closed() || error.is_canceled() || error.is_incomplete_message() {
            Self::Closed(phase)
        } else {
            Self::protocol(error.to_string())
        }
    }
}

/// Cuts a text to a bounded length and replaces control characters: it ends in logs and on terminals.
pub fn bounded(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_lacks_says_nothing_of_the_peer() {
        let fault = |code| Fault::from_io(&io::Error::from_raw_os_error(code), Phase::Connect);
        for code in LOCAL {
            assert!(fault(code).is_local(), "{:?}", fault(code));
        }
        for code in [libc::EHOSTUNREACH, libc::ENETUNREACH, libc::ECONNREFUSED, libc::ETIMEDOUT, libc::ECONNRESET] {
            assert!(!fault(code).is_local(), "{:?}", fault(code));
        }
    }
}
