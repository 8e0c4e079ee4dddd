//! From pods that someone lists to records with their places in the kernel.

use super::{
    file::PodEntry,
    kubepods::Kubepods,
    locate::{Host, Locator},
};
use crate::kubernetes::manifest::Seen;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};
use storewatch_core::{
    id::{ClusterId, PodUid},
    pod::PodRecord,
};

/// How long a running pod may be without a cgroup before it is told: its list can be ahead of the look.
const PATIENCE: Duration = Duration::from_secs(5);

/// Finds the places of listed pods.
#[derive(Debug)]
pub(super) struct Placing {
    kubepods: Kubepods,
    locator: Locator,
    /// Since when a running pod's cgroup is missed.
    missed: HashMap<PodUid, Instant>,
}

impl Placing {
    pub(super) fn new(host: Host) -> Self {
        Self { kubepods: Kubepods::new(host.clone()), locator: Locator::new(host), missed: HashMap::new() }
    }

    /// One record per pod, also for one that cannot be found: it is still judged by the node's pings.
    pub(super) fn place(&mut self, list: &[(ClusterId, Arc<Seen>)], problems: &mut Vec<String>) -> Vec<Arc<PodRecord>> {
        let entries: Vec<_> = list.iter().map(|(cluster, seen)| self.entry(*cluster, seen, problems)).collect();
        let present: BTreeSet<_> = list.iter().map(|(_, seen)| &seen.uid).collect();
        self.missed.retain(|uid, _| present.contains(uid));
        self.locator.locate(&entries, problems)
    }

    fn entry(&mut self, cluster: ClusterId, seen: &Seen, problems: &mut Vec<String>) -> PodEntry {
        let cgroup = self.kubepods.directory(&seen.cgroup_uid);
        if cgroup.is_some() || !seen.running {
            self.missed.remove(&seen.uid);
        } else if self.missed.entry(seen.uid.clone()).or_insert_with(Instant::now).elapsed() >= PATIENCE {
            problems.push(format!(
                "{}: no cgroup of the kubelet's has its uid, so its connections cannot be told apart; is the host's cgroup \
                 v2 hierarchy mounted here?",
                seen.pod
            ));
        }
        let netns = cgroup.as_deref().filter(|_| !seen.host_network).and_then(|path| self.kubepods.netns(path));
        PodEntry {
            pod: seen.pod.clone(),
            uid: seen.uid.clone(),
            cluster,
            ips: seen.ips.clone(),
            workload: seen.workload.clone(),
            netns,
            cgroup,
            pid: None,
            host_network: seen.host_network,
            wiring: seen.wiring.clone(),
            searched: true,
        }
    }
}
