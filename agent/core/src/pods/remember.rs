//! What is kept of a pod, and how it is taken back.

use super::{MAX_CONTAINERS, Pod};
use crate::{
    container::Container, findings::Book, memory::PodMemory, pod::PodRecord, policy::VerdictPolicy, verdict::Verdict,
};
use std::sync::Arc;

impl Pod {
    pub(crate) fn memory(&self, cluster: Arc<str>) -> PodMemory {
        PodMemory {
            cluster,
            record: PodRecord::clone(&self.record),
            listed: self.listed,
            verdict: self.verdict.memory(),
            restored: self.restored,
            reach: self.reach.clone(),
            containers: self.containers.iter().map(|(key, container)| container.memory(*key)).collect(),
            findings: self.findings.clone(),
            carried: self.carried.clone(),
        }
    }

    /// Goes on where another one stood.
    pub(crate) fn resume(memory: PodMemory, policy: &VerdictPolicy) -> Self {
        let PodMemory { cluster: _, record, listed, verdict, restored, reach, containers, findings, carried } = memory;
        let containers = containers.into_iter().take(MAX_CONTAINERS);
        let verdict = Verdict::resume(verdict);
        let since = verdict.since;
        let mut pod = Self {
            verdict,
            listed,
            restored,
            reach,
            containers: containers.map(|container| (container.key, Container::resume(container))).collect(),
            book: Book::of(&findings),
            findings,
            carried,
            ..Self::new(Arc::new(record), since)
        };
        pod.settle_ready(policy);
        pod
    }
}
