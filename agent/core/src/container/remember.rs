//! What is kept of a container, and how it is taken back.

use super::{Container, MAX_RECENT, MAX_REMOTES, Recent, Remote};
use crate::{
    dialers::Dialers,
    id::ContainerKey,
    memory::{ContainerMemory, Evidence},
    sockets::Sockets,
};

impl Container {
    pub(crate) fn memory(&self, key: ContainerKey) -> ContainerMemory {
        let Self { first_seen, foreign, remotes, sockets, stale, baselines, dialers, last_evidence, dropped: _, gap } =
            self;
        ContainerMemory {
            key,
            first_seen: *first_seen,
            foreign: *foreign,
            last_evidence: *last_evidence,
            stale: stale.iter().map(|((target, at), entry)| (*target, *at, entry.clone())).collect(),
            baselines: baselines.iter().map(|((target, at), reading)| (*target, *at, *reading)).collect(),
            dialers: dialers.all().map(|(pid, dialer)| (pid, dialer.clone())).collect(),
            evidence: Some(Evidence {
                remotes: remotes.iter().map(|(address, remote)| (*address, remote.clone())).collect(),
                sockets: sockets.memory(),
            }),
            gap: *gap,
        }
    }

    pub(crate) fn resume(memory: ContainerMemory) -> Self {
        let ContainerMemory { key: _, first_seen, foreign, last_evidence, stale, baselines, dialers, evidence, gap } =
            memory;
        let Evidence { mut remotes, sockets } = evidence.unwrap_or_default();
        remotes.truncate(MAX_REMOTES);
        remotes.iter_mut().for_each(|(_, remote)| remote.bound());
        Self {
            first_seen,
            foreign,
            remotes: remotes.into_iter().collect(),
            sockets: Sockets::resume(sockets),
            stale: stale.into_iter().map(|(target, address, entry)| ((target, address), entry)).collect(),
            baselines: baselines.into_iter().map(|(target, at, reading)| ((target, at), reading)).collect(),
            dialers: Dialers::resume(dialers),
            last_evidence,
            dropped: 0,
            gap,
        }
    }
}

impl Remote {
    /// A file may hold more than this agent ever would.
    fn bound(&mut self) {
        fn recent<T>(list: &mut Recent<T>) {
            list.truncate(MAX_RECENT);
        }
        recent(&mut self.begins);
        recent(&mut self.answers);
        recent(&mut self.failed);
        recent(&mut self.endings);
        recent(&mut self.slow);
        recent(&mut self.idle_drops);
        self.attempts.truncate(MAX_RECENT);
    }
}
