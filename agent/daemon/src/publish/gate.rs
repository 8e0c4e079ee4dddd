//! The readiness gate: the condition of this node's gated pods, the Lease that says that somebody keeps it, and the work
//! of the one elected agent for nodes where nobody does. The rules are [`storewatch_core::gate`]'s.
//!
//! ```text
//! snapshot ──► Writer ──► conditions of this node's pods, while
//!                └──────► NodeLease is held ──► exits granted ──► engine
//! Election ──► Elected: opens the gates of nodes without an agent, grants exits, evicts stale pods (healing)
//! ```

mod elected;
mod election;
mod healing;
mod lease;
mod owner;
mod release;
mod writer;

pub use release::open_all;
pub use writer::run;

use crate::{
    config::{Config, HealingMode},
    kubernetes::scope::{Scope, scopes},
};
use std::{sync::Arc, time::Duration};

/// Whose name stands in the fields that it writes.
const MANAGER: &str = "storewatch";

/// What the gate needs of the configuration.
#[derive(Clone, Debug)]
pub struct GateSettings {
    node: Arc<str>,
    scopes: Vec<Scope>,
    min_other_ready: u32,
    /// Conditions are kept.
    gate: bool,
    healing: HealingMode,
}

impl GateSettings {
    /// There is anything to do.
    pub fn wanted(&self) -> bool {
        self.gate || self.healing != HealingMode::Off
    }

    /// As configured.
    pub fn new(config: &Config) -> Self {
        Self {
            node: Arc::clone(&config.node),
            scopes: scopes(&config.clusters),
            min_other_ready: config.verdict.min_other_ready,
            gate: config.kubernetes.readiness_gate,
            healing: config.healing,
        }
    }
}

/// How many writes about different pods may be under way at once.
const CONCURRENT: usize = 8;

/// The wait before what failed is done again at most, where it must be done in time.
const SOON: Duration = Duration::from_secs(5);

/// The present time of the wall clock, as Kubernetes writes it into Leases.
fn now() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(jiff::Timestamp::now())
}
