//! Pods and findings.

use super::{Clocks, fine_ms, whole_ms};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};
use storewatch_core::{
    connection::ConnectionOutcome,
    guard::GuardView,
    process::{CommandLine, FlagValue},
    snapshot::{PodTargetView, PodView, ProcessView, Snapshot},
    verdict::{Facts, Finding, Remedy},
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
    /// What to do about the verdict; null when there is nothing to do.
    remedy: Option<RemedyDto<'a>>,
    /// Null while nothing speaks for taking the pod out on passive evidence.
    guard: Option<GuardDto>,
    processes: Vec<ProcessDto>,
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

/// How the guard stands to a pod that should leave.
#[derive(Debug, Serialize)]
struct GuardDto {
    reason: &'static str,
    holds: bool,
    needed: u32,
    free: u32,
    suspected: u32,
    others: u32,
}

/// A process that dials, and of its command line what matters here.
#[derive(Debug, Serialize)]
struct ProcessDto {
    pid: u32,
    /// Null before it was looked at.
    started: Option<String>,
    /// Null while it could not be read.
    command: Option<CommandDto>,
}

#[derive(Debug, Serialize)]
struct CommandDto {
    java: bool,
    /// It was read to its end.
    whole: bool,
    /// `-Dsun.net.inetaddr.ttl`: its value, or null when it is not there.
    dns_ttl: Option<FlagDto>,
    /// `-Dnetworkaddress.cache.ttl`, likewise.
    cache_ttl: Option<FlagDto>,
    security_manager: bool,
    more_elsewhere: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum FlagDto {
    Number(i64),
    /// What is no number is not told.
    Other(&'static str),
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
    facts: FactsDto,
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

/// What the sentences say, as numbers; what a finding has no number for is left out.
#[derive(Debug, Serialize)]
struct FactsDto {
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    present_address: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ping_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answering_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_attempt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt_age_ms: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    every_attempt: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suspected_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed_at: Option<String>,
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
    /// Attempts that are over; those that were answered are `connects.established`.
    attempts: u64,
    last_attempt_age_ms: Option<u64>,
    last_answer_age_ms: Option<u64>,
    received_age_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ConnectionsDto {
    current: u32,
    previous: u32,
    unknown: u32,
}

impl<'a> PodDto<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, pod: &'a PodView, clocks: &Clocks) -> Self {
        let PodView { record, verdict, findings, evidence_at, remedy, guard, processes, targets, transitions: _ } = pod;
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
            remedy: remedy.as_ref().map(RemedyDto::new),
            guard: guard.map(GuardDto::new),
            processes: processes.iter().map(|process| ProcessDto::new(process, clocks)).collect(),
            targets: targets.iter().map(|target| TargetDto::new(target, clocks)).collect(),
        }
    }
}

impl<'a> RemedyDto<'a> {
    fn new(remedy: &'a Remedy) -> Self {
        let Remedy { now, prevent } = remedy;
        Self { now, prevent }
    }
}

impl GuardDto {
    fn new(guard: GuardView) -> Self {
        let GuardView { reason, holds, needed, free, suspected, others } = guard;
        Self { reason: reason.as_str(), holds, needed, free, suspected, others }
    }
}

impl ProcessDto {
    fn new(process: &ProcessView, clocks: &Clocks) -> Self {
        let ProcessView { pid, started, command } = *process;
        let flag = |value: FlagValue| match value {
            FlagValue::Number(number) => FlagDto::Number(number),
            FlagValue::Other => FlagDto::Other("no number"),
        };
        let command = command.map(|command| {
            let CommandLine { java, whole, dns_ttl, cache_ttl, security_manager, more_elsewhere } = command;
            CommandDto {
                java,
                whole,
                dns_ttl: dns_ttl.map(flag),
                cache_ttl: cache_ttl.map(flag),
                security_manager,
                more_elsewhere,
            }
        });
        Self { pid, started: started.map(|at| clocks.date(at)), command }
    }
}

impl FactsDto {
    fn new(facts: &Facts, clocks: &Clocks) -> Self {
        let Facts {
            address,
            left_at,
            present,
            ping,
            answering,
            attempts,
            answers,
            first_attempt,
            last_attempt,
            every_attempt,
            connections,
            suspected_at,
            confirmed_at,
        } = *facts;
        let date = |at: Option<_>| at.map(|at| clocks.date(at));
        Self {
            address,
            left_at: date(left_at),
            present_address: present,
            ping_ms: ping.map(fine_ms),
            answering_ms: answering.map(whole_ms),
            attempts,
            answers,
            first_attempt: date(first_attempt),
            last_attempt: date(last_attempt),
            last_attempt_age_ms: last_attempt.map(|at| clocks.age_ms(at)),
            every_attempt,
            connections,
            suspected_at: date(suspected_at),
            confirmed_at: date(confirmed_at),
        }
    }
}

impl<'a> FindingDto<'a> {
    pub(crate) fn new(finding: &'a Finding, clocks: &Clocks) -> Self {
        let Finding { code, mode, target, since, confirms_at, message, evidence, facts, remedy, severity, carried } =
            finding;
        Self {
            code: code.as_str(),
            mode: mode.map(|mode| mode.as_str()),
            target,
            since: clocks.date(*since),
            confirms_at: confirms_at.map(|at| clocks.date(at)),
            message,
            evidence,
            facts: FactsDto::new(facts, clocks),
            remedy: RemedyDto::new(remedy),
            severity: severity.as_str(),
            carried: *carried,
        }
    }
}

impl TargetDto {
    fn new(view: &PodTargetView, clocks: &Clocks) -> Self {
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
            attempts: view.connects.iter().map(|(_, count)| *count).fold(0, u64::saturating_add),
            last_attempt_age_ms: view.last_attempt.map(|at| clocks.age_ms(at)),
            last_answer_age_ms: view.last_answer.map(|at| clocks.age_ms(at)),
            received_age_ms: view.received.map(|at| clocks.age_ms(at)),
        }
    }
}
