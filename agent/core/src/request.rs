//! What the judge asks of the sources. Requests are hints for speed and contrast: losing one delays, never decides.

use crate::{
    id::{CgroupId, ClusterId, NetnsId, TargetId},
    topology::Target,
};
use std::net::SocketAddr;

/// One wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// These are the Stores to ping from now on, all of the cluster.
    Targets {
        /// Which cluster.
        cluster: ClusterId,
        /// All Stores to ping.
        targets: Vec<Target>,
    },
    /// Begin a round now: the kernel saw a failure or a reset towards one of them, or nothing answers.
    Round {
        /// Which cluster.
        cluster: ClusterId,
    },
    /// Ping this address on a fresh connection, to compare with what a pod saw there.
    Contrast {
        /// Whom the address belongs to.
        target: TargetId,
        /// Where exactly.
        remote: SocketAddr,
    },
    /// Read the inventory now.
    Inventory,
    /// Whether the node has a pod of this cluster: pings run at `interval`, otherwise at `idle_interval`.
    PodsPresent {
        /// Which cluster.
        cluster: ClusterId,
        /// Any there.
        present: bool,
    },
    /// Look after these processes: whether they live, and what their command lines say. In the initial pid namespace.
    Processes(Vec<u32>),
    /// Watch these ports in the kernel.
    Ports(Vec<u16>),
    /// Keep room in the kernel's maps for these.
    Selected {
        /// Cgroups of the judged pods.
        cgroups: Vec<CgroupId>,
        /// Network namespaces of the judged pods.
        netns: Vec<NetnsId>,
    },
}
