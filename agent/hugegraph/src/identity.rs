//! Whether the Store that answered is the one that was meant.
//!
//! A Store tells the address that it advertises. The same Store may be spelled with another case, a final dot, or with and
//! without the cluster's DNS suffix, so names are evened out before they are compared.

use crate::address;
use std::net::{IpAddr, SocketAddr};

/// Host and port of an advertised address, evened out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Advertised {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Name(String),
    Address(IpAddr),
}

/// The spelling under which names of one Store are equal: lower case, no final dot, nothing after the label `svc` of a
/// Kubernetes name (`pod.service.namespace.svc.any.suffix`).
pub fn even_out(host: &str) -> String {
    let lower = host.trim().trim_end_matches('.').to_ascii_lowercase();
    let mut end = 0;
    for (position, label) in lower.split('.').enumerate() {
        end += label.len() + usize::from(position > 0);
        // The shortest such name is service.namespace.svc.
        if label == "svc" && position >= 2 {
            return lower[..end].to_owned();
        }
    }
    lower
}

fn advertised(text: &str) -> Option<Advertised> {
    let text = text.trim();
    let (host, port) = if let Some((inner, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        (inner, rest.strip_prefix(':').and_then(|port| port.parse().ok()))
    } else if text.matches(':').count() == 1 {
        let (host, port) = text.split_once(':')?;
        (host, port.parse().ok())
    } else {
        (text, None)
    };
    if host.is_empty() {
        return None;
    }
    let host = address::literal(host).map_or_else(|| Host::Name(even_out(host)), Host::Address);
    Some(Advertised { host, port })
}

/// Whether `told`, the address in an answer, names another Store than `expected`, the `host:port` that PD lists.
///
/// An answer without an address names nobody. An address told as a literal is another Store's only if it is not the one
/// that was connected to.
pub fn names_another(expected: &str, told: &str, remote: SocketAddr) -> bool {
    let (Some(expected), Some(told)) = (advertised(expected), advertised(told)) else {
        return false;
    };
    let other_port = matches!((expected.port, told.port), (Some(a), Some(b)) if a != b);
    let other_host = match (&expected.host, &told.host) {
        (Host::Name(_), Host::Address(ip)) => *ip != remote.ip().to_canonical(),
        (expected, told) => expected != told,
    };
    other_port || other_host
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: &str = "10.0.0.7:8500";

    fn another(expected: &str, told: &str) -> bool {
        names_another(expected, told, HERE.parse().unwrap())
    }

    #[test]
    fn spellings_of_one_store_are_equal() {
        let expected = "s-0.s.graph.svc:8500";
        for told in [
            "s-0.s.graph.svc:8500",
            "S-0.s.Graph.SVC:8500",
            "s-0.s.graph.svc.:8500",
            "s-0.s.graph.svc.cluster.local:8500",
            "s-0.s.graph.svc.k8s.example.org.:8500",
            "s-0.s.graph.svc",
            "10.0.0.7:8500",
            "[::ffff:10.0.0.7]:8500",
            "",
            ":8500",
        ] {
            assert!(!another(expected, told), "{told}");
            if !told.starts_with(['1', '[']) {
                assert!(!another(told, expected), "{told}");
            }
        }
    }

    #[test]
    fn other_stores_are_told_apart() {
        let expected = "s-0.s.graph.svc:8500";
        for told in [
            "s-1.s.graph.svc:8500",
            "s-0.s.other.svc:8500",
            "s-0.s.graph.svc:8501",
            "s-0.s.graph:8500",
            "10.0.0.8:8500",
            "[fd00::1]:8500",
            "s-0",
        ] {
            assert!(another(expected, told), "{told}");
        }
        // A namespace may be called svc.
        assert!(another("s-0.svc.a.svc:8500", "s-0.svc.b.svc:8500"));
        assert!(another("svc.a.svc:1", "svc.b.svc:1"));
    }

    fn label() -> impl Strategy<Value = String> {
        "[a-z]([a-z0-9-]{0,10}[a-z0-9])?".prop_filter("svc has a meaning of its own", |label| label != "svc")
    }

    proptest! {
        #[test]
        fn evening_out_twice_changes_nothing(host in "[A-Za-z0-9.-]{0,60}") {
            let once = even_out(&host);
            prop_assert_eq!(even_out(&once), once);
        }

        #[test]
        fn case_dot_and_suffix_never_matter(
            pod in label(), service in label(), namespace in label(), suffix in prop::collection::vec(label(), 0..4),
            upper in any::<bool>(), dot in any::<bool>(), port in 1u16..,
        ) {
            let plain = format!("{pod}.{service}.{namespace}.svc");
            let mut other = plain.clone();
            for label in &suffix {
                other.push('.');
                other.push_str(label);
            }
            if dot {
                other.push('.');
            }
            if upper {
                other = other.to_uppercase();
            }
            prop_assert_eq!(even_out(&other), plain.clone());
            let (one, two) = (format!("{plain}:{port}"), format!("{other}:{port}"));
            prop_assert!(!another(&one, &two));
            prop_assert!(!another(&two, &one));
        }

        #[test]
        fn another_pod_is_never_this_one(
            pods in (label(), label()).prop_filter("two pods", |(a, b)| a != b),
            service in label(), namespace in label(), suffix in label(),
        ) {
            let one = format!("{}.{service}.{namespace}.svc:8500", pods.0);
            let two = format!("{}.{service}.{namespace}.svc.{suffix}:8500", pods.1);
            prop_assert!(another(&one, &two));
        }

        #[test]
        fn nothing_panics(expected in ".{0,80}", told in ".{0,80}") {
            another(&expected, &told);
        }
    }
}
