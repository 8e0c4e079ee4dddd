//! From the tree to [`Config`]: every key, bound and relation.

use super::{
    Surroundings,
    model::{
        Cluster, Config, HealingMode, Kernel, KernelMode, Kubernetes, Listen, Log, LogFormat, LogLevel, Ping,
        PodSource, Pods, Verdict,
    },
    section::{Found, Section},
    selector::Selector,
    tree::{Node, Value},
    value,
};
use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};
use storewatch_core::{
    id::HostPort,
    policy::{OnUnknown, StaleTransportAction},
};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// Clusters on one node; each has its own tasks and channels.
const MAX_CLUSTERS: usize = 64;
/// Peers or Stores that can be configured per cluster.
const MAX_TARGETS: usize = 1024;

const SERVER_SELECTOR: &str = "app.kubernetes.io/name=hugegraph,app.kubernetes.io/component=server";
const STORE_SELECTOR: &str = "app.kubernetes.io/name=hugegraph,app.kubernetes.io/component=store";
const PD_SELECTOR: &str = "app.kubernetes.io/name=hugegraph,app.kubernetes.io/component=pd";

pub(super) const SOURCES: [(&str, PodSource); 4] = [
    ("kubernetes", PodSource::Kubernetes),
    ("cri", PodSource::Cri),
    ("file", PodSource::File),
    ("none", PodSource::None),
];
pub(super) const SWITCH: [(&str, bool); 2] = [("off", false), ("on", true)];
pub(super) const HEALING: [(&str, HealingMode); 3] =
    [("off", HealingMode::Off), ("dry_run", HealingMode::DryRun), ("evict", HealingMode::Evict)];
pub(super) const KERNEL: [(&str, KernelMode); 3] =
    [("auto", KernelMode::Auto), ("required", KernelMode::Required), ("off", KernelMode::Off)];
pub(super) const STALE: [(&str, StaleTransportAction); 2] =
    [("not_ready", StaleTransportAction::NotReady), ("degraded", StaleTransportAction::Degraded)];
pub(super) const ON_UNKNOWN: [(&str, OnUnknown); 2] = [("ready", OnUnknown::Ready), ("not_ready", OnUnknown::NotReady)];
pub(super) const LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];
pub(super) const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];

/// Reads everything; what is wrong goes to `found`, and its place is taken by the default.
pub(super) fn config(root: &Node, surroundings: &Surroundings, found: &Found) -> Config {
    let root = Section::new(root, "", found);
    let node = node(&root, surroundings);
    let listen = listen(root.section("listen"));
    let ping = ping(root.section("ping"));
    let pods = pods(root.section("pods"));
    let (kubernetes, namespaces) = kubernetes(root.section("kubernetes"), root.has("clusters"));
    let clusters = clusters(&root, &pods.selector, namespaces);
    let healing = {
        let section = root.section("healing");
        let mode = section.word("mode", HealingMode::Off, &HEALING);
        section.finish();
        mode
    };
    let kernel = kernel(root.section("kernel"));
    let verdict = verdict(root.section("verdict"), &root.section_again("ping"), ping.interval);
    let state_file = root.value("state_file", PathBuf::from("/var/lib/storewatch/state.json"), |node| {
        let path = PathBuf::from(value::any_text(node)?);
        let names_a_file = path.as_os_str().is_empty() || path.file_name().is_some();
        names_a_file.then_some(path).ok_or_else(|| "must name a file, or be \"\" for none".into())
    });
    let log = log(root.section("log"));
    root.finish();
    let state_file = (!state_file.as_os_str().is_empty()).then_some(state_file);
    Config { node, listen, clusters, ping, pods, kubernetes, healing, kernel, verdict, state_file, log }
}

fn node(root: &Section<'_>, surroundings: &Surroundings) -> Arc<str> {
    let given = root.optional("node", |node| {
        let text = value::any_text(node)?;
        value::node_name(&text).map(|()| text)
    });
    if given.is_some() || root.has("node") {
        return given.unwrap_or_default().into();
    }
    let variable = surroundings.environment.iter().find(|(name, value)| name == "NODE_NAME" && !value.is_empty());
    let (from, name) = match variable {
        Some((_, value)) => ("NODE_NAME", value.to_str().map(str::to_owned)),
        None => ("the host name", host_name()),
    };
    match name.filter(|name| value::node_name(name).is_ok()) {
        Some(name) => name.into(),
        None => {
            root.found().about(None, "node", format!("{from} cannot serve as its default; set it"));
            Arc::default()
        }
    }
}

/// As `hostname` prints it.
fn host_name() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim_end().to_owned())
}

fn listen(section: Section<'_>) -> Listen {
    let unspecified = |port| SocketAddr::from(([0u16; 8], port));
    let probe = section
        .value("probe", unspecified(9465), |node| value::listen(node)?.ok_or_else(|| "cannot be off".to_owned()));
    let metrics = section.value("metrics", Some(unspecified(9466)), value::listen);
    let admin = section.value("admin", Some(SocketAddr::from(([127, 0, 0, 1], 9467))), |node| {
        let address = value::listen(node)?;
        match address {
            Some(address) if !address.ip().to_canonical().is_loopback() => {
                Err("must be a loopback address (127.0.0.0/8 or [::1]): the admin API has no authentication".to_owned())
            }
            address => Ok(address),
        }
    });
    let default = PathBuf::from("/run/storewatch/admin.sock");
    let admin_socket = section.value("admin_socket", Some(default), value::socket_path);
    let taken = [("probe", Some(probe)), ("metrics", metrics), ("admin", admin)];
    for (index, (name, address)) in taken.iter().enumerate() {
        let earlier = taken[..index].iter().find(|(_, other)| overlap(*address, *other));
        if let Some((other, _)) = earlier {
            let rule = format!("takes the same port as {}", section.key(other));
            relation(&section, name, &[name, other], address.map(|address| address.to_string()), rule);
        }
    }
    section.finish();
    Listen { probe, metrics, admin, admin_socket }
}

fn overlap(a: Option<SocketAddr>, b: Option<SocketAddr>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return false };
    let (x, y) = (a.ip().to_canonical(), b.ip().to_canonical());
    a.port() == b.port() && (x == y || x.is_unspecified() || y.is_unspecified())
}

/// Records that `name` breaks a rule between keys, unless one of them is wrong by itself already.
fn relation(section: &Section<'_>, name: &str, between: &[&str], value: Option<String>, rule: String) {
    let found = section.found();
    if between.iter().any(|key| found.mentions(&section.key(key))) {
        return;
    }
    let key = section.key(name);
    found.relation(section.place_of(name), &key, value, rule);
}

fn ping(section: Section<'_>) -> Ping {
    let ping = Ping {
        interval: section.duration("interval", 2 * S, 200 * MS, 300 * S),
        idle_interval: section.duration("idle_interval", 20 * S, 200 * MS, HOUR),
        pd_interval: section.duration("pd_interval", 10 * S, 200 * MS, HOUR),
        dns_interval: section.duration("dns_interval", 10 * S, 200 * MS, HOUR),
        timeout: section.duration("timeout", S, 50 * MS, 30 * S),
        max_stores_per_round: section.integer("max_stores_per_round", 16, 1, 1024),
    };
    section.finish();
    ping
}

fn selector(node: &Node) -> Result<Selector, String> {
    Selector::parse(&value::any_text(node)?).map_err(|error| error.to_string())
}

/// A selector that is part of this program; the tests parse each.
fn built_in(text: &str) -> Selector {
    Selector::parse(text).unwrap_or_else(|_| Selector::everything())
}

fn pods(section: Section<'_>) -> Pods {
    let pods = Pods {
        source: section.word("source", PodSource::Kubernetes, &SOURCES),
        selector: section.value("selector", built_in(SERVER_SELECTOR), selector),
        file: section.value("file", PathBuf::from("/etc/storewatch/pods.yaml"), value::path),
        cri_socket: section.value("cri_socket", PathBuf::from("/run/containerd/containerd.sock"), value::absolute_path),
    };
    section.finish();
    pods
}

fn kubernetes(section: Section<'_>, several: bool) -> (Kubernetes, Vec<String>) {
    let namespaces = names(&section, "namespaces");
    if several && !namespaces.is_empty() {
        let rule = "belongs to each entry of clusters when there is that list".to_owned();
        relation(&section, "namespaces", &["namespaces"], None, rule);
    }
    let kubernetes = Kubernetes {
        store_selector: section.value("store_selector", built_in(STORE_SELECTOR), selector),
        pd_selector: section.value("pd_selector", built_in(PD_SELECTOR), selector),
        readiness_gate: section.word("readiness_gate", false, &SWITCH),
        events: section.word("events", true, &SWITCH),
    };
    section.finish();
    (kubernetes, namespaces)
}

fn names(section: &Section<'_>, key: &'static str) -> Vec<String> {
    unique(section, key, section.list(key, value::object_name), |name| name.clone())
}

/// The values of a list, less those that occurred before, which are mistakes.
fn unique<T>(section: &Section<'_>, key: &str, list: Vec<(T, Node)>, identity: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen = std::collections::HashSet::new();
    let mut values = Vec::new();
    for (value, node) in list {
        if seen.insert(identity(&value)) {
            values.push(value);
        } else {
            section.found().wrong(&section.key(key), &node, "is in the list twice");
        }
    }
    if values.len() > MAX_TARGETS {
        section.found().about(section.place_of(key), &section.key(key), format!("has more than {MAX_TARGETS} entries"));
    }
    values
}

fn clusters(root: &Section<'_>, selector: &Selector, namespaces: Vec<String>) -> Vec<Cluster> {
    let found = root.found();
    let Some(node) = root.get("clusters") else {
        let section = root.section("hugegraph");
        let cluster = cluster(&section, "default".into(), selector.clone(), namespaces);
        section.finish();
        return vec![cluster];
    };
    if root.has("hugegraph") {
        let _ = root.get("hugegraph");
        let rule = "give either hugegraph (one cluster) or clusters (a list), not both";
        found.about(root.place_of("hugegraph"), "hugegraph", rule);
    }
    let items = match &node.value {
        Value::List(items) if items.len() > MAX_CLUSTERS => {
            found.about(Some(&node.origin), "clusters", format!("has more than {MAX_CLUSTERS} entries"));
            return Vec::new();
        }
        Value::List(items) if !items.is_empty() => items,
        _ => {
            found.wrong("clusters", node, "must be a list with at least one cluster");
            return Vec::new();
        }
    };
    let mut clusters: Vec<Cluster> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let section = Section::new(item, &format!("clusters[{index}]"), found);
        let name = section.optional("name", value::plain_name).unwrap_or_default();
        if !section.has("name") {
            found.about(section.origin(), &section.key("name"), "is required");
        } else if clusters.iter().any(|other| *other.name == *name) && !name.is_empty() {
            let rule = "is the name of an earlier cluster".to_owned();
            relation(&section, "name", &["name"], Some(format!("{name:?}")), rule);
        }
        let own = names(&section, "namespaces");
        let selector = section.value("selector", selector.clone(), self::selector);
        clusters.push(cluster(&section, name.into(), selector, own));
        section.finish();
    }
    clusters
}

fn cluster(section: &Section<'_>, name: Arc<str>, selector: Selector, namespaces: Vec<String>) -> Cluster {
    let same = |target: &HostPort| format!("{}:{}", target.host.trim_end_matches('.').to_lowercase(), target.port);
    let pd_peers = unique(section, "pd_peers", section.list("pd_peers", value::host_port), same);
    let stores = unique(section, "stores", section.list("stores", value::host_port), same);
    let store_port = section.value("store_port", 8500, value::port);
    let pd_port = section.value("pd_port", 8686, value::port);
    let found = section.found();
    let mistaken = ["pd_peers", "stores"].iter().any(|key| found.mentions_within(&section.key(key)));
    if pd_peers.is_empty() && stores.is_empty() && !mistaken {
        let rule = "is required unless stores is given: a list of host:port";
        found.about(section.origin(), &section.key("pd_peers"), rule);
    }
    if store_port == pd_port {
        let rule = "must differ from pd_port".to_owned();
        relation(section, "store_port", &["store_port", "pd_port"], Some(store_port.to_string()), rule);
    }
    let namespaces = if namespaces.is_empty() { namespaces_of(&pd_peers) } else { namespaces };
    Cluster { name, pd_peers, stores, store_port, pd_port, namespaces, selector }
}

/// The namespaces in names such as `pd-0.pd.NAMESPACE.svc`, in their order.
fn namespaces_of(peers: &[HostPort]) -> Vec<String> {
    let mut namespaces: Vec<String> = Vec::new();
    for peer in peers {
        let labels: Vec<_> = peer.host.split('.').collect();
        let svc = labels.iter().position(|label| label.eq_ignore_ascii_case("svc")).filter(|at| *at >= 2);
        if let Some(namespace) = svc.map(|at| labels[at - 1].to_lowercase())
            && !namespaces.contains(&namespace)
        {
            namespaces.push(namespace);
        }
    }
    namespaces
}

fn kernel(section: Section<'_>) -> Kernel {
    let kernel = Kernel {
        mode: section.word("mode", KernelMode::Auto, &KERNEL),
        inventory_interval: section.duration("inventory_interval", 15 * S, 500 * MS, HOUR),
    };
    section.finish();
    kernel
}

fn verdict(section: Section<'_>, ping: &Section<'_>, ping_interval: Duration) -> Verdict {
    let verdict = Verdict {
        failure_threshold: section.integer("failure_threshold", 2, 1, 1000),
        success_threshold: section.integer("success_threshold", 1, 1, 1000),
        window: section.duration("window", 150 * S, 200 * MS, DAY),
        stale_suspect_after: section.duration("stale_suspect_after", 60 * S, S, DAY),
        stale_confirm_after: section.duration("stale_confirm_after", 240 * S, S, DAY),
        stale_transport: section.word("stale_transport", StaleTransportAction::NotReady, &STALE),
        min_other_ready: section.integer("min_other_ready", 1, 0, 1000),
        on_unknown: section.word("on_unknown", OnUnknown::Ready, &ON_UNKNOWN),
    };
    // Each complaint stands at a key that was given, not at a default.
    let window = value::duration(verdict.window);
    if verdict.window < ping_interval && !section.found().mentions("verdict.window") {
        let interval = value::duration(ping_interval);
        if section.has("window") || !ping.has("interval") {
            let rule = format!("must be at least ping.interval ({interval})");
            relation(&section, "window", &["window"], Some(window), rule);
        } else {
            let rule = format!("must be at most verdict.window ({window})");
            relation(ping, "interval", &["interval"], Some(interval), rule);
        }
    }
    if verdict.stale_confirm_after <= verdict.stale_suspect_after {
        let suspect = value::duration(verdict.stale_suspect_after);
        let confirm = value::duration(verdict.stale_confirm_after);
        let between = ["stale_confirm_after", "stale_suspect_after"];
        if section.has("stale_confirm_after") {
            let rule = format!("must be longer than verdict.stale_suspect_after ({suspect})");
            relation(&section, "stale_confirm_after", &between, Some(confirm), rule);
        } else {
            let rule = format!("must be shorter than verdict.stale_confirm_after ({confirm})");
            relation(&section, "stale_suspect_after", &between, Some(suspect), rule);
        }
    }
    section.finish();
    verdict
}

fn log(section: Section<'_>) -> Log {
    let log = Log {
        level: section.word("level", LogLevel::Info, &LEVELS),
        format: section.word("format", LogFormat::Text, &FORMATS),
    };
    section.finish();
    log
}
