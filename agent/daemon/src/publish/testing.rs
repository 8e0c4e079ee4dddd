//! Snapshots for tests: a healthy node with one cluster of three Stores and two pods, to be changed as a test needs.

use super::{Publication, Publisher, channel};
use crate::publish::serve::Peer;
use axum::{Router, body::Body, response::Response};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use std::{net::IpAddr, sync::Arc, time::Duration};
use storewatch_core::{
    connection::ConnectionOutcome,
    event::{Event, EventKind},
    id::{ClusterId, HostPort, PodRef, PodUid, TargetId, TargetKey},
    ping::{Phases, PingOutcome},
    pod::{Manager, PodRecord, Workload},
    policy::OnUnknown,
    snapshot::{
        AddressView, ClusterView, Connections, Dropped, Histogram, KernelCounters, LastPing, NodeReadiness, PdView,
        PeerView, PodTargetView, PodView, Snapshot, SourceView, StoreView,
    },
    source::{SourceName, SourceState},
    time::MonoTime,
    topology::ReportedState,
    verdict::{Facts, Finding, FindingCode, Reason, Remedy, Severity, Verdict},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The present instant of every test: 1000 s after boot.
pub(crate) fn now() -> MonoTime {
    MonoTime::from_millis(1_000_000)
}

/// An instant that many milliseconds before [`now`].
pub(crate) fn ago(millis: u64) -> MonoTime {
    now() - Duration::from_millis(millis)
}

/// Beyond what a double counts exactly.
pub(crate) const FIRST_STORE: u64 = 1_844_095_761_336_398_711;

pub(crate) fn verdict(reason: Reason) -> Verdict {
    Verdict {
        ready: !matches!(reason.status(), storewatch_core::verdict::Status::NotReady),
        status: reason.status(),
        reason,
        message: format!("because of {}", reason.as_str()),
        since: ago(92_000),
        carried: false,
    }
}

pub(crate) fn finding(code: FindingCode) -> Finding {
    Finding {
        code,
        mode: None,
        target: "pd".to_owned(),
        since: ago(5_000),
        confirms_at: None,
        message: "no PD peer's process answers at 10.0.0.1".to_owned(),
        evidence: "3 of 3 peers".to_owned(),
        facts: Facts::default(),
        remedy: Remedy { now: "start PD".to_owned(), prevent: "run three".to_owned() },
        severity: Severity::Warning,
        carried: false,
    }
}

pub(crate) fn cluster(id: u16, name: &str) -> ClusterView {
    ClusterView {
        id: ClusterId(id),
        name: name.into(),
        readiness: NodeReadiness {
            verdict: verdict(Reason::StoreAnswering),
            active_stores: 3,
            answered_store: Some(FIRST_STORE),
            answering: 1,
            unanswered_stores: vec![FIRST_STORE + 1, FIRST_STORE + 2],
            pd_reachable: Some(true),
            pd_checked: Some(ago(1_100)),
            stores_at: Some(ago(1_100)),
            store_millis: Some(3),
            evidence_at: Some(ago(640)),
            findings: Vec::new(),
        },
        stores: (0..3).map(|n| store(id, TargetKey::Store(FIRST_STORE + n), n == 0)).collect(),
        pd: PdView {
            reachable: Some(true),
            has_leader: Some(true),
            peers: vec![PeerView {
                peer: 0,
                address: HostPort { host: "hugegraph-pd-0".into(), port: 8686 },
                reachable: Some(true),
                last_error: None,
            }],
            findings: Vec::new(),
        },
    }
}

pub(crate) fn store(cluster: u16, key: TargetKey, answering: bool) -> StoreView {
    let mut durations = [Histogram::default(); 4];
    durations[1].observe(Duration::from_micros(300));
    durations[3].observe(Duration::from_micros(700));
    StoreView {
        target: TargetId { cluster: ClusterId(cluster), key },
        address: HostPort { host: "hugegraph-store-0".into(), port: 8500 },
        name: "hugegraph-store-0".to_owned(),
        reported: Some(ReportedState::Up),
        expected: true,
        answering: Some(answering),
        last_ping: Some(LastPing {
            outcome: if answering { PingOutcome::Serving } else { PingOutcome::Refused },
            at: ago(640),
            phases: Phases { connect: Some(Duration::from_micros(312)), ..Phases::default() },
            detail: None,
        }),
        addresses: vec![AddressView {
            ip: IpAddr::from([10, 0, 0, 7]),
            from: ago(60_000),
            to: None,
            source: "dns,pd".to_owned(),
            identity: None,
            against: String::new(),
            occupant: None,
        }],
        findings: Vec::new(),
        pings: vec![(PingOutcome::Serving, 12), (PingOutcome::Refused, 0)],
        ping_durations: durations,
    }
}

pub(crate) fn pod(name: &str, address: IpAddr, reason: Reason) -> PodView {
    PodView {
        record: Arc::new(PodRecord {
            cluster: ClusterId(0),
            pod: PodRef { namespace: "graph".into(), name: name.into() },
            uid: PodUid(format!("uid-of-{name}").into()),
            workload: Some(Workload { kind: "StatefulSet".into(), name: "server".into() }),
            ips: vec![address],
            host_network: false,
            cgroups: Vec::new(),
            netns: None,
            pids: Vec::new(),
            wiring: None,
            manager: Manager::Kubernetes,
        }),
        verdict: verdict(reason),
        findings: Vec::new(),
        evidence_at: Some(ago(500)),
        remedy: None,
        guard: None,
        processes: Vec::new(),
        targets: vec![target(Some(TargetKey::Store(FIRST_STORE))), target(None)],
        transitions: vec![(reason, 1)],
    }
}

pub(crate) fn target(key: Option<TargetKey>) -> PodTargetView {
    let mut connect_duration = Histogram::default();
    connect_duration.observe(Duration::from_millis(2));
    PodTargetView {
        target: key,
        connects: vec![(ConnectionOutcome::Established, 3), (ConnectionOutcome::Refused, 2)],
        endings: vec![(ConnectionOutcome::PeerClosed, 1)],
        resets_received: 4,
        resets_sent: 0,
        retransmits: 5,
        connections: Connections { current: 2, previous: 1, unknown: 0 },
        connect_duration,
        last_attempt: Some(ago(9_000)),
        last_answer: Some(ago(9_000)),
        received: Some(ago(3_000)),
    }
}

pub(crate) fn snapshot() -> Snapshot {
    Snapshot {
        node: "node-a".into(),
        generation: 412,
        taken_at: ago(2_000),
        clusters: vec![cluster(0, "default")],
        pods: vec![
            pod("server-0", IpAddr::from([10, 244, 0, 5]), Reason::StoreAnswering),
            pod("server-1", IpAddr::from([10, 244, 0, 6]), Reason::PodCannotReachStores),
        ],
        pods_fresh: true,
        sources: [(SourceName::Pd, SourceState::Active), (SourceName::Kernel, SourceState::Absent)]
            .map(|(name, state)| SourceView {
                name,
                state,
                detail: "".into(),
                lost: 0,
                last: (state == SourceState::Active).then(|| ago(1_100)),
            })
            .to_vec(),
        synced: true,
        kernel: KernelCounters { state: 7, ..KernelCounters::default() },
        unattributed: Vec::new(),
        dropped: Dropped::default(),
    }
}

/// Both ends, with the clock of this module; the engine has just ticked.
pub(crate) fn published(snapshot: Snapshot) -> (Publisher, Publication) {
    published_with(snapshot, OnUnknown::Ready, CancellationToken::new())
}

pub(crate) fn published_with(
    snapshot: Snapshot,
    on_unknown: OnUnknown,
    draining: CancellationToken,
) -> (Publisher, Publication) {
    let (publisher, publication) = channel(Arc::new(snapshot), on_unknown, draining);
    publisher.beat(now());
    (publisher, publication.with_clock(now))
}

/// One answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {:?}", self.text))
    }

    pub(crate) async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: parts.status, headers: parts.headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Answer {
    Answer::read(router.clone().oneshot(request).await.unwrap()).await
}

pub(crate) async fn get(router: &Router, path: &str) -> Answer {
    send(router, Request::get(path).body(Body::empty()).unwrap()).await
}

/// As a caller from this address.
pub(crate) async fn get_from(router: &Router, path: &str, address: IpAddr) -> Answer {
    let request = Request::get(path).header("x-forwarded-for", "10.244.0.5").header("forwarded", "for=10.244.0.5");
    send(router, request.extension(Peer::new(address)).body(Body::empty()).unwrap()).await
}

/// Something that happened to the first pod.
pub(crate) fn event(generation: u64, kind: EventKind) -> Event {
    Event {
        generation,
        at: ago(100),
        kind,
        cluster: Some(ClusterId(0)),
        pod: Some(PodRef { namespace: "graph".into(), name: "server-0".into() }),
        target: Some(FIRST_STORE.to_string()),
        outcome: None,
        from: Some("one".to_owned()),
        to: Some("two".to_owned()),
        message: format!("number {generation}"),
    }
}
