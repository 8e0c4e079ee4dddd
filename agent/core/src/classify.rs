//! From what the kernel knew to how it ended: a pure decision over [`KernelEvidence`].
//!
//! The order of the questions matters. The socket's error comes first, because the kernel sets it for one cause only.
//! Then the last error report: old kernels let the owner take the error before the state changes, and an ICMP error
//! that arrives while the owner holds the socket is reported as 0. Only when no error is left do retransmissions tell
//! "nobody answered" from "the owner changed its mind".

use crate::connection::{ConnectionOutcome, KernelEvidence, TcpState};

const EPERM: u16 = 1;
const EACCES: u16 = 13;
const EINVAL: u16 = 22;
const EPIPE: u16 = 32;
const EPROTO: u16 = 71;
const ENOPROTOOPT: u16 = 92;
const EOPNOTSUPP: u16 = 95;
const EADDRINUSE: u16 = 98;
const EADDRNOTAVAIL: u16 = 99;
const ENETDOWN: u16 = 100;
const ENETUNREACH: u16 = 101;
const ECONNABORTED: u16 = 103;
const ECONNRESET: u16 = 104;
const ETIMEDOUT: u16 = 110;
const ECONNREFUSED: u16 = 111;
const EHOSTDOWN: u16 = 112;
const EHOSTUNREACH: u16 = 113;

/// The kernel's reason for a RST that follows keep-alive probes without an answer.
const RESET_KEEPALIVE: u8 = 15;

/// How a dial that did not succeed ended.
pub fn attempt(evidence: &KernelEvidence) -> ConnectionOutcome {
    use ConnectionOutcome as Outcome;
    if evidence.from == Some(TcpState::Close) {
        // Only a tier that sees the call itself reports a dial that never left CLOSE.
        return match evidence.error {
            EADDRNOTAVAIL | EADDRINUSE => Outcome::LocalPorts,
            _ => Outcome::LocalRoute,
        };
    }
    if evidence.no_source_port {
        return Outcome::LocalPorts;
    }
    if evidence.error != 0 {
        return attempt_error(evidence.error);
    }
    if evidence.reset_received {
        return Outcome::Refused;
    }
    match evidence.reported {
        Some(0) => return Outcome::IcmpUnreachable,
        Some(error) => return attempt_error(error),
        None => {}
    }
    if evidence.soft_error != 0 {
        return path_error(evidence.soft_error);
    }
    if evidence.retransmits > 0 {
        Outcome::NoAnswerGivenUp
    } else if evidence.from.is_some() {
        Outcome::Cancelled
    } else {
        Outcome::Unknown
    }
}

fn attempt_error(error: u16) -> ConnectionOutcome {
    use ConnectionOutcome as Outcome;
    match error {
        ECONNREFUSED => Outcome::Refused,
        ECONNRESET | EPIPE => Outcome::Reset,
        ETIMEDOUT => Outcome::NoAnswerKernel,
        ECONNABORTED => Outcome::KilledLocally,
        EADDRNOTAVAIL | EADDRINUSE => Outcome::LocalPorts,
        EINVAL | EPERM => Outcome::LocalRoute,
        other => path_error(other),
    }
}

/// What the path said, by the error that its message became.
fn path_error(error: u16) -> ConnectionOutcome {
    match error {
        EHOSTUNREACH | EHOSTDOWN => ConnectionOutcome::HostUnreachable,
        ENETUNREACH | ENETDOWN => ConnectionOutcome::NetUnreachable,
        ECONNREFUSED | EACCES | EPROTO | ENOPROTOOPT | EOPNOTSUPP => ConnectionOutcome::IcmpUnreachable,
        _ => ConnectionOutcome::Unknown,
    }
}

/// How an established connection ended.
pub fn ending(evidence: &KernelEvidence) -> ConnectionOutcome {
    use ConnectionOutcome as Outcome;
    if evidence.error != 0 {
        return ending_error(evidence, evidence.error);
    }
    if evidence.reset_received {
        return Outcome::Reset;
    }
    if let Some(error) = evidence.reported.filter(|error| *error != 0) {
        return ending_error(evidence, error);
    }
    if evidence.unanswered && evidence.retransmits > 0 {
        return match evidence.soft_error {
            0 => Outcome::Stalled,
            error => match path_error(error) {
                Outcome::Unknown => Outcome::Stalled,
                said => said,
            },
        };
    }
    match evidence.from {
        Some(TcpState::CloseWait | TcpState::LastAck) => Outcome::PeerClosed,
        Some(
            TcpState::Established
            | TcpState::FinWait1
            | TcpState::FinWait2
            | TcpState::Closing
            | TcpState::TimeWait
            | TcpState::Close,
        ) => Outcome::Closed,
        Some(TcpState::SynSent | TcpState::SynRecv | TcpState::NewSynRecv | TcpState::Listen) | None => {
            Outcome::Unknown
        }
    }
}

fn ending_error(evidence: &KernelEvidence, error: u16) -> ConnectionOutcome {
    use ConnectionOutcome as Outcome;
    match error {
        ECONNRESET | EPIPE | ECONNREFUSED => Outcome::Reset,
        ECONNABORTED => Outcome::KilledLocally,
        // Keep-alive probes are no retransmissions; kernels before 6.10 do not give the RST's reason.
        ETIMEDOUT if evidence.reset_sent == Some(RESET_KEEPALIVE) => Outcome::KeepaliveDead,
        ETIMEDOUT if evidence.retransmits == 0 && !evidence.unanswered => Outcome::KeepaliveDead,
        ETIMEDOUT => Outcome::UserTimeout,
        other => path_error(other),
    }
}

/// Whether an attempt that ended so says something about the way to the target: the rest is the pod's own doing.
pub(crate) const fn counts_as_failure(outcome: ConnectionOutcome) -> bool {
    use ConnectionOutcome as Outcome;
    matches!(
        outcome,
        Outcome::Refused
            | Outcome::Reset
            | Outcome::NoAnswerKernel
            | Outcome::NoAnswerGivenUp
            | Outcome::IcmpUnreachable
            | Outcome::HostUnreachable
            | Outcome::NetUnreachable
    )
}

#[cfg(test)]
mod tests;
