//! Who may leave on passive evidence: a pod only while enough others of its workload are ready and free of the same
//! suspicion. Evaluated anew at every judgement, so that of two pods that turn out to fail together both come back.

use crate::{
    id::{ClusterId, PodUid},
    pod::Workload,
    time::MonoTime,
    verdict::Reason,
};
use std::{collections::BTreeSet, sync::Arc};

/// What the guard has to know about a pod.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) uid: PodUid,
    pub(crate) cluster: ClusterId,
    pub(crate) namespace: Arc<str>,
    pub(crate) workload: Option<Workload>,
    /// It is ready by all that is not passive evidence.
    pub(crate) ready: bool,
    /// Why it should leave on passive evidence, and since when.
    pub(crate) leaves: Option<(Reason, MonoTime)>,
    /// It is out already for that.
    pub(crate) out: bool,
    /// Suspicions against it, confirmed or not.
    pub(crate) suspicions: BTreeSet<Reason>,
}

impl Member {
    fn peers_with(&self, other: &Self) -> bool {
        self.uid != other.uid
            && self.cluster == other.cluster
            && self.namespace == other.namespace
            && self.workload.is_some()
            && self.workload == other.workload
    }
}

/// How the guard stands to a pod that should leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardView {
    /// Why the pod should leave.
    pub reason: Reason,
    /// It keeps the pod in.
    pub holds: bool,
    /// How many others must be ready and free of the same suspicion.
    pub needed: u32,
    /// How many are.
    pub free: u32,
    /// How many are under the same suspicion, or have left for it.
    pub suspected: u32,
    /// All other pods of the workload that this node knows.
    pub others: u32,
}

impl GuardView {
    /// Counts the others of `member`, which should leave for `reason`; `leaving` are those that may.
    pub(crate) fn new(
        members: &[Member],
        member: &Member,
        reason: Reason,
        leaving: &BTreeSet<PodUid>,
        needed: u32,
    ) -> Self {
        let others = || members.iter().filter(|other| member.peers_with(other));
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let suspected = |other: &&Member| other.suspicions.contains(&reason) || leaving.contains(&other.uid);
        Self {
            reason,
            holds: !leaving.contains(&member.uid),
            needed,
            free: count(others().filter(|other| other.ready && !suspected(other)).count()),
            suspected: count(others().filter(suspected).count()),
            others: count(others().count()),
        }
    }
}

/// The pods that may leave, of those that should.
pub(crate) fn leaving(members: &[Member], min_other_ready: u32) -> BTreeSet<PodUid> {
    let mut order: Vec<_> = members.iter().filter_map(|member| Some((member, member.leaves?))).collect();
    // Those that are out already keep their place; then who should leave longest.
    order.sort_by_key(|(member, (_, since))| (!member.out, *since, member.uid.clone()));
    let mut out = BTreeSet::new();
    for (member, (reason, _)) in order {
        let others = members.iter().filter(|other| {
            member.peers_with(other) && other.ready && !out.contains(&other.uid) && !other.suspicions.contains(&reason)
        });
        if others.count() >= usize::try_from(min_other_ready).unwrap_or(usize::MAX) {
            out.insert(member.uid.clone());
        }
    }
    out
}

#[cfg(test)]
mod tests;
