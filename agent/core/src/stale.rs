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
    findings::Draft,
    id::{Role, TargetKey},
    ownership::{Owner, Ownership, Tenure},
    policy::VerdictPolicy,
    time::MonoTime,
    verdict::{Finding, FindingCode, Remedy, Severity, StaleMode},
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
    /// Dials begun since the clock started.
    pub dials: u64,
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
    present: Option<SocketAddr>,
    /// Sockets at the address that wait for nothing.
    idle: usize,
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

    /// The finding, in full.
    pub(crate) fn finding(&self, draft: &Draft<'_>, policy: &VerdictPolicy) -> Finding {
        let entry = &self.entry;
        let (target, address, now) = (self.target, self.address, draft.now);
        let left = now.since(self.ended).as_secs();
        let dialing = entry.mode == StaleMode::Dialing;
        let (code, severity) = match (entry.confirmed, entry.suspected) {
            (Some(_), _) if target.role() == Role::Store => (FindingCode::StaleTransport, Severity::Critical),
            (Some(_), _) => (FindingCode::StaleTransport, Severity::Warning),
            (None, Some(_)) => (FindingCode::StaleTransportSuspected, Severity::Warning),
            (None, None) => (FindingCode::StaleTransport, Severity::Warning),
        };
        let message = match (dialing, entry.suspected) {
            (true, _) => format!("attempts go to {address}, which stopped being {target} {left} s ago"),
            (false, Some(_)) => {
                format!("data waits in a connection to {address}, which stopped being {target} {left} s ago")
            }
            (false, None) => {
                format!("an idle connection to {address} is held, which stopped being {target} {left} s ago")
            }
        };
        let present = self.present.map_or_else(String::new, |present| format!(" at {present}"));
        let seen = match (entry.last_dial, entry.last_held) {
            (Some(at), _) => {
                format!("{} dials begun since, the last {} s ago", entry.dials.max(1), now.since(at).as_secs())
            }
            (None, Some(at)) => format!("unanswered data, last seen {} s ago", now.since(at).as_secs()),
            (None, None) => format!("{} idle", self.idle),
        };
        let prevent = if dialing {
            "-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS (networkaddress.cache.ttl as a system property does nothing); under a \
             security manager Java 11 caches DNS answers for ever"
        } else {
            "a TCP keep-alive shorter than two minutes, or TCP_USER_TIMEOUT; no DNS setting helps a connection that is open"
        };
        let confirms_at = (entry.suspected.is_some() && entry.confirmed.is_none())
            .then(|| now + policy.stale_confirm_after.saturating_sub(self.elapsed));
        Finding {
            mode: Some(entry.mode),
            since: entry.confirmed.or(entry.suspected).unwrap_or(entry.since),
            confirms_at,
            carried: entry.carried,
            ..draft.finding(
                code,
                &target.to_string(),
                severity,
                message,
                format!("{seen}; {target} has answered this node{present} for {} s", self.elapsed.as_secs()),
                Remedy { now: draft.restart(), prevent: prevent.into() },
            )
        }
    }
}

/// Brings one container's entries up to `now` and tells what they say. `sampled` is when the latest inventory sample was
/// taken.
pub(crate) fn evaluate(
    container: &mut Container,
    ownership: &Ownership,
    policy: &VerdictPolicy,
    now: MonoTime,
    sampled: Option<MonoTime>,
) -> Vec<StaleFact> {
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
        let case = Case { container, ownership, policy, now, sampled, target, address, tenure, ended };
        if let Some((entry, idle)) = case.evaluate(before) {
            facts.push(StaleFact {
                target,
                address,
                ended,
                elapsed: case.elapsed(now),
                present: case.present(),
                entry: entry.clone(),
                idle,
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
    target: TargetKey,
    address: SocketAddr,
    tenure: &'a Tenure,
    ended: MonoTime,
}

/// What the container's sockets at the address show.
#[derive(Default)]
struct Held {
    /// Any socket, in whatever state.
    any: bool,
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

    /// Where the target is at present.
    fn present(&self) -> Option<SocketAddr> {
        self.ownership.of(self.target).find(|(_, tenure)| tenure.claimed()).map(|(address, _)| address)
    }

    fn held(&self) -> Held {
        let mut held = Held::default();
        for socket in self.container.sockets.live().filter(|socket| socket.remote == self.address) {
            if self.ownership.owner(self.address, socket.origin()) != Owner::Former(self.target) {
                continue;
            }
            held.any = true;
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

    fn evaluate(&self, before: Option<StaleEntry>) -> Option<(StaleEntry, usize)> {
        let (now, policy) = (self.now, self.policy);
        let confirmed_before = before.as_ref().is_some_and(|entry| entry.confirmed.is_some());
        if self.ownership.present_owner(self.address).is_some() && !confirmed_before {
            // Somebody else's now: what is dialled there from now on is not stale.
            return None;
        }
        let start = self.tenure.successor.first.map(|first| first.max(self.ended).max(self.container.first_seen));
        let held = self.held();
        let remote = self.container.remotes.get(&self.address);
        let begun = remote.and_then(|remote| remote.last_begun);
        let begun = begun.filter(|at| self.ownership.owner(self.address, *at) == Owner::Former(self.target));
        let recent = |at: MonoTime| now.since(at) < policy.window;
        let dial = begun.max(held.dial).filter(|at| recent(*at) && start.is_some_and(|start| *at > start));
        let dials = remote.into_iter().flat_map(|remote| &remote.begins);
        let counted_until = before.as_ref().and_then(|entry| entry.last_dial);
        let more: u64 = dials
            .filter(|(at, (), _)| {
                start.is_some_and(|start| *at > start) && counted_until.is_none_or(|until| *at > until)
            })
            .map(|(_, (), added)| added)
            .sum();
        let seen = dial.is_some() || held.data || held.idle > 0;
        let mut entry = match before {
            Some(entry) => entry,
            None if seen && start.is_some() => StaleEntry {
                since: dial.unwrap_or(now),
                mode: StaleMode::Holding,
                last_dial: None,
                dials: 0,
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
        entry.dials = entry.dials.saturating_add(more);
        if held.data {
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
        let quiet = entry.last_dial.is_none_or(|at| now.since(at) >= policy.window);
        let last = entry.last_dial.max(entry.last_held).unwrap_or(entry.since);
        let proven = healed.is_some_and(|healed| healed > last);
        let over = match entry.suspected {
            Some(_) => proven && quiet && !held.any,
            // What never became a suspicion lasts only as long as there is something to see.
            None => !held.any && (entry.last_dial.is_none_or(|at| !fresh(at)) || quiet),
        };
        let early = entry.suspected.is_none() && elapsed < policy.stale_suspect_after;
        (!over).then_some((entry, if early { 0 } else { held.idle }))
    }
}

impl StaleFact {
    /// Worth telling: an entry that is neither suspected nor an idle socket past the first term only keeps count.
    pub(crate) fn tells(&self) -> bool {
        self.suspicion() || self.idle > 0
    }
}
