//! Stores and PD.

use super::{Clocks, StoreId, fine_ms, pod::FindingDto};
use serde::Serialize;
use std::{net::IpAddr, time::Duration};
use storewatch_core::{
    id::TargetKey,
    snapshot::{ClusterView, LastPing, PdView, PeerView, Snapshot, StoreView},
};

#[derive(Debug, Serialize)]
pub(crate) struct StoreDto<'a> {
    cluster: &'a str,
    /// Null for one that PD has not listed.
    id: Option<StoreId>,
    /// As in metrics.
    label: String,
    /// As among people.
    name: &'a str,
    address: String,
    reported_state: Option<&'static str>,
    expected: bool,
    answering: Option<bool>,
    last_ping: Option<PingDto<'a>>,
    addresses: Vec<AddressDto<'a>>,
    findings: Vec<FindingDto<'a>>,
}

#[derive(Debug, Serialize)]
struct PingDto<'a> {
    outcome: &'static str,
    age_ms: u64,
    dns_ms: Option<f64>,
    connect_ms: Option<f64>,
    http2_ms: Option<f64>,
    rpc_ms: Option<f64>,
    detail: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct AddressDto<'a> {
    ip: IpAddr,
    from: String,
    to: Option<String>,
    source: &'a str,
    identity: Option<&'a str>,
    /// Sources that contradict those that claim it.
    #[serde(skip_serializing_if = "str::is_empty")]
    against: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<OccupantDto<'a>>,
}

/// The pod at an address.
#[derive(Debug, Serialize)]
struct OccupantDto<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    /// Null where the endpoint does not say.
    serving: Option<bool>,
    terminating: bool,
}

/// PD of all clusters: with several, `reachable` and `has_leader` hold only if they hold for each.
#[derive(Debug, Serialize)]
pub(crate) struct PdDto<'a> {
    reachable: Option<bool>,
    has_leader: Option<bool>,
    peers: Vec<PeerDto<'a>>,
    findings: Vec<FindingDto<'a>>,
}

#[derive(Debug, Serialize)]
struct PeerDto<'a> {
    cluster: &'a str,
    peer: u16,
    address: String,
    reachable: Option<bool>,
    last_error: Option<&'a str>,
}

/// Every Store of every cluster.
pub(crate) fn stores<'a>(snapshot: &'a Snapshot, clocks: &Clocks) -> Vec<StoreDto<'a>> {
    snapshot.clusters.iter().flat_map(|cluster| stores_of(cluster, clocks)).collect()
}

/// The Stores of one cluster.
pub(crate) fn stores_of<'a>(cluster: &'a ClusterView, clocks: &Clocks) -> Vec<StoreDto<'a>> {
    cluster.stores.iter().map(|store| StoreDto::new(&cluster.name, store, clocks)).collect()
}

impl<'a> StoreDto<'a> {
    fn new(cluster: &'a str, store: &'a StoreView, clocks: &Clocks) -> Self {
        Self {
            cluster,
            id: match store.target.key {
                TargetKey::Store(id) => Some(StoreId::Text(id)),
                TargetKey::Static(_) | TargetKey::Pd(_) => None,
            },
            label: store.target.key.to_string(),
            name: &store.name,
            address: store.address.to_string(),
            reported_state: store.reported.map(|state| state.as_str()),
            expected: store.expected,
            answering: store.answering,
            last_ping: store.last_ping.as_ref().map(|ping| PingDto::new(ping, clocks)),
            addresses: store
                .addresses
                .iter()
                .map(|address| AddressDto {
                    ip: address.ip,
                    from: clocks.date(address.from),
                    to: address.to.map(|to| clocks.date(to)),
                    source: &address.source,
                    identity: address.identity.as_deref(),
                    against: &address.against,
                    pod: address.occupant.as_ref().map(|occupant| OccupantDto {
                        namespace: &occupant.pod.namespace,
                        name: &occupant.pod.name,
                        uid: &occupant.uid.0,
                        serving: occupant.serving,
                        terminating: occupant.terminating,
                    }),
                })
                .collect(),
            findings: store.findings.iter().map(|finding| FindingDto::new(finding, clocks)).collect(),
        }
    }
}

impl<'a> PingDto<'a> {
    fn new(ping: &'a LastPing, clocks: &Clocks) -> Self {
        let ms = |phase: Option<Duration>| phase.map(fine_ms);
        Self {
            outcome: ping.outcome.as_str(),
            age_ms: clocks.age_ms(ping.at),
            dns_ms: ms(ping.phases.dns),
            connect_ms: ms(ping.phases.connect),
            http2_ms: ms(ping.phases.http2),
            rpc_ms: ms(ping.phases.rpc),
            detail: ping.detail.as_deref(),
        }
    }
}

impl<'a> PdDto<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, clocks: &Clocks) -> Self {
        let views = || snapshot.clusters.iter().map(|cluster| &cluster.pd);
        let peers = |cluster: &'a ClusterView| {
            cluster.pd.peers.iter().map(move |PeerView { peer, address, reachable, last_error }| PeerDto {
                cluster: &cluster.name,
                peer: *peer,
                address: address.to_string(),
                reachable: *reachable,
                last_error: last_error.as_deref(),
            })
        };
        Self {
            reachable: all(views().map(|pd: &PdView| pd.reachable)),
            has_leader: all(views().map(|pd: &PdView| pd.has_leader)),
            peers: snapshot.clusters.iter().flat_map(peers).collect(),
            findings: views().flat_map(|pd| &pd.findings).map(|finding| FindingDto::new(finding, clocks)).collect(),
        }
    }
}

/// False if any is, else unknown if any is.
fn all(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    answers.reduce(|a, b| match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (None, _) | (_, None) => None,
        (Some(true), Some(true)) => Some(true),
    })?
}
