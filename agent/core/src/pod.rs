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

/// What runs a pod, as far as a fact tells: it decides what restarts the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Manager {
    /// A kubelet: by its own word, or because the pod's cgroup lies below that of a kubelet.
    Kubernetes,
    /// systemd, by this unit.
    Unit(Arc<str>),
    /// Docker, as the container of this id.
    Docker(Arc<str>),
    /// Nothing tells.
    #[default]
    Unknown,
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
    /// How it is wired to this agent; `None` where the source of pods cannot tell.
    pub wiring: Option<Wiring>,
    /// What runs it.
    pub manager: Manager,
}

/// How a pod is wired to this agent, by what its manager says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    /// A probe of it asks this agent.
    pub probe: bool,
    /// A liveness probe of it asks this agent, which none should: a restart does not bring a target back.
    pub liveness: bool,
    /// It declares the readiness gate that this agent keeps.
    pub gate: bool,
    /// The gate's condition as it stands; `None` while nobody has written it.
    pub condition: Option<GateCondition>,
    /// It has been taken out of judgement.
    pub maintenance: bool,
    /// It is being deleted.
    pub terminating: bool,
}

/// The condition behind a readiness gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCondition {
    /// True lets the pod be ready.
    pub open: bool,
    /// Why (a code).
    pub reason: Arc<str>,
    /// The same in words.
    pub message: Arc<str>,
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
