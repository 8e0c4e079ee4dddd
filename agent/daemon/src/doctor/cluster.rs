//! PD and every Store, asked once as the agent asks them.

use super::Check;
use crate::config::{Cluster, Config, show_duration};
use futures_util::{StreamExt as _, stream};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use storewatch_core::{
    id::HostPort,
    ping::{Phases, PingOutcome},
    time::short,
};
use storewatch_hugegraph::{
    call::Answer,
    connect::Connection,
    fault::{Fault, Phase},
    pd::{HEALTH_CHECK, PdPeers},
    resolve::Resolver,
    store::StorePing,
};
use storewatch_proto::health::{HealthCheckRequest, HealthCheckResponse};
use tokio::time::Instant;

/// Names are given at least this long: resolvers try again after seconds.
const DNS_BUDGET: Duration = Duration::from_secs(2);

/// Calls at one time.
const AT_ONCE: usize = 16;

/// Stores that are asked.
const MOST_STORES: usize = 64;

const PD_LOST: &str = "this peer's part in the list of stores";
const LIST_LOST: &str = "stores that the configuration does not name, until PD gives its list";
const STORE_LOST: &str = "this store: pods may still reach it, this node does not";

/// No configuration, so there is nobody to ask.
pub(super) fn unknown() -> Check {
    Check::degraded(
        "PD and stores",
        "not asked: no configuration is given",
        "whether this node reaches its storage",
        "storewatch doctor --config FILE",
    )
}

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    for cluster in &config.clusters {
        let prefix = if config.clusters.len() > 1 { format!("{}: ", cluster.name) } else { String::new() };
        let mut of_cluster = ask(cluster, config.ping.timeout).await;
        for check in &mut of_cluster {
            check.name.insert_str(0, &prefix);
        }
        checks.extend(of_cluster);
    }
    checks
}

async fn ask(cluster: &Cluster, timeout: Duration) -> Vec<Check> {
    let resolver = Resolver::default();
    let mut checks = Vec::new();
    let peers: Vec<_> = stream::iter(&cluster.pd_peers)
        .map(|peer| async {
            let found = resolve(&resolver, peer).await;
            let check = ask_peer(peer, &found, timeout).await;
            (check, found)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut addresses = BTreeMap::new();
    for (position, (check, found)) in peers.into_iter().enumerate() {
        checks.push(check);
        addresses.insert(position, found.map(|found| found.addresses));
    }
    let mut stores: Vec<HostPort> = cluster.stores.clone();
    if !cluster.pd_peers.is_empty() {
        let (check, listed) = list(cluster, &addresses, timeout).await;
        checks.push(check);
        let known: Vec<_> = stores.iter().map(HostPort::normal).collect();
        stores.extend(listed.into_iter().filter(|store| !known.contains(&store.normal())));
    }
    if stores.is_empty() {
        checks.push(Check::degraded(
            "stores",
            "none is known",
            "the node's own pings: every verdict is Unknown or rests on what pods receive",
            "PD that lists its stores, or the stores in the configuration",
        ));
    }
    let left_out = stores.len().saturating_sub(MOST_STORES);
    let asked = stream::iter(stores.iter().take(MOST_STORES)).map(|store| ask_store(&resolver, store, timeout));
    checks.extend(asked.buffered(AT_ONCE).collect::<Vec<_>>().await);
    if left_out > 0 {
        checks.push(Check::ok("stores", format!("{left_out} more were not asked")));
    }
    checks
}

/// What a name gave.
#[derive(Clone, Debug)]
struct Found {
    addresses: Vec<SocketAddr>,
    took: Duration,
}

async fn resolve(resolver: &Resolver, target: &HostPort) -> Result<Found, String> {
    let lookup = resolver.look_up(&target.host, DNS_BUDGET).await;
    let took = lookup.took;
    let addresses = lookup.into_addresses()?.into_iter().map(|ip| SocketAddr::new(ip, target.port)).collect();
    Ok(Found { addresses, took })
}

/// `resolves to 10.0.0.1 in 2ms, ` for a name, nothing for an address.
fn resolved(target: &HostPort, found: &Found) -> String {
    if target.host.parse::<IpAddr>().is_ok() {
        return String::new();
    }
    let addresses: Vec<_> = found.addresses.iter().take(3).map(|address| address.ip().to_string()).collect();
    format!("resolves to {} in {}, ", addresses.join(" and "), short(found.took))
}

/// The time of each phase that was reached.
fn timed(phases: Phases) -> String {
    let Phases { dns: _, connect, http2, rpc } = phases;
    let all = [("connects", connect), ("speaks HTTP/2", http2), ("answers", rpc)];
    let told: Vec<_> =
        all.into_iter().filter_map(|(words, took)| Some(format!("{words} in {}", short(took?)))).collect();
    told.join(", ")
}

/// The same of a call that failed: its last phase is the one that did.
fn failed(phases: Phases, detail: &str) -> String {
    let Phases { dns: _, connect, http2, rpc } = phases;
    let (reached, last) = match (connect, http2, rpc) {
        (_, _, Some(took)) => (Phases { rpc: None, ..phases }, Some(("the call", took))),
        (_, Some(took), None) => (Phases { http2: None, ..phases }, Some(("HTTP/2", took))),
        (Some(took), None, None) => (Phases::default(), Some(("connecting", took))),
        (None, None, None) => (phases, None),
    };
    let reached = timed(reached);
    let comma = if reached.is_empty() { "" } else { ", but " };
    let after = last.map_or_else(String::new, |(what, took)| format!("{what} failed after {}: ", short(took)));
    format!("{reached}{comma}{after}{detail}")
}

async fn ask_peer(peer: &HostPort, found: &Result<Found, String>, timeout: Duration) -> Check {
    let name = format!("PD {peer}");
    let found = match found {
        Ok(found) => found,
        Err(reason) => return Check::degraded(name, format!("does not resolve: {reason}"), PD_LOST, names(peer)),
    };
    let deadline = Instant::now() + timeout;
    let mut last = Fault::Unreachable("no address".to_owned());
    for remote in &found.addresses {
        let mut phases = Phases::default();
        match Connection::open(*remote, peer, deadline, None, &mut phases).await {
            Ok(connection) => {
                let begin = Instant::now();
                let question = HealthCheckRequest::default();
                let answer = connection.unary::<_, HealthCheckResponse>(HEALTH_CHECK, &question, deadline).await;
                phases.rpc = Some(begin.elapsed());
                let words = format!("{}{}", resolved(peer, found), timed(phases));
                return match answer {
                    Ok(Answer::Message(_)) => Check::ok(name, words),
                    // A refusal is an answer of its process, too.
                    Ok(Answer::Status { code, message, .. }) => {
                        Check::ok(name, format!("{words} (health: {code:?} {message})"))
                    }
                    Err(fault) => {
                        Check::degraded(name, format!("{words}, but: {fault}"), PD_LOST, way(&fault, peer, timeout))
                    }
                };
            }
            Err(fault) => last = fault,
        }
    }
    Check::degraded(name, format!("{}{last}", resolved(peer, found)), PD_LOST, way(&last, peer, timeout))
}

async fn list(
    cluster: &Cluster,
    addresses: &BTreeMap<usize, Result<Vec<SocketAddr>, String>>,
    timeout: Duration,
) -> (Check, Vec<HostPort>) {
    let mut peers = PdPeers::new(cluster.pd_peers.clone());
    let find = |position: usize| {
        let known = addresses.get(&position).cloned();
        async move { known.unwrap_or_else(|| Err("no such peer".to_owned())).map_err(Fault::Unreachable) }
    };
    let begin = Instant::now();
    let attempt = peers.attempt(find, timeout, |_| {}).await;
    let took = begin.elapsed();
    let refused = attempt.peers.iter().any(|peer| peer.auth_refused);
    let alive = attempt.peers.iter().any(|peer| peer.alive);
    let errors: Vec<_> = attempt.peers.iter().filter_map(|peer| peer.error.as_deref()).collect();
    match attempt.list {
        Some(list) => {
            let mut words = format!("{} stores in {}", list.stores.len(), short(took));
            for note in &list.notes {
                words.push_str(&format!("; {note}"));
            }
            let stores = list.stores.into_iter().filter(|store| store.state.pinged()).map(|store| store.address);
            (Check::ok("PD list", words), stores.collect())
        }
        None => {
            let how = match (refused, alive) {
                (true, _) => "the stores in the configuration (key stores), or PD that answers this node",
                (_, true) => "a leader: a majority of PD's peers must reach each other",
                _ => "a PD peer that answers",
            };
            (Check::degraded("PD list", format!("none: {}", errors.join("; ")), LIST_LOST, how), Vec::new())
        }
    }
}

async fn ask_store(resolver: &Resolver, store: &HostPort, timeout: Duration) -> Check {
    let name = format!("store {store}");
    let found = match resolve(resolver, store).await {
        Ok(found) => found,
        Err(reason) => return Check::degraded(name, format!("does not resolve: {reason}"), STORE_LOST, names(store)),
    };
    let identity = store.host.parse::<IpAddr>().is_err().then(|| store.to_string());
    let Some(remote) = found.addresses.first().copied() else {
        return Check::degraded(name, "no address", STORE_LOST, names(store));
    };
    let deadline = Instant::now() + timeout;
    let ping = StorePing { remote, authority: store, identity: identity.as_deref(), deadline };
    let answer = ping.send(None, None).await;
    let words = format!("{}{}", resolved(store, &found), timed(answer.phases));
    let detail = answer.detail.unwrap_or_default();
    match answer.outcome {
        PingOutcome::Serving => Check::ok(name, words),
        PingOutcome::NotAllowed => Check::ok(name, format!("{words} (it lives; the ping is not allowed: {detail})")),
        outcome => {
            let how = match outcome {
                PingOutcome::Refused => "the store's process: nobody listens there".to_owned(),
                PingOutcome::Unreachable => "a way from this node to the store".to_owned(),
                PingOutcome::Deadline if answer.phases.http2.is_some() => {
                    format!("a store that answers within ping.timeout ({})", show_duration(timeout))
                }
                PingOutcome::Deadline => {
                    "a firewall or network policy that lets this node reach the store's port".to_owned()
                }
                PingOutcome::Identity => "PD's list or DNS that names the right address".to_owned(),
                _ => "the store's own gRPC port, without a proxy or TLS between".to_owned(),
            };
            let words = match outcome {
                PingOutcome::Identity => format!("{words}, but: {detail}"),
                _ => format!("{}{}", resolved(store, &found), failed(answer.phases, &detail)),
            };
            Check::degraded(name, words, STORE_LOST, how)
        }
    }
}

fn names(target: &HostPort) -> String {
    format!("getent hosts {} must give an address on this node", target.host)
}

/// What to do about a fault, by where it happened.
fn way(fault: &Fault, peer: &HostPort, timeout: Duration) -> String {
    match fault {
        Fault::Refused => "PD's process: nobody listens there".into(),
        Fault::Deadline(Phase::Connect) | Fault::Unreachable(_) => {
            format!("a firewall or network policy that lets this node reach {peer}")
        }
        Fault::Local(_) => "this machine's limits of open files and local ports, and its own firewall".into(),
        Fault::Protocol(_) | Fault::GoAway(_) => {
            "PD's gRPC port (8686 by default), without a proxy or TLS between".into()
        }
        Fault::Deadline(_) => format!("PD that answers within ping.timeout ({})", show_duration(timeout)),
        Fault::Reset(_) | Fault::Closed(_) => "PD's log: it ends the connection".into(),
    }
}
