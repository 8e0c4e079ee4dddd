//! The sockets of one container, put together from details and inventory samples.
//!
//! The two reconcile each other: a complete sample that does not list a socket ends it (a missed close leaves no ghost),
//! and one that lists an unknown socket adds it (a missed open hides nothing).

use crate::{
    classify,
    connection::{ConnectionChange, ConnectionEvent, ConnectionOutcome, SocketId, SocketSample, TcpState},
    memory::SocketMemory,
    time::MonoTime,
};
use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::Duration,
};

/// Sockets of one container that are tracked. A Server has up to 32 channels per Store; what is beyond is counted.
pub(crate) const MAX_SOCKETS: usize = 1024;

/// Ended connections of one container that are remembered for the connection table.
const MAX_ENDED: usize = 32;

/// A connection that was quiet this long before its last use counts as idle.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// What identifies a socket while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Id(SocketId),
    Tuple(SocketAddr, SocketAddr),
}

/// When payload last arrived: known exactly, or only between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// It was not before this: certain enough to excuse.
    pub earliest: Option<MonoTime>,
    /// It was not after this: late enough to accuse nobody.
    pub latest: Option<MonoTime>,
}

impl Received {
    pub(crate) fn merge(&mut self, other: Self) {
        self.earliest = self.earliest.max(other.earliest);
        self.latest = self.latest.max(other.latest);
    }
}

/// A client socket of a container.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) state: TcpState,
    /// The process that began it or that holds it, in the initial pid namespace.
    pub(crate) pid: Option<u32>,
    /// When it was begun; `None` if it is older than this agent's eyes.
    pub(crate) begun: Option<MonoTime>,
    pub(crate) first_seen: MonoTime,
    pub(crate) last_seen: MonoTime,
    pub(crate) established: Option<MonoTime>,
    pub(crate) bytes_received: Option<u64>,
    pub(crate) received: Received,
    pub(crate) unanswered: u64,
    pub(crate) retransmits: u8,
    pub(crate) retransmits_total: u64,
    pub(crate) resets: u64,
    pub(crate) rtt: Option<Duration>,
    /// A sample has shown it.
    pub(crate) sampled: bool,
    /// The last time that anything was sent or received, as sampled.
    pub(crate) last_used: Option<MonoTime>,
    /// Since when it waits for an answer.
    pub(crate) stuck_since: Option<MonoTime>,
    /// When that last counted as a failed attempt.
    pub(crate) stuck_counted: Option<MonoTime>,
    pub(crate) outcome: Option<ConnectionOutcome>,
    pub(crate) ended: Option<MonoTime>,
    /// It ended because a sample no longer listed it: how, the kernel may still tell.
    pub(crate) vanished: bool,
}

impl Socket {
    fn new(local: SocketAddr, remote: SocketAddr, state: TcpState, at: MonoTime) -> Self {
        Self {
            local,
            remote,
            state,
            pid: None,
            begun: None,
            first_seen: at,
            last_seen: at,
            established: None,
            bytes_received: None,
            received: Received::default(),
            unanswered: 0,
            retransmits: 0,
            retransmits_total: 0,
            resets: 0,
            rtt: None,
            sampled: false,
            last_used: None,
            stuck_since: None,
            stuck_counted: None,
            outcome: None,
            ended: None,
            vanished: false,
        }
    }

    /// Takes in what a detail says beside its news.
    fn figures(&mut self, event: &ConnectionEvent) {
        self.pid = event.owner.pid.or(self.pid);
        self.rtt = event.rtt.or(self.rtt);
        self.retransmits_total = self.retransmits_total.max(event.retransmits_total.unwrap_or(0).into());
    }

    /// When it was last known to be in use. Before its first sample that is the end of its handshake; where samples do not
    /// tell it is not known.
    pub(crate) fn used(&self) -> Option<MonoTime> {
        if self.sampled && self.last_used.is_none() { None } else { self.last_used.max(self.established) }
    }

    /// The kernel has given this socket's address to another connection, and its end was missed. A socket's port is not
    /// known from its first moment.
    fn is_another(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let ports = (self.local.port(), local.port());
        self.remote != remote || (ports.0 != ports.1 && ports.0 != 0 && ports.1 != 0)
    }

    /// The instant that decides whose the connection is.
    pub(crate) fn origin(&self) -> MonoTime {
        self.begun.unwrap_or(self.first_seen)
    }

    /// It has data that the peer does not acknowledge, and sends it again.
    pub(crate) fn holds_unanswered(&self) -> bool {
        self.state != TcpState::SynSent && self.unanswered > 0 && self.retransmits > 0
    }

    /// Enough retransmissions for "stuck": chance loss is over by then.
    fn retransmits_enough(&self) -> bool {
        self.retransmits >= if self.state == TcpState::SynSent { 2 } else { 3 }
    }

    /// Stuck for at least `at_least` at `at`.
    pub(crate) fn stuck(&self, at: MonoTime, at_least: Duration) -> bool {
        self.retransmits_enough() && self.stuck_since.is_some_and(|since| at.since(since) >= at_least)
    }
}

/// What became of a connection, for failure accrual that the counters cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// A dial succeeded after at least one SYN was sent again.
    SlowEstablish { at: MonoTime, remote: SocketAddr },
    /// A connection died at its first use after this long a silence.
    IdleDrop { at: MonoTime, remote: SocketAddr, idle: Duration },
}

/// The sockets of one container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sockets {
    live: BTreeMap<Key, Socket>,
    ended: VecDeque<(Key, Socket)>,
    dropped: u64,
}

/// A dial whose SYN was answered no sooner was sent twice: the first repetition comes after one second.
const SYN_REPEATED: Duration = Duration::from_millis(950);

impl Sockets {
    pub(crate) fn live(&self) -> impl Iterator<Item = &Socket> {
        self.live.values()
    }

    pub(crate) fn live_mut(&mut self) -> impl Iterator<Item = &mut Socket> {
        self.live.values_mut()
    }

    /// Those that ended lately, the last first.
    pub(crate) fn ended(&self) -> impl Iterator<Item = &Socket> {
        self.ended.iter().rev().map(|(_, socket)| socket)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Applies a detail.
    pub(crate) fn event(&mut self, event: &ConnectionEvent) -> Option<Noted> {
        let key = self.key(event.socket, event.local, event.remote);
        if self.explain_vanished(key, event) {
            return None;
        }
        let socket = self.entry(key, event)?;
        socket.last_seen = socket.last_seen.max(event.at);
        socket.figures(event);
        if event.local.port() != 0 {
            socket.local = event.local;
        }
        match event.what {
            ConnectionChange::Begun => {
                // The kernel gives a freed socket's address to the next one.
                *socket = Socket::new(event.local, event.remote, TcpState::SynSent, event.at);
                socket.figures(event);
                socket.begun = Some(event.at);
                socket.stuck_since = Some(event.at);
                None
            }
            ConnectionChange::Established { begun } => {
                socket.begun = begun.or(socket.begun);
                let repeated = socket.state == TcpState::SynSent && socket.retransmits > 0
                    || socket.begun.is_some_and(|begun| event.at.since(begun) >= SYN_REPEATED);
                socket.state = TcpState::Established;
                socket.established = Some(event.at);
                socket.outcome = Some(ConnectionOutcome::Established);
                socket.retransmits = 0;
                socket.stuck_since = None;
                repeated.then_some(Noted::SlowEstablish { at: event.at, remote: event.remote })
            }
            ConnectionChange::Failed { begun, evidence } => {
                socket.begun = begun.or(socket.begun);
                socket.outcome = Some(classify::attempt(&evidence));
                self.end(key, event.at);
                None
            }
            ConnectionChange::Ended { begun, evidence, bytes_received } => {
                socket.begun = begun.or(socket.begun);
                let outcome = classify::ending(&evidence);
                socket.outcome = Some(outcome);
                if let (Some(now), before) = (bytes_received, socket.bytes_received.unwrap_or(0))
                    && now > before
                {
                    socket.received.latest = Some(event.at);
                }
                let dropped = matches!(
                    outcome,
                    ConnectionOutcome::Reset | ConnectionOutcome::UserTimeout | ConnectionOutcome::Stalled
                );
                // Silence takes a while to be noticed: what counts is how long it was quiet before the last use.
                let first_use = socket.stuck_since.unwrap_or(event.at);
                let idle = socket.last_used.map(|used| first_use.since(used)).filter(|idle| dropped && *idle >= IDLE);
                let remote = socket.remote;
                self.end(key, event.at);
                idle.map(|idle| Noted::IdleDrop { at: event.at, remote, idle })
            }
            ConnectionChange::ResetReceived { .. } | ConnectionChange::ResetSent { .. } => {
                socket.resets = socket.resets.saturating_add(1);
                None
            }
            ConnectionChange::Retransmit { state, count } => {
                socket.state = state;
                socket.retransmits = socket.retransmits.max(count);
                if event.retransmits_total.is_none() {
                    socket.retransmits_total = socket.retransmits_total.saturating_add(1);
                }
                socket.stuck_since.get_or_insert(event.at);
                None
            }
            ConnectionChange::ErrorReported { .. } => None,
        }
    }

    fn key(&mut self, id: SocketId, local: SocketAddr, remote: SocketAddr) -> Key {
        let (named, nameless) = (Key::Id(id), Key::Tuple(local, remote));
        if id == SocketId::default() {
            // The fallback does not know the id of a socket that details have named.
            let known = self.live.iter().find(|(_, socket)| socket.local == local && socket.remote == remote);
            return known.map_or(nameless, |(key, _)| *key);
        }
        if !self.live.contains_key(&named)
            && let Some(socket) = self.live.remove(&nameless)
        {
            // The other way round: details name what the fallback has found.
            self.live.insert(named, socket);
        }
        named
    }

    /// The end of a socket that a sample has ended already: a process that closes its socket takes it out of the samples
    /// at once, and the kernel may go on for minutes until it knows how the connection ended.
    fn explain_vanished(&mut self, key: Key, event: &ConnectionEvent) -> bool {
        let outcome = match event.what {
            ConnectionChange::Failed { evidence, .. } => classify::attempt(&evidence),
            ConnectionChange::Ended { evidence, .. } => classify::ending(&evidence),
            _ => return false,
        };
        if self.live.contains_key(&key) {
            return false;
        }
        let same = |(other, socket): &&mut (Key, Socket)| {
            *other == key && socket.vanished && (socket.local, socket.remote) == (event.local, event.remote)
        };
        let Some((_, socket)) = self.ended.iter_mut().rev().find(same) else { return false };
        socket.figures(event);
        socket.outcome = Some(outcome);
        socket.ended = Some(event.at);
        socket.vanished = false;
        true
    }

    fn entry(&mut self, key: Key, event: &ConnectionEvent) -> Option<&mut Socket> {
        let opens = matches!(event.what, ConnectionChange::Begun | ConnectionChange::Established { .. });
        let ends = matches!(event.what, ConnectionChange::Failed { .. } | ConnectionChange::Ended { .. });
        if self.live.get(&key).is_some_and(|socket| socket.is_another(event.local, event.remote)) {
            self.end(key, event.at);
        }
        if !self.live.contains_key(&key) {
            if !(opens || ends) {
                return None;
            }
            if self.live.len() >= MAX_SOCKETS {
                self.dropped = self.dropped.saturating_add(1);
                return None;
            }
        }
        Some(
            self.live
                .entry(key)
                .or_insert_with(|| Socket::new(event.local, event.remote, TcpState::Established, event.at)),
        )
    }

    fn end(&mut self, key: Key, at: MonoTime) {
        if let Some(mut socket) = self.live.remove(&key) {
            socket.ended = Some(at);
            socket.state = TcpState::Close;
            if self.ended.len() >= MAX_ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back((key, socket));
        }
    }

    /// Applies one socket of a sample whose reading began at `at` and ended at `until`.
    pub(crate) fn sample(&mut self, sample: &SocketSample, at: MonoTime, until: MonoTime) {
        let key = self.key(sample.socket, sample.local, sample.remote);
        if self.live.get(&key).is_some_and(|socket| socket.is_another(sample.local, sample.remote)) {
            self.end(key, at);
        }
        let known = self.live.contains_key(&key);
        if !known && self.live.len() >= MAX_SOCKETS {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let socket = self.live.entry(key).or_insert_with(|| Socket::new(sample.local, sample.remote, sample.state, at));
        let before = socket.last_seen;
        socket.last_seen = until.max(before);
        socket.local = sample.local;
        socket.state = sample.state;
        if sample.state != TcpState::SynSent {
            socket.outcome = Some(ConnectionOutcome::Established);
        }
        socket.sampled = true;
        socket.pid = sample.owner.pid.or(socket.pid);
        socket.rtt = sample.rtt.or(socket.rtt);
        socket.retransmits_total = socket.retransmits_total.max(sample.retransmits_total.unwrap_or(0).into());
        if let Some(bytes) = sample.bytes_received {
            let grew = bytes > socket.bytes_received.unwrap_or(0);
            if grew && known && socket.bytes_received.is_some() {
                let earliest = sample.last_received.unwrap_or(before).max(before.min(until));
                socket.received.merge(Received { earliest: Some(earliest), latest: Some(until) });
            } else if grew {
                // Seen for the first time: only the kernel's own stamp can tell when.
                let exact = sample.last_received;
                socket.received.merge(Received { earliest: exact, latest: exact.or(Some(until)) });
            }
            socket.bytes_received = Some(bytes);
        }
        socket.unanswered = sample.unanswered;
        socket.retransmits = sample.retransmits;
        let waiting = sample.state == TcpState::SynSent
            || (sample.unanswered > 0 && (sample.retransmitting || sample.retransmits > 0));
        if waiting && sample.retransmits > 0 {
            let lower = at - waited_at_least(sample.state, sample.retransmits);
            let since = socket.stuck_since.unwrap_or(lower);
            socket.stuck_since = Some(since.min(lower));
        } else if !waiting {
            socket.stuck_since = None;
            socket.stuck_counted = None;
            // What is in flight is the use itself; how long it was quiet before must stay known.
            socket.last_used = sample.last_received.max(sample.last_sent).or(socket.last_used);
        }
    }

    /// Ends what a complete sample that began at `at` does not list.
    pub(crate) fn reconcile(&mut self, at: MonoTime) {
        self.orphan(|socket| socket.last_seen < at, at);
    }

    /// Ends those whose owner is no more: the kernel may go on with them, for nobody.
    pub(crate) fn orphan(&mut self, is_gone: impl Fn(&Socket) -> bool, at: MonoTime) {
        let gone: Vec<_> = self.live.iter().filter(|(_, socket)| is_gone(socket)).map(|(key, _)| *key).collect();
        for key in gone {
            if let Some(socket) = self.live.get_mut(&key) {
                socket.outcome = Some(ConnectionOutcome::Unknown);
                socket.vanished = true;
            }
            self.end(key, at);
        }
    }
}

/// Restart and recordings. What ended lately is only shown, and what the next sample tells anew is left to it.
impl Sockets {
    pub(crate) fn memory(&self) -> Vec<SocketMemory> {
        let one = |(key, socket): (&Key, &Socket)| SocketMemory {
            id: match key {
                Key::Id(id) => *id,
                Key::Tuple(..) => SocketId::default(),
            },
            local: socket.local,
            remote: socket.remote,
            state: socket.state,
            pid: socket.pid,
            begun: socket.begun,
            established: socket.established,
            first_seen: socket.first_seen,
            last_seen: socket.last_seen,
            bytes_received: socket.bytes_received,
            received: socket.received,
            unanswered: socket.unanswered,
            retransmits: socket.retransmits,
            last_used: socket.last_used,
            stuck_since: socket.stuck_since,
            stuck_counted: socket.stuck_counted,
        };
        self.live.iter().map(one).collect()
    }

    pub(crate) fn resume(memory: Vec<SocketMemory>) -> Self {
        let one = |memory: SocketMemory| {
            let SocketMemory {
                id,
                local,
                remote,
                state,
                pid,
                begun,
                established,
                first_seen,
                last_seen,
                bytes_received,
                received,
                unanswered,
                retransmits,
                last_used,
                stuck_since,
                stuck_counted,
            } = memory;
            let key = if id == SocketId::default() { Key::Tuple(local, remote) } else { Key::Id(id) };
            let socket = Socket {
                pid,
                begun,
                established,
                last_seen,
                bytes_received,
                received,
                unanswered,
                retransmits,
                sampled: last_used.is_some(),
                last_used,
                stuck_since,
                stuck_counted,
                outcome: (state != TcpState::SynSent).then_some(ConnectionOutcome::Established),
                ..Socket::new(local, remote, state, first_seen)
            };
            (key, socket)
        };
        let live = memory.into_iter().take(MAX_SOCKETS).map(one).collect();
        Self { live, ..Self::default() }
    }
}

/// The least time that so many retransmissions take: SYNs repeat after 1 s each on kernels with linear time-outs (others
/// take longer); data repeats after at least 200 ms, doubled each time.
fn waited_at_least(state: TcpState, retransmits: u8) -> Duration {
    if state == TcpState::SynSent {
        Duration::from_secs(u64::from(retransmits.min(4)))
    } else {
        Duration::from_millis(200) * ((1u32 << retransmits.min(8)) - 1)
    }
}

#[cfg(test)]
mod tests;
