//! Pods and findings.

use super::Clocks;
use serde::Serialize;
use std::{collections::BTreeMap, net::IpAddr};
use storewatch_core::{
    connection::ConnectionOutcome,
    snapshot::{PodTargetView, PodView, Snapshot},
    verdict::Finding,
};

/// The name of an address that no target owns.
pub(crate) const OTHER: &str = "other";

#[derive(Debug, Serialize)]
pub(crate) struct PodDto<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    cluster: Option<&'a str>,
    /// `Kind/name`.
    workload: Option<String>,
    ips: &'a [IpAddr],
    host_network: bool,
    /// Null where the source of pods cannot tell.
    wiring: Option<WiringDto<'a>>,
    status: &'static str,
    ready: bool,
    reason: &'static str,
    message: &'a str,
    since: String,
    age_ms: Option<u64>,
    carried: bool,
    findings: Vec<FindingDto<'a>>,
    targets: Vec<TargetDto>,
}

/// How the pod is wired to this agent.
#[derive(Debug, Serialize)]
struct WiringDto<'a> {
    probe: bool,
    /// A mistake: see the README on liveness.
    liveness: bool,
    gate: bool,
    condition: Option<ConditionDto<'a>>,
    maintenance: bool,
}

/// The gate's condition as it stands.
#[derive(Debug, Serialize)]
struct ConditionDto<'a> {
    open: bool,
    reason: &'a str,
}

#[derive(Debug, Serialize)]
pub(crate) struct FindingDto<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    target: &'a str,
    since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirms_at: Option<String>,
    message: &'a str,
    evidence: &'a str,
    remedy: RemedyDto<'a>,
    severity: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    carried: bool,
}

#[derive(Debug, Serialize)]
struct RemedyDto<'a> {
    now: &'a str,
    prevent: &'a str,
}

/// What was counted between a pod and one target since the agent began to watch.
#[derive(Debug, Serialize)]
struct TargetDto {
    target: String,
    connects: BTreeMap<&'static str, u64>,
    endings: BTreeMap<&'static str, u64>,
    resets_received: u64,
    resets_sent: u64,
    retransmits: u64,
    connections: ConnectionsDto,
}

#[derive(Debug, Serialize)]
struct ConnectionsDto {
    current: u32,
    previous: u32,
    unknown: u32,
}

impl<'a> PodDto<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, pod: &'a PodView, clocks: &Clocks) -> Self {
        let PodView { record, verdict, findings, evidence_at, targets, transitions: _ } = pod;
        Self {
            namespace: &record.pod.namespace,
            name: &record.pod.name,
            uid: &record.uid.0,
            cluster: snapshot
                .clusters
                .iter()
                .find(|cluster| cluster.id == record.cluster)
                .map(|cluster| &*cluster.name),
            workload: record.workload.as_ref().map(|workload| format!("{}/{}", workload.kind, workload.name)),
            ips: &record.ips,
            host_network: record.host_network,
            wiring: record.wiring.as_ref().map(|wiring| WiringDto {
                probe: wiring.probe,
                liveness: wiring.liveness,
                gate: wiring.gate,
                condition: wiring
                    .condition
                    .as_ref()
                    .map(|condition| ConditionDto { open: condition.open, reason: &condition.reason }),
                maintenance: wiring.maintenance,
            }),
            status: verdict.status.as_str(),
            ready: verdict.ready,
            reason: verdict.reason.as_str(),
            message: &verdict.message,
            since: clocks.date(verdict.since),
            age_ms: evidence_at.map(|at| clocks.age_ms(at)),
            carried: verdict.carried,
            findings: findings.iter().map(|finding| FindingDto::new(finding, clocks)).collect(),
            targets: targets.iter().map(TargetDto::new).collect(),
        }
    }
}

impl<'a> FindingDto<'a> {
    pub(crate) fn new(finding: &'a Finding, clocks: &Clocks) -> Self {
        let Finding { code, mode, target, since, confirms_at, message, evidence, remedy, severity, carried } = finding;
        Self {
            code: code.as_str(),
            mode: mode.map(|mode| mode.as_str()),
            target,
            since: clocks.date(*since),
            confirms_at: confirms_at.map(|at| clocks.date(at)),
            message,
            evidence,
            remedy: RemedyDto { now: &remedy.now, prevent: &remedy.prevent },
            severity: severity.as_str(),
            carried: *carried,
        }
    }
}

impl TargetDto {
    fn new(view: &PodTargetView) -> Self {
        let by_outcome = |counts: &[(ConnectionOutcome, u64)]| {
            let mut sums = BTreeMap::new();
            for (outcome, count) in counts {
                *sums.entry(outcome.as_str()).or_default() += count;
            }
            sums
        };
        Self {
            target: view.target.map_or_else(|| OTHER.to_owned(), |target| target.to_string()),
            connects: by_outcome(&view.connects),
            endings: by_outcome(&view.endings),
            resets_received: view.resets_received,
            resets_sent: view.resets_sent,
            retransmits: view.retransmits,
            connections: ConnectionsDto {
                current: view.connections.current,
                previous: view.connections.previous,
                unknown: view.connections.unknown,
            },
        }
    }
}
