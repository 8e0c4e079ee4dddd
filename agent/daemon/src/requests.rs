//! The way from the engine back to the sources. What is a state (targets, ports) travels by `watch`, so the latest word
//! always arrives; what is a prompt travels by a short queue, and losing one only delays.

use std::{net::SocketAddr, sync::Arc};
use storewatch_core::{
    id::{CgroupId, NetnsId, TargetId},
    request::Request,
    topology::Target,
};
use tokio::sync::{Notify, mpsc, watch};

/// Prompts that may wait for one cluster; more than a round's worth would be stale before it is served.
const PROMPTS: usize = 64;

/// A wish that concerns this moment only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Begin a round now.
    Round,
    /// Ping this address on a fresh connection.
    Contrast {
        /// Whom the address belongs to.
        target: TargetId,
        /// Where exactly.
        remote: SocketAddr,
    },
}

/// Processes that the source of processes looks after, by their numbers in the initial pid namespace.
pub type ProcessRequests = watch::Receiver<Vec<u32>>;

/// The judged pods' identities in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selected {
    /// Their cgroups.
    pub cgroups: Vec<CgroupId>,
    /// Their network namespaces.
    pub netns: Vec<NetnsId>,
}

/// What the pings of one cluster listen to.
#[derive(Debug)]
pub struct ClusterRequests {
    /// All Stores to ping; `None` before the engine knows.
    pub targets: watch::Receiver<Option<Vec<Target>>>,
    /// Whether the node has a pod of this cluster.
    pub pods_present: watch::Receiver<bool>,
    /// What to do now.
    pub prompts: mpsc::Receiver<Prompt>,
}

/// What the kernel source listens to.
#[derive(Debug)]
pub struct KernelRequests {
    /// Ports to watch.
    pub ports: watch::Receiver<Vec<u16>>,
    /// Pods to keep room for.
    pub selected: watch::Receiver<Selected>,
    /// Notified when the inventory should be read now.
    pub sample: Arc<Notify>,
}

#[derive(Debug)]
struct ClusterSender {
    targets: watch::Sender<Option<Vec<Target>>>,
    pods_present: watch::Sender<bool>,
    prompts: mpsc::Sender<Prompt>,
}

/// The engine's end.
#[derive(Debug)]
pub struct RequestSender {
    clusters: Vec<ClusterSender>,
    ports: watch::Sender<Vec<u16>>,
    selected: watch::Sender<Selected>,
    sample: Arc<Notify>,
    processes: watch::Sender<Vec<u32>>,
}

/// Makes the channels for `clusters` clusters.
pub fn channel(clusters: usize) -> (RequestSender, Vec<ClusterRequests>, KernelRequests) {
    let (senders, receivers) = (0..clusters)
        .map(|_| {
            let (targets, targets_receiver) = watch::channel(None);
            let (pods_present, pods_receiver) = watch::channel(false);
            let (prompts, prompts_receiver) = mpsc::channel(PROMPTS);
            (
                ClusterSender { targets, pods_present, prompts },
                ClusterRequests { targets: targets_receiver, pods_present: pods_receiver, prompts: prompts_receiver },
            )
        })
        .unzip();
    let (ports, ports_receiver) = watch::channel(Vec::new());
    let (selected, selected_receiver) = watch::channel(Selected::default());
    let processes = watch::Sender::new(Vec::new());
    let sample = Arc::new(Notify::new());
    (
        RequestSender { clusters: senders, ports, selected, sample: Arc::clone(&sample), processes },
        receivers,
        KernelRequests { ports: ports_receiver, selected: selected_receiver, sample },
    )
}

impl RequestSender {
    /// What the source of processes listens to.
    pub fn process_requests(&self) -> ProcessRequests {
        self.processes.subscribe()
    }

    /// Passes one request to the source it concerns.
    pub fn route(&self, request: Request) {
        match request {
            Request::Targets { cluster, targets } => {
                if let Some(sender) = self.clusters.get(usize::from(cluster.0)) {
                    sender.targets.send_replace(Some(targets));
                }
            }
            Request::PodsPresent { cluster, present } => {
                if let Some(sender) = self.clusters.get(usize::from(cluster.0)) {
                    sender.pods_present.send_replace(present);
                }
            }
            Request::Round { cluster } => self.prompt(cluster.0, Prompt::Round),
            Request::Contrast { target, remote } => {
                self.prompt(target.cluster.0, Prompt::Contrast { target, remote });
            }
            Request::Inventory => self.sample.notify_one(),
            Request::Ports(ports) => {
                self.ports.send_replace(ports);
            }
            Request::Processes(pids) => {
                self.processes.send_replace(pids);
            }
            Request::Selected { cgroups, netns } => {
                self.selected.send_replace(Selected { cgroups, netns });
            }
        }
    }

    fn prompt(&self, cluster: u16, prompt: Prompt) {
        let Some(sender) = self.clusters.get(usize::from(cluster)) else { return };
        if sender.prompts.try_send(prompt).is_err() {
            tracing::debug!(cluster, ?prompt, "the pings are busy; prompt dropped");
        }
    }
}
