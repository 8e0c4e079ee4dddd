//! Whose a socket is: its cgroup first, then its network namespace, then its process.
//!
//! A network namespace names a pod only where one judged pod lives in it; the node's own never does. A cgroup that is
//! not in the pod's list but lives in its namespace belongs to the pod as well (a container younger than the list, a
//! proxy beside the application): it is kept apart as a container of its own.

use crate::{
    connection::SocketOwner,
    id::{CgroupId, ContainerKey, NetnsId, PodUid},
    pod::PodRecord,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Why evidence has no pod (stable names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unattributed {
    /// The kernel summed it with everything that is not selected.
    Summed,
    /// The socket told nothing about its owner.
    NoOwner,
    /// Several judged pods live in its network namespace, and its cgroup is none of theirs.
    SharedNetns,
    /// It belongs to no judged pod.
    Stranger,
}

impl Unattributed {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Summed, Self::NoOwner, Self::SharedNetns, Self::Stranger];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Summed => "summed",
            Self::NoOwner => "no_owner",
            Self::SharedNetns => "shared_netns",
            Self::Stranger => "stranger",
        }
    }
}

/// A container of a judged pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) pod: PodUid,
    pub(crate) container: ContainerKey,
    /// It is not in the pod's list of containers.
    pub(crate) foreign: bool,
}

/// The way from a socket to its pod, for the present list of pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attribution {
    cgroups: BTreeMap<CgroupId, PodUid>,
    netns: BTreeMap<NetnsId, Netns>,
    pids: BTreeMap<u32, (PodUid, ContainerKey)>,
}

#[derive(Clone, Debug)]
enum Netns {
    One {
        pod: PodUid,
        /// The pod's containers are told apart by their cgroups.
        by_cgroup: bool,
    },
    Several,
}

impl Attribution {
    pub(crate) fn new<'a>(pods: impl IntoIterator<Item = &'a Arc<PodRecord>>) -> Self {
        let mut this = Self::default();
        for pod in pods {
            for cgroup in &pod.cgroups {
                this.cgroups.insert(*cgroup, pod.uid.clone());
            }
            if let Some(netns) = pod.netns.filter(|_| !pod.host_network) {
                let one = Netns::One { pod: pod.uid.clone(), by_cgroup: !pod.cgroups.is_empty() };
                this.netns.entry(netns).and_modify(|known| *known = Netns::Several).or_insert(one);
            }
            let containers = pod.containers();
            for pid in &pod.pids {
                let own = containers.iter().find(|key| **key == ContainerKey::Process(*pid));
                if let Some(container) = own.or(containers.first()) {
                    this.pids.insert(*pid, (pod.uid.clone(), *container));
                }
            }
        }
        this
    }

    /// The container that a socket belongs to.
    pub(crate) fn place(&self, owner: Option<&SocketOwner>) -> Result<Place, Unattributed> {
        let owner = owner.ok_or(Unattributed::Summed)?;
        if let Some(cgroup) = owner.cgroup
            && let Some(pod) = self.cgroups.get(&cgroup)
        {
            return Ok(Place { pod: pod.clone(), container: ContainerKey::Cgroup(cgroup), foreign: false });
        }
        let netns = owner.netns.and_then(|netns| Some((netns, self.netns.get(&netns)?)));
        if let Some((netns, Netns::One { pod, by_cgroup })) = netns {
            let foreign = owner.cgroup.filter(|_| *by_cgroup);
            let container = foreign.map_or(ContainerKey::Netns(netns), ContainerKey::Cgroup);
            return Ok(Place { pod: pod.clone(), container, foreign: foreign.is_some() });
        }
        if let Some((pod, container)) = owner.pid.and_then(|pid| self.pids.get(&pid)) {
            return Ok(Place { pod: pod.clone(), container: *container, foreign: false });
        }
        Err(match (owner, netns) {
            (SocketOwner { cgroup: None, netns: None, pid: None }, _) => Unattributed::NoOwner,
            (_, Some((_, Netns::Several))) => Unattributed::SharedNetns,
            _ => Unattributed::Stranger,
        })
    }

    /// What the kernel should keep room for.
    pub(crate) fn selected(&self) -> (Vec<CgroupId>, Vec<NetnsId>) {
        let netns = self.netns.iter().filter(|(_, pods)| matches!(pods, Netns::One { .. })).map(|(netns, _)| *netns);
        (self.cgroups.keys().copied().collect(), netns.collect::<BTreeSet<_>>().into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
