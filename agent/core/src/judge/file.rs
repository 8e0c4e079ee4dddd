//! Filing what the kernel told: whose it is, and what it adds to.

use super::{Judge, ask::Strays};
use crate::{
    attribution::{Place, Unattributed},
    classify,
    connection::{
        AttemptCount, ConnectionChange, ConnectionEvent, ConnectionOutcome, Counted, InventorySample, TcpState,
    },
    event::{Event, EventKind},
    id::Role,
    memory::{Early, EarlyEvidence},
    ownership::Owner,
    time::MonoTime,
};
use std::time::Duration;

/// Evidence of strangers that waits for a list that may know them: a pod is often younger in the list than in the kernel.
pub(super) const MAX_EARLY: usize = 1024;

/// How long it waits.
const EARLY: Duration = Duration::from_secs(30);

impl Judge {
    pub(super) fn attempts(&mut self, at: MonoTime, counts: &[AttemptCount]) {
        for count in counts {
            if let Err(why) = self.count(count, at) {
                self.keep_early(why, at, EarlyEvidence::Count(*count));
            }
        }
    }

    pub(super) fn connection(&mut self, event: &ConnectionEvent) {
        let counter = match event.what {
            ConnectionChange::Begun
            | ConnectionChange::Established { .. }
            | ConnectionChange::Failed { .. }
            | ConnectionChange::Ended { .. } => &mut self.kernel.state,
            ConnectionChange::ResetReceived { .. } => &mut self.kernel.reset_received,
            ConnectionChange::ResetSent { .. } => &mut self.kernel.reset_sent,
            ConnectionChange::Retransmit { .. } => &mut self.kernel.retransmit,
            ConnectionChange::ErrorReported { .. } => &mut self.kernel.error,
        };
        *counter = counter.saturating_add(1);
        if let Err(why) = self.detail(event) {
            self.keep_early(why, event.at, EarlyEvidence::Event(*event));
        }
    }

    fn keep_early(&mut self, why: Unattributed, at: MonoTime, what: EarlyEvidence) {
        if why == Unattributed::Stranger && self.early.len() < MAX_EARLY {
            self.early.push_back(Early { at, what });
        } else {
            self.give_up(why, &what);
        }
    }

    fn give_up(&mut self, why: Unattributed, what: &EarlyEvidence) {
        let added = match what {
            EarlyEvidence::Count(count) => count.added,
            EarlyEvidence::Event(_) => 1,
        };
        let count = self.unattributed.entry(why).or_default();
        *count = count.saturating_add(added);
        self.kernel.unattributed = self.kernel.unattributed.saturating_add(added);
    }

    pub(super) fn expire_early(&mut self, now: MonoTime) {
        while self.early.front().is_some_and(|early| now.since(early.at) > EARLY) {
            if let Some(early) = self.early.pop_front() {
                self.give_up(Unattributed::Stranger, &early.what);
            }
        }
    }

    /// A new list may know whose the waiting evidence is.
    pub(super) fn replay_early(&mut self, now: MonoTime) {
        for early in std::mem::take(&mut self.early) {
            let filed = match &early.what {
                EarlyEvidence::Count(count) => self.count(count, early.at.max(now)),
                EarlyEvidence::Event(event) => self.detail(event),
            };
            if filed.is_err() {
                self.early.push_back(early);
            }
        }
    }

    fn count(&mut self, count: &AttemptCount, at: MonoTime) -> Result<(), Unattributed> {
        let Place { pod, container, foreign } = self.attribution.place(count.owner.as_ref())?;
        let pod = self.pods.get_mut(&pod).ok_or(Unattributed::Stranger)?;
        let Some(cluster) = self.clusters.get_mut(usize::from(pod.record.cluster.0)) else { return Ok(()) };
        let begun = count.last_begun.unwrap_or(count.last_ended);
        let owner = cluster.ownership.owner(count.remote, begun);
        let counters = pod.counters.entry(owner.target()).or_default();
        let bump = |counter: &mut u64| *counter = counter.saturating_add(count.added);
        let mut trouble = false;
        match count.what {
            Counted::Begun => {}
            Counted::Established => bump(counters.connects.entry(ConnectionOutcome::Established).or_default()),
            Counted::Failed(evidence) => {
                let outcome = classify::attempt(&evidence);
                trouble = classify::counts_as_failure(outcome);
                bump(counters.connects.entry(outcome).or_default());
            }
            Counted::Ended(evidence) => {
                let outcome = classify::ending(&evidence);
                trouble = outcome != ConnectionOutcome::Closed;
                bump(counters.endings.entry(outcome).or_default());
            }
            Counted::ResetsReceived => {
                trouble = true;
                bump(&mut counters.resets_received);
            }
            Counted::ResetsSent => bump(&mut counters.resets_sent),
            Counted::Retransmits => {
                trouble = true;
                self.wants_sample = true;
                bump(&mut counters.retransmits);
            }
        }
        if trouble && matches!(owner, Owner::Current(target) if target.role() == Role::Store) {
            cluster.trigger();
        }
        let run = cluster.address_pings.get(&count.remote).and_then(|pings| pings.run_since);
        if let Some(container) = pod.container(container, foreign, at, Some(cluster)) {
            container.count(count, run);
        }
        Ok(())
    }

    fn detail(&mut self, event: &ConnectionEvent) -> Result<(), Unattributed> {
        let Place { pod, container, foreign } = self.attribution.place(Some(&event.owner))?;
        let pod = self.pods.get_mut(&pod).ok_or(Unattributed::Stranger)?;
        let Some(cluster) = self.clusters.get_mut(usize::from(pod.record.cluster.0)) else { return Ok(()) };
        let begun = match event.what {
            ConnectionChange::Established { begun }
            | ConnectionChange::Failed { begun, .. }
            | ConnectionChange::Ended { begun, .. } => begun,
            _ => None,
        };
        let owner = cluster.ownership.owner(event.remote, begun.unwrap_or(event.at));
        let label = owner.target().map_or_else(|| "other".into(), |target| target.to_string());
        if let ConnectionChange::Established { begun: Some(begun) } = event.what {
            pod.counters.entry(owner.target()).or_default().connect_duration.observe(event.at.since(begun));
        }
        let trouble = match event.what {
            ConnectionChange::Failed { evidence, .. } => classify::counts_as_failure(classify::attempt(&evidence)),
            ConnectionChange::Ended { evidence, .. } => classify::ending(&evidence) != ConnectionOutcome::Closed,
            ConnectionChange::ResetReceived { .. } => true,
            ConnectionChange::Retransmit { .. } => {
                self.wants_sample = true;
                true
            }
            ConnectionChange::Begun
            | ConnectionChange::Established { .. }
            | ConnectionChange::ResetSent { .. }
            | ConnectionChange::ErrorReported { .. } => false,
        };
        if trouble && matches!(owner, Owner::Current(target) if target.role() == Role::Store) {
            cluster.trigger();
        }
        if let Some(line) = line(event, &label) {
            self.log.push(line.cluster(cluster.id).pod(pod.record.pod.clone()).target(label));
        }
        if let Some(container) = pod.container(container, foreign, event.at, Some(cluster)) {
            container.last_evidence = container.last_evidence.max(Some(event.at));
            // Of all changes only this one is certain to happen in a call of the process.
            if let (ConnectionChange::Begun, Some(pid)) = (event.what, event.owner.pid) {
                self.processes_changed |= container.dialers.saw(pid, event.remote, event.at);
            }
            if let Some(noted) = container.sockets.event(event) {
                container.note(noted);
            }
        }
        Ok(())
    }

    pub(super) fn inventory(&mut self, sample: &InventorySample) {
        if self.sampled.is_some_and(|last| last > sample.at) {
            return;
        }
        self.sampled = Some(sample.at);
        self.strays = Strays::default();
        for socket in &sample.sockets {
            if socket.state == TcpState::Listen {
                continue;
            }
            let Place { pod, container, foreign } = match self.attribution.place(Some(&socket.owner)) {
                Ok(place) => place,
                Err(reason) => {
                    self.strays.add(reason, socket);
                    continue;
                }
            };
            let Some(pod) = self.pods.get_mut(&pod) else { continue };
            let cluster = self.clusters.get(usize::from(pod.record.cluster.0));
            if let Some(container) = pod.container(container, foreign, sample.at, cluster) {
                container.sockets.sample(socket, sample.at, sample.ended);
                if let Some(pid) = socket.owner.pid {
                    self.processes_changed |= container.dialers.saw(pid, socket.remote, sample.at);
                }
            }
        }
        for pod in self.pods.values_mut() {
            let Some(cluster) = self.clusters.get(usize::from(pod.record.cluster.0)) else { continue };
            for container in pod.containers.values_mut() {
                container.sampled(sample.at, sample.complete, &cluster.address_pings, self.settings.policy.window);
            }
        }
    }
}

/// The event that a detail is worth.
fn line(event: &ConnectionEvent, label: &str) -> Option<Event> {
    let remote = event.remote;
    let connection = |outcome: ConnectionOutcome, words: &str| {
        Event::new(event.at, EventKind::Connection, format!("{words} {label} at {remote}: {}", outcome.as_str()))
            .outcome(outcome.as_str())
    };
    match event.what {
        ConnectionChange::Established { .. } => Some(connection(ConnectionOutcome::Established, "dial to")),
        ConnectionChange::Failed { evidence, .. } => Some(connection(classify::attempt(&evidence), "dial to")),
        ConnectionChange::Ended { evidence, .. } => Some(connection(classify::ending(&evidence), "connection to")),
        ConnectionChange::ResetReceived { .. } => Some(
            Event::new(event.at, EventKind::Reset, format!("RST received from {label} at {remote}"))
                .outcome("received"),
        ),
        ConnectionChange::ResetSent { .. } => {
            Some(Event::new(event.at, EventKind::Reset, format!("RST sent to {label} at {remote}")).outcome("sent"))
        }
        ConnectionChange::Begun | ConnectionChange::Retransmit { .. } | ConnectionChange::ErrorReported { .. } => None,
    }
}
