//! What the cluster's control plane says about the targets' names: one more source of claims, which also knows the pods.
//!
//! A name is `POD.SERVICE.NAMESPACE.svc` or `SERVICE.NAMESPACE.svc`, in full or cut off behind any label; a short name
//! that two Services fit is nobody's. An endpoint that does not serve keeps its claim: being down ends nothing. One that
//! terminates gives way to another of the same name that does not.

use super::Cluster;
use crate::{
    endpoints::{Endpoint, EndpointsReport, Occupant, Service},
    id::TargetKey,
    ownership::{ClaimSource, MAX_TENURES},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

/// What is kept of the last report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    pub(super) addresses: BTreeSet<IpAddr>,
    /// The pod at each target's address; kept when it has gone, as long as the address is remembered.
    pub(super) occupants: BTreeMap<(TargetKey, SocketAddr), Occupant>,
}

impl Services {
    /// It is a Service's own address and no process's.
    pub(crate) fn is_service(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip)
    }

    /// The pod at an address of a target, or the last one that was.
    pub(crate) fn occupant(&self, target: TargetKey, address: SocketAddr) -> Option<&Occupant> {
        self.occupants.get(&(target, address))
    }
}

impl Cluster {
    /// Files what the control plane says.
    pub(crate) fn endpoints(&mut self, report: &EndpointsReport) {
        self.services.addresses = report.services.iter().flat_map(|service| &service.addresses).copied().collect();
        let peers = (0..).zip(&self.settings.pd_peers).map(|(at, address)| (TargetKey::Pd(at), address.clone()));
        let stores = self.stores.iter().map(|(key, store)| (*key, store.address.clone()));
        let targets: Vec<_> = stores.chain(peers).collect();
        for (target, address) in targets {
            let Some(found) = find(&address.normal().0, &report.services) else { continue };
            let at_port = |ip: IpAddr| SocketAddr::new(ip, address.port);
            let own = found.service.into_iter().flat_map(|service| service.addresses.iter().copied());
            let claimed: BTreeSet<_> =
                found.endpoints.iter().map(|endpoint| endpoint.ip).chain(own).map(at_port).collect();
            let claimed: Vec<_> = claimed.into_iter().collect();
            self.ownership.answer(ClaimSource::Endpoints, target, None, &claimed, report.at);
            for endpoint in found.endpoints {
                if let Some(occupant) = &endpoint.occupant {
                    self.services.occupants.insert((target, at_port(endpoint.ip)), occupant.clone());
                }
            }
        }
        let ownership = &self.ownership;
        self.services.occupants.retain(|(target, address), _| ownership.tenure(*target, *address).is_some());
        debug_assert!(self.services.occupants.len() <= MAX_TENURES, "there is one for each tenure at most");
    }
}

/// What a name leads to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found<'a> {
    /// The Service itself, if the name is its own.
    service: Option<&'a Service>,
    endpoints: Vec<&'a Endpoint>,
}

/// What `name` leads to; `None` when no Service answers for it, or when several could.
fn find<'a>(name: &str, services: &'a [Service]) -> Option<Found<'a>> {
    if let Ok(ip) = name.parse::<IpAddr>() {
        // A literal address is claimed by whoever gave it; here it only learns its pod.
        let at = |service: &'a Service| service.endpoints.iter().filter(move |endpoint| endpoint.ip == ip);
        let endpoints: Vec<_> = services.iter().flat_map(at).collect();
        return (!endpoints.is_empty()).then_some(Found { service: None, endpoints });
    }
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    let own: Vec<_> = services.iter().filter(|service| fits(name, &service.host)).collect();
    let of_pod: Vec<_> = services.iter().filter(|service| !rest.is_empty() && fits(rest, &service.host)).collect();
    match (own.as_slice(), of_pod.as_slice()) {
        ([service], []) => Some(Found { service: Some(*service), endpoints: service.endpoints.iter().collect() }),
        ([], [service]) => {
            let named = service.endpoints.iter().filter(|endpoint| endpoint.hostname.as_deref() == Some(first));
            let mut endpoints: Vec<_> = named.collect();
            let leaves = |endpoint: &Endpoint| endpoint.occupant.as_ref().is_some_and(|pod| pod.terminating);
            if endpoints.iter().any(|endpoint| !leaves(endpoint)) {
                endpoints.retain(|endpoint| !leaves(endpoint));
            }
            Some(Found { service: None, endpoints })
        }
        _ => None,
    }
}

/// `name` is `host` or a beginning of it that ends with a label.
fn fits(name: &str, host: &str) -> bool {
    host.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{PodRef, PodUid};

    fn endpoint(hostname: &str, ip: &str, terminating: bool) -> Endpoint {
        let pod = PodRef { namespace: "graph".into(), name: hostname.into() };
        Endpoint {
            hostname: (!hostname.is_empty()).then(|| hostname.into()),
            ip: ip.parse().unwrap(),
            occupant: Some(Occupant { pod, uid: PodUid(ip.into()), serving: Some(false), terminating }),
        }
    }

    fn service(host: &str, address: Option<&str>, endpoints: Vec<Endpoint>) -> Service {
        Service { host: host.into(), addresses: address.into_iter().map(|ip| ip.parse().unwrap()).collect(), endpoints }
    }

    /// The addresses that a name leads to, and `*` for the Service's own.
    fn led(name: &str, services: &[Service]) -> String {
        let Some(found) = find(name, services) else { return "nobody".into() };
        let mut ips: Vec<_> = found.endpoints.iter().map(|endpoint| endpoint.ip.to_string()).collect();
        ips.extend(found.service.map(|_| "*".into()));
        ips.join(" ")
    }

    #[test]
    fn names_lead_to_the_pods_behind_them() {
        let services = [
            service(
                "store.graph.svc",
                None,
                vec![
                    endpoint("store-0", "10.0.0.1", true),
                    endpoint("store-0", "10.0.0.2", false),
                    endpoint("store-1", "10.0.0.3", true),
                ],
            ),
            service("pd.graph.svc", Some("10.96.0.7"), vec![endpoint("", "10.0.0.9", false)]),
            service("pd.other.svc", None, vec![endpoint("pd-0", "10.0.1.9", false)]),
        ];
        for (name, leads) in [
            ("store-0.store.graph.svc", "10.0.0.2"),
            ("store-1.store.graph.svc", "10.0.0.3"),
            ("store-1.store", "10.0.0.3"),
            ("store-9.store.graph.svc", ""),
            ("pd.graph.svc", "10.0.0.9 *"),
            ("pd.graph", "10.0.0.9 *"),
            ("pd", "nobody"),
            ("pd-0.pd", "nobody"),
            ("pd-0.pd.other", "10.0.1.9"),
            ("elsewhere.example.com", "nobody"),
            ("sto", "nobody"),
            ("10.0.0.3", "10.0.0.3"),
            ("10.0.0.77", "nobody"),
        ] {
            assert_eq!(led(name, &services), leads, "{name}");
        }
    }
}
