//! The scene that most cases share.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use storewatch::{
    netns::{cgroup::Cgroup, topology::Topology},
    requests::Selected,
    source::kernel::Settings,
};
use storewatch_core::id::{CgroupId, NetnsId};
use storewatch_tests_kernel::{Actor, PREFIX, SOON, Watch, patience, port, ready, tally::Tally};
use tokio::task::LocalSet;

/// End of an expectation where it is a matter of time whether a segment was sent again.
const MAYBE_RETRANSMITTED: &str = ", retransmitted?";
const RETRANSMITTED: &str = ", retransmitted";

pub(crate) const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

/// A network, a pod on the client's side, a server, and the programs watching one port.
///
/// Fields are dropped in order: processes before what they live in.
pub(crate) struct Stage {
    pub(crate) client: Actor,
    pub(crate) server: Actor,
    pub(crate) watch: Watch,
    pub(crate) cgroup: Cgroup,
    pub(crate) topology: Topology,
    pub(crate) port: u16,
}

impl Stage {
    pub(crate) fn new() -> Result<Self> {
        Self::with(|settings| settings)
    }

    pub(crate) fn with(adjust: impl FnOnce(Settings) -> Settings) -> Result<Self> {
        ready()?;
        let port = port();
        let topology = Topology::create(PREFIX)?;
        let cgroup = Cgroup::create(&format!("{PREFIX}-{}-{port}/kubepods/burstable/podaaaa/c1", std::process::id()))?;
        let client = Actor::start(ACTOR, &topology.client, Some(&cgroup))?;
        let server = Actor::start(ACTOR, &topology.server, None)?;
        let watch = Watch::start(adjust(Settings {
            ports: vec![port],
            counter_interval: Duration::from_millis(100),
            ..Settings::default()
        }));
        watch.handle.select(&Selected {
            cgroups: vec![CgroupId(cgroup.id()?)],
            netns: vec![NetnsId(topology.client.inum()?)],
        })?;
        Ok(Self { topology, cgroup, client, server, watch, port })
    }

    pub(crate) fn netns(&self) -> Result<u32> {
        Ok(self.topology.client.inum()?)
    }

    /// Lets everything be told, and compares the whole: what `expected` does not name must not have been counted.
    pub(crate) async fn told(&mut self, expected: &str) -> Result<()> {
        self.watch.settle().await?;
        let netns = self.netns()?;
        let missed = self.watch.stats()?.programs.iter().map(|program| program.missed).sum();
        let mut told = Tally::of(&self.watch, netns).explained(missed).to_string();
        // An emulated processor may take longer to answer than the shortest time-out.
        let slow = patience(SOON) > SOON && !expected.ends_with(RETRANSMITTED);
        let certain = expected.strip_suffix(MAYBE_RETRANSMITTED).or(slow.then_some(expected));
        if certain.is_some()
            && let Some(rest) = told.strip_suffix(RETRANSMITTED)
        {
            told = rest.to_owned();
        }
        ensure!(told == certain.unwrap_or(expected), "told: {told}; expected: {expected}; {:#?}", self.watch.counts);
        Ok(())
    }

    /// Waits until that much was counted, then as [`Self::told`].
    pub(crate) async fn until_told(&mut self, limit: Duration, expected: &str) -> Result<()> {
        let netns = self.netns()?;
        let certain = expected.strip_suffix(MAYBE_RETRANSMITTED).unwrap_or(expected);
        let fits = |w: &Watch| Tally::of(w, netns).explained(u64::MAX).to_string().starts_with(certain);
        self.watch.until_in(limit, expected, fits).await?;
        self.told(expected).await
    }

    /// Everything that was told about the pod belongs to its cgroup, nothing was lost, nothing stays in the maps.
    pub(crate) async fn finish(mut self) -> Result<()> {
        self.watch.settle().await?;
        let cgroup = CgroupId(self.cgroup.id()?);
        let netns = self.netns()?;
        for event in self.watch.events_of(netns) {
            ensure!(event.owner.cgroup == Some(cgroup), "wrong cgroup in {event:?}, expected {cgroup:?}");
        }
        for ((owner, _, remote, _), _) in
            self.watch.counts.iter().filter(|((_, n, _, _), _)| *n == Some(NetnsId(netns)))
        {
            ensure!(*owner == Some(cgroup), "wrong cgroup in a counter to {remote}");
        }
        let stats = self.watch.stats()?;
        // A program that would interrupt itself is not run; that is told as a possible loss, even where nothing was missed.
        let missed: u64 = stats.programs.iter().map(|program| program.missed).sum();
        let told: u64 = self.watch.losses.iter().map(|loss| loss.lost).sum();
        ensure!(told <= missed, "losses: {:?}, of which {missed} are explained", self.watch.losses);
        ensure!(stats.sum(|k| k.lost + k.uncounted + k.untracked + k.overflowed + k.unattributed) == 0, "{stats:?}");
        let occupancy = self.watch.handle.occupancy().context("nothing is loaded")?;
        ensure!(occupancy.connecting == 0 && occupancy.established == 0, "left in the maps: {occupancy:?}");
        Ok(())
    }
}

pub(crate) fn run(test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, test())
}
