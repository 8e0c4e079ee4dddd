//! Rounds of pings: the active half of the evidence.
//!
//! ```text
//! interval, idle_interval ─┐
//! nothing answers (200 ms) ─┤                 ┌─► Ping (each as it ends: the first answer decides the node)
//! Prompt::Round            ─┼─► a round ──────┤
//! a kept channel is lost   ─┘  (all at once)  └─► RoundEnded
//! Prompt::Contrast ─────────────────────────────► Ping, outside of rounds
//! ```
//!
//! Rounds follow one another: when one begins, a ping of the last one that has not ended is carried into it, so a hung
//! Store delays nobody and is never asked twice at a time; it is only then that the last round did not cover all.

mod probe;
mod rounds;
#[cfg(test)]
mod tests;

use crate::{
    observe::{EngineEnded, ObservationSender},
    requests::ClusterRequests,
    source::{names::Names, status::SourceParts},
};
use std::{sync::Arc, time::Duration};
use storewatch_core::source::SourceName;
use tokio::task::JoinSet;

/// How often what is asked (section `ping` of the configuration).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// Between the begins of two rounds.
    pub interval: Duration,
    /// The same on a node without a selected pod.
    pub idle_interval: Duration,
    /// Between two readings of PD's list.
    pub pd_interval: Duration,
    /// Between two look-ups of a name.
    pub dns_interval: Duration,
    /// One budget for DNS, connect, HTTP/2 and RPC.
    pub timeout: Duration,
    /// Stores asked in one round; at least 1.
    pub max_stores_per_round: usize,
}

/// Pings the Stores of every cluster until the engine ends. Dropping the future ends every ping.
///
/// # Errors
/// [`EngineEnded`]. A panic in one cluster's task is passed on.
pub async fn run(
    cadence: Cadence,
    clusters: Vec<ClusterRequests>,
    names: Arc<Names>,
    sender: ObservationSender,
) -> Result<(), EngineEnded> {
    let status = Arc::new(SourceParts::new(SourceName::Pings, clusters.len()));
    let mut tasks = JoinSet::new();
    for (part, requests) in clusters.into_iter().enumerate() {
        let prober = probe::StoreProber::new(Arc::clone(&names), part);
        tasks.spawn(rounds::run(cadence, part, requests, prober, Arc::clone(&status), sender.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => result?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return Err(EngineEnded),
        }
    }
    Ok(())
}
