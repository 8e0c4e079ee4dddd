//! What the tables need of the agent's JSON. Unknown fields are fine, absent ones mostly too: client and agent may be of
//! different versions.

use crate::wiring::Wired;
use serde::{Deserialize, de::IgnoredAny};
use std::time::Duration;

#[derive(Debug, Deserialize)]
pub(super) struct Snapshot {
    pub(super) node: String,
    pub(super) generation: u64,
    pub(super) readiness: Readiness,
    #[serde(default)]
    pub(super) pods: Vec<Pod>,
    #[serde(default)]
    pub(super) stores: Vec<Store>,
    pub(super) pd: Pd,
    #[serde(default)]
    pub(super) sources: Vec<Source>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Readiness {
    pub(super) ready: bool,
    pub(super) status: String,
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) since_ms: Option<u64>,
    #[serde(default)]
    pub(super) age_ms: Option<u64>,
    #[serde(default)]
    pub(super) findings: Vec<String>,
    #[serde(default)]
    pub(super) clusters: Vec<ClusterReadiness>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ClusterReadiness {
    pub(super) cluster: String,
    pub(super) status: String,
    pub(super) reason: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) cluster: Option<String>,
    #[serde(default)]
    pub(super) workload: Option<String>,
    pub(super) ready: bool,
    pub(super) status: String,
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) since: Option<String>,
    #[serde(default)]
    pub(super) findings: Vec<Finding>,
    #[serde(default)]
    pub(super) wiring: Option<Wiring>,
}

impl Pod {
    /// Ready, and nothing is found that asks for more than attention.
    pub(super) fn is_well(&self) -> bool {
        self.status == "Ready" && self.findings.iter().all(|finding| finding.severity == "info")
    }

    /// The worst first.
    pub(super) fn severity(&self) -> impl Ord + use<> {
        let critical = self.findings.iter().any(|finding| finding.severity == "critical");
        (self.ready, !critical, self.status != "Unknown")
    }

    /// Who it is, its verdict, and what is found beyond.
    pub(super) fn trouble(&self) -> String {
        let mut found: Vec<&str> = self
            .findings
            .iter()
            .filter(|finding| finding.severity != "info")
            .map(|finding| finding.code.as_str())
            .collect();
        found.dedup();
        found.retain(|code| *code != self.reason);
        let colon = if found.is_empty() { "" } else { "; found: " };
        format!("{}/{}: {} {}{colon}{}", self.namespace, self.name, self.status, self.reason, found.join(", "))
    }
}

/// How a pod is wired to the agent; absent where the source of pods cannot tell.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wiring {
    pub(super) probe: bool,
    pub(super) liveness: bool,
    pub(super) gate: bool,
    /// The gate's condition, once somebody has written it.
    pub(super) condition: Option<IgnoredAny>,
    pub(super) maintenance: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Finding {
    pub(super) code: String,
    #[serde(default)]
    pub(super) mode: Option<String>,
    #[serde(default)]
    pub(super) severity: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Store {
    #[serde(default)]
    pub(super) cluster: Option<String>,
    pub(super) label: String,
    /// What people call it.
    #[serde(default)]
    pub(super) name: Option<String>,
    pub(super) address: String,
    #[serde(default)]
    pub(super) reported_state: Option<String>,
    #[serde(default)]
    pub(super) answering: Option<bool>,
    /// It is expected to answer.
    #[serde(default = "yes")]
    pub(super) expected: bool,
    #[serde(default)]
    pub(super) last_ping: Option<Ping>,
    #[serde(default)]
    pub(super) findings: Vec<Finding>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
pub(super) struct Ping {
    pub(super) outcome: String,
    pub(super) age_ms: u64,
    #[serde(default)]
    pub(super) dns_ms: Option<f64>,
    #[serde(default)]
    pub(super) connect_ms: Option<f64>,
    #[serde(default)]
    pub(super) http2_ms: Option<f64>,
    #[serde(default)]
    pub(super) rpc_ms: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pd {
    pub(super) reachable: Option<bool>,
    pub(super) has_leader: Option<bool>,
    #[serde(default)]
    pub(super) peers: Vec<Peer>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Peer {
    pub(super) address: String,
    pub(super) reachable: Option<bool>,
    #[serde(default)]
    pub(super) last_error: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) detail: String,
    #[serde(default)]
    pub(super) lost: u64,
    #[serde(default)]
    pub(super) age_ms: Option<u64>,
}

/// One of `/v1/connections`.
#[derive(Debug, Deserialize)]
pub(super) struct Connection {
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) pod: Option<String>,
    #[serde(default)]
    pub(super) cluster: Option<String>,
    pub(super) target: String,
    pub(super) remote: String,
    pub(super) owner: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) outcome: Option<String>,
    #[serde(default)]
    pub(super) opened_at: Option<String>,
    #[serde(default)]
    pub(super) age_ms: Option<u64>,
    #[serde(default)]
    pub(super) idle_ms: Option<u64>,
    #[serde(default)]
    pub(super) rtt_us: Option<u64>,
    #[serde(default)]
    pub(super) retransmits: Option<u64>,
    #[serde(default)]
    pub(super) via: Option<String>,
    #[serde(default)]
    pub(super) container: Option<Container>,
    #[serde(default)]
    pub(super) pid: Option<u32>,
    #[serde(default)]
    pub(super) ended_at: Option<String>,
    #[serde(default)]
    pub(super) unattributed: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Container {
    #[serde(default)]
    pub(super) cgroup: Option<u64>,
    #[serde(default)]
    pub(super) netns: Option<u32>,
}

/// One of `/v1/events`.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) generation: u64,
    pub(super) at: String,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) pod: Option<String>,
    #[serde(default)]
    pub(super) target: Option<String>,
    #[serde(default)]
    pub(super) outcome: Option<String>,
    #[serde(default)]
    pub(super) from: Option<String>,
    #[serde(default)]
    pub(super) to: Option<String>,
    #[serde(default)]
    pub(super) message: String,
}

/// How the pods are wired, as far as their source tells.
pub(super) fn wired<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<(String, Wired)> {
    let known = pods.filter_map(|pod| {
        let Wiring { probe, liveness, gate, condition, maintenance } = pod.wiring.as_ref()?;
        let (probe, liveness, gate, maintenance) = (*probe, *liveness, *gate, *maintenance);
        let wired = Wired { probe, liveness, gate, written: condition.is_some(), maintenance };
        Some((format!("{}/{}", pod.namespace, pod.name), wired))
    });
    known.collect()
}

impl Finding {
    /// `StaleTransport(dialing)`.
    pub(super) fn show(&self) -> String {
        match &self.mode {
            Some(mode) => format!("{}({mode})", self.code),
            None => self.code.clone(),
        }
    }
}

impl Ping {
    /// All phases together; `None` when none was timed.
    pub(super) fn total(&self) -> Option<Duration> {
        let phases = [self.dns_ms, self.connect_ms, self.http2_ms, self.rpc_ms];
        let sum: Option<f64> = phases.into_iter().flatten().reduce(|a, b| a + b);
        sum.and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok())
    }
}
