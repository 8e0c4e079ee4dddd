//! What `explain` needs of the agent's answer. Unknown fields are fine, absent ones mostly too.

use crate::cli::wire::{Source, Store};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Detail {
    pub(in crate::cli) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    pub(in crate::cli) workload: Option<String>,
    pub(super) ready: bool,
    pub(super) status: String,
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) since: Option<String>,
    #[serde(default)]
    pub(super) age_ms: Option<u64>,
    #[serde(default)]
    pub(super) carried: bool,
    #[serde(default)]
    pub(super) findings: Vec<Finding>,
    #[serde(default)]
    pub(super) remedy: Option<Remedy>,
    #[serde(default)]
    pub(super) guard: Option<Guard>,
    #[serde(default)]
    pub(super) targets: Vec<Target>,
    #[serde(default)]
    pub(super) others: Vec<Other>,
    #[serde(default)]
    pub(super) stores: Vec<Store>,
    #[serde(default)]
    pub(super) sources: Vec<Source>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Finding {
    pub(super) code: String,
    #[serde(default)]
    pub(super) mode: Option<String>,
    #[serde(default)]
    pub(super) target: String,
    #[serde(default)]
    pub(super) since: Option<String>,
    #[serde(default)]
    pub(super) confirms_at: Option<String>,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) evidence: String,
    #[serde(default)]
    pub(super) facts: Facts,
    pub(super) remedy: Remedy,
    #[serde(default)]
    pub(super) severity: String,
    #[serde(default)]
    pub(super) carried: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Remedy {
    pub(super) now: String,
    pub(super) prevent: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Facts {
    pub(super) address: Option<String>,
    pub(super) left_at: Option<String>,
    pub(super) attempts: Option<u64>,
    pub(super) answers: Option<u64>,
    pub(super) first_attempt: Option<String>,
    pub(super) last_attempt: Option<String>,
    pub(super) every_attempt: bool,
    pub(super) suspected_at: Option<String>,
    pub(super) confirmed_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Guard {
    #[serde(default)]
    pub(super) holds: bool,
    #[serde(default)]
    pub(super) needed: u32,
    #[serde(default)]
    pub(super) free: u32,
    #[serde(default)]
    pub(super) others: u32,
}

/// What was counted between the pod and one target.
#[derive(Debug, Deserialize)]
pub(super) struct Target {
    #[serde(default)]
    pub(super) target: String,
    #[serde(default)]
    pub(super) connects: std::collections::BTreeMap<String, u64>,
    #[serde(default)]
    pub(super) connections: Connections,
    #[serde(default)]
    pub(super) attempts: u64,
    #[serde(default)]
    pub(super) last_attempt_age_ms: Option<u64>,
    #[serde(default)]
    pub(super) received_age_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Connections {
    pub(super) current: u64,
    pub(super) previous: u64,
}

/// Another pod of the workload.
#[derive(Debug, Deserialize)]
pub(super) struct Other {
    pub(super) name: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) reaches: Vec<String>,
}
