//! Restart: what is put away, and how it is taken back.

use super::Judge;
use crate::{
    memory::{ClusterMemory, ContainerMemory, Memory},
    pods::Pod,
    policy::Settings,
    time::MonoTime,
};

impl Judge {
    /// What survives a restart, as of the last [`Judge::advance`].
    pub fn memory(&self, now: MonoTime) -> Memory {
        let name = |pod: &Pod| self.clusters.get(usize::from(pod.record.cluster.0)).map(|c| c.settings.name.clone());
        Memory {
            taken_at: now,
            clusters: self.clusters.iter().map(crate::cluster::Cluster::memory).collect(),
            pods: self.pods.values().filter_map(|pod| Some(pod.memory(name(pod)?))).collect(),
        }
    }

    /// Takes back what an earlier run put away. Verdicts stand, marked as carried, until this run's evidence confirms or
    /// contradicts them. To be called before the first observation; clusters and pods that are no longer configured are
    /// left out.
    pub fn restore(&mut self, memory: Memory, now: MonoTime) {
        let Memory { taken_at: _, clusters, pods } = memory;
        for memory in clusters {
            if let Some(cluster) = self.clusters.iter_mut().find(|cluster| cluster.settings.name == memory.name) {
                cluster.restore(memory, now);
            }
        }
        for memory in pods {
            let Some(cluster) = self.clusters.iter().find(|cluster| cluster.settings.name == memory.cluster) else {
                continue;
            };
            let mut memory = memory;
            memory.record.cluster = cluster.id;
            if self.pods.len() < super::MAX_PODS {
                let pod = Pod::restore(memory, now);
                self.pods.insert(pod.record.uid.clone(), pod);
            }
        }
        self.dirty = true;
        self.processes_changed = true;
    }

    /// Goes on where another judge stood at `now`, once the observations that preceded it have been played here: what they
    /// left in short memories stays, all else is as `memory` says. Unlike after [`Judge::restore`] nobody was away, so
    /// clocks run on and a verdict that those observations prove is not marked as carried.
    pub fn resume(&mut self, memory: Memory, now: MonoTime) {
        let Memory { taken_at: _, clusters, pods } = memory;
        for memory in clusters {
            if let Some(cluster) = self.clusters.iter_mut().find(|cluster| cluster.settings.name == memory.name) {
                cluster.resume(memory, now);
            }
        }
        for mut memory in pods {
            let Some(cluster) = self.clusters.iter().find(|cluster| cluster.settings.name == memory.cluster) else {
                continue;
            };
            memory.record.cluster = cluster.id;
            if let Some(pod) = self.pods.get_mut(&memory.record.uid) {
                pod.resume(memory);
            } else if self.pods.len() < super::MAX_PODS {
                let pod = Pod::restore(memory, now);
                self.pods.insert(pod.record.uid.clone(), pod);
            }
        }
        self.dirty = true;
    }

    /// What it is configured with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl ContainerMemory {
    pub(crate) fn of(key: crate::id::ContainerKey, container: &crate::container::Container) -> Self {
        Self {
            key,
            first_seen: container.first_seen,
            stale: container.stale.iter().map(|((target, at), entry)| (*target, *at, entry.clone())).collect(),
            baselines: container.baselines.iter().map(|((target, at), reading)| (*target, *at, *reading)).collect(),
            dialers: container
                .dialers
                .all()
                .map(|(pid, dialer)| (pid, dialer.last, dialer.addresses.iter().copied().collect()))
                .collect(),
        }
    }
}

impl ClusterMemory {
    /// It was configured as it is now, so that positions mean the same.
    pub(crate) fn fits(&self, settings: &crate::policy::ClusterSettings) -> bool {
        self.pd_peers == settings.pd_peers && self.stores == settings.stores
    }
}
