//! The snapshot as a whole.

use super::{
    Clocks, StoreId,
    pod::PodDto,
    readiness::Body,
    source::SourceDto,
    store::{PdDto, StoreDto, stores},
};
use crate::publish::readiness::Readiness;
use serde::Serialize;
use storewatch_core::snapshot::Snapshot;

#[derive(Debug, Serialize)]
pub(crate) struct SnapshotDto<'a> {
    node: &'a str,
    generation: u64,
    taken_at: String,
    synced: bool,
    pods_fresh: bool,
    readiness: Body<'a>,
    pods: Vec<PodDto<'a>>,
    stores: Vec<StoreDto<'a>>,
    pd: PdDto<'a>,
    sources: Vec<SourceDto<'a>>,
}

impl<'a> SnapshotDto<'a> {
    /// `node` is the node's answer over all clusters of the same snapshot.
    pub(crate) fn new(snapshot: &'a Snapshot, node: &'a Readiness<'_>, clocks: &Clocks) -> Self {
        Self {
            node: &snapshot.node,
            generation: snapshot.generation,
            taken_at: clocks.date(snapshot.taken_at),
            synced: snapshot.synced,
            pods_fresh: snapshot.pods_fresh,
            readiness: Body::new(node, snapshot.generation, clocks.now, StoreId::Text),
            pods: snapshot.pods.iter().map(|pod| PodDto::new(snapshot, pod, clocks)).collect(),
            stores: stores(snapshot, clocks),
            pd: PdDto::new(snapshot, clocks),
            sources: snapshot.sources.iter().map(|source| SourceDto::new(source, clocks)).collect(),
        }
    }
}
