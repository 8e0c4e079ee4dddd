//! The families of the public interface, from the snapshot.

use super::family::{Family, Labels, encode_info};
use crate::publish::{Publication, dto::pod::OTHER, serve::Counters};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};
use storewatch_core::{
    snapshot::{ClusterView, Dropped, Histogram, KernelCounters, PodTargetView, PodView, Snapshot},
    source::SourceState,
    time::MonoTime,
};

/// Everything that the snapshot counts.
#[derive(Debug)]
pub(super) struct SnapshotCollector {
    publication: Publication,
}

impl SnapshotCollector {
    pub(super) fn new(publication: Publication) -> Self {
        Self { publication }
    }
}

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.publication.snapshot();
        pods(&snapshot, &mut encoder)?;
        connections(&snapshot, &mut encoder)?;
        clusters(&snapshot, &mut encoder)?;
        kernel(&snapshot, &mut encoder)?;
        dropped(snapshot.dropped, &mut encoder)?;
        agent(&snapshot, self.publication.now(), &mut encoder)
    }
}

/// The `cluster` label: only where there are several.
fn cluster_label(snapshot: &Snapshot, cluster: &ClusterView) -> Option<String> {
    (snapshot.clusters.len() > 1).then(|| cluster.name.to_string())
}

fn cluster_of(snapshot: &Snapshot, pod: &PodView) -> Option<String> {
    let cluster = snapshot.clusters.iter().find(|cluster| cluster.id == pod.record.cluster)?;
    cluster_label(snapshot, cluster)
}

fn pod_labels(snapshot: &Snapshot, pod: &PodView) -> Labels {
    Labels::new([("namespace", &*pod.record.pod.namespace), ("pod", &*pod.record.pod.name)])
        .led_by("cluster", cluster_of(snapshot, pod).as_deref())
}

fn target_label(view: &PodTargetView) -> String {
    view.target.map_or_else(|| OTHER.to_owned(), |target| target.to_string())
}

fn pods(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut ready = Family::<f64>::new("storewatch_pod_ready", "Whether the pod's readiness answer is 200");
    let mut verdict = Family::<f64>::new("storewatch_pod_verdict", "1 for the pod's present verdict");
    let mut finding = Family::<f64>::new("storewatch_pod_finding", "1 for each finding about the pod");
    let mut transitions =
        Family::<u64>::new("storewatch_verdict_transitions", "Changes of the pod's verdict, by the reason entered");
    for pod in &snapshot.pods {
        let labels = pod_labels(snapshot, pod);
        ready.set_flag(labels.clone(), pod.verdict.ready);
        let present = labels.with("status", pod.verdict.status.as_str()).with("reason", pod.verdict.reason.as_str());
        verdict.set_flag(present, true);
        for code in pod.findings.iter().map(|finding| finding.code).collect::<BTreeSet<_>>() {
            finding.set_flag(labels.with("finding", code.as_str()), true);
        }
        for (reason, count) in &pod.transitions {
            transitions.add(labels.with("reason", reason.as_str()), *count);
        }
    }
    ready.encode_gauge(encoder)?;
    verdict.encode_gauge(encoder)?;
    finding.encode_gauge(encoder)?;
    transitions.encode_counter(encoder)
}

fn connections(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut connects =
        Family::<u64>::new("storewatch_connects", "Attempts to connect that ended, each once, by how they ended");
    let mut endings =
        Family::<u64>::new("storewatch_connection_endings", "Established connections that ended, by how they ended");
    let mut durations =
        Family::<Histogram>::new("storewatch_connect_duration", "Time from the begin of a dial to its success")
            .in_seconds();
    let mut resets = Family::<u64>::new("storewatch_resets", "TCP resets received and sent");
    let mut retransmits = Family::<u64>::new("storewatch_retransmits", "TCP segments sent again");
    let mut held = Family::<f64>::new(
        "storewatch_connections",
        "Connections held now, by whether the target owns their remote address",
    );
    for pod in &snapshot.pods {
        let labels = pod_labels(snapshot, pod);
        for view in &pod.targets {
            let name = target_label(view);
            let to = labels.with("target", &name);
            for (outcome, count) in &view.connects {
                connects.add(to.with("outcome", outcome.as_str()), *count);
            }
            for (outcome, count) in &view.endings {
                endings.add(to.with("outcome", outcome.as_str()), *count);
            }
            resets.add(to.with("direction", "received"), view.resets_received);
            resets.add(to.with("direction", "sent"), view.resets_sent);
            retransmits.add(to.clone(), view.retransmits);
            for (owner, count) in [
                ("current", view.connections.current),
                ("previous", view.connections.previous),
                ("unknown", view.connections.unknown),
            ] {
                held.add_to(to.with("owner", owner), f64::from(count));
            }
            let all_pods =
                Labels::new([("target", name.as_str())]).led_by("cluster", cluster_of(snapshot, pod).as_deref());
            durations.add_all(all_pods, &view.connect_duration);
        }
    }
    connects.encode_counter(encoder)?;
    endings.encode_counter(encoder)?;
    durations.encode_histogram(encoder)?;
    resets.encode_counter(encoder)?;
    retransmits.encode_counter(encoder)?;
    held.encode_gauge(encoder)
}

fn clusters(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut up = Family::<f64>::new("storewatch_store_up", "Whether the Store answered its last ping");
    let mut durations =
        Family::<Histogram>::new("storewatch_store_ping_duration", "Time that pings of the Store took, by phase")
            .in_seconds();
    let mut pings = Family::<u64>::new("storewatch_store_pings", "Pings of the Store, by how they ended");
    let mut peers = Family::<f64>::new("storewatch_pd_up", "Whether the PD peer's process answers");
    let mut leader = Family::<f64>::new("storewatch_pd_has_leader", "Whether PD gave its list of Stores");
    for cluster in &snapshot.clusters {
        let label = cluster_label(snapshot, cluster);
        let lead = |labels: Labels| labels.led_by("cluster", label.as_deref());
        for store in &cluster.stores {
            let labels = lead(Labels::new([("store", store.target.key.to_string().as_str())]));
            // Not pinged so far is neither up nor down.
            if let Some(answering) = store.answering {
                up.set_flag(labels.clone(), answering);
            }
            for (phase, histogram) in ["dns", "connect", "http2", "rpc"].into_iter().zip(&store.ping_durations) {
                durations.add_all(labels.with("phase", phase), histogram);
            }
            for (outcome, count) in &store.pings {
                pings.add(labels.with("outcome", outcome.as_str()), *count);
            }
        }
        for peer in &cluster.pd.peers {
            if let Some(reachable) = peer.reachable {
                peers.set_flag(lead(Labels::new([("peer", peer.peer.to_string().as_str())])), reachable);
            }
        }
        if let Some(has_leader) = cluster.pd.has_leader {
            leader.set_flag(lead(Labels::new([])), has_leader);
        }
    }
    up.encode_gauge(encoder)?;
    durations.encode_histogram(encoder)?;
    pings.encode_counter(encoder)?;
    peers.encode_gauge(encoder)?;
    leader.encode_gauge(encoder)
}

fn kernel(snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let KernelCounters { state, reset_received, reset_sent, retransmit, error, lost, unattributed } = snapshot.kernel;
    let mut events = Family::<u64>::new("storewatch_kernel_events", "Details received from the kernel");
    for (kind, count) in [
        ("state", state),
        ("reset_received", reset_received),
        ("reset_sent", reset_sent),
        ("retransmit", retransmit),
        ("error", error),
    ] {
        events.add(Labels::new([("kind", kind)]), count);
    }
    let mut losses = Family::<u64>::new("storewatch_kernel_events_lost", "Details that the kernel could not hand over");
    losses.add_always(Labels::new([]), lost);
    let mut strangers = Family::<u64>::new(
        "storewatch_kernel_unattributed",
        "Details and counts on watched ports that belong to no watched pod",
    );
    strangers.add_always(Labels::new([]), unattributed);
    let mut reasons = Family::<u64>::new(
        "storewatch_kernel_unattributed_reasons",
        "What storewatch_kernel_unattributed counts, by why it belongs to no watched pod",
    );
    for (why, count) in &snapshot.unattributed {
        reasons.add(Labels::new([("reason", why.as_str())]), *count);
    }
    events.encode_counter(encoder)?;
    losses.encode_counter(encoder)?;
    strangers.encode_counter(encoder)?;
    reasons.encode_counter(encoder)
}

fn dropped(dropped: Dropped, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Dropped { events, targets, pods, evidence } = dropped;
    let mut family = Family::<u64>::new(
        "storewatch_dropped",
        "What did not fit into the agent's own bounded memories, by what it was",
    );
    for (what, count) in [("event", events), ("target", targets), ("pod", pods), ("evidence", evidence)] {
        family.add_always(Labels::new([("what", what)]), count);
    }
    family.encode_counter(encoder)
}

fn agent(snapshot: &Snapshot, now: MonoTime, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut sources = Family::<f64>::new("storewatch_source_up", "Whether the source answers, in full or in part");
    for source in &snapshot.sources {
        let up = match source.state {
            SourceState::Active | SourceState::Degraded => true,
            SourceState::Absent => false,
        };
        sources.set_flag(Labels::new([("source", source.name.as_str())]), up);
    }
    let mut age =
        Family::<f64>::new("storewatch_snapshot_age", "Time since the published snapshot was made").in_seconds();
    age.set(Labels::new([]), now.since(snapshot.taken_at).as_secs_f64());
    sources.encode_gauge(encoder)?;
    age.encode_gauge(encoder)?;
    let build = Labels::new([("version", env!("CARGO_PKG_VERSION")), ("ebpf", env!("STOREWATCH_EBPF_KIND"))]);
    encode_info(encoder, "storewatch_build", "What this binary was built from", &build)
}

/// Time that each program took so far, by its name; `None` while the kernel does not measure it.
pub type ProgramSeconds = dyn Fn() -> Option<Vec<(String, Duration)>> + Send + Sync;

/// What the kernel measured of the programs.
pub(super) struct ProgramCollector(pub(super) Box<ProgramSeconds>);

impl fmt::Debug for ProgramCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgramCollector")
    }
}

impl Collector for ProgramCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(programs) = (self.0)() else { return Ok(()) };
        let mut seconds = Family::<f64>::new(
            "storewatch_kernel_program",
            "Time spent in each program, while kernel.bpf_stats_enabled is on",
        )
        .in_seconds();
        for (name, time) in programs {
            seconds.set(Labels::new([("program", name.as_str())]), time.as_secs_f64());
        }
        seconds.encode_counter(&mut encoder)
    }
}

/// What the listeners count.
#[derive(Debug)]
pub(super) struct ListenerCollector {
    listeners: Vec<(&'static str, Arc<Counters>)>,
}

impl ListenerCollector {
    pub(super) fn new(listeners: Vec<(&'static str, Arc<Counters>)>) -> Self {
        Self { listeners }
    }
}

impl Collector for ListenerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut accepted = Family::<u64>::new("storewatch_listener_connections", "Connections accepted");
        let mut evicted = Family::<u64>::new(
            "storewatch_listener_connections_evicted",
            "Connections closed to make room for another",
        );
        let mut failures = Family::<u64>::new(
            "storewatch_listener_accept_failures",
            "Connections that could not be accepted for want of file descriptors or memory",
        );
        for (key, counters) in &self.listeners {
            let labels = Labels::new([("listener", *key)]);
            accepted.add(labels.clone(), counters.accepted());
            evicted.add(labels.clone(), counters.evicted());
            failures.add(labels, counters.accept_failures());
        }
        accepted.encode_counter(&mut encoder)?;
        evicted.encode_counter(&mut encoder)?;
        failures.encode_counter(&mut encoder)
    }
}
