//! The evidence of one container: per remote address what its dials and connections came to.
//!
//! A counter's growth carries only the latest begin and end among everything it has counted. So of the `added` attempts
//! of one reading, one is known to have begun at `last_begun` and the others at unknown times before; of several equal
//! begins within a millisecond one is taken. Each reading thus yields at most one attempt per kind of ending that is
//! known to have begun after a given instant. This never counts too many; a pod that keeps failing shows one more with
//! each reading.

use crate::{
    classify,
    connection::{AttemptCount, ConnectionOutcome, Counted, TcpState},
    dialers::{Dialers, Ended},
    id::TargetKey,
    ownership::Ownership,
    pings::AddressPings,
    sockets::{Noted, Received, Sockets},
    stale::StaleEntry,
    time::MonoTime,
};
use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::Duration,
};

mod remember;

/// Remote addresses of one container that are kept. A cluster has tens of Stores; what is beyond (a scanner, a Consul
/// client) pushes out what was quiet longest.
pub(crate) const MAX_REMOTES: usize = 128;

/// Entries of each short memory: enough for every threshold (three at most) with room to tell a number.
const MAX_RECENT: usize = 32;

/// Begins closer than this are taken for one.
const SAME_BEGIN: Duration = Duration::from_millis(1);

/// A socket counts as stuck after this long...
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(5);

/// ... and again each time this has passed.
pub(crate) const STUCK_AGAIN: Duration = Duration::from_secs(30);

/// Counted attempts stay visible at least this long, so that what a stuck socket adds every 30 s is one finding.
pub(crate) const MEMORY: Duration = Duration::from_secs(60);

/// An attempt that no ping of this node brackets within this time proves nothing.
const BRACKET: Duration = Duration::from_secs(30);

/// A failed attempt on its way to being held against the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it began.
    pub begun: MonoTime,
    /// When it ended.
    pub ended: MonoTime,
    /// How.
    pub outcome: ConnectionOutcome,
    /// A socket that is stuck rather than a dial that ended.
    pub stuck: bool,
    /// A fresh ping before and one after both succeeded, and none in between failed.
    pub counted: bool,
}

/// A bounded list of recent instants with a number each.
pub type Recent<T> = VecDeque<(MonoTime, T, u64)>;

fn remember<T>(list: &mut Recent<T>, at: MonoTime, what: T, added: u64) {
    if list.len() >= MAX_RECENT {
        list.pop_front();
    }
    list.push_back((at, what, added));
}

/// How many since `since`.
pub(crate) fn count_since<T>(list: &Recent<T>, since: MonoTime, matching: impl Fn(&T) -> bool) -> u64 {
    let counts = list.iter().filter(|(at, what, _)| *at >= since && matching(what)).map(|(_, _, added)| *added);
    counts.fold(0, u64::saturating_add)
}

/// What a container's connections to one remote address came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// When a dial began last.
    pub last_begun: Option<MonoTime>,
    /// When one succeeded last.
    pub last_established: Option<MonoTime>,
    /// Dials that began.
    pub begins: Recent<()>,
    /// Dials that succeeded.
    pub answers: Recent<()>,
    /// Dials that failed.
    pub failed: Recent<ConnectionOutcome>,
    /// Connections that ended.
    pub endings: Recent<ConnectionOutcome>,
    /// Dials that succeeded after a SYN was sent again.
    pub slow: Recent<()>,
    /// Connections that died at their first use after so long a silence.
    pub idle_drops: Recent<Duration>,
    /// Failed attempts on their way to being held against the path.
    pub attempts: VecDeque<Attempt>,
    /// When payload arrived last.
    pub received: Received,
    /// When anything happened last.
    pub last_activity: Option<MonoTime>,
    /// Established connections...
    pub established: u32,
    /// ... and since when there were few but some.
    pub few_since: Option<MonoTime>,
    /// What was before this was the doing of a process that has ended.
    pub clean_since: Option<MonoTime>,
}

impl Remote {
    /// Forgets what was before `at`.
    fn clean(&mut self, at: MonoTime) {
        fn since<T>(list: &mut Recent<T>, at: MonoTime) {
            list.retain(|(then, _, _)| *then >= at);
        }
        let fresh = |time: &mut Option<MonoTime>| *time = time.filter(|then| *then >= at);
        let Self {
            last_begun,
            last_established,
            begins,
            answers,
            failed,
            endings,
            slow,
            idle_drops,
            attempts,
            received,
            last_activity,
            established: _,
            few_since,
            clean_since,
        } = self;
        for time in [last_begun, last_established, last_activity, few_since] {
            fresh(time);
        }
        fresh(&mut received.earliest);
        fresh(&mut received.latest);
        since(begins, at);
        since(answers, at);
        since(failed, at);
        since(endings, at);
        since(slow, at);
        since(idle_drops, at);
        attempts.retain(|attempt| attempt.begun >= at);
        *clean_since = Some(at);
    }

    fn touch(&mut self, at: MonoTime) {
        self.last_activity = self.last_activity.max(Some(at));
    }

    fn attempt(&mut self, attempt: Attempt) {
        let known = |other: &Attempt| {
            let apart = attempt.begun.since(other.begun).max(other.begun.since(attempt.begun));
            match (other.stuck, attempt.stuck) {
                (false, false) => apart < SAME_BEGIN,
                // A dial that was counted while it was stuck ends only once more.
                (true, false) => attempt.begun <= other.begun,
                (_, true) => false,
            }
        };
        if self.attempts.iter().any(known) {
            return;
        }
        if self.attempts.len() >= MAX_RECENT {
            // One that is counted says more than one that waits for a ping: a thousand sockets that are stuck together
            // must not push it out.
            let waits = self.attempts.iter().position(|attempt| !attempt.counted);
            self.attempts.remove(waits.unwrap_or(0));
        }
        self.attempts.push_back(attempt);
    }

    /// Counts the attempts that pings bracket by now, and forgets what cannot be.
    fn bracket(&mut self, pings: Option<&AddressPings>, now: MonoTime, window: Duration) {
        self.attempts.retain_mut(|attempt| {
            if now.since(attempt.ended) > window.max(MEMORY) {
                return false;
            }
            if attempt.counted {
                return true;
            }
            // Broken since, or not yet answering then: the node saw the same as the pod.
            if pings.and_then(|pings| pings.run_since).is_none_or(|run| run > attempt.begun) {
                return false;
            }
            attempt.counted = pings.and_then(|pings| pings.fresh_started).is_some_and(|at| at >= attempt.begun);
            attempt.counted || now.since(attempt.ended) <= BRACKET
        });
    }

    /// Attempts held against the path that ended since `since`.
    pub(crate) fn counted(&self, since: MonoTime) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(move |attempt| attempt.counted && attempt.ended >= since)
    }

    /// An attempt waits for a ping after it.
    pub(crate) fn wants_contrast(&self) -> bool {
        self.attempts.iter().any(|attempt| !attempt.counted)
    }
}

/// The evidence of one container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) first_seen: MonoTime,
    /// It is not in the pod's list of containers.
    pub(crate) foreign: bool,
    pub(crate) remotes: BTreeMap<SocketAddr, Remote>,
    pub(crate) sockets: Sockets,
    pub(crate) stale: BTreeMap<(TargetKey, SocketAddr), StaleEntry>,
    /// Readings of the clocks of tenures that had ended before this container began.
    pub(crate) baselines: BTreeMap<(TargetKey, SocketAddr), Duration>,
    /// The processes that dial from it.
    pub(crate) dialers: Dialers,
    pub(crate) last_evidence: Option<MonoTime>,
    pub(crate) dropped: u64,
    /// Until this instant nobody watched, and no whole sample has come since.
    pub(crate) gap: Option<MonoTime>,
}

impl Container {
    pub(crate) fn new(first_seen: MonoTime, foreign: bool) -> Self {
        Self {
            first_seen,
            foreign,
            remotes: BTreeMap::new(),
            sockets: Sockets::default(),
            stale: BTreeMap::new(),
            baselines: BTreeMap::new(),
            dialers: Dialers::default(),
            last_evidence: None,
            dropped: 0,
            gap: None,
        }
    }

    pub(crate) fn remote(&mut self, address: SocketAddr) -> &mut Remote {
        if !self.remotes.contains_key(&address) && self.remotes.len() >= MAX_REMOTES {
            let quiet = self.remotes.iter().min_by_key(|(_, remote)| remote.last_activity).map(|(address, _)| *address);
            if let Some(quiet) = quiet {
                self.remotes.remove(&quiet);
                self.dropped = self.dropped.saturating_add(1);
            }
        }
        self.remotes.entry(address).or_default()
    }

    /// Applies the growth of a counter. `run` is since when the node's own pings to the address succeed.
    pub(crate) fn count(&mut self, count: &AttemptCount, run: Option<MonoTime>) {
        let ended = count.last_ended;
        let remote = self.remote(count.remote);
        let at = count.last_begun.unwrap_or(ended);
        if remote.clean_since.is_some_and(|clean| at < clean) {
            // Counted now, done by a process that has ended.
            return;
        }
        match count.what {
            Counted::Begun => {
                remote.touch(at);
                remote.last_begun = remote.last_begun.max(Some(at));
                remember(&mut remote.begins, at, (), count.added);
            }
            Counted::Established => {
                remote.touch(ended);
                remote.last_begun = remote.last_begun.max(count.last_begun);
                remote.last_established = remote.last_established.max(Some(ended));
                remember(&mut remote.answers, ended, (), count.added);
            }
            Counted::Failed(evidence) => {
                remote.touch(ended);
                remote.last_begun = remote.last_begun.max(count.last_begun);
                let outcome = classify::attempt(&evidence);
                remember(&mut remote.failed, ended, outcome, count.added);
                if let Some(begun) = count.last_begun
                    && classify::counts_as_failure(outcome)
                    && run.is_some_and(|run| run <= begun)
                {
                    remote.attempt(Attempt { begun, ended, outcome, stuck: false, counted: false });
                }
            }
            Counted::Ended(evidence) => {
                remote.touch(ended);
                remember(&mut remote.endings, ended, classify::ending(&evidence), count.added);
            }
            Counted::ResetsReceived | Counted::ResetsSent | Counted::Retransmits => {}
        }
        self.last_evidence = self.last_evidence.max(Some(ended));
    }

    /// Notes what a detail showed beyond the counters.
    pub(crate) fn note(&mut self, noted: Noted) {
        match noted {
            Noted::SlowEstablish { at, remote } => remember(&mut self.remote(remote).slow, at, (), 1),
            Noted::IdleDrop { at, remote, idle } => remember(&mut self.remote(remote).idle_drops, at, idle, 1),
        }
    }

    /// Takes in what a whole sample showed of this container's sockets, once each has been applied.
    pub(crate) fn sampled(
        &mut self,
        at: MonoTime,
        complete: bool,
        pings: &BTreeMap<SocketAddr, AddressPings>,
        window: Duration,
    ) {
        if complete {
            self.sockets.reconcile(at);
        }
        let mut established: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        let mut stuck = Vec::new();
        let mut received = Vec::new();
        let mut answered = Vec::new();
        for socket in self.sockets.live_mut() {
            // All that lived before the gap were known: this one was answered meanwhile, which nobody saw.
            if self.gap.is_some()
                && socket.first_seen == at
                && socket.begun.is_none()
                && socket.state != TcpState::SynSent
            {
                answered.push(socket.remote);
            }
            if socket.state == TcpState::Established {
                *established.entry(socket.remote).or_default() += 1;
            }
            received.push((socket.remote, socket.received));
            if !socket.stuck(at, STUCK_AFTER) || socket.stuck_counted.is_some_and(|last| at.since(last) < STUCK_AGAIN) {
                continue;
            }
            let run = pings.get(&socket.remote).and_then(|pings| pings.run_since);
            // Stuck since a time when nothing answered there: its next retransmission may be two minutes away, and
            // heals it. Only a whole window of silence after the return tells otherwise.
            let since_run =
                run.is_some_and(|run| socket.stuck_since.is_some_and(|since| run <= since) || at.since(run) >= window);
            if since_run {
                socket.stuck_counted = Some(at);
                stuck.push(socket.remote);
            }
        }
        if !received.is_empty() {
            self.last_evidence = self.last_evidence.max(Some(at));
        }
        for (address, received) in received {
            let remote = self.remote(address);
            remote.touch(at);
            remote.received.merge(received);
        }
        let gap = self.gap;
        for address in answered {
            let remote = self.remote(address);
            remote.last_established = remote.last_established.max(gap);
        }
        self.gap = gap.filter(|_| !complete);
        for address in stuck {
            let outcome = ConnectionOutcome::NoAnswerGivenUp;
            self.remote(address).attempt(Attempt { begun: at, ended: at, outcome, stuck: true, counted: false });
        }
        for (address, remote) in &mut self.remotes {
            remote.established = established.get(address).copied().unwrap_or(0);
            if remote.established == 0 || remote.established >= POOL / 8 {
                remote.few_since = None;
            } else {
                remote.few_since.get_or_insert(at);
            }
        }
    }

    /// Takes out what a process that has ended leaves behind. Returns whether attempts that were held against the path
    /// went with it and none is left.
    pub(crate) fn clean(&mut self, ended: &Ended, ownership: &Ownership) -> bool {
        let Ended { pid, at, addresses, alone } = ended;
        let (at, pid) = (*at, *pid);
        let counted = |remotes: &BTreeMap<SocketAddr, Remote>| {
            remotes.values().any(|remote| remote.attempts.iter().any(|attempt| attempt.counted))
        };
        let before = counted(&self.remotes);
        let is_concerned = |address: &SocketAddr| *alone || addresses.contains(address);
        for address in addresses {
            self.remote(*address);
        }
        for (_, remote) in self.remotes.iter_mut().filter(|(address, _)| is_concerned(address)) {
            remote.clean(at);
        }
        self.sockets
            .orphan(|socket| socket.pid == Some(pid) || (*alone && socket.pid.is_none() && socket.origin() < at), at);
        self.stale.retain(|(_, address), _| !is_concerned(address));
        // What nobody remembers any more needs no reading.
        self.baselines.retain(|(target, address), _| ownership.tenure(*target, *address).is_some());
        for (target, address, tenure) in ownership.leaving().filter(|(_, address, _)| is_concerned(address)) {
            // The clock of a process that begins now begins now.
            self.baselines.insert((target, address), tenure.successor.elapsed(at));
        }
        if *alone {
            self.first_seen = self.first_seen.max(at);
        }
        *alone || (before && !counted(&self.remotes))
    }

    /// Brings the judgement of attempts up to `now`.
    pub(crate) fn bracket(&mut self, pings: &BTreeMap<SocketAddr, AddressPings>, now: MonoTime, window: Duration) {
        for (address, remote) in &mut self.remotes {
            remote.bracket(pings.get(address), now, window);
        }
    }
}

/// Channels that a Server opens per Store when its pool works.
pub(crate) const POOL: u32 = 32;
