//! Restart and recordings: what is put away, and how it is taken back.

use super::{Judge, MAX_PODS, file::MAX_EARLY};
use crate::{
    attribution::Attribution,
    cluster::Cluster,
    findings::Book,
    memory::{Memory, NodeMemory, SourceMemory},
    pods::Pod,
    policy::Settings,
    snapshot::SourceView,
    time::MonoTime,
};

impl Judge {
    /// All that decides, as of the last [`Judge::advance`].
    pub fn memory(&self, now: MonoTime) -> Memory {
        let name = |pod: &Pod| self.clusters.get(usize::from(pod.record.cluster.0)).map(|c| c.settings.name.clone());
        Memory {
            taken_at: now,
            watched_since: self.watched_since,
            clusters: self.clusters.iter().map(Cluster::memory).collect(),
            pods: self.pods.values().filter_map(|pod| Some(pod.memory(name(pod)?))).collect(),
            node: NodeMemory {
                pods_at: self.pods_at,
                sampled: self.sampled,
                exits: self.exits.clone(),
                early: self.early.iter().copied().collect(),
                sources: self.sources.values().filter_map(|view| self.source_memory(view)).collect(),
                kernel_loss: self.kernel_loss,
                publication: None,
            },
        }
    }

    /// The same for whoever goes on without a break, and tells each thing when this judge does.
    pub fn whole_memory(&self, now: MonoTime) -> Memory {
        let mut memory = self.memory(now);
        memory.node.publication = Some(self.publication(now));
        memory
    }

    fn source_memory(&self, view: &SourceView) -> Option<SourceMemory> {
        let (told, told_detail, told_at) = self.told_sources.get(&view.name)?.clone();
        let SourceView { name, state, detail, lost: _, last } = view.clone();
        Some(SourceMemory { name, state, detail, last, told, told_detail, told_at })
    }

    /// Goes on exactly where another judge stood when `memory` was taken. To be called before the first observation;
    /// clusters and pods that are no longer configured are left out.
    pub fn resume(&mut self, memory: Memory) {
        let Memory { taken_at, watched_since, clusters, pods, node } = memory;
        for memory in clusters {
            if let Some(cluster) = self.clusters.iter_mut().find(|cluster| cluster.settings.name == memory.name) {
                cluster.resume(memory, &self.settings.policy);
            }
        }
        for mut memory in pods {
            let Some(cluster) = self.clusters.iter().find(|cluster| cluster.settings.name == memory.cluster) else {
                continue;
            };
            memory.record.cluster = cluster.id;
            if self.pods.len() < MAX_PODS {
                self.pods.insert(memory.record.uid.clone(), Pod::resume(memory, &self.settings.policy));
            }
        }
        let NodeMemory { pods_at, sampled, exits, early, sources, kernel_loss, publication } = node;
        self.attribution = Attribution::new(self.pods.values().filter(|pod| pod.listed).map(|pod| &pod.record));
        (self.watched_since, self.pods_at, self.sampled) = (watched_since, pods_at, sampled);
        (self.exits, self.kernel_loss) = (exits, kernel_loss);
        self.early = early.into_iter().take(MAX_EARLY).collect();
        for SourceMemory { name, state, detail, last, told, told_detail, told_at } in sources {
            self.told_sources.insert(name, (told, told_detail, told_at));
            self.sources.insert(name, SourceView { name, state, detail, lost: 0, last });
        }
        self.book = Book::of(&self.kernel_lost(taken_at));
        self.processes_changed = true;
        self.dirty = true;
        if let Some(publication) = publication {
            self.go_on_publishing(publication, taken_at);
        }
    }

    /// Takes back what an earlier run put away, although nobody has watched since. Verdicts stand, marked as carried, until
    /// this run's evidence confirms or contradicts them. As for [`Judge::resume`] otherwise.
    pub fn restore(&mut self, memory: Memory, now: MonoTime) {
        self.resume(memory.interrupted(now));
        for cluster in &mut self.clusters {
            cluster.reclaim(now);
        }
    }

    /// What it is configured with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
