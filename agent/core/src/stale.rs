//! Stale transports: a container that dials, or holds, an address that its target has left while the target answers
//! elsewhere.
//!
//! Three instants keep an innocent client out. Nothing is said before the address's tenure has ended and the successor
//! has answered for `stale_suspect_after`. Nothing is confirmed before `stale_confirm_after`, and then only by a further
//! dial, or by data that is still unanswered: a client that backs off for two minutes and asks a lagging DNS may dial
//! the old address long after the change, once. And what was confirmed is undone only by proof: data from the target's
//! present address, no socket left at the old one, and a window without a dial to it.

use crate::{
    connection::TcpState,
    container::Container,
    dialers,
    findings::{Draft, NodeWord, Said, plural},
    id::{Role, TargetKey},
    naming::Named,
    ownership::{Owner, Ownership, Tenure},
    pods::World,
    policy::VerdictPolicy,
    remedy::Client,
    time::{MonoTime, short},
    verdict::{Facts, Finding, FindingCode, Severity, StaleMode},
};
use std::{net::SocketAddr, time::Duration};

/// What one container does with one former address of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleEntry {
    /// The first evidence.
    pub since: MonoTime,
    /// How it shows.
    pub mode: StaleMode,
    /// The latest dial that was begun after the clock had started.
    pub last_dial: Option<MonoTime>,
    /// Dials begun since the clock started, by the counters...
    pub dials: u64,
    /// ... and the latest of these. Events and samples tell of a dial before the counters do.
    pub last_counted: Option<MonoTime>,
    /// How many of them were answered...
    pub answers: u64,
    /// ... and when the last one was.
    pub last_answer: Option<MonoTime>,
    /// The last sample that showed unanswered data towards the address.
    pub last_held: Option<MonoTime>,
    /// When it became a suspicion.
    pub suspected: Option<MonoTime>,
    /// When it was confirmed.
    pub confirmed: Option<MonoTime>,
    /// Kept from before a restart of the agent and not seen since.
    pub carried: bool,
}

/// What is to be said about one target and one former address.
#[derive(Clone, Debug)]
pub(crate) struct StaleFact {
    pub(crate) target: TargetKey,
    address: SocketAddr,
    ended: MonoTime,
    elapsed: Duration,
    entry: StaleEntry,
    /// No dial since the first went to where the target is at present.
    every: bool,
    /// Sockets at the address.
    sockets: usize,
    /// Those of them that wait for nothing.
    idle: usize,
    client: Client,
}

impl StaleFact {
    pub(crate) fn confirmed(&self) -> Option<MonoTime> {
        self.entry.confirmed
    }

    /// A suspicion, confirmed or not; an idle socket is none.
    pub(crate) fn suspicion(&self) -> bool {
        self.entry.suspected.is_some() || self.entry.confirmed.is_some()
    }

    pub(crate) fn carried(&self) -> bool {
        self.entry.carried
    }

    /// Where a contrast could still contradict.
    pub(crate) fn address(&self) -> (TargetKey, SocketAddr) {
        (self.target, self.address)
    }

    /// The finding, in full. `word` is what the node's own pings say of the target, and `present` where it is now.
    pub(crate) fn finding(
        &self,
        draft: &Draft<'_>,
        policy: &VerdictPolicy,
        named: &Named,
        word: &NodeWord,
        present: Option<SocketAddr>,
    ) -> Finding {
        let entry = &self.entry;
        let (address, now) = (self.address, draft.now);
        let left = short(now.since(self.ended));
        let dialing = entry.mode == StaleMode::Dialing;
        let (code, severity) = match (entry.confirmed, entry.suspected) {
            (Some(_), _) if self.target.role() == Role::Store => (FindingCode::StaleTransport, Severity::Critical),
            (None, Some(_)) => (FindingCode::StaleTransportSuspected, Severity::Warning),
            (Some(_), _) | (None, None) => (FindingCode::StaleTransport, Severity::Warning),
        };
        let name = &named.lasting;
        let what = match (dialing, self.every, entry.suspected) {
            (true, true, _) => format!("every attempt goes to {address}"),
            (true, false, _) => format!("attempts go to {address}"),
            (false, _, Some(_)) => format!("data waits unanswered in a connection to {address}"),
            (false, _, None) => format!("an idle connection to {address} is held"),
        };
        let message = format!("{what}, which stopped being {name} {left} ago");
        let seen = match (entry.last_dial, entry.last_held) {
            (Some(at), _) => format!(
                "{}, {}, the last {} ago",
                plural(entry.dials.max(1), "attempt"),
                plural(entry.answers, "answer"),
                short(now.since(at))
            ),
            (None, Some(at)) => format!("unanswered data, last seen {} ago", short(now.since(at))),
            (None, None) => format!("{} without a use", plural(self.idle as u64, "connection")),
        };
        let answer = word.answer.filter(|answer| word.answers && Some(answer.remote) == present);
        let place = present.map_or_else(String::new, |present| format!(" at its present address {present}"));
        let took = answer.map_or_else(String::new, |answer| format!(" in {}", short(answer.took)));
        let answering = if word.answers {
            format!("{name} answers this node{place}{took}, for {} so far", short(self.elapsed))
        } else {
            format!("{name} has answered this node{place} for {}, but not just now", short(self.elapsed))
        };
        let confirms_at = (entry.suspected.is_some() && entry.confirmed.is_none())
            .then(|| now + policy.stale_confirm_after.saturating_sub(self.elapsed));
        let since = entry.confirmed.or(entry.suspected).unwrap_or(entry.since);
        let facts = Facts {
            address: Some(address),
            left_at: Some(self.ended),
            present,
            ping: answer.map(|answer| answer.took),
            answering: Some(self.elapsed),
            attempts: dialing.then_some(entry.dials.max(1)),
            answers: dialing.then_some(entry.answers),
            first_attempt: dialing.then_some(entry.since),
            last_attempt: entry.last_dial,
            every_attempt: dialing && self.every,
            connections: Some(self.sockets as u64),
            suspected_at: entry.suspected,
            confirmed_at: entry.confirmed,
        };
        let said = Said {
            mode: Some(entry.mode),
            since: Some(since),
            ..Said::new(code, severity, message, format!("{seen}; {answering}")).facts(facts)
        };
        let finding = draft.finding(Some((self.target, named)), said);
        Finding { confirms_at, carried: entry.carried, ..finding }
    }

    /// What is known of the process that dials.
    pub(crate) fn client(&self) -> Client {
        self.client
    }
}

/// Brings one container's entries up to the present and tells what they say.
pub(crate) fn evaluate(container: &mut Container, ownership: &Ownership, world: &World<'_>) -> Vec<StaleFact> {
    let World { now, policy, sampled, watched_since, .. } = *world;
    let mut candidates: Vec<(TargetKey, SocketAddr)> = container.stale.keys().copied().collect();
    for address in container.remotes.keys() {
        candidates.extend(ownership.former_at(*address).map(|target| (target, *address)));
    }
    candidates.sort_unstable();
    candidates.dedup();
    let mut facts = Vec::new();
    for (target, address) in candidates {
        let before = container.stale.remove(&(target, address));
        let Some(tenure) = ownership.tenure(target, address).filter(|_| ownership.exists(target)) else { continue };
        let Some(ended) = tenure.ended else { continue };
        let case = Case { container, ownership, policy, now, sampled, watched_since, target, address, tenure, ended };
        if let Some((entry, held)) = case.evaluate(before) {
            facts.push(StaleFact {
                target,
                address,
                ended,
                elapsed: case.elapsed(now),
                every: case.every(&entry),
                entry: entry.clone(),
                sockets: held.sockets,
                idle: held.idle,
                client: dialers::best(container.dialers.client().into_iter()),
            });
            container.stale.insert((target, address), entry);
        }
    }
    facts
}

/// One target and one of its former addresses, seen from one container.
struct Case<'a> {
    container: &'a Container,
    ownership: &'a Ownership,
    policy: &'a VerdictPolicy,
    now: MonoTime,
    sampled: Option<MonoTime>,
    watched_since: Option<MonoTime>,
    target: TargetKey,
    address: SocketAddr,
    tenure: &'a Tenure,
    ended: MonoTime,
}

/// What the container's sockets at the address show.
#[derive(Default)]
struct Held {
    /// All, in whatever state.
    sockets: usize,
    idle: usize,
    data: bool,
    /// The latest dial in progress.
    dial: Option<MonoTime>,
}

impl Case<'_> {
    /// The clock's reading at `at`; for the past, the least that it can have been.
    fn elapsed(&self, at: MonoTime) -> Duration {
        let baseline = self.container.baselines.get(&(self.target, self.address)).copied().unwrap_or_default();
        let elapsed = self.tenure.successor.elapsed(self.now).saturating_sub(baseline);
        elapsed.saturating_sub(self.now.since(at))
    }

    /// No dial since the entry's first one went to an address that is the target's at present.
    fn every(&self, entry: &StaleEntry) -> bool {
        !self.container.remotes.iter().any(|(address, remote)| {
            remote.last_begun.is_some_and(|at| at >= entry.since)
                && self.ownership.present_owner(*address) == Some(self.target)
        })
    }

    fn held(&self) -> Held {
        let mut held = Held::default();
        for socket in self.container.sockets.live().filter(|socket| socket.remote == self.address) {
            if self.ownership.owner(self.address, socket.origin()) != Owner::Former(self.target) {
                continue;
            }
            held.sockets += 1;
            if socket.state == TcpState::SynSent {
                // A dial whose begin was not seen lies before the sample that shows it.
                let begun = socket.begun.unwrap_or(socket.first_seen - self.policy.inventory_interval);
                held.dial = held.dial.max(Some(begun));
            } else if socket.holds_unanswered() {
                held.data = true;
            } else {
                held.idle += 1;
            }
        }
        held
    }

    /// The last time that data certainly arrived from the target's present address.
    fn healed(&self) -> Option<MonoTime> {
        self.container
            .remotes
            .iter()
            .filter(|(address, _)| self.ownership.present_owner(**address) == Some(self.target))
            .filter_map(|(_, remote)| remote.received.earliest)
            .max()
    }

    fn evaluate(&self, before: Option<StaleEntry>) -> Option<(StaleEntry, Held)> {
        let (now, policy) = (self.now, self.policy);
        let confirmed_before = before.as_ref().is_some_and(|entry| entry.confirmed.is_some());
        if self.ownership.present_owner(self.address).is_some() && !confirmed_before {
            // Somebody else's now: what is dialled there from now on is not stale.
            return None;
        }
        let mut held = self.held();
        let remote = self.container.remotes.get(&self.address);
        let begin = self.container.first_seen.max(remote.and_then(|remote| remote.clean_since).unwrap_or_default());
        let start = self.tenure.successor.first.map(|first| first.max(self.ended).max(begin));
        let begun = remote.and_then(|remote| remote.last_begun);
        let begun = begun.filter(|at| self.ownership.owner(self.address, *at) == Owner::Former(self.target));
        let recent = |at: MonoTime| now.since(at) < policy.window;
        let dial = begun.max(held.dial).filter(|at| recent(*at) && start.is_some_and(|start| *at > start));
        let dials = remote.into_iter().flat_map(|remote| &remote.begins);
        let counted = before.as_ref().and_then(|entry| entry.last_counted);
        let more: Vec<(MonoTime, u64)> = dials
            .filter(|(at, (), _)| start.is_some_and(|start| *at > start) && counted.is_none_or(|until| *at > until))
            .map(|(at, (), added)| (*at, *added))
            .collect();
        let seen = dial.is_some() || held.data || held.idle > 0;
        let mut entry = match before {
            Some(entry) => entry,
            None if seen && start.is_some() => StaleEntry {
                since: dial.unwrap_or(now),
                mode: StaleMode::Holding,
                last_dial: None,
                dials: 0,
                last_counted: None,
                answers: 0,
                last_answer: None,
                last_held: None,
                suspected: None,
                confirmed: None,
                carried: false,
            },
            None => return None,
        };
        if dial > entry.last_dial {
            entry.last_dial = dial;
            entry.carried = false;
        }
        for (at, added) in more {
            entry.dials = entry.dials.saturating_add(added);
            entry.last_counted = entry.last_counted.max(Some(at));
        }
        let answers = remote.into_iter().flat_map(|remote| &remote.answers).filter(|(at, (), _)| {
            start.is_some_and(|start| *at > start) && entry.last_answer.is_none_or(|last| *at > last)
        });
        for (at, (), added) in answers.collect::<Vec<_>>() {
            entry.answers = entry.answers.saturating_add(*added);
            entry.last_answer = entry.last_answer.max(Some(*at));
        }
        // Until the first sample of this run, what is held is what an earlier one saw.
        if held.data && self.sampled.is_some() {
            entry.last_held = self.sampled.max(entry.last_held);
            entry.carried = false;
        }
        let healed = self.healed();
        let fresh = |at: MonoTime| healed.is_none_or(|healed| healed <= at);
        let elapsed = self.elapsed(now);
        let dial_tells = entry.last_dial.is_some_and(|at| self.elapsed(at) >= policy.stale_suspect_after || fresh(at));
        if entry.suspected.is_none() && elapsed >= policy.stale_suspect_after && (held.data || dial_tells) {
            entry.suspected = Some(now);
        }
        let late = |at: Option<MonoTime>| at.is_some_and(|at| self.elapsed(at) >= policy.stale_confirm_after);
        let held_late = held.data && late(self.sampled);
        if entry.suspected.is_some() && entry.confirmed.is_none() && (late(entry.last_dial) || held_late) {
            entry.confirmed = Some(now);
        }
        entry.mode = if entry.last_dial.is_some() { StaleMode::Dialing } else { StaleMode::Holding };
        // A window without a dial is one that this run watched, and what proves healing was seen by it.
        let watched = |at: MonoTime| self.watched_since.map_or(at, |since| at.max(since));
        let quiet = entry.last_dial.is_none_or(|at| now.since(watched(at)) >= policy.window);
        let last = watched(entry.last_dial.max(entry.last_held).unwrap_or(entry.since));
        let proven = healed.is_some_and(|healed| healed > last);
        let over = match entry.suspected {
            Some(_) => proven && quiet && held.sockets == 0,
            // What never became a suspicion lasts only as long as there is something to see.
            None => held.sockets == 0 && (entry.last_dial.is_none_or(|at| !fresh(at)) || quiet),
        };
        let early = entry.suspected.is_none() && elapsed < policy.stale_suspect_after;
        if early {
            held.idle = 0;
        }
        (!over).then_some((entry, held))
    }
}

impl StaleFact {
    /// Worth telling: an entry that is neither suspected nor an idle socket past the first term only keeps count.
    pub(crate) fn tells(&self) -> bool {
        self.suspicion() || self.idle > 0
    }
}
