//! The thresholds that decide, validated before they get here.

use crate::id::HostPort;
use std::{sync::Arc, time::Duration};

/// What an Unknown verdict means for readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// It never takes a pod out.
    Ready,
    /// It does.
    NotReady,
}

/// What a confirmed stale transport does to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleTransportAction {
    /// The pod leaves, if the guard allows.
    NotReady,
    /// It is shown, and the pod stays.
    Degraded,
}

/// The configured thresholds (section `verdict` of the configuration, with what else decides).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictPolicy {
    /// Consecutive failed rounds before NotReady.
    pub failure_threshold: u32,
    /// Consecutive rounds with an answer before Ready again.
    pub success_threshold: u32,
    /// How long silence proves nothing.
    pub window: Duration,
    /// How long a dial to a former address stays unremarkable.
    pub stale_suspect_after: Duration,
    /// When a suspicion may become a verdict.
    pub stale_confirm_after: Duration,
    /// What a confirmed one does.
    pub stale_transport: StaleTransportAction,
    /// How many others of a workload must be ready before a pod leaves on passive evidence; 0 switches the guard off.
    pub min_other_ready: u32,
    /// What Unknown means.
    pub on_unknown: OnUnknown,
    /// The cadence of the pings.
    pub ping_interval: Duration,
    /// The cadence of the inventory.
    pub inventory_interval: Duration,
}

impl VerdictPolicy {
    /// Whether a pod (or the node) whose verdict is Unknown counts as ready.
    pub const fn ready_when_unknown(&self) -> bool {
        matches!(self.on_unknown, OnUnknown::Ready)
    }
}

/// One configured cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Its name.
    pub name: Arc<str>,
    /// PD's peers, in the order of the configuration.
    pub pd_peers: Vec<HostPort>,
    /// Stores known without PD, in the order of the configuration.
    pub stores: Vec<HostPort>,
    /// The Stores' port, watched before any is known.
    pub store_port: u16,
    /// PD's port.
    pub pd_port: u16,
}

/// Everything the judge is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This node's name.
    pub node: Arc<str>,
    /// The clusters; [`ClusterId`](crate::id::ClusterId) is the position here.
    pub clusters: Vec<ClusterSettings>,
    /// The thresholds.
    pub policy: VerdictPolicy,
    /// The kernel source is switched off by configuration.
    pub kernel_off: bool,
}
