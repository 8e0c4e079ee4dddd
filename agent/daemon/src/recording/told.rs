//! What changed from one snapshot to the next: all that the agent told about verdicts and findings.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use storewatch_core::{
    id::{PodRef, PodUid},
    snapshot::Snapshot,
    time::MonoTime,
    verdict::{Finding, FindingCode, Reason, Severity, StaleMode, Verdict},
};

/// Of whom something is told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The node, for the cluster of that name.
    Node(Arc<str>),
    /// A pod.
    Pod {
        /// Its name.
        pod: PodRef,
        /// Its identity.
        uid: PodUid,
    },
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// There is another reason.
    Verdict {
        /// Before; `None` for a new subject.
        from: Option<Reason>,
        /// Now; `None` for one that is gone.
        to: Option<Reason>,
    },
    /// A finding came.
    Came(Mark),
    /// A finding went.
    Went(Mark),
}

/// What makes a finding the same as before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Its code.
    pub code: FindingCode,
    /// How it shows.
    pub mode: Option<StaleMode>,
    /// Label of its target; empty without one.
    pub target: String,
    /// How much it matters.
    pub severity: Severity,
}

impl Mark {
    /// That of a finding.
    pub fn of(finding: &Finding) -> Self {
        let Finding { code, mode, target, severity, .. } = finding;
        Self { code: *code, mode: *mode, target: target.clone(), severity: *severity }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The judgement that it came with.
    pub at: MonoTime,
    /// Of whom.
    pub who: Subject,
    /// What.
    pub what: News,
}

/// How a subject stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Why.
    pub reason: Reason,
    /// What stands out.
    pub findings: BTreeSet<Mark>,
}

/// Follows the snapshots and tells what changes.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    known: BTreeMap<Subject, Standing>,
}

impl Timeline {
    /// One that begins with `snapshot`.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut timeline = Self::default();
        timeline.follow(snapshot);
        timeline
    }

    /// How everybody stands.
    pub fn standings(&self) -> impl Iterator<Item = (&Subject, &Standing)> {
        self.known.iter()
    }

    /// What is new in `snapshot`, each with the sentence that goes with it: of each subject its verdict first, then what
    /// came, then what went.
    pub fn follow(&mut self, snapshot: &Snapshot) -> Vec<(Told, String)> {
        let at = snapshot.taken_at;
        let mut news = Vec::new();
        let mut present = Vec::new();
        for (who, verdict, findings) in subjects(snapshot) {
            let marks: BTreeMap<Mark, &str> =
                findings.iter().map(|finding| (Mark::of(finding), finding.message.as_str())).collect();
            let before = self.known.remove(&who);
            let mut tell = |what, message: &str| news.push((Told { at, who: who.clone(), what }, message.to_owned()));
            let from = before.as_ref().map(|standing| standing.reason);
            if from != Some(verdict.reason) {
                tell(News::Verdict { from, to: Some(verdict.reason) }, &verdict.message);
            }
            let old = before.map(|standing| standing.findings).unwrap_or_default();
            for (mark, message) in marks.iter().filter(|(mark, _)| !old.contains(mark)) {
                tell(News::Came(mark.clone()), message);
            }
            for mark in old.iter().filter(|mark| !marks.contains_key(mark)) {
                tell(News::Went(mark.clone()), "");
            }
            present.push((who, Standing { reason: verdict.reason, findings: marks.into_keys().collect() }));
        }
        for (who, standing) in std::mem::take(&mut self.known) {
            let what = News::Verdict { from: Some(standing.reason), to: None };
            news.push((Told { at, who, what }, String::new()));
        }
        self.known.extend(present);
        news
    }
}

fn subjects(snapshot: &Snapshot) -> impl Iterator<Item = (Subject, &Verdict, &[Finding])> {
    let nodes = snapshot.clusters.iter().map(|cluster| {
        let readiness = &cluster.readiness;
        (Subject::Node(Arc::clone(&cluster.name)), &readiness.verdict, readiness.findings.as_slice())
    });
    let pods = snapshot.pods.iter().map(|view| {
        let who = Subject::Pod { pod: view.record.pod.clone(), uid: view.record.uid.clone() };
        (who, &view.verdict, view.findings.as_slice())
    });
    nodes.chain(pods)
}
