//! What stands out about a pod's connections.

use super::{Assessment, Pod, STALE_CONTRAST, World};
use crate::{
    classify,
    cluster::Cluster,
    container::count_since,
    findings::{Draft, Said, TargetFacts},
    id::{Role, TargetKey},
    ownership::Owner,
    policy::StaleTransportAction,
    stale::{self},
    time::short,
    verdict::{Facts, FindingCode, Reason, Severity},
};
use std::collections::BTreeMap;

impl Pod {
    pub(super) fn stale(&mut self, cluster: &Cluster, world: &World<'_>, out: &mut Assessment) {
        let policy = world.policy;
        let mut facts = Vec::new();
        for container in self.containers.values_mut() {
            facts.extend(stale::evaluate(container, &cluster.ownership, world));
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
                let (target, named) = (fact.target, cluster.named(fact.target));
                let (word, present) = (cluster.node_word(target), cluster.present_address(target));
                let draft = Draft { client: fact.client(), ..draft };
                out.findings.push(fact.finding(&draft, policy, &named, &word, present));
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
                let established = remote.last_established.is_some_and(|at| at >= since) || remote.established > 0;
                if failed >= 2
                    && !established
                    && cluster.ownership.owner(*address, world.now) == Owner::Unknown
                    && !cluster.services.is_service(address.ip())
                    && cluster.resolved()
                    && cluster.is_store_port(address.port())
                {
                    let answers = count_since(&remote.answers, before, |()| true);
                    let last = remote.last_begun.max(remote.failed.back().map(|(at, _, _)| *at));
                    let ago =
                        last.map_or_else(String::new, |at| format!(", the last {} ago", short(world.now.since(at))));
                    let facts = Facts {
                        address: Some(*address),
                        attempts: Some(failed.saturating_add(answers)),
                        answers: Some(answers),
                        last_attempt: last,
                        ..Facts::default()
                    };
                    let said = Said::new(
                        FindingCode::UnknownStoreAddress,
                        Severity::Warning,
                        format!("this pod dials {address}, which no source claims and where nothing answers"),
                        format!(
                            "{failed} failed attempts within {}{ago}; this agent may be younger than the address's end",
                            short(2 * world.policy.window)
                        ),
                    );
                    out.findings.push(draft.finding(None, said.facts(facts)));
                }
            }
            for socket in container.sockets.live().filter(|socket| cluster.ownership.is_contested(socket.remote)) {
                let former = cluster.ownership.owner(socket.remote, socket.origin());
                if let (Owner::Former(target), Some(owner)) = (former, cluster.ownership.present_owner(socket.remote)) {
                    let named = cluster.named(target);
                    let facts = Facts {
                        address: Some(socket.remote),
                        left_at: cluster.ownership.tenure(target, socket.remote).and_then(|tenure| tenure.ended),
                        present: cluster.present_address(target),
                        ..Facts::default()
                    };
                    let said = Said::new(
                        FindingCode::IpReused,
                        Severity::Warning,
                        format!(
                            "a connection to {} was begun when it was that of {}; it is that of {} now",
                            socket.remote,
                            named.lasting,
                            cluster.named(owner).lasting
                        ),
                        format!(
                            "begun {} ago, before the address changed hands",
                            short(world.now.since(socket.origin()))
                        ),
                    );
                    out.findings.push(draft.finding(Some((target, &named)), said.facts(facts)));
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
            out.findings.extend(facts.findings(&draft, *target, cluster));
        }
        if !self.proxied.is_empty() {
            let addresses = match self.proxied.len() {
                1 => "one address is".into(),
                several => format!("{several} addresses are"),
            };
            let said = Said::new(
                FindingCode::AttemptsNotObservable,
                Severity::Info,
                "a proxy in this pod answers for the stores: what the application sees is not what the network does"
                    .into(),
                format!("{addresses} dialled by two containers of the pod"),
            );
            out.findings.push(draft.finding(None, said));
        }
        out.findings.extend(cluster.pd.findings());
    }
}
