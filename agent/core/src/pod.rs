//! The pods that are judged.

use crate::id::{CgroupId, ClusterId, ContainerKey, NetnsId, PodRef, PodUid};
use std::{net::IpAddr, sync::Arc};

/// What a pod belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// For example `StatefulSet`.
    pub kind: Arc<str>,
    /// Its name, in the pod's namespace.
    pub name: Arc<str>,
}

/// A pod of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    /// Whose Stores it uses.
    pub cluster: ClusterId,
    /// Its name.
    pub pod: PodRef,
    /// Its identity over time.
    pub uid: PodUid,
    /// What it belongs to, if known.
    pub workload: Option<Workload>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// It shares the node's network.
    pub host_network: bool,
    /// Its containers' cgroups (each leaf directory), as far as they are known.
    pub cgroups: Vec<CgroupId>,
    /// Its network namespace; `None` when unknown or when it is the node's own.
    pub netns: Option<NetnsId>,
    /// Its processes, where they were given; the last resort of attribution.
    pub pids: Vec<u32>,
}

impl PodRecord {
    /// The keys under which evidence of this pod is kept.
    pub fn containers(&self) -> Vec<ContainerKey> {
        if !self.cgroups.is_empty() {
            self.cgroups.iter().copied().map(ContainerKey::Cgroup).collect()
        } else if let Some(netns) = self.netns {
            vec![ContainerKey::Netns(netns)]
        } else {
            self.pids.iter().copied().map(ContainerKey::Process).collect()
        }
    }
}
