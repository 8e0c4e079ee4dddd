//! One pod in full: with all that its verdict rests on, so that whoever explains it needs no second answer.

use super::{
    Clocks, StoreId,
    pod::PodDto,
    readiness::Body,
    source::SourceDto,
    store::{StoreDto, stores_of},
};
use crate::publish::readiness::Readiness;
use serde::Serialize;
use std::collections::BTreeSet;
use storewatch_core::{
    id::TargetKey,
    snapshot::{PodView, Snapshot},
};

/// Other pods that are listed.
const OTHERS: usize = 32;

#[derive(Debug, Serialize)]
pub(crate) struct PodDetailDto<'a> {
    #[serde(flatten)]
    pod: PodDto<'a>,
    /// The other pods of its workload on this node.
    others: Vec<OtherDto<'a>>,
    /// The node's answer for the pod's cluster.
    node: Option<Body<'a>>,
    /// The Stores of the pod's cluster.
    stores: Vec<StoreDto<'a>>,
    sources: Vec<SourceDto<'a>>,
}

/// Another pod of the same workload.
#[derive(Debug, Serialize)]
struct OtherDto<'a> {
    name: &'a str,
    status: &'static str,
    ready: bool,
    reason: &'static str,
    /// Codes of what stands out about it.
    findings: BTreeSet<&'static str>,
    /// Labels of the targets from whose present addresses payload arrived within the last minutes.
    reaches: Vec<String>,
}

impl<'a> PodDetailDto<'a> {
    /// `node` is the node's answer for the pod's cluster, from the same snapshot.
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        pod: &'a PodView,
        node: Option<&'a Readiness<'_>>,
        clocks: &Clocks,
    ) -> Self {
        let record = &pod.record;
        let is_other = |other: &&PodView| {
            other.record.uid != record.uid
                && other.record.cluster == record.cluster
                && other.record.pod.namespace == record.pod.namespace
                && other.record.workload.is_some()
                && other.record.workload == record.workload
        };
        let cluster = snapshot.clusters.iter().find(|cluster| cluster.id == record.cluster);
        Self {
            pod: PodDto::new(snapshot, pod, clocks),
            others: snapshot.pods.iter().filter(is_other).take(OTHERS).map(OtherDto::new).collect(),
            node: node.map(|node| Body::new(node, snapshot.generation, clocks.now, StoreId::Text)),
            stores: cluster.map(|cluster| stores_of(cluster, clocks)).unwrap_or_default(),
            sources: snapshot.sources.iter().map(|source| SourceDto::new(source, clocks)).collect(),
        }
    }
}

impl<'a> OtherDto<'a> {
    fn new(pod: &'a PodView) -> Self {
        let reaches = |key: Option<TargetKey>| key.map(|key| key.to_string());
        Self {
            name: &pod.record.pod.name,
            status: pod.verdict.status.as_str(),
            ready: pod.verdict.ready,
            reason: pod.verdict.reason.as_str(),
            findings: pod.findings.iter().map(|finding| finding.code.as_str()).collect(),
            reaches: pod
                .targets
                .iter()
                .filter(|target| target.received.is_some() && target.connections.current > 0)
                .filter_map(|target| reaches(target.target))
                .collect(),
        }
    }
}
