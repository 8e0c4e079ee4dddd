//! PD's list of Stores, asked for every `pd_interval`; every `interval` while no list is known or PD does not answer.
//!
//! PD's word is a hint, so nothing waits for it: each attempt has its own budget, and the list that counts is kept by the
//! core.

use crate::{
    observe::{EngineEnded, ObservationSender},
    source::{clock::SourceClock, names::Names, pings::Cadence, status::SourceParts},
};
use std::{sync::Arc, time::Duration};
use storewatch_core::{
    id::{ClusterId, HostPort, Role, TargetId, TargetKey},
    observation::Observation,
    ping::PdReport,
    source::{SourceName, SourceState},
    time::MonoTime,
};
use storewatch_hugegraph::{
    fault::{Fault, Phase},
    pd::{Attempt, PdPeers},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// Asks the PD of every cluster until the engine ends. `peers` are each cluster's, in the order of the configuration.
/// Dropping the future ends every call.
///
/// # Errors
/// [`EngineEnded`]. A panic in one cluster's task is passed on.
pub async fn run(
    cadence: Cadence,
    peers: Vec<Vec<HostPort>>,
    names: Arc<Names>,
    sender: ObservationSender,
) -> Result<(), EngineEnded> {
    let status = Arc::new(SourceParts::new(SourceName::Pd, peers.len()));
    let mut tasks = JoinSet::new();
    for (part, peers) in peers.into_iter().enumerate() {
        let cluster = Pd {
            cadence,
            part,
            peers: PdPeers::new(peers),
            names: Arc::clone(&names),
            status: Arc::clone(&status),
            sender: sender.clone(),
            clock: SourceClock::start(),
        };
        tasks.spawn(cluster.run());
    }
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => result?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => return Err(EngineEnded),
        }
    }
    // Without any cluster that has peers there is nothing to do, which is not an end.
    std::future::pending().await
}

struct Pd {
    cadence: Cadence,
    part: usize,
    peers: PdPeers,
    names: Arc<Names>,
    status: Arc<SourceParts>,
    sender: ObservationSender,
    clock: SourceClock,
}

impl Pd {
    fn cluster(&self) -> ClusterId {
        ClusterId(u16::try_from(self.part).unwrap_or(u16::MAX))
    }

    async fn run(mut self) -> Result<(), EngineEnded> {
        if self.peers.peers().is_empty() {
            return self.tell(SourceState::Absent, "no pd_peers are configured").await;
        }
        let cluster = self.cluster();
        let target = |position| TargetId { cluster, key: TargetKey::Pd(position) };
        let addresses = self.peers.peers().to_vec();
        self.names.replace(
            |target| target.cluster == cluster && target.key.role() == Role::Pd,
            (0..).map(target).zip(&addresses),
        );
        let mut list_known = false;
        loop {
            let begin = Instant::now();
            let attempt = self.attempt(begin).await?;
            let listed = attempt.list.as_ref().is_some_and(|list| !list.stores.is_empty());
            list_known |= listed;
            let answered = attempt.list.is_some();
            let pause = if list_known && answered { self.cadence.pd_interval } else { self.cadence.interval };
            sleep_until(next(begin, pause, rand::random_range(0.9..=1.0))).await;
        }
    }

    async fn attempt(&mut self, begin: Instant) -> Result<Attempt, EngineEnded> {
        let Self { cadence, peers, names, sender, clock, .. } = self;
        let cluster = ClusterId(u16::try_from(self.part).unwrap_or(u16::MAX));
        let started = clock.at(begin);
        let addresses = peers.peers().to_vec();
        let deadline = begin + cadence.timeout;
        let attempt = peers
            .attempt(
                |position| {
                    let (names, address) = (Arc::clone(names), addresses.get(position).cloned());
                    async move {
                        let address = address.ok_or(Fault::Unreachable("no such peer".to_owned()))?;
                        names.find_all(&address, deadline).await.map_err(|none| {
                            if none.silent { Fault::Deadline(Phase::Dns) } else { Fault::Unreachable(none.detail) }
                        })
                    }
                },
                cadence.timeout,
                |so_far| {
                    // An empty list counts by how often it is told, so it is told once. The whole report follows.
                    if so_far.list.as_ref().is_some_and(|list| !list.stores.is_empty()) {
                        let report = report(cluster, started, clock.now(), &so_far);
                        sender.offer(SourceName::Pd, Observation::Pd(report));
                    }
                },
            )
            .await;
        for peer in attempt.peers.iter().filter(|peer| !peer.alive) {
            if let Some(address) = addresses.get(usize::from(peer.peer)) {
                self.names.failed(address, None);
            }
        }
        let ended = self.clock.now();
        self.sender.send(Observation::Pd(report(cluster, started, ended, &attempt))).await?;
        let (state, detail) = judge(&attempt, &addresses);
        self.tell(state, &detail).await?;
        Ok(attempt)
    }

    async fn tell(&self, state: SourceState, detail: &str) -> Result<(), EngineEnded> {
        if let Some(report) = self.status.set(self.part, self.clock.now(), state, detail) {
            self.sender.send(Observation::Source(report)).await?;
        }
        Ok(())
    }
}

fn next(begin: Instant, pause: Duration, jitter: f64) -> Instant {
    // Never longer than configured, and never at once: an attempt may take longer than the pause.
    (begin + pause.mul_f64(jitter)).max(Instant::now() + pause.mul_f64(0.1))
}

fn report(cluster: ClusterId, started: MonoTime, ended: MonoTime, attempt: &Attempt) -> PdReport {
    let Attempt { peers, list } = attempt;
    PdReport { cluster, started, ended, peers: peers.clone(), list: list.as_ref().map(|list| list.stores.clone()) }
}

/// How the source is after an attempt, and why.
fn judge(attempt: &Attempt, addresses: &[HostPort]) -> (SourceState, String) {
    let mut problems: Vec<String> = attempt.list.iter().flat_map(|list| list.notes.clone()).collect();
    for peer in &attempt.peers {
        let name = addresses.get(usize::from(peer.peer)).map(ToString::to_string).unwrap_or_default();
        if let Some(error) = &peer.error {
            problems.push(format!("{name}: {error}"));
        }
    }
    let state = if problems.is_empty() && attempt.list.is_some() { SourceState::Active } else { SourceState::Degraded };
    (state, problems.join("; "))
}

#[cfg(test)]
mod tests;
