//! Every row of the table of state changes, and every case of the battery that reaches the classifier.

use super::*;
use ConnectionOutcome as Outcome;

#[derive(Clone, Copy)]
enum Kind {
    Attempt,
    Ending,
}

struct Row {
    name: &'static str,
    kind: Kind,
    evidence: KernelEvidence,
    right: Outcome,
}

fn dial(error: u16) -> KernelEvidence {
    KernelEvidence { from: Some(TcpState::SynSent), error, ..KernelEvidence::default() }
}

fn held(from: TcpState, error: u16) -> KernelEvidence {
    KernelEvidence { from: Some(from), error, ..KernelEvidence::default() }
}

fn row(name: &'static str, kind: Kind, evidence: KernelEvidence, right: Outcome) -> Row {
    Row { name, kind, evidence, right }
}

#[test]
fn every_row_of_the_state_table() {
    use Kind::{Attempt, Ending};
    use TcpState::{CloseWait, Established, FinWait2, LastAck, SynSent};
    let rows = [
        row(
            "refused by a remote RST",
            Attempt,
            KernelEvidence { reset_received: true, reported: Some(111), ..dial(111) },
            Outcome::Refused,
        ),
        row(
            "SYN time-out in the kernel",
            Attempt,
            KernelEvidence { retransmits: 6, reported: Some(110), ..dial(110) },
            Outcome::NoAnswerKernel,
        ),
        row(
            "closed by its owner after retransmissions",
            Attempt,
            KernelEvidence { retransmits: 1, in_process: true, ..dial(0) },
            Outcome::NoAnswerGivenUp,
        ),
        row("closed by its owner at once", Attempt, KernelEvidence { in_process: true, ..dial(0) }, Outcome::Cancelled),
        row(
            "closed with linger 0",
            Attempt,
            KernelEvidence { in_process: true, reset_sent: Some(0), ..dial(0) },
            Outcome::Cancelled,
        ),
        row(
            "ICMP host unreachable, socket not owned",
            Attempt,
            KernelEvidence { retransmits: 1, reported: Some(113), ..dial(113) },
            Outcome::HostUnreachable,
        ),
        row(
            "ICMP net unreachable, socket not owned",
            Attempt,
            KernelEvidence { retransmits: 1, reported: Some(101), ..dial(101) },
            Outcome::NetUnreachable,
        ),
        row(
            "ICMP while owned: reported as 0",
            Attempt,
            KernelEvidence { reported: Some(0), in_process: true, ..dial(0) },
            Outcome::IcmpUnreachable,
        ),
        row(
            "ICMPv6 unreachable, non-blocking",
            Attempt,
            KernelEvidence { soft_error: 101, retransmits: 1, ..dial(101) },
            Outcome::NetUnreachable,
        ),
        row(
            "ICMPv6 unreachable, given up before the retransmission",
            Attempt,
            KernelEvidence { soft_error: 101, in_process: true, ..dial(0) },
            Outcome::NetUnreachable,
        ),
        row(
            "no neighbour, default retries",
            Attempt,
            KernelEvidence { retransmits: 2, ..dial(113) },
            Outcome::HostUnreachable,
        ),
        row(
            "no neighbour, few retries",
            Attempt,
            KernelEvidence { retransmits: 2, ..dial(110) },
            Outcome::NoAnswerKernel,
        ),
        row(
            "no source port",
            Attempt,
            KernelEvidence { no_source_port: true, in_process: true, ..dial(0) },
            Outcome::LocalPorts,
        ),
        row(
            "no route: seen only by a tier that hooks the call",
            Attempt,
            KernelEvidence { error: 22, in_process: true, ..held(TcpState::Close, 22) },
            Outcome::LocalRoute,
        ),
        row(
            "old kernel: the owner took the error before the change",
            Attempt,
            KernelEvidence { reported: Some(111), ..dial(0) },
            Outcome::Refused,
        ),
        row(
            "old kernel: the owner took a RST's error and no report was seen",
            Attempt,
            KernelEvidence { reset_received: true, ..dial(0) },
            Outcome::Refused,
        ),
        row("a coarse source knows nothing", Attempt, KernelEvidence::default(), Outcome::Unknown),
        row("destroyed while connecting", Attempt, dial(103), Outcome::KilledLocally),
        row("active close", Ending, held(FinWait2, 0), Outcome::Closed),
        row("passive close", Ending, held(LastAck, 0), Outcome::PeerClosed),
        row(
            "RST on ESTABLISHED",
            Ending,
            KernelEvidence { reset_received: true, ..held(Established, 104) },
            Outcome::Reset,
        ),
        row(
            "RST in CLOSE-WAIT",
            Ending,
            KernelEvidence { reset_received: true, ..held(CloseWait, 32) },
            Outcome::Reset,
        ),
        row(
            "data into a blackhole until the kernel gives up",
            Ending,
            KernelEvidence { retransmits: 15, unanswered: true, ..held(Established, 110) },
            Outcome::UserTimeout,
        ),
        row(
            "keep-alive gives up",
            Ending,
            KernelEvidence { reset_sent: Some(15), ..held(Established, 110) },
            Outcome::KeepaliveDead,
        ),
        row(
            "keep-alive gives up, kernel without reasons",
            Ending,
            KernelEvidence { reset_sent: Some(0), ..held(Established, 110) },
            Outcome::KeepaliveDead,
        ),
        row(
            "TCP_USER_TIMEOUT",
            Ending,
            KernelEvidence { retransmits: 4, unanswered: true, ..held(Established, 110) },
            Outcome::UserTimeout,
        ),
        row(
            "unread data at close",
            Ending,
            KernelEvidence { reset_sent: Some(11), in_process: true, ..held(Established, 0) },
            Outcome::Closed,
        ),
        row(
            "destroyed by an operator",
            Ending,
            KernelEvidence { reset_sent: Some(0), in_process: true, ..held(Established, 103) },
            Outcome::KilledLocally,
        ),
        row(
            "closed while data was being sent again",
            Ending,
            KernelEvidence { retransmits: 3, unanswered: true, in_process: true, ..held(Established, 0) },
            Outcome::Stalled,
        ),
        row(
            "the same, and the path had said why",
            Ending,
            KernelEvidence { retransmits: 3, unanswered: true, soft_error: 113, ..held(Established, 0) },
            Outcome::HostUnreachable,
        ),
        row("the path broke an established one", Ending, held(Established, 113), Outcome::HostUnreachable),
        row("a half of a handshake is no ending", Ending, held(SynSent, 0), Outcome::Unknown),
        row("a coarse source knows nothing", Ending, KernelEvidence::default(), Outcome::Unknown),
    ];
    check(&rows);
}

/// The battery of situations, by number; those about attribution, load or the agent itself are scenarios elsewhere.
#[test]
fn every_case_of_the_battery_that_ends_a_connection() {
    use Kind::{Attempt, Ending};
    use TcpState::{Established, LastAck};
    let rows = [
        row("1: the server closes first", Ending, held(LastAck, 0), Outcome::PeerClosed),
        row(
            "3: blackhole, given up after 1.5 s",
            Attempt,
            KernelEvidence { retransmits: 1, in_process: true, ..dial(0) },
            Outcome::NoAnswerGivenUp,
        ),
        row("4: closed port", Attempt, KernelEvidence { reset_received: true, ..dial(111) }, Outcome::Refused),
        row(
            "4: closed port on the same node, in the client's own call",
            Attempt,
            KernelEvidence { reset_received: true, in_process: true, ..dial(111) },
            Outcome::Refused,
        ),
        row("5: REJECT", Attempt, KernelEvidence { reported: Some(0), ..dial(0) }, Outcome::IcmpUnreachable),
        row("6: unreachable route, IPv4", Attempt, dial(113), Outcome::HostUnreachable),
        row("6: unreachable route, IPv6", Attempt, dial(101), Outcome::NetUnreachable),
        row("7: blackhole route of its own", Attempt, held(TcpState::Close, 22), Outcome::LocalRoute),
        row("7: unreachable route of its own", Attempt, held(TcpState::Close, 113), Outcome::LocalRoute),
        row("7: prohibit route of its own", Attempt, held(TcpState::Close, 13), Outcome::LocalRoute),
        row(
            "8: keep-alive",
            Ending,
            KernelEvidence { reset_sent: Some(15), ..held(Established, 110) },
            Outcome::KeepaliveDead,
        ),
        row(
            "9: link removed under a writer",
            Ending,
            KernelEvidence { retransmits: 4, unanswered: true, ..held(Established, 110) },
            Outcome::UserTimeout,
        ),
        row(
            "10: another machine took the address",
            Ending,
            KernelEvidence { reset_received: true, ..held(Established, 104) },
            Outcome::Reset,
        ),
        row(
            "14: SYN time-out in softirq",
            Attempt,
            KernelEvidence { retransmits: 2, ..dial(110) },
            Outcome::NoAnswerKernel,
        ),
        row("19: no neighbour", Attempt, dial(113), Outcome::HostUnreachable),
    ];
    check(&rows);
}

/// Only what tells something about the way to the target may be held against it.
#[test]
fn the_pods_own_doing_is_no_failure_of_the_target() {
    for outcome in [Outcome::Cancelled, Outcome::LocalPorts, Outcome::LocalRoute, Outcome::KilledLocally] {
        assert!(!counts_as_failure(outcome), "{}", outcome.as_str());
    }
    for outcome in [Outcome::Refused, Outcome::NoAnswerKernel, Outcome::NoAnswerGivenUp, Outcome::HostUnreachable] {
        assert!(counts_as_failure(outcome), "{}", outcome.as_str());
    }
}

fn check(rows: &[Row]) {
    for Row { name, kind, evidence, right } in rows {
        let got = match kind {
            Kind::Attempt => attempt(evidence),
            Kind::Ending => ending(evidence),
        };
        assert_eq!(got.as_str(), right.as_str(), "{name}");
    }
}
