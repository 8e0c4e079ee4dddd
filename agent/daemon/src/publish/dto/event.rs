//! Events.

use super::Clocks;
use serde::Serialize;
use storewatch_core::{event::Event, snapshot::Snapshot};

#[derive(Debug, Serialize)]
pub(crate) struct EventDto<'a> {
    generation: u64,
    at: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    message: &'a str,
}

impl<'a> EventDto<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, event: &'a Event, clocks: &Clocks) -> Self {
        let Event { generation, at, kind, cluster, pod, target, outcome, from, to, message } = event;
        let named = cluster.and_then(|id| snapshot.clusters.iter().find(|known| known.id == id));
        Self {
            generation: *generation,
            at: clocks.date(*at),
            kind: kind.as_str(),
            cluster: named.map(|known| &*known.name),
            namespace: pod.as_ref().map(|pod| &*pod.namespace),
            pod: pod.as_ref().map(|pod| &*pod.name),
            target: target.as_deref(),
            outcome: *outcome,
            from: from.as_deref(),
            to: to.as_deref(),
            message,
        }
    }

    /// The word that events after `generation` are missing, in the shape of an event.
    pub(crate) fn missed(generation: u64, message: &'a str, clocks: &Clocks) -> Self {
        Self {
            generation,
            at: clocks.date(clocks.now),
            kind: storewatch_core::event::EventKind::Loss.as_str(),
            cluster: None,
            namespace: None,
            pod: None,
            target: None,
            outcome: Some("events"),
            from: None,
            to: None,
            message,
        }
    }
}
