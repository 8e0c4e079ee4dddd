//! Who writes a readiness gate's condition, what, and when.
//!
//! A dead agent must freeze no pod, in or out, and two writers must never fight over one pod:
//!
//! - A pod's own node writes it, and only while that node's Lease is held by its agent ([`Keeper`]). Unknown is open.
//! - One agent, elected among all, opens the gates of nodes without a living agent ([`Elsewhere::absent`]), and writes
//!   nothing else there: a gate that is open already keeps its words, whoever said them.
//! - Whether a Lease lapsed is judged by how long it has not changed in the judge's own eyes, so that clocks of several
//!   nodes need not agree; the date in it only shortens the wait of one that has just been elected.
//! - An agent takes its own pods back by renewing its Lease first; the elected one sees that before it writes again.
//!
//! The exits that the guard of one node cannot grant, because the others of a workload are on other nodes, are granted by
//! the elected agent as well: one pod of a workload at a time ([`grants`]).

use crate::{
    id::PodUid,
    pod::{GateCondition, Wiring, Workload},
    time::MonoTime,
    verdict::{Reason, Status, Verdict},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How long a node's Lease is good for without renewal.
pub const LEASE_VALID: Duration = Duration::from_secs(60);

/// How often it is renewed.
pub const LEASE_RENEWAL: Duration = Duration::from_secs(20);

/// How long a Lease must be seen unchanged at least before it counts as lapsed, however old the date in it is: longer
/// than one renewal, so that no wrong clock makes a living agent look dead.
pub const LEASE_SEEN: Duration = Duration::from_secs(30);

/// How often an exit that stands is said again to the judge, who forgets it after [`EXIT_VALID`](crate::judge::EXIT_VALID).
pub const EXITS_SAID: Duration = Duration::from_secs(15);

/// Least distance between two writes about one pod that open or close it: a status that flaps faster helps nobody.
pub const FLIP_SPACING: Duration = Duration::from_secs(1);

/// Least distance between two writes that change the reason only.
pub const WORD_SPACING: Duration = Duration::from_secs(10);

/// How long a young agent that knows nothing yet leaves a gate as it finds it: the verdict before a restart was better
/// founded. After that Unknown is open.
pub const YOUNG: Duration = Duration::from_secs(30);

/// How long the pod's own watch may lag behind a write before it is believed over it.
const ECHO: Duration = Duration::from_secs(10);

/// The longest wait after failed writes.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// The reason under which the elected agent opens a gate.
pub const AGENT_ABSENT: &str = "AgentAbsent";

/// The condition that a verdict asks for.
pub fn word(verdict: &Verdict) -> GateCondition {
    GateCondition {
        open: verdict.status != Status::NotReady,
        reason: verdict.reason.as_str().into(),
        message: verdict.message.as_str().into(),
    }
}

/// The condition of a pod whose node has no agent.
pub fn absent_word() -> GateCondition {
    GateCondition {
        open: true,
        reason: AGENT_ABSENT.into(),
        message: "no agent answers for this pod's node, so nothing is known".into(),
    }
}

/// What is to be done about a pod's condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing until something changes.
    Nothing,
    /// Look again at this time.
    At(MonoTime),
    /// Write this.
    Now(GateCondition),
}

/// What the node's own agent knows about one gated pod's condition.
#[derive(Clone, Debug, Default)]
pub struct Keeper {
    written: Option<Written>,
    failures: u32,
    retry_at: Option<MonoTime>,
}

#[derive(Clone, Debug)]
struct Written {
    word: GateCondition,
    at: MonoTime,
    /// The pod's watch has shown it.
    echoed: bool,
}

impl Keeper {
    /// What is due for a pod of this node. `started`: when this agent began; the node's Lease is held.
    pub fn due(&mut self, wiring: &Wiring, verdict: &Verdict, started: MonoTime, now: MonoTime) -> Due {
        if !wiring.gate || wiring.terminating {
            return Due::Nothing;
        }
        let present = self.present(wiring.condition.as_ref(), now);
        let wanted = word(verdict);
        if verdict.reason == Reason::NoEvidenceYet && present.is_some() && now.since(started) < YOUNG {
            return Due::At(started + YOUNG);
        }
        let spacing = match &present {
            None => Duration::ZERO,
            Some(present) if present.open != wanted.open => FLIP_SPACING,
            Some(present) if present.reason != wanted.reason => WORD_SPACING,
            // The words hold counts; following them would be a write for each round.
            Some(_) => return Due::Nothing,
        };
        let spaced = self.written.as_ref().map(|written| written.at + spacing);
        match spaced.max(self.retry_at) {
            Some(at) if at > now => Due::At(at),
            _ => Due::Now(wanted),
        }
    }

    /// The condition as it stands: what was written last, until the watch has shown it or something else after it.
    fn present(&mut self, watched: Option<&GateCondition>, now: MonoTime) -> Option<GateCondition> {
        if let Some(written) = &mut self.written {
            let same = watched.is_some_and(|seen| seen.open == written.word.open && seen.reason == written.word.reason);
            written.echoed |= same;
            if !written.echoed && now.since(written.at) < ECHO {
                return Some(written.word.clone());
            }
        }
        watched.cloned()
    }

    /// It was written.
    pub fn wrote(&mut self, word: GateCondition, now: MonoTime) {
        *self = Self { written: Some(Written { word, at: now, echoed: false }), failures: 0, retry_at: None };
    }

    /// It could not be written. `jitter`, 0 to 1, keeps many agents from trying again together.
    pub fn failed(&mut self, now: MonoTime, jitter: f64) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + back_off(self.failures, Duration::from_millis(250), MAX_RETRY, jitter));
    }
}

/// The wait before the next attempt after `failures` in a row: doubled each time up to `longest`, and between half and
/// the whole of that by `jitter` (0 to 1).
pub fn back_off(failures: u32, first: Duration, longest: Duration, jitter: f64) -> Duration {
    let whole = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest);
    whole.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
}

/// A Lease as the elected agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenLease {
    /// When it was first seen as it is now.
    pub since: MonoTime,
    /// How old it was then, by the date in it and this node's wall clock.
    pub age_then: Duration,
}

impl SeenLease {
    /// Nobody keeps it alive any more.
    pub fn lapsed(&self, now: MonoTime) -> bool {
        let unchanged = now.since(self.since);
        unchanged >= LEASE_VALID || (unchanged >= LEASE_SEEN && unchanged + self.age_then >= LEASE_VALID)
    }
}

/// Another node that has gated pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// When this agent first saw a gated pod there.
    pub gated_since: MonoTime,
    /// Its agent's Lease.
    pub lease: Option<SeenLease>,
}

impl Elsewhere {
    /// No agent lives there. A node without a Lease has as long to make one as another has to renew it.
    pub fn absent(&self, now: MonoTime) -> bool {
        match &self.lease {
            None => now.since(self.gated_since) >= LEASE_VALID,
            // A node whose last gated pod left a while ago stopped renewing, and may be about to begin again.
            Some(lease) => lease.lapsed(now) && now.since(self.gated_since) >= LEASE_SEEN,
        }
    }
}

/// Whether the elected agent opens a gate of an absent agent's node.
pub fn opens(wiring: &Wiring) -> bool {
    wiring.gate && !wiring.terminating && wiring.condition.as_ref().is_none_or(|condition| !condition.open)
}

/// A pod of any node, as the elected agent sees it when exits are granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub uid: PodUid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// What it belongs to.
    pub workload: Workload,
    /// It is ready, and not being deleted: its endpoints serve.
    pub serves: bool,
    /// Its agent's guard holds it, for this reason; or let it go by an exit that was granted.
    pub asks: Option<Arc<str>>,
    /// An exit was granted before.
    pub granted: bool,
}

/// The pods that may leave: of each workload one at a time, and only while enough others serve and do not ask for the
/// same. An exit that was granted stands as long as it is asked for.
pub fn grants(members: &[Member], min_other_ready: u32) -> BTreeSet<PodUid> {
    let mut workloads: BTreeMap<_, Vec<&Member>> = BTreeMap::new();
    for member in members {
        workloads.entry((&member.namespace, &member.workload)).or_default().push(member);
    }
    let one = |members: &Vec<&Member>| {
        let mut asking: Vec<_> = members.iter().filter_map(|member| Some((*member, member.asks.as_ref()?))).collect();
        asking.sort_by_key(|(member, _)| (!member.granted, member.uid.clone()));
        let (member, reason) = asking.into_iter().next()?;
        let others = members
            .iter()
            .filter(|other| other.uid != member.uid && other.serves && other.asks.as_ref() != Some(reason))
            .count();
        let enough = others >= usize::try_from(min_other_ready).unwrap_or(usize::MAX);
        enough.then(|| member.uid.clone())
    };
    workloads.values().filter_map(one).collect()
}

#[cfg(test)]
mod tests;
