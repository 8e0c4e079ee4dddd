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
