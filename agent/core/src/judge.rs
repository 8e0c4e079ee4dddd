//! The judge: the one value that holds every fact, and the only way from observations to verdicts.
//!
//! ```text
//! loop { judge.observe(observation).. ; let advance = judge.advance(now); publish(advance) }
//! ```
//!
//! [`Judge::observe`] only files facts; [`Judge::advance`] applies the rules at one instant. Between two calls nothing
//! changes, so the caller may hand over a batch of observations before it asks. No clock is read: whoever replays the
//! same observations with the same instants gets the same verdicts.

use crate::{
    cluster::Cluster,
    event::{Event, EventKind, EventLog},
    id::ClusterId,
    observation::Observation,
    pod::PodRecord,
    policy::Settings,
    request::Request,
    snapshot::{KernelCounters, PodView, Snapshot, SourceView},
    source::{SourceName, SourceState},
    time::MonoTime,
    verdict::{Reason, Verdict},
};
use std::{sync::Arc, time::Duration};

/// How often an unchanged world is published again, for the ages inside it.
const REFRESH: Duration = Duration::from_secs(1);

/// What [`Judge::advance`] has to say.
#[derive(Debug, Default)]
pub struct Advance {
    /// To be published: something changed, or (with the same generation) evidence was refreshed; the latter at most
    /// each second.
    pub snapshot: Option<Snapshot>,
    /// What happened since the last call, oldest first.
    pub events: Vec<Event>,
    /// What the sources should do.
    pub requests: Vec<Request>,
    /// When to call again at the latest, even if nothing is observed.
    pub next: Option<MonoTime>,
}

impl Advance {
    /// Asks to be called at `at` at the latest.
    pub(crate) fn wake(&mut self, at: Option<MonoTime>) {
        if let Some(at) = at {
            self.next = Some(self.next.map_or(at, |next| next.min(at)));
        }
    }
}

/// All facts of one node, and the rules.
#[derive(Debug)]
pub struct Judge {
    settings: Settings,
    clusters: Vec<Cluster>,
    pods: Vec<Arc<PodRecord>>,
    pods_at: Option<MonoTime>,
    sources: Vec<SourceView>,
    kernel: KernelCounters,
    log: EventLog,
    generation: u64,
    published: Option<Snapshot>,
    published_at: Option<MonoTime>,
    dirty: bool,
}

impl Judge {
    /// A judge that knows nothing yet.
    pub fn new(settings: Settings, now: MonoTime) -> Self {
        let clusters = settings
            .clusters
            .iter()
            .zip(0..)
            .map(|(cluster, index)| Cluster::new(ClusterId(index), cluster.clone(), now))
            .collect();
        Self {
            settings,
            clusters,
            pods: Vec::new(),
            pods_at: None,
            sources: Vec::new(),
            kernel: KernelCounters::default(),
            log: EventLog::default(),
            generation: 0,
            published: None,
            published_at: None,
            dirty: true,
        }
    }

    /// Files one observation.
    pub fn observe(&mut self, observation: Observation) {
        self.dirty = true;
        let policy = &self.settings.policy;
        match observation {
            Observation::Ping(ping) => {
                if let Some(cluster) = self.clusters.get_mut(usize::from(ping.target.cluster.0)) {
                    cluster.ping(&ping, policy, &mut self.log);
                }
            }
            Observation::RoundEnded(round) => {
                if let Some(cluster) = self.clusters.get_mut(usize::from(round.cluster.0)) {
                    cluster.round_ended(&round, policy);
                }
            }
            Observation::Pd(report) => {
                if let Some(cluster) = self.clusters.get_mut(usize::from(report.cluster.0)) {
                    cluster.pd(&report, policy);
                }
            }
            Observation::Pods { at, pods } => {
                self.pods = pods;
                self.pods_at = Some(at);
            }
            Observation::Source(report) => {
                let known = self.sources.iter_mut().find(|view| view.name == report.source);
                let last = (report.state != SourceState::Absent).then_some(report.at);
                match known {
                    Some(view) => {
                        if view.state != report.state {
                            self.log.push(
                                Event::new(report.at, EventKind::Source, report.detail.to_string())
                                    .change(Some(view.state.as_str().into()), Some(report.state.as_str().into())),
                            );
                        }
                        view.state = report.state;
                        view.detail = report.detail;
                        view.last = last.or(view.last);
                    }
                    None => self.sources.push(SourceView {
                        name: report.source,
                        state: report.state,
                        detail: report.detail,
                        lost: 0,
                        last,
                    }),
                }
            }
            Observation::Loss(loss) => {
                if let Some(view) = self.sources.iter_mut().find(|view| view.name == loss.source) {
                    view.lost = view.lost.saturating_add(loss.lost);
                }
                if loss.source == SourceName::Kernel {
                    self.kernel.lost = self.kernel.lost.saturating_add(loss.lost);
                }
            }
            Observation::Connection(_)
            | Observation::Attempts { .. }
            | Observation::Inventory(_)
            | Observation::Name(_) => {}
        }
    }

    /// Applies the rules at `now`.
    pub fn advance(&mut self, now: MonoTime) -> Advance {
        let mut advance = Advance { next: Some(now + REFRESH), ..Advance::default() };
        for cluster in &mut self.clusters {
            let present = self.pods.iter().any(|pod| pod.cluster == cluster.id);
            cluster.advance(now, &self.settings.policy, present, &mut self.log, &mut advance);
        }
        if self.dirty {
            let snapshot = self.snapshot(now);
            let changed = self.published.as_ref().is_none_or(|last| last.pods.len() != snapshot.pods.len())
                || self.log.has_pending();
            if changed || self.published_at.is_none_or(|at| now.since(at) >= REFRESH) {
                self.generation += u64::from(changed);
                let snapshot = Snapshot { generation: self.generation, ..snapshot };
                self.published = Some(snapshot.clone());
                self.published_at = Some(now);
                self.dirty = false;
                advance.snapshot = Some(snapshot);
            }
        }
        advance.events = self.log.drain(self.generation);
        advance
    }

    /// The world as of the last [`Judge::advance`].
    pub fn snapshot(&self, now: MonoTime) -> Snapshot {
        let clusters: Vec<_> = self.clusters.iter().map(|cluster| cluster.view(&self.settings.policy)).collect();
        let mut pods: Vec<_> = self
            .pods
            .iter()
            .filter_map(|record| {
                let readiness = &clusters.get(usize::from(record.cluster.0))?.readiness;
                Some(PodView {
                    record: Arc::clone(record),
                    verdict: Verdict {
                        reason: match readiness.verdict.reason {
                            Reason::StoreListUnknown => Reason::NoEvidenceYet,
                            reason => reason,
                        },
                        ..readiness.verdict.clone()
                    },
                    findings: Vec::new(),
                    evidence_at: readiness.evidence_at,
                    targets: Vec::new(),
                    transitions: Vec::new(),
                })
            })
            .collect();
        pods.sort_by(|a, b| a.record.pod.cmp(&b.record.pod));
        Snapshot {
            node: Arc::clone(&self.settings.node),
            generation: self.generation,
            taken_at: now,
            clusters,
            pods,
            pods_fresh: self.pods_at.is_some(),
            sources: self.sources.clone(),
            synced: !self.sources.is_empty(),
            kernel: self.kernel,
        }
    }
}
