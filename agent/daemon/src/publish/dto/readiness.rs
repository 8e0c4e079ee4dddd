//! The body of every readiness answer.

use super::{StoreId, whole_ms};
use crate::publish::readiness::Readiness;
use serde::Serialize;
use storewatch_core::time::MonoTime;

/// The one storage back end whose reachability is judged.
const STORAGE: &str = "hstore";

/// As the public interface has it. Fields that need a cluster are null when it is not known which one is meant.
#[derive(Debug, Serialize)]
pub(crate) struct Body<'a> {
    ready: bool,
    status: &'static str,
    cluster: Option<&'a str>,
    storage: &'static str,
    reason: &'static str,
    message: &'a str,
    active_stores: Option<u32>,
    answered_store: Option<StoreId>,
    unanswered_stores: Vec<StoreId>,
    pd_reachable: Option<bool>,
    pd_checked_age_ms: Option<u64>,
    stores_age_ms: Option<u64>,
    store_millis: Option<u64>,
    /// Always true: no answer waits for a target.
    cached: bool,
    generation: u64,
    age_ms: Option<u64>,
    since_ms: Option<u64>,
    findings: &'a [&'static str],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    carried: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods: Option<Pods>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clusters: Vec<Cluster<'a>>,
}

/// A workload's pods on this node.
#[derive(Debug, Serialize)]
struct Pods {
    total: usize,
    ready: usize,
}

/// One of several clusters.
#[derive(Debug, Serialize)]
struct Cluster<'a> {
    cluster: &'a str,
    ready: bool,
    status: &'static str,
    reason: &'static str,
}

impl<'a> Body<'a> {
    /// `id` chooses how Stores' ids are written.
    pub(crate) fn new(answer: &'a Readiness<'_>, generation: u64, now: MonoTime, id: impl Fn(u64) -> StoreId) -> Self {
        let node = answer.cluster.map(|cluster| &cluster.readiness);
        let age = |at: Option<MonoTime>| at.map(|at| whole_ms(now.since(at)));
        Self {
            ready: answer.ready,
            status: answer.status.as_str(),
            cluster: answer.cluster.map(|cluster| &*cluster.name),
            storage: STORAGE,
            reason: answer.reason.as_str(),
            message: &answer.message,
            active_stores: node.map(|node| node.active_stores),
            answered_store: node.and_then(|node| node.answered_store).map(&id),
            unanswered_stores: node
                .map(|node| node.unanswered_stores.iter().copied().map(id).collect())
                .unwrap_or_default(),
            pd_reachable: node.and_then(|node| node.pd_reachable),
            pd_checked_age_ms: age(node.and_then(|node| node.pd_checked)),
            stores_age_ms: age(node.and_then(|node| node.stores_at)),
            store_millis: node.and_then(|node| node.store_millis),
            cached: true,
            generation,
            age_ms: age(answer.evidence_at),
            since_ms: age(answer.since),
            findings: &answer.findings,
            carried: answer.carried,
            pods: answer.pods.map(|(total, ready)| Pods { total, ready }),
            clusters: answer
                .clusters
                .iter()
                .map(|cluster| Cluster {
                    cluster: &cluster.name,
                    ready: cluster.readiness.verdict.ready,
                    status: cluster.readiness.verdict.status.as_str(),
                    reason: cluster.readiness.verdict.reason.as_str(),
                })
                .collect(),
        }
    }
}
