//! What stands out about a pod's connections.

use super::{Assessment, Pod, STALE_CONTRAST, World};
use crate::{
    classify,
    cluster::Cluster,
    container::count_since,
    findings::TargetFacts,
    id::{Role, TargetKey},
    ownership::Owner,
    policy::StaleTransportAction,
    stale::{self},
    verdict::{FindingCode, Reason, Remedy, Severity},
};
use std::collections::BTreeMap;

impl Pod {
    pub(super) fn stale(&mut self, cluster: &Cluster, world: &World<'_>, out: &mut Assessment) {
        let World { now, policy, sampled, .. } = *world;
        let mut facts = Vec::new();
        for container in self.containers.values_mut() {
            facts.extend(stale::evaluate(container, &cluster.ownership, policy, now, sampled));
        }
        let draft = self.draft(world);
        let mut confirmed = None;
        for fact in facts {
            if fact.suspicion() && fact.target.role() == Role::Store {
                // Whoever still serves there under the target's name would prove the sources wrong.
                out.contrasts.push((fact.address(), STALE_CONTRAST));
            }
            if fact.target.role() == Role::Store {
                if fact.suspicion() {
                    out.suspicions.insert(Reason::StaleTransport);
                }
                let first = fact.confirmed().filter(|at| confirmed.is_none_or(|(first, _)| *at < first));
                confirmed = first.map(|at| (at, fact.carried())).or(confirmed);
            }
            if fact.tells() {
                out.findings.push(fact.finding(&draft, policy));
            }
        }
        if let Some((since, carried)) = confirmed.filter(|_| policy.stale_transport == StaleTransportAction::NotReady) {
            // Whichever of the two took the pod out stays its reason while it holds.
            let reach_holds = out.leaves.is_some() && self.verdict.reason == Reason::PodCannotReachStores;
            if !reach_holds {
                out.leaves = Some((Reason::StaleTransport, since));
                out.carried = carried;
            }
        }
        self.strange_addresses(cluster, world, out);
    }

    /// Dials to addresses that nobody claims, and connections from before an address changed hands.
    pub(super) fn strange_addresses(&self, cluster: &Cluster, world: &World<'_>, out: &mut Assessment) {
        let draft = self.draft(world);
        let since = world.now - world.policy.window;
        // A client that backs off dials once in up to a window, so one alone keeps what two within two have shown.
        let before = since - world.policy.window;
        for container in self.containers.values() {
            for (address, remote) in &container.remotes {
                let failures =
                    |since| count_since(&remote.failed, since, |outcome| classify::counts_as_failure(*outcome));
                let failed = if failures(since) > 0 { failures(before) } else { 0 };
                let unclaimed = cluster.ownership.owner(*address, world.now) == Owner::Unknown;
                let established = remote.last_established.is_some_and(|at| at >= since) || remote.established > 0;
                if unclaimed
                    && !cluster.services.is_service(address.ip())
                    && failed >= 2
                    && !established
                    && cluster.resolved()
                    && cluster.is_store_port(address.port())
                {
                    out.findings.push(draft.finding(
                        FindingCode::UnknownStoreAddress,
                        "",
                        Severity::Warning,
                        format!("this pod dials {address}, which no source claims and where nothing answers"),
                        format!("{failed} failed attempts within {} s", 2 * world.policy.window.as_secs()),
                        Remedy {
                            now: format!("if a store had this address once: {}", draft.restart()),
                            prevent: "-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS; under a security manager Java 11 caches DNS \
                                      answers for ever"
                                .into(),
                        },
                    ));
                }
            }
            for socket in container.sockets.live().filter(|socket| cluster.ownership.is_contested(socket.remote)) {
                let former = cluster.ownership.owner(socket.remote, socket.origin());
                if let (Owner::Former(target), Some(owner)) = (former, cluster.ownership.present_owner(socket.remote)) {
                    out.findings.push(draft.finding(
                        FindingCode::IpReused,
                        &target.to_string(),
                        Severity::Warning,
                        format!(
                            "a connection to {} was begun when it was {target}'s; it is {owner}'s now",
                            socket.remote
                        ),
                        "the connection is older than the change".into(),
                        Remedy {
                            now: draft.restart(),
                            prevent:
                                "a finite DNS cache (-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS) and keep-alive".into(),
                        },
                    ));
                }
            }
        }
    }

    pub(super) fn connection_findings(&self, cluster: &Cluster, world: &World<'_>, out: &mut Assessment) {
        let World { now, policy, .. } = *world;
        let draft = self.draft(world);
        let mut facts: BTreeMap<TargetKey, TargetFacts> = BTreeMap::new();
        for (address, remote) in self.containers.values().flat_map(|container| &container.remotes) {
            if let Some(target) = cluster.ownership.present_owner(*address) {
                facts.entry(target).or_default().add(*address, remote, now, policy.window);
            }
        }
        for (target, facts) in &facts {
            out.findings.extend(facts.findings(&draft, *target, cluster.node_word(*target), now));
        }
        if !self.proxied.is_empty() {
            out.findings.push(draft.finding(
                FindingCode::AttemptsNotObservable,
                "",
                Severity::Info,
                "a proxy in this pod answers for the stores: what the application sees is not what the network does".into(),
                format!("{} addresses are dialled by two containers of the pod", self.proxied.len()),
                Remedy {
                    now: "nothing; verdicts rest on the node's own pings".into(),
                    prevent: "exclude the stores' port from the proxy's redirection".into(),
                },
            ));
        }
        out.findings.extend(cluster.pd.view().findings);
    }
}
