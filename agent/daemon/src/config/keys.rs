//! All keys, for hints: "did you mean".

/// Every key that takes a value.
pub(super) const KEYS: [&str; 46] = [
    "node",
    "listen.probe",
    "listen.metrics",
    "listen.admin",
    "listen.admin_socket",
    "hugegraph.pd_peers",
    "hugegraph.stores",
    "hugegraph.store_port",
    "hugegraph.pd_port",
    "clusters",
    "ping.interval",
    "ping.idle_interval",
    "ping.pd_interval",
    "ping.dns_interval",
    "ping.timeout",
    "ping.max_stores_per_round",
    "pods.source",
    "pods.selector",
    "pods.file",
    "pods.cri_socket",
    "kubernetes.namespaces",
    "kubernetes.store_selector",
    "kubernetes.pd_selector",
    "kubernetes.readiness_gate",
    "kubernetes.events",
    "healing.mode",
    "kernel.mode",
    "kernel.inventory_interval",
    "verdict.failure_threshold",
    "verdict.success_threshold",
    "verdict.window",
    "verdict.stale_suspect_after",
    "verdict.stale_confirm_after",
    "verdict.stale_transport",
    "verdict.min_other_ready",
    "verdict.on_unknown",
    "state_file",
    "log.level",
    "log.format",
    "clusters[].name",
    "clusters[].pd_peers",
    "clusters[].stores",
    "clusters[].store_port",
    "clusters[].pd_port",
    "clusters[].namespaces",
    "clusters[].selector",
];

/// The known key that `name` most likely means: a near one of the same mapping, else one of that name elsewhere.
pub(super) fn suggest(name: &str, here: &[&str], path: &str) -> Option<String> {
    let plain = name.to_lowercase().replace('-', "_");
    let near = here
        .iter()
        .map(|key| (distance(&plain, key), *key))
        .filter(|(distance, key)| *distance <= (key.len() / 3).clamp(1, 3))
        .min();
    if let Some((_, key)) = near {
        return Some(if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") });
    }
    KEYS.iter().find(|key| key.rsplit('.').next() == Some(&plain)).map(|key| (*key).to_owned())
}

/// How many letters to insert, remove or replace.
fn distance(a: &str, b: &str) -> usize {
    // Names beyond this are none of ours, and the cost is quadratic.
    if a.len() > 64 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = corner + usize::from(from != *to);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
