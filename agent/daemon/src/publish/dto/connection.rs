//! Connections.

use super::{Clocks, pod::OTHER, whole_ms};
use serde::{Serialize, Serializer};
use std::net::SocketAddr;
use storewatch_core::{
    id::{ClusterId, ContainerKey, TargetKey},
    snapshot::Snapshot,
    table::{ConnectionView, StrayView},
};

#[derive(Debug, Serialize)]
pub(crate) struct ConnectionDto<'a> {
    /// Null for a socket that belongs to no judged pod, as are `pod` and `uid`.
    namespace: Option<&'a str>,
    pod: Option<&'a str>,
    uid: Option<&'a str>,
    /// Null for an address that no cluster knows.
    cluster: Option<&'a str>,
    target: Target,
    local: SocketAddr,
    remote: SocketAddr,
    owner: &'static str,
    state: &'static str,
    /// Null while it is being dialled.
    outcome: Option<&'static str>,
    /// Null where that was not seen: then `age_ms` counts from `first_seen_at`, and it is older.
    opened_at: Option<String>,
    established_at: Option<String>,
    first_seen_at: Option<String>,
    age_ms: Option<u64>,
    /// How long nothing was sent or received, as of the last sample; like the age up to the end of one that has ended.
    idle_ms: Option<u64>,
    rtt_us: Option<u64>,
    retransmits: Option<u64>,
    resets: u64,
    bytes_received: Option<u64>,
    unanswered_bytes: u64,
    /// How long it has been sending the same again.
    waiting_ms: Option<u64>,
    via: &'static str,
    container: Option<ContainerDto>,
    pid: Option<u32>,
    ended_at: Option<String>,
    /// Why it belongs to no pod; absent where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    unattributed: Option<&'static str>,
}

/// The label of a target, written without a string of its own: a page has thousands.
#[derive(Clone, Copy, Debug)]
struct Target(Option<TargetKey>);

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(target) => serializer.collect_str(target),
            None => serializer.serialize_str(OTHER),
        }
    }
}

/// What a connection is evidence of.
#[derive(Debug, Serialize)]
struct ContainerDto {
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<u32>,
    /// It is in the pod's list of containers; one that is not is younger than the list, or a proxy's.
    listed: bool,
}

impl ContainerDto {
    fn new(key: ContainerKey, listed: bool) -> Self {
        let (cgroup, netns) = match key {
            ContainerKey::Cgroup(cgroup) => (Some(cgroup.0), None),
            ContainerKey::Netns(netns) => (None, Some(netns.0)),
            // The connection's own `pid` says which.
            ContainerKey::Process(_) => (None, None),
        };
        Self { cgroup, netns, listed }
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn name(snapshot: &Snapshot, cluster: ClusterId) -> Option<&str> {
    snapshot.clusters.iter().find(|known| known.id == cluster).map(|known| &*known.name)
}

impl<'a> ConnectionDto<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, view: &'a ConnectionView, clocks: &Clocks) -> Self {
        let ConnectionView {
            cluster,
            pod,
            uid,
            container,
            foreign,
            pid,
            target,
            local,
            remote,
            owner,
            state,
            outcome,
            opened_at,
            established_at,
            first_seen,
            last_used,
            rtt,
            retransmits,
            resets,
            bytes_received,
            unanswered,
            waiting_since,
            via,
            ended,
        } = view;
        // The clocks of one that has ended have stopped.
        let until = ended.unwrap_or(clocks.now);
        let for_ms = |since| whole_ms(until.since(since));
        Self {
            namespace: Some(&pod.namespace),
            pod: Some(&pod.name),
            uid: Some(&uid.0),
            cluster: name(snapshot, *cluster),
            target: Target(*target),
            local: *local,
            remote: *remote,
            owner: owner.as_str(),
            state: state.as_str(),
            outcome: outcome.map(|outcome| outcome.as_str()),
            opened_at: opened_at.map(|at| clocks.date(at)),
            established_at: established_at.map(|at| clocks.date(at)),
            first_seen_at: Some(clocks.date(*first_seen)),
            age_ms: Some(for_ms(opened_at.unwrap_or(*first_seen))),
            idle_ms: last_used.map(for_ms),
            rtt_us: rtt.map(micros),
            retransmits: Some(*retransmits),
            resets: *resets,
            bytes_received: *bytes_received,
            unanswered_bytes: *unanswered,
            waiting_ms: waiting_since.map(for_ms),
            via: via.as_str(),
            container: Some(ContainerDto::new(*container, !foreign)),
            pid: *pid,
            ended_at: ended.map(|at| clocks.date(at)),
            unattributed: None,
        }
    }

    /// A socket of nobody: only what the last sample shows is known of it.
    pub(crate) fn of_nobody(snapshot: &'a Snapshot, view: &StrayView, clocks: &Clocks) -> Self {
        let StrayView { reason, cluster, target, owner, outcome, socket } = view;
        let container = socket.owner.cgroup.map(ContainerKey::Cgroup);
        let container = container.or(socket.owner.netns.map(ContainerKey::Netns));
        Self {
            namespace: None,
            pod: None,
            uid: None,
            cluster: cluster.and_then(|cluster| name(snapshot, cluster)),
            target: Target(*target),
            local: socket.local,
            remote: socket.remote,
            owner: owner.as_str(),
            state: socket.state.as_str(),
            outcome: outcome.map(|outcome| outcome.as_str()),
            opened_at: None,
            established_at: None,
            first_seen_at: None,
            age_ms: None,
            idle_ms: socket.last_received.max(socket.last_sent).map(|at| clocks.age_ms(at)),
            rtt_us: socket.rtt.map(micros),
            retransmits: socket.retransmits_total.map(u64::from),
            resets: 0,
            bytes_received: socket.bytes_received,
            unanswered_bytes: socket.unanswered,
            waiting_ms: None,
            via: "direct",
            container: container.map(|key| ContainerDto::new(key, false)),
            pid: socket.owner.pid,
            ended_at: None,
            unattributed: Some(reason.as_str()),
        }
    }
}
