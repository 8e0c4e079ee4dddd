//! Answers to "is it ready?": for the node, a cluster, a pod, a workload. HTTP, gRPC health and the admin side all ask
//! here, so that they cannot disagree.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeSet, net::IpAddr};
use storewatch_core::{
    policy::OnUnknown,
    snapshot::{ClusterView, PodView, Snapshot},
    time::MonoTime,
    verdict::{Reason, Status, Verdict},
};

/// An answer, and what stands behind it.
#[derive(Clone, Debug)]
pub(crate) struct Readiness<'a> {
    /// What the status code says.
    pub(crate) ready: bool,
    pub(crate) status: Status,
    pub(crate) reason: Reason,
    /// In words, without addresses.
    pub(crate) message: Cow<'a, str>,
    /// `None` when nothing was ever known of the subject.
    pub(crate) since: Option<MonoTime>,
    /// The youngest evidence that it rests on.
    pub(crate) evidence_at: Option<MonoTime>,
    /// Kept from before a restart of the agent.
    pub(crate) carried: bool,
    /// The cluster concerned; `None` for an unknown pod when there are several.
    pub(crate) cluster: Option<&'a ClusterView>,
    /// Codes, each once, in their order of declaration.
    pub(crate) findings: Vec<&'static str>,
    /// For a workload: how many of its pods are on this node, and how many of those are ready.
    pub(crate) pods: Option<(usize, usize)>,
    /// For the node, when there are several: every cluster.
    pub(crate) clusters: &'a [ClusterView],
}

/// Whom a question is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    /// A pod by its name.
    Pod { namespace: &'a str, name: &'a str },
    /// A pod by its UID.
    Uid(&'a str),
    /// The pod that owns an address.
    Address(IpAddr),
    /// All pods of a workload on this node.
    Workload { namespace: &'a str, name: &'a str, kind: Option<&'a str>, require: Require },
}

/// How many pods of a workload must be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Require {
    Any,
    All,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// A fresh inventory does not hold it.
    NotFound,
    /// Several pods have this address.
    Shared,
}

/// The node's answer over every configured cluster: all must be ready. The least ready one speaks.
pub(crate) fn node(snapshot: &Snapshot) -> Readiness<'_> {
    let Some(worst) = snapshot.clusters.iter().min_by(|a, b| rank(&a.readiness.verdict, &b.readiness.verdict)) else {
        return Readiness {
            ready: false,
            status: Status::NotReady,
            reason: Reason::StoreListUnknown,
            message: Cow::Borrowed("no cluster is configured"),
            since: None,
            evidence_at: None,
            carried: false,
            cluster: None,
            findings: Vec::new(),
            pods: None,
            clusters: &[],
        };
    };
    let mut answer = of_cluster(worst);
    if snapshot.clusters.len() > 1 {
        answer.clusters = &snapshot.clusters;
        answer.findings = codes(snapshot.clusters.iter().flat_map(|cluster| &cluster.readiness.findings));
    }
    answer
}

/// The node's answer for the cluster of that name.
pub(crate) fn cluster<'a>(snapshot: &'a Snapshot, name: &str) -> Option<Readiness<'a>> {
    snapshot.clusters.iter().find(|cluster| *cluster.name == *name).map(of_cluster)
}

/// The answer for one pod as it stands in the snapshot.
pub(crate) fn of_pod<'a>(snapshot: &'a Snapshot, pod: &'a PodView) -> Readiness<'a> {
    let cluster = snapshot.clusters.iter().find(|cluster| cluster.id == pod.record.cluster);
    of_verdict(&pod.verdict, pod.evidence_at, cluster, codes(&pod.findings))
}

/// The answer about pods.
///
/// While the inventory is not fresh, a subject that it does not hold is Unknown, and `on_unknown` decides.
pub(crate) fn find<'a>(
    snapshot: &'a Snapshot,
    subject: Subject<'_>,
    on_unknown: OnUnknown,
) -> Result<Readiness<'a>, NoAnswer> {
    let found: Vec<&PodView> = snapshot.pods.iter().filter(|pod| matches(pod, subject)).collect();
    match (subject, found.as_slice()) {
        (_, []) if snapshot.pods_fresh => Err(NoAnswer::NotFound),
        (_, []) => Ok(not_synced(snapshot, on_unknown)),
        (Subject::Workload { require, .. }, pods) => Ok(of_workload(snapshot, pods, require)),
        (_, [pod]) => Ok(of_pod(snapshot, pod)),
        // A name or a UID is unique in an inventory; an address need not be.
        (Subject::Address(_), _) => Err(NoAnswer::Shared),
        (_, [pod, ..]) => Ok(of_pod(snapshot, pod)),
    }
}

fn matches(pod: &PodView, subject: Subject<'_>) -> bool {
    let record = &pod.record;
    match subject {
        Subject::Pod { namespace, name } => *record.pod.name == *name && *record.pod.namespace == *namespace,
        Subject::Uid(uid) => *record.uid.0 == *uid,
        Subject::Address(address) => record.ips.iter().any(|ip| ip.to_canonical() == address.to_canonical()),
        Subject::Workload { namespace, name, kind, .. } => {
            *record.pod.namespace == *namespace
                && record
                    .workload
                    .as_ref()
                    .is_some_and(|workload| *workload.name == *name && kind.is_none_or(|kind| *workload.kind == *kind))
        }
    }
}

fn of_cluster(cluster: &ClusterView) -> Readiness<'_> {
    let readiness = &cluster.readiness;
    of_verdict(&readiness.verdict, readiness.evidence_at, Some(cluster), codes(&readiness.findings))
}

/// The pod that decides speaks: the most ready one when any is enough, the least ready one when all must be.
fn of_workload<'a>(snapshot: &'a Snapshot, pods: &[&'a PodView], require: Require) -> Readiness<'a> {
    let by_rank = |a: &&&PodView, b: &&&PodView| rank(&a.verdict, &b.verdict);
    let decider = match require {
        Require::Any => pods.iter().max_by(by_rank),
        Require::All => pods.iter().min_by(by_rank),
    };
    let ready = pods.iter().filter(|pod| pod.verdict.ready).count();
    let mut answer = decider.map_or_else(|| not_synced(snapshot, OnUnknown::NotReady), |pod| of_pod(snapshot, pod));
    answer.pods = Some((pods.len(), ready));
    answer.findings = codes(pods.iter().flat_map(|pod| &pod.findings));
    answer
}

fn of_verdict<'a>(
    verdict: &'a Verdict,
    evidence_at: Option<MonoTime>,
    cluster: Option<&'a ClusterView>,
    findings: Vec<&'static str>,
) -> Readiness<'a> {
    Readiness {
        ready: verdict.ready,
        status: verdict.status,
        reason: verdict.reason,
        message: Cow::Borrowed(&verdict.message),
        since: Some(verdict.since),
        evidence_at,
        carried: verdict.carried,
        cluster,
        findings,
        pods: None,
        clusters: &[],
    }
}

fn not_synced(snapshot: &Snapshot, on_unknown: OnUnknown) -> Readiness<'_> {
    Readiness {
        ready: on_unknown == OnUnknown::Ready,
        status: Status::Unknown,
        reason: Reason::PodSourceAbsent,
        message: Cow::Borrowed("the pod inventory is not up to date, and it does not hold this one"),
        since: None,
        evidence_at: None,
        carried: false,
        cluster: match snapshot.clusters.as_slice() {
            [only] => Some(only),
            _ => None,
        },
        findings: Vec::new(),
        pods: None,
        clusters: &[],
    }
}

/// Less ready is less. What the status code says comes first, then how sure it is.
fn rank(a: &Verdict, b: &Verdict) -> Ordering {
    let certainty = |status| match status {
        Status::NotReady => 0,
        Status::Unknown => 1,
        Status::Ready => 2,
    };
    a.ready.cmp(&b.ready).then(certainty(a.status).cmp(&certainty(b.status)))
}

fn codes<'a>(findings: impl IntoIterator<Item = &'a storewatch_core::verdict::Finding>) -> Vec<&'static str> {
    let codes: BTreeSet<_> = findings.into_iter().map(|finding| finding.code).collect();
    codes.into_iter().map(|code| code.as_str()).collect()
}
