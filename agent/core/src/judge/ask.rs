//! Questions: what is not published because it is large and seldom wanted.

use super::{Judge, SAMPLE_SPACING};
use crate::{
    attribution::Unattributed,
    connection::SocketSample,
    pods::Pod,
    table::{MAX_STRAYS, StrayView, Table, TableQuery},
    time::MonoTime,
};
use std::collections::BTreeMap;

/// Sockets of the latest sample that belong to no judged pod.
#[derive(Debug, Default)]
pub(super) struct Strays {
    counts: BTreeMap<Unattributed, u64>,
    first: Vec<StrayView>,
}

impl Strays {
    pub(super) fn add(&mut self, reason: Unattributed, socket: &SocketSample) {
        *self.counts.entry(reason).or_default() += 1;
        if self.first.len() < MAX_STRAYS {
            self.first.push(StrayView { reason, socket: *socket });
        }
    }
}

impl Judge {
    /// The connections of the judged pods to watched ports, live ones and those that ended lately, as of the last
    /// observation.
    pub fn table(&self, query: &TableQuery) -> Table {
        let TableQuery { filter, offset, limit } = query;
        let (mut total, mut connections) = (0, Vec::new());
        let mut pods: Vec<&Pod> = self.pods.values().collect();
        pods.sort_by(|a, b| (&a.record.pod, &a.record.uid).cmp(&(&b.record.pod, &b.record.uid)));
        for pod in pods {
            let Some(cluster) = self.clusters.get(usize::from(pod.record.cluster.0)) else { continue };
            if !filter.admits_pod(pod.record.cluster, &pod.record.pod) {
                continue;
            }
            pod.connections(cluster, filter, |view| {
                if total >= *offset && connections.len() < *limit {
                    connections.push(view());
                }
                total += 1;
            });
        }
        Table {
            generation: self.generation,
            sampled_at: self.sampled,
            total,
            connections,
            unattributed: self.strays.counts.iter().map(|(reason, count)| (*reason, *count)).collect(),
            strays: self.strays.first.clone(),
        }
    }

    /// The sockets are known as they were at most [`SAMPLE_SPACING`] before `asked`, or nothing can sample them. Where they
    /// are not, a sample is asked for with the next [`Judge::advance`].
    pub fn freshen(&mut self, asked: MonoTime) -> bool {
        let fresh = self.sampled.is_some_and(|at| asked.since(at) <= SAMPLE_SPACING);
        if fresh || !self.inventory_answers() {
            return true;
        }
        self.wants_sample = true;
        false
    }
}
