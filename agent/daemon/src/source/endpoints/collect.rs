//! From objects to what is behind each Service of the Stores and of PD.

use crate::{
    config::Kubernetes,
    kubernetes::{objects, watch::Objects},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};
use storewatch_core::{
    endpoints::{Endpoint, Occupant, Service},
    id::{PodRef, PodUid},
};

/// Addresses behind one Service that are kept; a cluster has tens of Stores.
const MAX_ENDPOINTS: usize = 1024;

/// What a selected pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Store,
    Pd,
}

/// What is kept of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    namespace: String,
    name: String,
    selector: BTreeMap<String, String>,
    addresses: Vec<IpAddr>,
}

/// What is kept of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    service: String,
    endpoints: Vec<Endpoint>,
}

/// What is kept of a Store's or PD's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetPod {
    ips: Vec<IpAddr>,
    occupant: Occupant,
}

pub(super) fn service(service: objects::Service) -> Option<Seen> {
    let spec = service.spec;
    // A headless one has the text `None`, one by name (ExternalName) nothing.
    let addresses: BTreeSet<IpAddr> =
        spec.cluster_ip.iter().chain(&spec.cluster_ips).filter_map(|text| text.parse().ok()).collect();
    Some(Seen {
        namespace: service.metadata.namespace?,
        name: service.metadata.name?,
        selector: spec.selector,
        addresses: addresses.into_iter().collect(),
    })
}

pub(super) fn slice(slice: objects::EndpointSlice) -> Option<Slice> {
    let service = slice.metadata.labels?.remove("kubernetes.io/service-name")?;
    let endpoints = slice.endpoints.into_iter().flat_map(|endpoint| {
        let objects::Endpoint { addresses, conditions, hostname, target_ref } = endpoint;
        let target = target_ref.filter(|target| target.kind.as_deref() == Some("Pod"));
        let occupant = target.and_then(|target| {
            Some(Occupant {
                pod: PodRef { namespace: target.namespace?.into(), name: target.name?.into() },
                uid: PodUid(target.uid?.into()),
                serving: conditions.serving,
                terminating: conditions.terminating == Some(true),
            })
        });
        let hostname: Option<Arc<str>> = hostname.map(Into::into);
        let ips = addresses.into_iter().filter_map(|text| text.parse().ok());
        ips.map(move |ip| Endpoint { hostname: hostname.clone(), ip, occupant: occupant.clone() })
    });
    Some(Slice { service, endpoints: endpoints.take(MAX_ENDPOINTS).collect() })
}

pub(super) fn pod(pod: objects::Pod) -> Option<TargetPod> {
    if matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let ips: BTreeSet<IpAddr> = pod
        .status
        .pod_ip
        .iter()
        .chain(pod.status.pod_ips.iter().map(|ip| &ip.ip))
        .filter_map(|text| text.parse().ok())
        .collect();
    Some(TargetPod {
        ips: ips.into_iter().collect(),
        occupant: Occupant {
            pod: PodRef { namespace: pod.metadata.namespace?.into(), name: pod.metadata.name?.into() },
            uid: PodUid(pod.metadata.uid?.into()),
            serving: pod.status.condition("Ready").map(|condition| condition.status == "True"),
            terminating: pod.metadata.deletion_timestamp.is_some(),
        },
    })
}

/// The Services that lead to Stores or PD: by their own selector, or because a selected pod is behind them. Pods that are
/// behind none stand under a Service without a name, for targets that go by an address.
pub(super) fn collect(
    settings: &Kubernetes,
    services: &Objects<Seen>,
    slices: &Objects<Slice>,
    pods: &[(Role, Objects<TargetPod>)],
) -> Vec<Service> {
    let pods = || pods.iter().flat_map(|(_, pods)| pods.values());
    let selected: BTreeSet<_> = pods().map(|pod| &pod.occupant.uid).collect();
    let bare = Service {
        host: "".into(),
        addresses: Vec::new(),
        endpoints: pods()
            .flat_map(|pod| {
                let endpoint = |ip: &IpAddr| Endpoint { hostname: None, ip: *ip, occupant: Some(pod.occupant.clone()) };
                pod.ips.iter().map(endpoint)
            })
            .take(MAX_ENDPOINTS)
            .collect(),
    };
    let named = services.values().filter_map(|service| {
        let of_service = slices
            .iter()
            .filter(|((namespace, _), slice)| *namespace == service.namespace && slice.service == service.name);
        let endpoints: Vec<_> =
            of_service.flat_map(|(_, slice)| &slice.endpoints).take(MAX_ENDPOINTS).cloned().collect();
        let by_selector = !service.selector.is_empty()
            && (settings.store_selector.matches(&service.selector) || settings.pd_selector.matches(&service.selector));
        let by_pods = || {
            let occupants = endpoints.iter().filter_map(|endpoint| endpoint.occupant.as_ref());
            occupants.map(|occupant| &occupant.uid).any(|uid| selected.contains(uid))
        };
        (by_selector || by_pods()).then(|| Service {
            host: format!("{}.{}.svc", service.name, service.namespace).into(),
            addresses: service.addresses.clone(),
            endpoints,
        })
    });
    std::iter::once(bare).chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Selector;

    fn set<K: serde::de::DeserializeOwned, T>(texts: &[&str], read: fn(K) -> Option<T>) -> Objects<T> {
        let each = texts.iter().enumerate().map(|(number, text)| {
            let read = read(serde_json::from_str(text).unwrap()).unwrap();
            (("graph".to_owned(), number.to_string()), Arc::new(read))
        });
        Arc::new(each.collect())
    }

    #[test]
    fn services_of_targets_and_what_is_behind_them() {
        let settings = Kubernetes {
            store_selector: Selector::parse("app=store").unwrap(),
            pd_selector: Selector::parse("app=pd").unwrap(),
            readiness_gate: false,
            events: false,
        };
        let services = set(
            &[
                r#"{"metadata":{"namespace":"graph","name":"store"},"spec":{"clusterIP":"None","clusterIPs":["None"],"selector":{"app":"store","x":"y"}}}"#,
                r#"{"metadata":{"namespace":"graph","name":"pd"},"spec":{"clusterIP":"10.96.0.7","clusterIPs":["10.96.0.7","fd00::7"],"selector":{"other":"label"}}}"#,
                r#"{"metadata":{"namespace":"graph","name":"web"},"spec":{"clusterIP":"10.96.0.8","selector":{"app":"web"}}}"#,
                r#"{"metadata":{"namespace":"graph","name":"external"}}"#,
            ],
            service,
        );
        let slices = set(
            &[
                r#"{"metadata":{"namespace":"graph","labels":{"kubernetes.io/service-name":"store"}},"endpoints":[
                    {"addresses":["10.0.0.1"],"hostname":"store-0","conditions":{"ready":true,"serving":false,"terminating":true},
                     "targetRef":{"kind":"Pod","namespace":"graph","name":"store-0","uid":"a"}},
                    {"addresses":["10.0.0.2","nonsense"],"conditions":{}}]}"#,
                r#"{"metadata":{"namespace":"graph","labels":{"kubernetes.io/service-name":"pd"}},"endpoints":[
                    {"addresses":["10.0.0.9"],"targetRef":{"kind":"Pod","namespace":"graph","name":"pd-0","uid":"p"}}]}"#,
            ],
            slice,
        );
        let pods = set(
            &[
                r#"{"metadata":{"namespace":"graph","name":"pd-0","uid":"p"},"status":{"podIP":"10.0.0.9","phase":"Running",
                "conditions":[{"type":"Ready","status":"True"}]}}"#,
            ],
            pod,
        );
        let found = collect(&settings, &services, &slices, &[(Role::Pd, pods)]);
        let hosts: Vec<_> = found.iter().map(|service| &*service.host).collect();
        assert_eq!(hosts, ["", "store.graph.svc", "pd.graph.svc"], "web and external lead to no target");
        let [bare, store, pd] = found.as_slice() else { panic!() };
        assert_eq!(bare.endpoints[0].occupant.as_ref().unwrap().serving, Some(true));
        assert_eq!((store.addresses.len(), store.endpoints.len()), (0, 2));
        let leaving = store.endpoints[0].occupant.as_ref().unwrap();
        assert_eq!((leaving.serving, leaving.terminating, &*leaving.uid.0), (Some(false), true, "a"));
        assert_eq!(store.endpoints[0].hostname.as_deref(), Some("store-0"));
        assert_eq!((pd.addresses.len(), pd.endpoints.len()), (2, 1));
    }

    #[test]
    fn objects_without_fields_say_nothing() {
        assert!(slice(serde_json::from_str("{}").unwrap()).is_none());
        assert!(service(serde_json::from_str("{}").unwrap()).is_none());
        assert!(pod(serde_json::from_str(r#"{"status":{"podIP":"10.0.0.1"}}"#).unwrap()).is_none());
        let empty = r#"{"metadata":{"labels":{"kubernetes.io/service-name":"s"}},"endpoints":[{}]}"#;
        assert!(slice(serde_json::from_str(empty).unwrap()).unwrap().endpoints.is_empty());
    }
}
