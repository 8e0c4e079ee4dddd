//! Names of targets and their addresses: looked up again and again, told as claims, and kept when DNS is silent.
//!
//! Look-ups run beside the pings and never delay one that has an address: a ping uses the last one known. Only the very
//! first ping of a name waits. A name is looked up every `dns_interval`, and at once (at most each second) after a ping to
//! it failed, because a replaced Store is found that way.

use crate::{
    observe::{EngineEnded, ObservationSender},
    source::clock::SourceClock,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use storewatch_core::{
    id::{HostPort, TargetId},
    observation::Observation,
    ping::NameReport,
    source::{SourceName, SourceReport, SourceState},
};
use storewatch_hugegraph::{
    address,
    resolve::{Lookup, Resolver},
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout_at},
};

/// Budget of one look-up, search list and retries included.
const BUDGET: Duration = Duration::from_secs(2);
/// Least distance between two look-ups of one name.
const SPACING: Duration = Duration::from_secs(1);
/// Look-ups at one time.
const AT_ONCE: usize = 16;
/// Failing names that are told in the source's detail.
const NAMED: usize = 3;

/// What looks names up: the resolver, or a script in tests.
pub trait LookUp: Send + Sync + 'static {
    /// Both address families of a name, within `budget`.
    fn look_up(&self, host: &str, budget: Duration) -> impl Future<Output = Lookup> + Send;
}

impl LookUp for Resolver {
    fn look_up(&self, host: &str, budget: Duration) -> impl Future<Output = Lookup> + Send {
        Resolver::look_up(self, host, budget)
    }
}

/// Why a target has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAddress {
    /// DNS did not answer; false: it answered that there is none.
    pub silent: bool,
    /// In words.
    pub detail: String,
}

/// The address to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// It.
    pub remote: SocketAddr,
    /// How long its look-up took, for the first who uses that look-up.
    pub dns: Option<Duration>,
}

#[derive(Debug, Default)]
struct Entry {
    targets: BTreeSet<TargetId>,
    /// The last addresses known, in the order of preference.
    known: Vec<IpAddr>,
    /// The last look-up failed, in words.
    failed: Option<NoAddress>,
    /// How long the last successful look-up took, until somebody has used it.
    took: Option<Duration>,
    /// When to look it up next.
    due: Option<Instant>,
    /// When it was looked up last.
    last: Option<Instant>,
    running: bool,
}

/// The table of names, shared by all who connect.
#[derive(Debug)]
pub struct Names {
    entries: Mutex<BTreeMap<Arc<str>, Entry>>,
    /// Something is due earlier than before.
    wake: Notify,
    /// Counts finished look-ups, for those who wait.
    finished: watch::Sender<u64>,
}

impl Default for Names {
    fn default() -> Self {
        Self { entries: Mutex::default(), wake: Notify::new(), finished: watch::Sender::new(0) }
    }
}

impl Names {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the targets for which `mine` is true by `targets`. Literal addresses need no entry.
    pub fn replace<'a>(
        &self,
        mine: impl Fn(&TargetId) -> bool,
        targets: impl IntoIterator<Item = (TargetId, &'a HostPort)>,
    ) {
        let mut entries = self.entries();
        for entry in entries.values_mut() {
            entry.targets.retain(|target| !mine(target));
        }
        for (target, address) in targets {
            if address::literal(&address.host).is_none() {
                let entry = entries.entry(Arc::clone(&address.host)).or_default();
                entry.targets.insert(target);
                entry.due.get_or_insert_with(Instant::now);
            }
        }
        entries.retain(|_, entry| !entry.targets.is_empty());
        drop(entries);
        self.wake.notify_one();
    }

    /// The address to connect to, waiting until `deadline` if none was ever known.
    ///
    /// # Errors
    /// [`NoAddress`] says why there is none.
    pub async fn find(&self, address: &HostPort, deadline: Instant) -> Result<Found, NoAddress> {
        let all = self.find_all(address, deadline).await?;
        let dns = self.entries().get_mut(&address.host).and_then(|entry| entry.took.take());
        all.first()
            .map(|remote| Found { remote: *remote, dns })
            .ok_or_else(|| NoAddress { silent: false, detail: "the name has no address".to_owned() })
    }

    /// All addresses to try, the preferred one first, waiting until `deadline` if none was ever known.
    ///
    /// # Errors
    /// [`NoAddress`] says why there is none.
    pub async fn find_all(&self, address: &HostPort, deadline: Instant) -> Result<Vec<SocketAddr>, NoAddress> {
        if let Some(ip) = address::literal(&address.host) {
            return Ok(vec![SocketAddr::new(ip, address.port)]);
        }
        let mut finished = self.finished.subscribe();
        loop {
            finished.mark_unchanged();
            if let Some(result) = self.settled(address) {
                return result;
            }
            // The sender lives as long as this.
            if timeout_at(deadline, finished.changed()).await.is_err() {
                return Err(NoAddress { silent: true, detail: "no answer from DNS in time".to_owned() });
            }
        }
    }

    /// What is known now; `None` while the first look-up is still to come.
    fn settled(&self, address: &HostPort) -> Option<Result<Vec<SocketAddr>, NoAddress>> {
        let entries = self.entries();
        let Some(entry) = entries.get(&address.host) else {
            return Some(Err(NoAddress { silent: false, detail: "the name is not watched".to_owned() }));
        };
        if !entry.known.is_empty() {
            return Some(Ok(entry.known.iter().map(|ip| SocketAddr::new(*ip, address.port)).collect()));
        }
        if entry.running {
            return None;
        }
        entry.failed.clone().map(Err)
    }

    /// A ping to this address failed: look the name up again soon, and prefer another address of it if there is one.
    pub fn failed(&self, address: &HostPort, ip: Option<IpAddr>) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&address.host) else { return };
        if ip.is_some() && entry.known.first().copied() == ip && entry.known.len() > 1 {
            entry.known.rotate_left(1);
        }
        let soon = entry.last.map_or_else(Instant::now, |last| last + SPACING).max(Instant::now());
        if !entry.running && entry.due.is_none_or(|due| due > soon) {
            entry.due = Some(soon);
            drop(entries);
            self.wake.notify_one();
        }
    }

    /// Takes the names whose time has come, at most `room`; and when to look again.
    fn due(&self, now: Instant, room: usize) -> (Vec<Arc<str>>, Option<Instant>) {
        let mut entries = self.entries();
        let mut taken = Vec::new();
        for (host, entry) in entries.iter_mut() {
            if taken.len() < room && !entry.running && entry.due.is_some_and(|due| due <= now) {
                entry.running = true;
                taken.push(Arc::clone(host));
            }
        }
        let next = entries.values().filter(|entry| !entry.running).filter_map(|entry| entry.due).min();
        (taken, next)
    }

    /// Files a look-up; gives the targets whose name it is.
    fn file(&self, host: &str, lookup: &Lookup, next: Instant) -> Vec<TargetId> {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(host) else { return Vec::new() };
        let present = entry.known.first().copied();
        let fresh: Vec<IpAddr> = lookup.addresses().collect();
        if fresh.is_empty() {
            let detail = lookup.detail.clone().unwrap_or_else(|| "the name has no address".to_owned());
            entry.failed = Some(NoAddress { silent: !lookup.answered(), detail });
        } else {
            entry.known = fresh;
            // An address that is still right stays preferred.
            if let Some(position) = entry.known.iter().position(|ip| Some(*ip) == present) {
                entry.known.swap(0, position);
            }
            // One family may have answered while the other was silent.
            entry.failed = (!lookup.answered())
                .then(|| NoAddress { silent: true, detail: lookup.detail.clone().unwrap_or_default() });
            entry.took = Some(lookup.took);
        }
        entry.running = false;
        entry.last = Some(Instant::now());
        entry.due = Some(next);
        let targets = entry.targets.iter().copied().collect();
        drop(entries);
        self.finished.send_modify(|count| *count = count.wrapping_add(1));
        targets
    }

    /// How the source is: degraded while any name's last look-up failed.
    fn state(&self) -> (SourceState, String) {
        let entries = self.entries();
        if entries.is_empty() {
            return (
                SourceState::Absent,
                "there is no name to look up: every address known so far is given literally".to_owned(),
            );
        }
        let failing: Vec<_> = entries.iter().filter_map(|(host, entry)| Some((host, entry.failed.as_ref()?))).collect();
        if failing.is_empty() {
            return (SourceState::Active, String::new());
        }
        let mut detail: Vec<String> =
            failing.iter().take(NAMED).map(|(host, failed)| format!("{host}: {}", failed.detail)).collect();
        if failing.len() > NAMED {
            detail.push(format!("{} names in all", failing.len()));
        }
        (SourceState::Degraded, detail.join("; "))
    }

    /// Looks names up until the engine ends.
    ///
    /// # Errors
    /// [`EngineEnded`].
    pub async fn run(
        &self,
        resolver: &impl LookUp,
        interval: Duration,
        sender: &ObservationSender,
    ) -> Result<(), EngineEnded> {
        let clock = SourceClock::start();
        let mut running = FuturesUnordered::new();
        let mut told: Option<(SourceState, String)> = None;
        loop {
            let (due, next) = self.due(Instant::now(), AT_ONCE - running.len());
            for host in due {
                running.push(async move {
                    let lookup = resolver.look_up(&host, BUDGET).await;
                    (host, lookup)
                });
            }
            let (idle, room) = (running.is_empty(), running.len() < AT_ONCE);
            // Nothing to look up, or an answer just filed: the source's word is renewed.
            if told.is_none() && idle && next.is_none() {
                told = Some(self.tell(&clock, sender).await?);
            }
            tokio::select! {
                Some((host, lookup)) = running.next(), if !idle => {
                    let next = Instant::now() + interval.mul_f64(rand::random_range(0.9..=1.0));
                    let targets = self.file(&host, &lookup, next);
                    let at = clock.now();
                    for target in targets {
                        for (v6, answer) in [(false, &lookup.v4), (true, &lookup.v6)] {
                            let report = NameReport { target, at, v6, answer: answer.clone() };
                            sender.send(Observation::Name(report)).await?;
                        }
                    }
                    told = Some(self.tell(&clock, sender).await?);
                }
                // Without room there is nothing to wake for: the next end makes some.
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() && room => {}
                () = self.wake.notified() => {
                    let present = self.state();
                    if told.as_ref().is_some_and(|told| told.0 != present.0) && present.0 == SourceState::Absent {
                        told = Some(self.tell(&clock, sender).await?);
                    }
                }
            }
        }
    }

    async fn tell(
        &self,
        clock: &SourceClock,
        sender: &ObservationSender,
    ) -> Result<(SourceState, String), EngineEnded> {
        let (state, detail) = self.state();
        let report = SourceReport { source: SourceName::Dns, at: clock.now(), state, detail: detail.as_str().into() };
        sender.send(Observation::Source(report)).await?;
        Ok((state, detail))
    }
}

#[cfg(test)]
mod tests;
