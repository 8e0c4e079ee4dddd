//! The validated configuration. A value of these types has passed every rule.

use super::selector::Selector;
use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use storewatch_core::{
    id::HostPort,
    policy::{ClusterSettings, OnUnknown, Settings, StaleTransportAction, VerdictPolicy},
};

/// The whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This node's name.
    pub node: Arc<str>,
    /// Where the agent listens.
    pub listen: Listen,
    /// The watched clusters, at least one; [`storewatch_core::id::ClusterId`] is the position here.
    pub clusters: Vec<Cluster>,
    /// Active health checks.
    pub ping: Ping,
    /// Where pods come from.
    pub pods: Pods,
    /// What is watched and written in Kubernetes.
    pub kubernetes: Kubernetes,
    /// What the agent may do about a stale transport.
    pub healing: HealingMode,
    /// Passive health checks.
    pub kernel: Kernel,
    /// What decides.
    pub verdict: Verdict,
    /// Where verdicts survive a restart; `None`: nowhere.
    pub state_file: Option<PathBuf>,
    /// The agent's own log.
    pub log: Log,
}

/// Where the agent listens. No two share an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Probes, without authentication.
    pub probe: SocketAddr,
    /// Prometheus; `None`: off.
    pub metrics: Option<SocketAddr>,
    /// Everything else, on a loopback address; `None`: off.
    pub admin: Option<SocketAddr>,
    /// The same on a Unix socket; `None`: off.
    pub admin_socket: Option<PathBuf>,
}

/// One HugeGraph cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Unique; `default` when there is one in the short form.
    pub name: Arc<str>,
    /// PD's peers. Empty only if `stores` is not.
    pub pd_peers: Vec<HostPort>,
    /// Stores known without PD.
    pub stores: Vec<HostPort>,
    /// Watched before any Store is known.
    pub store_port: u16,
    /// PD's port.
    pub pd_port: u16,
    /// Where its Servers, Stores and PD live in Kubernetes; those in the names of `pd_peers` unless given. Empty when
    /// neither says.
    pub namespaces: Vec<String>,
    /// Its Servers' pods.
    pub selector: Selector,
}

/// Section `ping`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Between two rounds.
    pub interval: Duration,
    /// The same on a node without a selected pod.
    pub idle_interval: Duration,
    /// Between two readings of PD's list.
    pub pd_interval: Duration,
    /// Between two look-ups of a name.
    pub dns_interval: Duration,
    /// One budget for DNS, connect, HTTP/2 and RPC.
    pub timeout: Duration,
    /// Stores asked in one round.
    pub max_stores_per_round: u32,
}

/// Where pods come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSource {
    /// The API server.
    Kubernetes,
    /// The container runtime.
    Cri,
    /// A file.
    File,
    /// Nowhere: only the node is judged.
    None,
}

/// Section `pods`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Where they come from.
    pub source: PodSource,
    /// Default of each cluster's selector.
    pub selector: Selector,
    /// For [`PodSource::File`].
    pub file: PathBuf,
    /// For [`PodSource::Cri`].
    pub cri_socket: PathBuf,
}

/// Section `kubernetes`, less the namespaces, which are each cluster's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// The Stores' pods.
    pub store_selector: Selector,
    /// PD's pods.
    pub pd_selector: Selector,
    /// Whether the readiness gate is kept.
    pub readiness_gate: bool,
    /// Whether Events are written.
    pub events: bool,
}

/// Section `healing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealingMode {
    /// Nothing is done.
    Off,
    /// What would be done is told.
    DryRun,
    /// Pods are evicted.
    Evict,
}

/// Whether the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMode {
    /// As far as it can be.
    Auto,
    /// The agent does not run without it.
    Required,
    /// Never.
    Off,
}

/// Section `kernel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Whether the kernel is asked.
    pub mode: KernelMode,
    /// Between two readings of the inventory.
    pub inventory_interval: Duration,
}

/// Section `verdict`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Consecutive failed rounds before NotReady.
    pub failure_threshold: u32,
    /// Consecutive rounds with an answer before Ready again.
    pub success_threshold: u32,
    /// How long silence proves nothing.
    pub window: Duration,
    /// When a dial to a former address becomes a suspicion.
    pub stale_suspect_after: Duration,
    /// When a suspicion may become a verdict.
    pub stale_confirm_after: Duration,
    /// What a confirmed one does.
    pub stale_transport: StaleTransportAction,
    /// Others of the workload that must be ready; 0 switches the guard off.
    pub min_other_ready: u32,
    /// What Unknown means for readiness.
    pub on_unknown: OnUnknown,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the levels' usual names")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Section `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How much.
    pub level: LogLevel,
    /// How.
    pub format: LogFormat,
}

impl Config {
    /// Keys that ask for what nobody does here, one sentence each.
    pub fn without_effect(&self) -> Vec<String> {
        let keys = [
            (self.kubernetes.readiness_gate, "kubernetes.readiness_gate: on"),
            (self.healing != HealingMode::Off, "healing.mode other than off"),
        ];
        let asked = keys.into_iter().filter(|(asked, _)| *asked && self.pods.source != PodSource::Kubernetes);
        asked.map(|(_, key)| format!("{key} has no effect without pods.source: kubernetes")).collect()
    }

    /// What the judge needs of it.
    pub fn settings(&self) -> Settings {
        Settings {
            node: Arc::clone(&self.node),
            clusters: self
                .clusters
                .iter()
                .map(|cluster| ClusterSettings {
                    name: Arc::clone(&cluster.name),
                    pd_peers: cluster.pd_peers.clone(),
                    stores: cluster.stores.clone(),
                    store_port: cluster.store_port,
                    pd_port: cluster.pd_port,
                })
                .collect(),
            policy: VerdictPolicy {
                failure_threshold: self.verdict.failure_threshold,
                success_threshold: self.verdict.success_threshold,
                window: self.verdict.window,
                stale_suspect_after: self.verdict.stale_suspect_after,
                stale_confirm_after: self.verdict.stale_confirm_after,
                stale_transport: self.verdict.stale_transport,
                min_other_ready: self.verdict.min_other_ready,
                on_unknown: self.verdict.on_unknown,
                ping_interval: self.ping.interval,
                inventory_interval: self.kernel.inventory_interval,
            },
            kernel_off: self.kernel.mode == KernelMode::Off,
        }
    }
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        config.settings()
    }
}
