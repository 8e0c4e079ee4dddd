//! The pod list as a file has it.

use crate::config::{
    Mistake, Mistakes,
    section::{Found, Section},
    tree::{self, Node, Value},
    value,
};
use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    path::{Component, PathBuf},
    sync::Arc,
};
use storewatch_core::{
    id::{ClusterId, PodRef, PodUid},
    judge::MAX_PODS,
    pod::{Wiring, Workload},
};

/// A pod as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodEntry {
    pub(super) pod: PodRef,
    pub(super) uid: PodUid,
    pub(super) cluster: ClusterId,
    pub(super) ips: Vec<IpAddr>,
    pub(super) workload: Option<Workload>,
    pub(super) netns: Option<PathBuf>,
    pub(super) cgroup: Option<PathBuf>,
    pub(super) pid: Option<u32>,
    pub(super) host_network: bool,
    pub(super) wiring: Option<Wiring>,
    /// Its places were searched and not given: one that is gone by now is no mistake.
    pub(super) searched: bool,
}

/// Reads the list.
pub(super) fn parse(text: &str, place: &str, clusters: &[Arc<str>]) -> Result<Vec<PodEntry>, Mistakes> {
    let root = tree::parse(text).map_err(|error| Mistakes::one(Mistake::of_syntax(place, &error)))?;
    let found = Found::new(place);
    let items = match &root.value {
        Value::List(items) if items.len() <= MAX_PODS => items.as_slice(),
        Value::List(items) => {
            found.about(None, "", format!("lists {} pods; at most {MAX_PODS} are watched", items.len()));
            &[]
        }
        // What a writer that truncates first leaves for a moment.
        Value::Null => {
            found.about(None, "", "the file is empty; write [] for no pods");
            &[]
        }
        _ => {
            found.about(Some(&root.origin), "", "must be a list of pods");
            &[]
        }
    };
    let entries: Vec<_> = items.iter().enumerate().map(|(index, item)| entry(item, index, clusters, &found)).collect();
    duplicates(items, &entries, &found);
    found.into_result(entries)
}

fn entry(item: &Node, index: usize, clusters: &[Arc<str>], found: &Found) -> PodEntry {
    let section = Section::new(item, &format!("[{index}]"), found);
    let required = |key: &'static str, parse: fn(&Node) -> Result<String, String>, rule: &str| -> Arc<str> {
        if !section.has(key) {
            found.about(section.origin(), &section.key(key), rule);
        }
        section.optional(key, parse).unwrap_or_default().into()
    };
    let namespace = required("namespace", value::object_name, "is required");
    let name = required("name", value::object_name, "is required");
    let uid =
        required("uid", uid, "is required: a text that no other pod has, and another one when the pod is replaced");
    let cluster = cluster(&section, clusters);
    let ips = section.list("ips", address).into_iter().map(|(ip, _)| ip).collect();
    labels(&section);
    let entry = PodEntry {
        pod: PodRef { namespace, name },
        uid: PodUid(uid),
        cluster,
        ips,
        workload: section.optional("workload", workload),
        netns: section.optional("netns", place),
        cgroup: section.optional("cgroup", place),
        pid: section.optional("pid", |node| value::integer_within(node, 1, 1 << 22)),
        host_network: section.value("host_network", false, value::boolean),
        wiring: None,
        searched: false,
    };
    if !["netns", "cgroup", "pid"].iter().any(|key| section.has(key)) {
        let rule = "needs one of netns, cgroup and pid: where the pod's sockets are";
        found.about(section.origin(), &format!("[{index}]"), rule);
    }
    if entry.host_network && entry.netns.is_some() && entry.cgroup.is_none() && entry.pid.is_none() {
        let rule = "does not tell a host_network pod from others; give its cgroup or pid";
        found.about(section.place_of("netns"), &section.key("netns"), rule);
    }
    section.finish();
    entry
}

fn uid(node: &Node) -> Result<String, String> {
    let text = value::text(node)?;
    // It stands in a URL's path.
    let fits = text.len() <= 128 && text.chars().all(|char| char.is_ascii_graphic() && !"/?#%\"<>\\".contains(char));
    if fits { Ok(text) } else { Err("must be at most 128 printable ASCII characters without / ? # %".to_owned()) }
}

fn address(node: &Node) -> Result<IpAddr, String> {
    let ip = value::ip(node)?;
    if ip.is_unspecified() || ip.is_multicast() { Err("cannot be a pod's address".to_owned()) } else { Ok(ip) }
}

fn workload(node: &Node) -> Result<Workload, String> {
    let text = value::text(node)?;
    let (kind, name) = text.split_once('/').ok_or("must be Kind/name, such as StatefulSet/hugegraph-server")?;
    let fits = |part: &str| {
        !part.is_empty()
            && part.len() <= 253
            && part.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'))
    };
    if fits(kind) && fits(name) {
        Ok(Workload { kind: kind.into(), name: name.into() })
    } else {
        Err("must be Kind/name, such as StatefulSet/hugegraph-server".to_owned())
    }
}

/// An absolute path that cannot lead out of where it points.
fn place(node: &Node) -> Result<PathBuf, String> {
    let path = value::absolute_path(node)?;
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("must not contain ..".to_owned());
    }
    Ok(path)
}

fn cluster(section: &Section<'_>, clusters: &[Arc<str>]) -> ClusterId {
    let names = || clusters.iter().map(|name| &**name).collect::<Vec<_>>().join(", ");
    if !section.has("cluster") && clusters.len() > 1 {
        let rule = format!("is required with several clusters; one of: {}", names());
        section.found().about(section.origin(), &section.key("cluster"), rule);
    }
    let position = section.optional("cluster", |node| {
        let name = value::text(node)?;
        let at = clusters.iter().position(|known| **known == *name);
        at.and_then(|at| u16::try_from(at).ok()).ok_or_else(|| format!("must be a configured cluster: {}", names()))
    });
    ClusterId(position.unwrap_or_default())
}

/// Labels are not used for a listed pod; they must have the right shape, so that a list can be used elsewhere later.
fn labels(section: &Section<'_>) {
    let Some(node) = section.get("labels") else { return };
    let Value::Map(entries) = &node.value else {
        section.found().wrong(&section.key("labels"), node, "must be a mapping of labels to texts");
        return;
    };
    for entry in entries {
        if let Err(rule) = value::any_text(&entry.node) {
            section.found().wrong(&format!("{}.{}", section.key("labels"), entry.key), &entry.node, rule);
        }
    }
}

/// Records what two pods cannot share.
fn duplicates(items: &[Node], entries: &[PodEntry], found: &Found) {
    let mut uids = HashMap::new();
    let mut names = HashMap::new();
    let mut ips = HashMap::new();
    let mut places = HashMap::new();
    for (index, (entry, item)) in entries.iter().zip(items).enumerate() {
        let told = |key: &str, value: &str, first: usize| {
            let rule = format!("{value} is that of [{first}] too ({})", entries[first].pod);
            found.about(Some(&item.origin), &format!("[{index}]{key}"), rule);
        };
        // An empty one has its own mistake already.
        if !entry.uid.0.is_empty()
            && let Some(first) = uids.insert(&entry.uid, index)
        {
            told(".uid", &entry.uid.0, first);
        }
        if !entry.pod.name.is_empty()
            && let Some(first) = names.insert(&entry.pod, index)
        {
            told("", &entry.pod.to_string(), first);
        }
        let own: HashSet<_> = entry.ips.iter().collect();
        if own.len() < entry.ips.len() {
            found.about(Some(&item.origin), &format!("[{index}].ips"), "lists an address twice");
        }
        for ip in own {
            // Pods in the node's network share its address.
            if let Some(first) = ips.insert(ip, index)
                && !(entry.host_network && entries[first].host_network)
            {
                told(".ips", &ip.to_string(), first);
            }
        }
        let place = match (&entry.cgroup, entry.pid, &entry.netns) {
            (Some(path), _, _) => (".cgroup", path.display().to_string()),
            (None, Some(pid), _) => (".pid", pid.to_string()),
            (None, None, Some(path)) => (".netns", path.display().to_string()),
            (None, None, None) => continue,
        };
        if let Some(first) = places.insert(place.clone(), index) {
            told(place.0, &place.1, first);
        }
    }
}
