//! Which processes dial from a container, and what ends with them.
//!
//! The kernel's counters know containers, not processes: a Server that is restarted inside its container leaves evidence
//! that the next one must not answer for. A process shows itself where it begins a dial, and where the inventory finds a
//! socket in its hands; both happen while it lives, unlike what a socket does after its owner's end. When it has ended,
//! what was seen at its addresses before goes with it, unless another process that lived at the same time dials there
//! too.

use crate::{
    process::{CommandLine, ProcessReport, ProcessState},
    remedy::Client,
    time::MonoTime,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// Processes of one container that are remembered: a Server is one, with a wrapper or a sidecar a few.
const MAX_DIALERS: usize = 32;

/// Addresses of one process that are remembered.
const MAX_ADDRESSES: usize = 64;

/// A process that dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialer {
    /// The last time that it showed itself.
    pub last: MonoTime,
    /// Where it dials.
    pub addresses: BTreeSet<SocketAddr>,
    /// When it began; `None` before it was looked at.
    pub started: Option<MonoTime>,
    /// What its command line says; `None` if that was not read.
    pub command: Option<CommandLine>,
}

impl Dialer {
    /// It lived while a process did that showed itself last at `at`.
    fn was_there(&self, at: MonoTime) -> bool {
        self.started.is_none_or(|started| started <= at)
    }
}

/// A process that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) pid: u32,
    /// Evidence from before this may be its.
    pub(crate) at: MonoTime,
    /// Where nobody else dialled while it lived.
    pub(crate) addresses: Vec<SocketAddr>,
    /// No other process of the container that dials lived at the same time: all evidence was its.
    pub(crate) alone: bool,
}

/// The processes of one container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialers(BTreeMap<u32, Dialer>);

impl Dialers {
    /// A process begins a dial, or holds a socket. Returns whether it is a new one.
    pub(crate) fn saw(&mut self, pid: u32, address: SocketAddr, at: MonoTime) -> bool {
        if let Some(dialer) = self.0.get_mut(&pid) {
            dialer.last = dialer.last.max(at);
            if dialer.addresses.len() < MAX_ADDRESSES {
                dialer.addresses.insert(address);
            }
            return false;
        }
        if self.0.len() >= MAX_DIALERS {
            let quiet = self.0.iter().min_by_key(|(_, dialer)| dialer.last).map(|(pid, _)| *pid);
            quiet.and_then(|pid| self.0.remove(&pid));
        }
        self.0.insert(pid, Dialer { last: at, addresses: [address].into(), started: None, command: None });
        true
    }

    /// Files what was found of a process. What ends with it, if it has ended.
    pub(crate) fn report(&mut self, report: &ProcessReport) -> Option<Ended> {
        let dialer = self.0.get_mut(&report.pid)?;
        if let ProcessState::Alive { started, command } = report.state
            && started <= dialer.last
        {
            dialer.started = Some(started);
            dialer.command = command.or(dialer.command);
            return None;
        }
        // A look that is older than what was seen proves nothing.
        if report.at < dialer.last {
            return None;
        }
        let Dialer { last, addresses, .. } = self.0.remove(&report.pid)?;
        let others = || self.0.values().filter(|other| other.was_there(last));
        let addresses =
            addresses.into_iter().filter(|address| !others().any(|other| other.addresses.contains(address)));
        // What began after its end is its successor's.
        let successor = self.0.values().filter(|other| !other.was_there(last)).filter_map(|other| other.started).min();
        Some(Ended {
            pid: report.pid,
            at: successor.map_or(report.at, |started| started.min(report.at)),
            addresses: addresses.collect(),
            alone: others().next().is_none(),
        })
    }

    /// The process to speak of, and when it showed itself last.
    pub(crate) fn client(&self) -> Option<(MonoTime, Client)> {
        let all = self.0.iter().map(|(pid, dialer)| (dialer.last, Client { pid: Some(*pid), command: dialer.command }));
        all.max_by_key(rank)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Dialer)> {
        self.0.iter().map(|(pid, dialer)| (*pid, dialer))
    }

    /// Takes them back. Whether they still live, a report will tell.
    pub(crate) fn resume(all: Vec<(u32, Dialer)>) -> Self {
        let bounded = |(pid, dialer): (u32, Dialer)| {
            let addresses = dialer.addresses.into_iter().take(MAX_ADDRESSES).collect();
            (pid, Dialer { addresses, ..dialer })
        };
        Self(all.into_iter().take(MAX_DIALERS).map(bounded).collect())
    }
}

/// The one to speak of among those of several containers.
pub(crate) fn best(clients: impl Iterator<Item = (MonoTime, Client)>) -> Client {
    clients.max_by_key(rank).map(|(_, client)| client).unwrap_or_default()
}

/// One that runs Java comes before any other, then one whose command line is known, then the one seen last.
fn rank((last, client): &(MonoTime, Client)) -> (bool, bool, MonoTime) {
    (client.command.is_some_and(|command| command.java), client.command.is_some(), *last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> MonoTime {
        MonoTime::from_millis(seconds * 1000)
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 8500))
    }

    fn report(pid: u32, seconds: i64, state: ProcessState) -> ProcessReport {
        ProcessReport { pid, at: at(seconds), state }
    }

    fn alive(started: i64) -> ProcessState {
        ProcessState::Alive { started: at(started), command: None }
    }

    #[test]
    fn evidence_ends_with_its_process() {
        let mut dialers = Dialers::default();
        assert!(dialers.saw(7, address(1), at(10)));
        assert!(!dialers.saw(7, address(2), at(20)));
        assert_eq!(dialers.report(&report(7, 21, alive(5))), None);
        let ended = dialers.report(&report(7, 30, ProcessState::Ended)).unwrap();
        assert_eq!(ended, Ended { pid: 7, at: at(30), addresses: vec![address(1), address(2)], alone: true });
        assert_eq!(dialers.report(&report(7, 31, ProcessState::Ended)), None, "once");
    }

    #[test]
    fn a_number_given_anew_is_another_process() {
        let mut dialers = Dialers::default();
        dialers.saw(7, address(1), at(10));
        let ended = dialers.report(&report(7, 30, alive(25))).unwrap();
        assert_eq!(ended.addresses, [address(1)]);
    }

    #[test]
    fn a_look_that_is_older_than_the_evidence_proves_nothing() {
        let mut dialers = Dialers::default();
        dialers.saw(7, address(1), at(10));
        assert_eq!(dialers.report(&report(7, 9, ProcessState::Ended)), None);
        assert_eq!(dialers.all().count(), 1);
    }

    #[test]
    fn a_contemporary_keeps_what_both_dialled_and_a_successor_does_not() {
        let mut dialers = Dialers::default();
        dialers.saw(7, address(1), at(10));
        dialers.saw(7, address(2), at(10));
        dialers.saw(8, address(1), at(11));
        // Not looked at yet: it may have lived then.
        let mut unknown = dialers.clone();
        let ended = unknown.report(&report(7, 30, ProcessState::Ended)).unwrap();
        assert_eq!((ended.addresses, ended.alone), (vec![address(2)], false));
        dialers.saw(8, address(1), at(29));
        dialers.report(&report(8, 29, alive(28)));
        let ended = dialers.report(&report(7, 30, ProcessState::Ended)).unwrap();
        assert_eq!((ended.addresses, ended.alone, ended.at), (vec![address(1), address(2)], true, at(28)));
    }

    #[test]
    fn java_is_spoken_of_before_anything_else() {
        let mut dialers = Dialers::default();
        for (pid, java) in [(1, false), (2, true), (3, false)] {
            dialers.saw(pid, address(1), at(10 + i64::from(pid)));
            let command = Some(CommandLine { java, ..CommandLine::default() });
            let state = ProcessState::Alive { started: at(1), command };
            assert_eq!(dialers.report(&report(pid, 20, state)), None);
        }
        assert_eq!(dialers.client().map(|(last, client)| (last, client.pid)), Some((at(12), Some(2))));
    }

    #[test]
    fn memory_is_bounded() {
        let mut dialers = Dialers::default();
        for pid in 0..1000 {
            for last in 0..200 {
                dialers.saw(pid, address(last), at(pid.into()));
            }
        }
        assert_eq!(dialers.all().count(), MAX_DIALERS);
        assert!(dialers.all().all(|(pid, dialer)| pid >= 968 && dialer.addresses.len() == MAX_ADDRESSES));
    }
}
