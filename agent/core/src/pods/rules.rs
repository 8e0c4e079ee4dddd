//! The rules for one pod, before the guard.

use super::{Assessment, CONTRAST, INVENTORY_WAIT, LATCHED_SAMPLE, Pod, ReachLatch, World};
use crate::{
    cluster::Cluster,
    connection::TcpState,
    container::{STUCK_AFTER, STUCK_AGAIN},
    dialers,
    findings::{Draft, Said},
    id::Role,
    rounds::RoundState,
    sockets::{Received, Socket},
    time::{MonoTime, short},
    verdict::{FindingCode, Reason, Severity, Status},
};
use std::collections::BTreeSet;

impl Pod {
    /// Applies the rules to this pod.
    pub(crate) fn assess(&mut self, cluster: &Cluster, world: &World<'_>) -> Assessment {
        let World { now, policy, .. } = *world;
        let since = now - policy.window;
        for container in self.containers.values_mut() {
            container.bracket(&cluster.address_pings, now, policy.window);
        }
        self.find_proxies(since);
        let mut out = Assessment {
            base: Reason::NoEvidenceYet,
            leaves: None,
            suspicions: BTreeSet::new(),
            findings: Vec::new(),
            live: true,
            waits: false,
            carried: false,
            evidence_at: None,
            wake: None,
            contrasts: Vec::new(),
            sample_at: None,
        };
        let received = self.received(cluster);
        self.base(cluster, world, received, &mut out);
        self.reach(cluster, world, received, &mut out);
        self.stale(cluster, world, &mut out);
        self.connection_findings(cluster, world, &mut out);
        out
    }

    /// Payload from any Store that owns its address at present. While no list is known, the Stores' port tells a Store.
    pub(super) fn received(&self, cluster: &Cluster) -> Received {
        let mut all = Received::default();
        for (address, remote) in self.containers.values().flat_map(|container| &container.remotes) {
            if cluster.is_store(*address) {
                all.merge(remote.received);
            }
        }
        all
    }

    /// Two containers of one pod that dial the same address: one of them is a proxy for the other.
    pub(super) fn find_proxies(&mut self, since: MonoTime) {
        self.proxied.clear();
        if self.containers.len() < 2 {
            return;
        }
        let mut seen = BTreeSet::new();
        for (address, remote) in self.containers.values().flat_map(|container| &container.remotes) {
            let active = remote.established > 0 || remote.last_activity.is_some_and(|at| at >= since);
            if active && !seen.insert(*address) {
                self.proxied.insert(*address);
            }
        }
    }

    pub(super) fn base(&self, cluster: &Cluster, world: &World<'_>, received: Received, out: &mut Assessment) {
        let World { now, policy, .. } = *world;
        let node = cluster.live_reason();
        // What came before a restart keeps a verdict, and makes none.
        let data_at = received.latest.filter(|at| now.since(*at) <= policy.window && Some(*at) > world.watched_since);
        out.evidence_at = cluster.evidence_at.max(received.latest);
        out.base = match node {
            Reason::NoStoreAnswers => self.no_store_answers(cluster, world, received, out),
            Reason::StoreAnswering | Reason::NoStoreRegistered => node,
            // A restart must not turn "answering" into "passive only" for the moment until the first ping.
            _ if self.restored && self.verdict.status == Status::Ready => Reason::NoEvidenceYet,
            _ if data_at.is_some() => Reason::PassiveOnly,
            _ if world.pods_absent && !self.listed => Reason::PodSourceAbsent,
            Reason::EvidenceExpired => Reason::EvidenceExpired,
            _ => Reason::NoEvidenceYet,
        };
        out.live = out.base.status() != Status::Unknown;
    }

    pub(super) fn no_store_answers(
        &self,
        cluster: &Cluster,
        world: &World<'_>,
        received: Received,
        out: &mut Assessment,
    ) -> Reason {
        let World { now, policy, .. } = *world;
        if cluster.never_proved() {
            return Reason::NoEvidenceYet;
        }
        let recent = received.latest.is_some_and(|at| now.since(at) <= 2 * policy.inventory_interval);
        let since_the_first_failure = received.earliest.is_some_and(|at| Some(at) >= cluster.rounds.first_failed);
        if recent && since_the_first_failure {
            let ago = |at: Option<MonoTime>| {
                at.map_or_else(|| "at an unknown time".into(), |at| format!("{} ago", short(now.since(at))))
            };
            let said = Said::new(
                FindingCode::AgentCannotReachStores,
                Severity::Warning,
                "this pod exchanges data with a store, but no store answers this node's own pings".into(),
                format!(
                    "data last arrived {}; the first round without an answer began {}",
                    ago(received.latest),
                    ago(cluster.rounds.first_failed)
                ),
            );
            out.findings.push(self.draft(world).finding(None, said));
            return Reason::PassiveOnly;
        }
        if let RoundState::Failing { began, ended } = cluster.rounds.state
            && self.verdict.reason != Reason::NoStoreAnswers
            && world.inventory
            && world.sampled.is_none_or(|at| at < began)
            && now < ended + INVENTORY_WAIT
        {
            out.wake = Some(ended + INVENTORY_WAIT);
            out.waits = true;
            return self.verdict.reason;
        }
        Reason::NoStoreAnswers
    }

    pub(super) fn reach(&mut self, cluster: &Cluster, world: &World<'_>, received: Received, out: &mut Assessment) {
        let World { now, policy, .. } = *world;
        let since = now - policy.window;
        let mut counted = 0;
        let mut containers = BTreeSet::new();
        let mut established = None;
        let mut last_activity = None;
        let mut stuck = false;
        let mut silent_flow = false;
        for (key, container) in &self.containers {
            for (address, remote) in &container.remotes {
                let Some(target) = cluster.ownership.present_owner(*address).filter(|key| key.role() == Role::Store)
                else {
                    continue;
                };
                if remote.wants_contrast() {
                    out.contrasts.push(((target, *address), CONTRAST));
                }
                last_activity = last_activity.max(remote.last_begun).max(remote.failed.back().map(|(at, _, _)| *at));
                if self.proxied.contains(address) {
                    continue;
                }
                established = established.max(remote.last_established);
                let attempts = remote.counted(since).count();
                if attempts > 0 {
                    counted += attempts;
                    containers.insert(*key);
                }
            }
            // Of thousands of sockets nearly all wait for nothing and have their bytes counted.
            let telling = |socket: &&Socket| socket.stuck_since.is_some() || socket.bytes_received.is_none();
            for socket in container.sockets.live().filter(telling) {
                if !cluster.is_store(socket.remote) {
                    continue;
                }
                stuck |= socket.stuck(now, STUCK_AFTER);
                // Without byte counts a connection that is not waiting for anything may well be in use.
                silent_flow |= socket.bytes_received.is_none()
                    && socket.state == TcpState::Established
                    && socket.stuck_since.is_none();
                if let Some(since) = socket.stuck_since.filter(|_| socket.retransmits > 0) {
                    let again = socket.stuck_counted.map(|at| at + STUCK_AGAIN);
                    let due = again.unwrap_or(since + STUCK_AFTER);
                    if world.sampled.is_none_or(|at| at < due) {
                        out.sample_at = Some(out.sample_at.map_or(due, |at| at.min(due)));
                    }
                }
            }
        }
        let proven_well = established.max(received.latest);
        if let Some(latch) = &mut self.reach {
            // A socket that is stuck is an attempt that goes on.
            latch.last_activity =
                if stuck { now } else { latch.last_activity.max(last_activity.unwrap_or(latch.since)) };
            latch.carried &= counted == 0;
            let quiet = now.since(latch.last_activity) >= policy.window;
            if quiet || proven_well.is_some_and(|at| at > latch.since) {
                self.reach = None;
            }
        } else if counted >= 2
            && cluster.live_reason() == Reason::StoreAnswering
            // What may have been missed, an answered dial or received data, must not count as not having been.
            && world.exact
            && world.sampled.is_some_and(|at| now.since(at) <= policy.window.max(2 * policy.inventory_interval))
            && !silent_flow
            && proven_well.is_none_or(|at| now.since(at) > policy.window)
        {
            let last_activity = last_activity.unwrap_or(now);
            self.reach = Some(ReachLatch { since: now, containers, last_activity, carried: false });
        }
        let failing = counted > 0 && proven_well.is_none_or(|at| now.since(at) > policy.window);
        if failing || self.reach.is_some() {
            out.suspicions.insert(Reason::PodCannotReachStores);
        }
        if let Some(latch) = &self.reach {
            // Its end is often data on a connection that was stuck, which only a sample shows.
            let due = world.sampled.map_or(now, |at| at + LATCHED_SAMPLE);
            out.sample_at = Some(out.sample_at.map_or(due, |at| at.min(due)));
            out.leaves = Some((Reason::PodCannotReachStores, latch.since));
            out.carried = latch.carried;
        }
    }

    pub(super) fn draft(&self, world: &World<'_>) -> Draft<'_> {
        let clients = self.containers.values().filter_map(|container| container.dialers.client());
        Draft { record: &self.record, client: dialers::best(clients), now: world.now, window: world.policy.window }
    }
}
