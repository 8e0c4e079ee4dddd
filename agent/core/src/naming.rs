//! How a target is called among people, and where they look at it.
//!
//! A label (a Store's id, `static-N`, `pd`) is stable and unique, and says nothing to whoever has to act. Its address
//! does: `store-1.store.graph.svc` is the pod `store-1` in the namespace `graph`.

use crate::id::{HostPort, Role, TargetKey};
use std::net::IpAddr;

/// A target, for sentences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The shortest name that is only its own.
    pub(crate) name: String,
    /// The same for sentences about addresses that change: without one.
    pub(crate) lasting: String,
    /// What dials it.
    pub(crate) address: String,
    place: Place,
}

/// What an address says about where the target runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// A pod behind a headless service.
    Pod { namespace: String, name: String },
    /// A service.
    Service { namespace: String, name: String },
    /// Anywhere else.
    Host,
}

impl Named {
    /// `others` are the addresses of all targets of the same role, this one's included.
    pub(crate) fn new<'a>(key: TargetKey, address: &HostPort, others: impl IntoIterator<Item = &'a HostPort>) -> Self {
        let literal = address.host.parse::<IpAddr>().is_ok();
        let first = first_label(address);
        let shared = others.into_iter().filter(|other| first_label(other) == first).count() > 1;
        let lasting = match (literal, key) {
            (true, TargetKey::Store(id)) => Some(format!("store {id}")),
            _ => None,
        };
        let name = match (literal, shared, key.role()) {
            (true, _, Role::Store) => format!("the store at {address}"),
            (true, _, Role::Pd) => format!("PD at {address}"),
            (false, true, _) => address.to_string(),
            (false, false, _) => first,
        };
        let (host, _) = address.normal();
        let labels: Vec<_> = host.split('.').collect();
        let place = match labels.as_slice() {
            [name, _, namespace, "svc"] => Place::Pod { namespace: (*namespace).into(), name: (*name).into() },
            [name, namespace, "svc"] => Place::Service { namespace: (*namespace).into(), name: (*name).into() },
            _ => Place::Host,
        };
        Self { lasting: lasting.unwrap_or_else(|| name.clone()), name, address: address.to_string(), place }
    }

    /// One that no list holds any more.
    pub(crate) fn unlisted(key: TargetKey) -> Self {
        let name = match key.role() {
            Role::Store => format!("store {key}"),
            Role::Pd => "PD".into(),
        };
        Self { address: name.clone(), lasting: name.clone(), name, place: Place::Host }
    }

    /// The namespace and the name of its pod, if its address tells.
    pub(crate) fn pod(&self) -> Option<(&str, &str)> {
        match &self.place {
            Place::Pod { namespace, name } => Some((namespace, name)),
            Place::Service { .. } | Place::Host => None,
        }
    }

    /// What shows how it is.
    pub(crate) fn look(&self) -> String {
        match &self.place {
            Place::Pod { namespace, name } => format!("kubectl describe pod -n {namespace} {name}"),
            Place::Service { namespace, name } => {
                format!("kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={name}")
            }
            Place::Host => format!("look at the process behind {}", self.address),
        }
    }

    /// What shows its log.
    pub(crate) fn log(&self) -> String {
        match &self.place {
            Place::Pod { namespace, name } => format!("kubectl logs -n {namespace} {name} --tail=100"),
            Place::Service { namespace, name } => format!("kubectl logs -n {namespace} service/{name} --tail=100"),
            Place::Host => format!("read the log of the process behind {}", self.address),
        }
    }

    /// What restarts it.
    pub(crate) fn restart(&self) -> String {
        match &self.place {
            Place::Pod { namespace, name } => format!("kubectl delete pod -n {namespace} {name}"),
            Place::Service { .. } | Place::Host => format!("restart the process behind {}", self.address),
        }
    }
}

fn first_label(address: &HostPort) -> String {
    let (host, _) = address.normal();
    host.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> HostPort {
        HostPort::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn a_target_is_called_by_the_shortest_name_that_is_its_own() {
        let all = [
            "store-0.store.graph.svc:8500",
            "store-1.store.graph.svc.cluster.local.:8500",
            "localhost:1",
            "localhost:2",
        ];
        let all = all.map(address);
        let named = |at: usize| Named::new(TargetKey::Store(7), &all[at], &all);
        assert_eq!(named(1).name, "store-1");
        assert_eq!(named(1).look(), "kubectl describe pod -n graph store-1");
        assert_eq!(named(1).pod(), Some(("graph", "store-1")));
        assert_eq!(named(2).name, "localhost:1");
        assert_eq!(named(2).restart(), "restart the process behind localhost:1");
    }

    #[test]
    fn places_are_read_from_names_that_tell_them() {
        let rows = [
            ("10.0.0.1:8500", "the store at 10.0.0.1:8500", "look at the process behind 10.0.0.1:8500"),
            ("[fd00::1]:8500", "the store at [fd00::1]:8500", "look at the process behind [fd00::1]:8500"),
            ("store.graph.svc:1", "store", "kubectl get endpointslices -n graph -l kubernetes.io/service-name=store"),
            ("db.example.com:1", "db", "look at the process behind db.example.com:1"),
        ];
        for (text, name, look) in rows {
            let address = address(text);
            let named = Named::new(TargetKey::Static(0), &address, [&address]);
            assert_eq!((named.name.as_str(), named.look().as_str()), (name, look));
        }
        let moving = address("10.0.0.1:8500");
        assert_eq!(Named::new(TargetKey::Store(7), &moving, [&moving]).lasting, "store 7");
        assert_eq!(Named::new(TargetKey::Pd(0), &address("10.0.0.1:1"), []).name, "PD at 10.0.0.1:1");
        assert_eq!(Named::unlisted(TargetKey::Store(7)).name, "store 7");
    }
}
