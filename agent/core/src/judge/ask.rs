//! Questions: what is not published because it is large and seldom wanted.

use super::{Judge, SAMPLE_SPACING};
use crate::{
    attribution::Unattributed,
    connection::{ConnectionOutcome, SocketSample, TcpState},
    ownership::Owner,
    pods::Pod,
    table::{ConnectionFilter, MAX_STRAYS, OwnerView, StrayView, Table, TableQuery},
    time::MonoTime,
};
use std::collections::BTreeMap;

/// Sockets of the latest sample that belong to no judged pod.
#[derive(Debug, Default)]
pub(super) struct Strays {
    counts: BTreeMap<Unattributed, u64>,
    first: Vec<(Unattributed, SocketSample)>,
}

impl Strays {
    pub(super) fn add(&mut self, reason: Unattributed, socket: &SocketSample) {
        *self.counts.entry(reason).or_default() += 1;
        if self.first.len() < MAX_STRAYS {
            self.first.push((reason, *socket));
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
            strays: self
                .strays
                .first
                .iter()
                .filter_map(|(reason, socket)| self.stray(*reason, socket, filter))
                .collect(),
        }
    }

    /// A socket of nobody, if the filter admits it: it may still go to a target that is known.
    fn stray(&self, reason: Unattributed, socket: &SocketSample, filter: &ConnectionFilter) -> Option<StrayView> {
        let at = self.sampled.unwrap_or_default();
        let known = self.clusters.iter().find_map(|cluster| match cluster.ownership.owner(socket.remote, at) {
            Owner::Unknown => None,
            owner => Some((cluster.id, owner)),
        });
        let (cluster, owner) = (known.map(|(id, _)| id), known.map_or(Owner::Unknown, |(_, owner)| owner));
        let (target, owner) = (owner.target(), OwnerView::from(owner));
        let outcome = (socket.state != TcpState::SynSent).then_some(ConnectionOutcome::Established);
        let of_a_pod = filter.namespace.is_some() || filter.pod.is_some();
        let admitted = !of_a_pod
            && filter.cluster.is_none_or(|wanted| cluster == Some(wanted))
            && filter.admits_socket(socket.state, outcome)
            && filter.admits_owner(owner, target);
        admitted.then_some(StrayView { reason, cluster, target, owner, outcome, socket: *socket })
    }

    /// The sockets are known as they were at most [`SAMPLE_SPACING`] before `asked`, or nothing can sample them. Where they
    /// are not, a sample is asked for with the next [`Judge::advance`].
    pub fn freshen(&mut self, asked: MonoTime) -> bool {
        let recent = |at: Option<MonoTime>| at.is_some_and(|at| asked.since(at) <= SAMPLE_SPACING);
        if recent(self.sampled) || !self.inventory_answers() {
            return true;
        }
        // One that was asked for lately is on its way.
        self.wants_sample |= !recent(self.told.sample);
        false
    }
}
