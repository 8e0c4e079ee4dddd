//! Which target owned which address when.
//!
//! Claims are sets, per source and address family: PD's list, the configuration, DNS, EndpointSlices, and the identity
//! that a ping saw. Silence of a source (a time-out, SERVFAIL, PD away) is no answer and changes nothing. A tenure ends
//! when a source that had claimed the address has answered without it for `stale_suspect_after`, the target is claimed
//! at another address, and no ping to the old address has shown the target since; it is then dated back to the first
//! answer without it. Being down, frozen, restarting or Pending ends nothing, because none of them is an answer without
//! the address.
//!
//! Each tenure carries the clock of stale transports: how long the target has answered this node's pings at another
//! address since.

use crate::{id::TargetKey, time::MonoTime};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

/// Addresses of one target that are kept, present and former. A headless name of one Store has one or two; a Store that
/// is rescheduled daily fills this in two months.
pub const MAX_PER_TARGET: usize = 64;

/// Tenures of one cluster that are kept.
pub const MAX_TENURES: usize = 4096;

/// The longest time between two answers that counts as "answered throughout": well above every cadence, well below a
/// suspended machine's pause.
const MAX_GAP: Duration = Duration::from_secs(30);

/// Who claims. The order is the one in which they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimSource {
    /// A literal address in the configuration.
    Config,
    /// A literal address in PD's list.
    Pd,
    /// An answer of DNS.
    Dns,
    /// An EndpointSlice.
    Endpoints,
    /// A ping's answer named the target.
    Identity,
}

impl ClaimSource {
    const ALL: [Self; 5] = [Self::Config, Self::Pd, Self::Dns, Self::Endpoints, Self::Identity];

    /// The stable name used in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Pd => "pd",
            Self::Dns => "dns",
            Self::Endpoints => "endpoints",
            Self::Identity => "identity",
        }
    }
}

/// One source's word on one address of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The last answer with the address.
    pub last: MonoTime,
    /// The first answer without it since; `None` while it is claimed.
    pub absent_since: Option<MonoTime>,
    /// The last answer without it.
    pub absent_last: Option<MonoTime>,
}

/// How long a target has answered elsewhere since it lost an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuccessorClock {
    /// Answered time so far, up to `last`.
    pub answered: Duration,
    /// The first answer elsewhere.
    pub first: Option<MonoTime>,
    /// The last answer elsewhere; `None` while it does not answer.
    pub last: Option<MonoTime>,
}

impl SuccessorClock {
    fn ping(&mut self, answers: bool, at: MonoTime) {
        if answers {
            if let Some(last) = self.last {
                self.answered += at.since(last).min(MAX_GAP);
            }
            self.first.get_or_insert(at);
            self.last = Some(self.last.map_or(at, |last| last.max(at)));
        } else {
            self.last = None;
        }
    }

    /// The clock's reading at `now`.
    pub fn elapsed(&self, now: MonoTime) -> Duration {
        self.answered + self.last.map_or(Duration::ZERO, |last| now.since(last).min(MAX_GAP))
    }
}

/// A target's time at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Since when it is claimed.
    pub from: MonoTime,
    /// When it ended, dated back.
    pub ended: Option<MonoTime>,
    /// Each source's word, by [`ClaimSource`].
    pub claims: BTreeMap<ClaimSource, Claim>,
    /// The name that a ping saw there last, and when.
    pub identity: Option<(Arc<str>, MonoTime)>,
    /// How long the target has answered elsewhere.
    pub successor: SuccessorClock,
}

impl Tenure {
    fn new(from: MonoTime) -> Self {
        Self { from, ended: None, claims: BTreeMap::new(), identity: None, successor: SuccessorClock::default() }
    }

    /// A source claims it at present. What a ping saw there once is no claim on an address that was left.
    pub(crate) fn claimed(&self) -> bool {
        self.ended.is_none() && self.claims.values().any(|claim| claim.absent_since.is_none())
    }

    fn absent(&self) -> bool {
        self.claims.values().any(|claim| claim.absent_since.is_some())
    }

    /// Since when the sources answer without it, if one does for at least `at_least` and no ping contradicts.
    fn left(&self, at_least: Duration) -> Option<MonoTime> {
        let seen = self.identity.as_ref().map(|(_, at)| *at);
        self.claims
            .values()
            .filter_map(|claim| {
                let since = claim.absent_since?;
                let last = claim.absent_last?;
                (last.since(since) >= at_least && seen.is_none_or(|seen| seen < since)).then_some(since)
            })
            .min()
    }

    /// The names of the sources that contradict those that claim it at present: they claimed it and answer without it.
    pub(crate) fn against(&self) -> String {
        let denying = |source: &&ClaimSource| self.claims.get(source).is_some_and(|claim| claim.absent_since.is_some());
        let names: Vec<_> = ClaimSource::ALL.iter().filter(denying).map(|source| source.as_str()).collect();
        if self.claimed() && self.ended.is_none() { names.join(",") } else { String::new() }
    }

    /// The names of the sources that claim it, or that did last.
    pub(crate) fn sources(&self) -> String {
        let claimed = self.claimed();
        let names: Vec<_> = ClaimSource::ALL
            .iter()
            .filter(|source| self.claims.get(source).is_some_and(|claim| !claimed || claim.absent_since.is_none()))
            .map(|source| source.as_str())
            .collect();
        names.join(",")
    }
}

/// Whose an address is, seen from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This target's, now.
    Current(TargetKey),
    /// This target's, once.
    Former(TargetKey),
    /// No source knows.
    Unknown,
}

impl Owner {
    /// The target, present or former.
    pub(crate) fn target(self) -> Option<TargetKey> {
        match self {
            Self::Current(target) | Self::Former(target) => Some(target),
            Self::Unknown => None,
        }
    }
}

/// A change worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerChange {
    /// A target is claimed at an address.
    Began { target: TargetKey, address: SocketAddr, at: MonoTime },
    /// It is no longer, since this time.
    Ended { target: TargetKey, address: SocketAddr, at: MonoTime },
    /// The target is no longer listed; this was its address.
    Gone { target: TargetKey, address: SocketAddr, at: MonoTime },
    /// It is listed again, and its address was still known.
    Back { target: TargetKey, address: SocketAddr, at: MonoTime },
}

/// All tenures of one cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ownership {
    tenures: BTreeMap<TargetKey, BTreeMap<SocketAddr, Tenure>>,
    /// Who has a tenure at an address.
    at: BTreeMap<SocketAddr, BTreeSet<TargetKey>>,
    /// Addresses with several of them; nearly always none.
    contested: BTreeSet<SocketAddr>,
    count: usize,
    /// Targets that exist.
    listed: BTreeSet<TargetKey>,
    /// Targets that did in this run, and held an address when they left.
    gone: BTreeSet<TargetKey>,
    changes: Vec<OwnerChange>,
    dropped: u64,
}

impl Ownership {
    /// Which targets exist; a tenure of another one is over, without a successor.
    pub(crate) fn set_listed(&mut self, listed: BTreeSet<TargetKey>, at: MonoTime) {
        let before = std::mem::replace(&mut self.listed, listed);
        let left: Vec<_> = before.difference(&self.listed).copied().collect();
        let back: Vec<_> = self.gone.intersection(&self.listed).copied().collect();
        for target in left {
            let held = self.held(target);
            for address in &held {
                self.note(OwnerChange::Gone { target, address: *address, at });
            }
            if !held.is_empty() && self.gone.len() < MAX_TENURES {
                self.gone.insert(target);
            }
        }
        for target in back {
            self.gone.remove(&target);
            for address in self.held(target) {
                self.note(OwnerChange::Back { target, address, at });
            }
        }
    }

    /// The addresses that are not known to be another's by now.
    fn held(&self, target: TargetKey) -> Vec<SocketAddr> {
        self.of(target).filter(|(_, tenure)| tenure.ended.is_none()).map(|(address, _)| address).collect()
    }

    /// A source answered: `target` is at `addresses`, and at no other address of this family (of any, if `None`).
    pub(crate) fn answer(
        &mut self,
        source: ClaimSource,
        target: TargetKey,
        v6: Option<bool>,
        addresses: &[SocketAddr],
        at: MonoTime,
    ) {
        for (address, tenure) in self.tenures.get_mut(&target).into_iter().flatten() {
            if v6.is_none_or(|v6| address.is_ipv6() == v6)
                && !addresses.contains(address)
                && let Some(claim) = tenure.claims.get_mut(&source)
                && claim.last < at
            {
                let first = claim.absent_since.is_none();
                claim.absent_since.get_or_insert(at);
                claim.absent_last = claim.absent_last.max(Some(at));
                // The first source that answers without it starts the clock; a later one must not reset it.
                if first && tenure.claims.values().filter(|claim| claim.absent_since.is_some()).count() == 1 {
                    tenure.successor = SuccessorClock::default();
                }
            }
        }
        self.dropped = self.dropped.saturating_add(addresses.len().saturating_sub(MAX_PER_TARGET) as u64);
        for address in addresses.iter().take(MAX_PER_TARGET) {
            self.claim(source, target, *address, at);
        }
    }

    fn claim(&mut self, source: ClaimSource, target: TargetKey, address: SocketAddr, at: MonoTime) {
        let known = self.tenure(target, address);
        let (is_known, over) = (known.is_some(), known.is_none_or(|tenure| tenure.ended.is_some()));
        let heard =
            known.and_then(|tenure| tenure.claims.get(&source)).map(|claim| claim.absent_last.max(Some(claim.last)));
        if heard.flatten().is_some_and(|heard| heard > at) {
            return;
        }
        if !is_known && !self.make_room(target) {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        if over {
            self.insert(target, address, Tenure::new(at));
            self.note(OwnerChange::Began { target, address, at });
        }
        if let Some(tenure) = self.tenure_mut(target, address) {
            tenure.claims.insert(source, Claim { last: at, absent_since: None, absent_last: None });
        }
    }

    /// More than one target has or had it.
    pub(crate) fn is_contested(&self, address: SocketAddr) -> bool {
        !self.contested.is_empty() && self.contested.contains(&address)
    }

    fn tenure_mut(&mut self, target: TargetKey, address: SocketAddr) -> Option<&mut Tenure> {
        self.tenures.get_mut(&target)?.get_mut(&address)
    }

    fn insert(&mut self, target: TargetKey, address: SocketAddr, tenure: Tenure) {
        if self.tenures.entry(target).or_default().insert(address, tenure).is_none() {
            self.count += 1;
            let targets = self.at.entry(address).or_default();
            targets.insert(target);
            if targets.len() > 1 {
                self.contested.insert(address);
            }
        }
    }

    fn remove(&mut self, target: TargetKey, address: SocketAddr) -> Option<Tenure> {
        let of_target = self.tenures.get_mut(&target)?;
        let tenure = of_target.remove(&address)?;
        if of_target.is_empty() {
            self.tenures.remove(&target);
        }
        self.count = self.count.saturating_sub(1);
        if let Some(targets) = self.at.get_mut(&address) {
            targets.remove(&target);
            if targets.len() < 2 {
                self.contested.remove(&address);
            }
            if targets.is_empty() {
                self.at.remove(&address);
            }
        }
        Some(tenure)
    }

    fn note(&mut self, change: OwnerChange) {
        if self.changes.len() < MAX_TENURES {
            self.changes.push(change);
        }
    }

    /// Makes room for one more tenure of `target`: those that ended longest ago go first. A present one never does.
    fn make_room(&mut self, target: TargetKey) -> bool {
        let of_target = self.tenures.get(&target).map_or(0, BTreeMap::len);
        let over = |tenures: &BTreeMap<SocketAddr, Tenure>, target: TargetKey| -> Vec<_> {
            tenures.iter().filter_map(|(address, tenure)| Some((tenure.ended?, target, *address))).collect()
        };
        let victims: Vec<_> = if of_target >= MAX_PER_TARGET {
            self.tenures.get(&target).and_then(|tenures| over(tenures, target).into_iter().min()).into_iter().collect()
        } else if self.count >= MAX_TENURES {
            let mut all: Vec<_> = self.tenures.iter().flat_map(|(target, tenures)| over(tenures, *target)).collect();
            all.sort_unstable();
            // Several at once, so that a flood does not pay for a search each time.
            all.truncate(MAX_TENURES / 16);
            all
        } else {
            return true;
        };
        for (_, target, address) in &victims {
            self.remove(*target, *address);
        }
        self.dropped = self.dropped.saturating_add(victims.len() as u64);
        !victims.is_empty()
    }

    /// A ping to `address` was answered by a process that names itself `name`, which is `shown` if that is a target.
    pub(crate) fn identity(&mut self, address: SocketAddr, name: &Arc<str>, shown: Option<TargetKey>, at: MonoTime) {
        if let Some(target) = shown {
            self.claim(ClaimSource::Identity, target, address, at);
            if let Some(tenure) = self.tenure_mut(target, address) {
                tenure.identity = Some((Arc::clone(name), at));
                // Whoever said that it had left was wrong so far.
                for claim in tenure.claims.values_mut() {
                    claim.absent_since = None;
                    claim.absent_last = None;
                }
            }
        }
        for target in self.at.get(&address).cloned().unwrap_or_default() {
            if Some(target) != shown
                && let Some(tenure) = self.tenure_mut(target, address)
                && let Some(claim) = tenure.claims.get_mut(&ClaimSource::Identity)
            {
                claim.absent_since.get_or_insert(at);
                claim.absent_last = Some(at);
            }
        }
    }

    /// `target` was pinged at `remote` (`None`: an address that is not known).
    pub(crate) fn ping(&mut self, target: TargetKey, remote: Option<SocketAddr>, answers: bool, at: MonoTime) {
        for (address, tenure) in self.tenures.get_mut(&target).into_iter().flatten() {
            if Some(*address) != remote && (tenure.ended.is_some() || tenure.absent()) {
                tenure.successor.ping(answers, at);
            }
        }
    }

    /// Ends what has to end. Called before every judgement.
    pub(crate) fn settle(&mut self, suspect_after: Duration) {
        let mut ending = Vec::new();
        for (target, tenures) in &self.tenures {
            let claimed = tenures.values().filter(|tenure| tenure.claimed()).count();
            for (address, tenure) in tenures {
                let elsewhere = claimed > usize::from(tenure.claimed());
                if tenure.ended.is_none()
                    && elsewhere
                    && let Some(since) = tenure.left(suspect_after)
                {
                    ending.push((*target, *address, since));
                }
            }
        }
        for (target, address, at) in ending {
            if let Some(tenure) = self.tenure_mut(target, address) {
                tenure.ended = Some(at);
            }
            self.note(OwnerChange::Ended { target, address, at });
        }
    }

    /// Whose `address` is for a connection that was begun at `begun`.
    ///
    /// A connection belongs to whom the address belonged to when it was begun: not to an owner that came later. Of
    /// several claimants the one that a ping saw there last wins, then the one that is claimed at present, then the
    /// latest.
    pub(crate) fn owner(&self, address: SocketAddr, begun: MonoTime) -> Owner {
        let Some(targets) = self.at.get(&address) else { return Owner::Unknown };
        let tenures = || targets.iter().filter_map(|target| Some((*target, self.tenure(*target, address)?)));
        // Nearly always there is one, and this is asked of every connection at every tick.
        let only = if targets.len() == 1 { tenures().next() } else { None };
        let several = || {
            tenures()
                .filter(|(_, tenure)| tenure.from <= begun)
                .max_by_key(|(target, tenure)| {
                    let seen = tenure.identity.as_ref().map(|(_, at)| *at);
                    (self.present(*target, tenure), seen, tenure.claimed(), tenure.from, Reverse(*target))
                })
                .or_else(|| tenures().min_by_key(|(target, tenure)| (tenure.from, *target)))
        };
        match only.or_else(several) {
            None => Owner::Unknown,
            Some((target, tenure)) if self.present(target, tenure) => Owner::Current(target),
            Some((target, _)) => Owner::Former(target),
        }
    }

    fn present(&self, target: TargetKey, tenure: &Tenure) -> bool {
        tenure.ended.is_none() && self.listed.contains(&target)
    }

    /// The target whose the address is at present, however long it has been.
    pub(crate) fn present_owner(&self, address: SocketAddr) -> Option<TargetKey> {
        match self.owner(address, MonoTime::from_nanos(i64::MAX)) {
            Owner::Current(target) => Some(target),
            Owner::Former(_) | Owner::Unknown => None,
        }
    }

    /// Whether a target still exists.
    pub(crate) fn exists(&self, target: TargetKey) -> bool {
        self.listed.contains(&target)
    }

    /// One tenure.
    pub(crate) fn tenure(&self, target: TargetKey, address: SocketAddr) -> Option<&Tenure> {
        self.tenures.get(&target)?.get(&address)
    }

    /// The targets whose tenure at `address` has ended.
    pub(crate) fn former_at(&self, address: SocketAddr) -> impl Iterator<Item = TargetKey> {
        let targets = self.at.get(&address).into_iter().flatten();
        targets
            .filter(move |target| self.tenure(**target, address).is_some_and(|tenure| tenure.ended.is_some()))
            .copied()
    }

    /// Every tenure that is over or may be.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = (TargetKey, SocketAddr, &Tenure)> {
        self.all().filter(|(_, _, tenure)| tenure.ended.is_some() || tenure.absent())
    }

    /// The tenures of one target, by address.
    pub(crate) fn of(&self, target: TargetKey) -> impl Iterator<Item = (SocketAddr, &Tenure)> {
        self.tenures.get(&target).into_iter().flatten().map(|(address, tenure)| (*address, tenure))
    }

    /// All tenures.
    pub(crate) fn all(&self) -> impl Iterator<Item = (TargetKey, SocketAddr, &Tenure)> {
        self.tenures
            .iter()
            .flat_map(|(target, tenures)| tenures.iter().map(|(address, tenure)| (*target, *address, tenure)))
    }

    /// As another one stood when nothing of it was left to tell: who held which address, who exists, and who did once.
    pub(crate) fn resume(
        tenures: impl IntoIterator<Item = (TargetKey, SocketAddr, Tenure)>,
        listed: BTreeSet<TargetKey>,
        gone: BTreeSet<TargetKey>,
    ) -> Self {
        let mut this = Self { listed, gone, ..Self::default() };
        for (target, address, tenure) in tenures {
            if this.count < MAX_TENURES {
                this.insert(target, address, tenure);
            } else {
                this.dropped = this.dropped.saturating_add(1);
            }
        }
        this
    }

    /// Targets that existed once in this run and held an address when they left.
    pub(crate) fn gone(&self) -> &BTreeSet<TargetKey> {
        &self.gone
    }

    /// A target goes by another key from now on.
    pub(crate) fn rename(&mut self, old: TargetKey, new: TargetKey) {
        if self.listed.remove(&old) {
            self.listed.insert(new);
        }
        let addresses: Vec<_> = self.of(old).map(|(address, _)| address).collect();
        for address in addresses {
            if let Some(tenure) = self.remove(old, address)
                && self.tenure(new, address).is_none()
            {
                self.insert(new, address, tenure);
            }
        }
    }

    pub(crate) fn take_changes(&mut self) -> Vec<OwnerChange> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests;
