//! What the judge said, a line for each change.

use super::*;
use std::collections::BTreeSet;
use storewatch_core::{
    snapshot::PodView,
    snapshot::Snapshot,
    verdict::{Finding, Reason, Remedy, Status},
};

impl Node {
    pub(super) fn time(&self) -> String {
        let millis = (self.now.as_nanos() / 1_000_000) - 1_000_000;
        format!("{}.{:03}", millis / 1000, millis % 1000)
    }

    pub(super) fn tell(&mut self, snapshot: &Snapshot) {
        self.check(snapshot);
        let mut subjects = Vec::new();
        for cluster in &snapshot.clusters {
            subjects.push(("node".to_owned(), &cluster.readiness.verdict, &cluster.readiness.findings));
        }
        for pod in &snapshot.pods {
            subjects.push((pod.record.pod.name.to_string(), &pod.verdict, &pod.findings));
        }
        let mut lines = Vec::new();
        for (name, verdict, findings) in &subjects {
            let carried = if verdict.carried { " carried" } else { "" };
            let said = format!("{} {}{carried}", verdict.status.as_str(), verdict.reason.as_str());
            if self.told.get(name) != Some(&said) {
                lines.push(format!("{name} {said}"));
                self.told.insert(name.clone(), said);
            }
            let now: BTreeSet<_> = findings.iter().map(finding).collect();
            let before = self.findings.insert(name.clone(), now.clone()).unwrap_or_default();
            lines.extend(now.difference(&before).map(|finding| format!("{name} + {finding}")));
            lines.extend(before.difference(&now).map(|finding| format!("{name} - {finding}")));
        }
        let gone: Vec<_> =
            self.told.keys().filter(|name| subjects.iter().all(|(known, _, _)| known != *name)).cloned().collect();
        for name in gone {
            self.told.remove(&name);
            self.findings.remove(&name);
            lines.push(format!("{name} gone"));
        }
        for line in lines {
            let _ = writeln!(self.output, "{} {line}", self.time());
        }
    }
}

impl Node {
    /// All that is said about a pod (or the node) and its findings, in full.
    pub(super) fn words(&mut self, name: &str) {
        let snapshot = self.judge.snapshot(self.now);
        let pod = snapshot.pods.iter().find(|pod| &*pod.record.pod.name == name);
        let (verdict, findings, remedy) = match (pod, snapshot.clusters.first()) {
            (Some(pod), _) => (&pod.verdict, &pod.findings, pod.remedy.as_ref()),
            (None, Some(cluster)) => (&cluster.readiness.verdict, &cluster.readiness.findings, None),
            (None, None) => panic!("there is no {name}"),
        };
        let mut lines = vec![format!("{} {}: {}", verdict.status.as_str(), verdict.reason.as_str(), verdict.message)];
        if let Some(Remedy { now, prevent }) = remedy {
            lines.extend([format!("  now: {now}"), format!("  prevent: {prevent}")]);
        }
        for found in findings {
            let Finding { message, evidence, remedy: Remedy { now, prevent }, .. } = found;
            lines.push(finding(found));
            lines.extend([format!("  {message}"), format!("  {evidence}"), format!("  now: {now}")]);
            lines.push(format!("  prevent: {prevent}"));
        }
        let _ = writeln!(self.output, "{} words {name}", self.time());
        for line in lines {
            let _ = writeln!(self.output, "  {line}");
        }
    }
}

/// What holds of every snapshot.
impl Node {
    fn check(&self, snapshot: &Snapshot) {
        let passive =
            |pod: &PodView| matches!(pod.verdict.reason, Reason::PodCannotReachStores | Reason::StaleTransport);
        let guarded = self.script.count("min_other_ready", 1) > 0;
        for pod in &snapshot.pods {
            let verdict = &pod.verdict;
            assert_eq!(verdict.status, verdict.reason.status());
            // Served without authentication: no address, no host.
            let message = &verdict.message;
            assert!(!message.contains("10.0.") && !message.contains("store-"), "{message}");
            let silent = message.starts_with("0 of ");
            assert!(!silent || verdict.status == Status::NotReady, "{}: {:?}: {message}", self.time(), verdict.reason);
            let held = |other: &&PodView| {
                other.record.uid != pod.record.uid
                    && other.record.workload == pod.record.workload
                    && other.verdict.status == Status::Ready
            };
            if passive(pod) && guarded {
                assert!(
                    snapshot.pods.iter().any(|other| held(&other)),
                    "{}: {} left on passive evidence and nobody is ready\n{}",
                    self.time(),
                    pod.record.pod,
                    self.output
                );
            }
        }
    }
}

pub(super) fn finding(finding: &Finding) -> String {
    let mode = finding.mode.map(|mode| format!(" {}", mode.as_str())).unwrap_or_default();
    let target = if finding.target.is_empty() { String::new() } else { format!(" {}", finding.target) };
    let carried = if finding.carried { " carried" } else { "" };
    format!("{}{mode}{target} {}{carried}", finding.code.as_str(), finding.severity.as_str())
}
