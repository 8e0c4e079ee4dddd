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
    attribution::{Attribution, Unattributed},
    cluster::Cluster,
    event::{Event, EventKind, EventLog},
    findings::Book,
    guard::{self, GuardView},
    id::{ClusterId, PodUid},
    memory::{Early, KernelLoss},
    observation::Observation,
    pod::PodRecord,
    pods::{Pod, World},
    policy::Settings,
    process::ProcessReport,
    request::Request,
    snapshot::{KernelCounters, Snapshot, SourceView},
    source::{Loss, SourceName, SourceReport, SourceState},
    time::MonoTime,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

mod ask;
mod file;
mod losses;
mod publish;
mod remember;

use ask::Strays;
use losses::Losses;

/// How soon a change that is no event of its own (a count, an address) is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// How long a granted exit is good for without being granted again: as long as the Lease that carries it.
pub const EXIT_VALID: Duration = Duration::from_secs(60);

/// Pods of one node that are judged. Kubernetes allows 110 by default and 500 at most in practice.
pub const MAX_PODS: usize = 1024;

/// Ports that are watched in the kernel.
const MAX_PORTS: usize = 64;

/// Least distance between two events about a source whose state stays the same: a cause that changes with every answer
/// must not fill the log.
const CAUSE_SPACING: Duration = Duration::from_secs(10);
/// Processes of judged pods that are looked after.
const MAX_PROCESSES: usize = 4096;

/// Least distance between two samples that are asked for: one costs some 20 ms for 50 000 sockets...
const SAMPLE_SPACING: Duration = Duration::from_secs(1);

/// ... and less when a pod's verdict waits for it.
const URGENT_SPACING: Duration = Duration::from_millis(100);

/// What [`Judge::advance`] has to say.
#[derive(Debug, Default)]
pub struct Advance {
    /// To be published: something changed, or evidence was refreshed; the latter once in each second, and without a
    /// change of [`Judge::changes`].
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

/// What was asked for already, so that only changes are told.
#[derive(Debug, Default)]
struct Told {
    ports: Option<Vec<u16>>,
    selected: Option<Request>,
    processes: Vec<u32>,
    sample: Option<MonoTime>,
}

/// All facts of one node, and the rules.
#[derive(Debug)]
pub struct Judge {
    settings: Settings,
    clusters: Vec<Cluster>,
    pods: BTreeMap<PodUid, Pod>,
    pods_at: Option<MonoTime>,
    attribution: Attribution,
    /// Who may leave by the word of whoever sees all nodes, and since when that word is known.
    exits: Option<(MonoTime, BTreeSet<PodUid>)>,
    early: VecDeque<Early>,
    sources: BTreeMap<SourceName, SourceView>,
    kernel: KernelCounters,
    kernel_loss: Option<KernelLoss>,
    unattributed: BTreeMap<Unattributed, u64>,
    dropped_pods: u64,
    sampled: Option<MonoTime>,
    /// When an earlier run's memory was taken over.
    watched_since: Option<MonoTime>,
    wants_sample: bool,
    urgent_sample: bool,
    /// The processes that dial are no longer those that were told.
    processes_changed: bool,
    told: Told,
    /// What was last told of each source, and when.
    told_sources: BTreeMap<SourceName, (SourceState, Arc<str>, MonoTime)>,
    losses: Losses,
    strays: Strays,
    /// Findings about the node itself.
    book: Book,
    log: EventLog,
    generation: u64,
    changes: u64,
    published: Option<publish::Gist>,
    published_at: Option<MonoTime>,
    looked_at: Option<MonoTime>,
    /// Something was observed since the last look...
    dirty: bool,
    /// ... or since the last publication.
    stale_ages: bool,
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
            pods: BTreeMap::new(),
            pods_at: None,
            attribution: Attribution::default(),
            exits: None,
            early: VecDeque::new(),
            sources: BTreeMap::new(),
            kernel: KernelCounters::default(),
            kernel_loss: None,
            unattributed: BTreeMap::new(),
            dropped_pods: 0,
            sampled: None,
            watched_since: None,
            wants_sample: true,
            urgent_sample: false,
            processes_changed: false,
            told: Told::default(),
            told_sources: BTreeMap::new(),
            losses: Losses::default(),
            strays: Strays::default(),
            book: Book::default(),
            log: EventLog::default(),
            generation: 0,
            changes: 0,
            published: None,
            published_at: None,
            looked_at: None,
            dirty: true,
            stale_ages: false,
        }
    }

    /// Files one observation.
    pub fn observe(&mut self, observation: Observation) {
        let news = !matches!(&observation, Observation::Source(report) if self.only_confirms(report));
        self.dirty |= news;
        self.stale_ages = true;
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
                    cluster.pd(&report, policy, &mut self.log);
                }
            }
            Observation::Name(report) => {
                if let Some(cluster) = self.clusters.get_mut(usize::from(report.target.cluster.0)) {
                    cluster.name(&report);
                }
            }
            Observation::Connection(event) => self.connection(&event),
            Observation::Attempts { at, counts } => self.attempts(at, &counts),
            Observation::Inventory(sample) => self.inventory(&sample),
            Observation::Pods { at, pods } => self.list(at, pods),
            Observation::Endpoints(report) => {
                if let Some(cluster) = self.clusters.get_mut(usize::from(report.cluster.0)) {
                    cluster.endpoints(&report);
                }
            }
            Observation::Exits { at, pods } => self.exits = Some((at, pods)),
            Observation::Processes(reports) => self.processes(&reports),
            Observation::Source(report) => self.source(report),
            Observation::Loss(loss) => self.loss(loss),
        }
    }

    /// The pods of this node: replaces all that was known.
    fn list(&mut self, at: MonoTime, records: Vec<Arc<PodRecord>>) {
        if self.pods_at.is_some_and(|last| last > at) {
            return;
        }
        self.pods_at = Some(at);
        let mut listed: BTreeMap<PodUid, Arc<PodRecord>> = BTreeMap::new();
        for record in records {
            let known = usize::from(record.cluster.0) < self.clusters.len();
            if !known || (listed.len() >= MAX_PODS && !listed.contains_key(&record.uid)) {
                self.dropped_pods = self.dropped_pods.saturating_add(1);
                continue;
            }
            listed.entry(record.uid.clone()).or_insert(record);
        }
        self.pods.retain(|uid, _| listed.contains_key(uid));
        self.processes_changed = true;
        for (uid, record) in &listed {
            let cluster = self.clusters.get(usize::from(record.cluster.0));
            let pod = self.pods.entry(uid.clone()).or_insert_with(|| {
                self.wants_sample = true;
                Pod::new(Arc::clone(record), at)
            });
            pod.update(record, cluster, at, self.settings.policy.window);
        }
        self.attribution = Attribution::new(listed.values());
        self.replay_early(at);
    }

    /// What was found of processes that dial: what they run, or that they have ended.
    fn processes(&mut self, reports: &[ProcessReport]) {
        for pod in self.pods.values_mut() {
            let Some(cluster) = self.clusters.get(usize::from(pod.record.cluster.0)) else { continue };
            for report in reports {
                self.processes_changed |= pod.process(report, cluster);
            }
        }
    }

    /// A source says again what it said before: only ages change.
    fn only_confirms(&self, report: &SourceReport) -> bool {
        let known = self.sources.get(&report.source);
        known.is_some_and(|view| view.last.is_some() && view.state == report.state && view.detail == report.detail)
    }

    fn source(&mut self, report: SourceReport) {
        let SourceReport { source, at, state, detail } = report;
        let answered = (state != SourceState::Absent).then_some(at);
        if source == SourceName::Pods && answered.is_some() && self.pods_at.is_some() {
            self.pods_at = self.pods_at.max(Some(at));
        }
        let told = self.told_sources.get(&source);
        let worth = told
            .is_none_or(|(was, why, told_at)| *was != state || (*why != detail && at.since(*told_at) >= CAUSE_SPACING));
        if worth {
            let name = |state: SourceState| state.as_str().to_owned();
            let colon = if detail.is_empty() { "" } else { ": " };
            let message = format!("{} is {}{colon}{detail}", source.as_str(), state.as_str());
            let before = told.map(|(was, _, _)| name(*was));
            self.log.push(Event::new(at, EventKind::Source, message).change(before, Some(name(state))));
            self.told_sources.insert(source, (state, Arc::clone(&detail), at));
        }
        let view = self.sources.entry(source).or_insert_with(|| SourceView {
            name: source,
            state,
            detail: "".into(),
            lost: 0,
            last: None,
        });
        view.state = state;
        view.detail = detail;
        view.last = view.last.max(answered);
    }

    fn loss(&mut self, loss: Loss) {
        if let Some(view) = self.sources.get_mut(&loss.source) {
            view.lost = view.lost.saturating_add(loss.lost);
        }
        if loss.source == SourceName::Kernel {
            self.kernel.lost = self.kernel.lost.saturating_add(loss.lost);
            let fresh = |before: &KernelLoss| loss.at.since(before.last) <= self.settings.policy.window;
            let none = KernelLoss { since: loss.at, last: loss.at, lost: 0, counters: false };
            let KernelLoss { since, last: _, lost, counters } = self.kernel_loss.filter(fresh).unwrap_or(none);
            let lost = lost.saturating_add(loss.lost);
            self.kernel_loss = Some(KernelLoss { since, last: loss.at, lost, counters: counters || loss.counters });
        }
        self.losses.add(&loss);
    }

    /// The inventory may still answer.
    fn inventory_answers(&self) -> bool {
        self.sources.get(&SourceName::Inventory).is_none_or(|view| view.state != SourceState::Absent)
    }

    /// No attempt was missed within the window.
    fn counters_exact(&self, now: MonoTime) -> bool {
        let window = self.settings.policy.window;
        !self.kernel_loss.is_some_and(|loss| loss.counters && now.since(loss.last) <= window)
    }

    /// Applies the rules at `now`.
    pub fn advance(&mut self, now: MonoTime) -> Advance {
        let mut advance = Advance { next: Some(now.next_second()), ..Advance::default() };
        let present: BTreeSet<_> = self.pods.values().map(|pod| pod.record.cluster).collect();
        for cluster in &mut self.clusters {
            cluster.advance(now, &self.settings.policy, present.contains(&cluster.id), &mut self.log, &mut advance);
            self.urgent_sample |= std::mem::take(&mut cluster.wants_sample);
        }
        self.expire_early(now);
        self.judge_pods(now, &mut advance);
        let due = self.losses.tell(now, &mut self.log);
        advance.wake(due);
        self.tell_node(now);
        self.request(now, &mut advance);
        self.publish(now, &mut advance);
        advance
    }

    fn judge_pods(&mut self, now: MonoTime, advance: &mut Advance) {
        let absent = |view: &SourceView| view.state == SourceState::Absent;
        let world = World {
            now,
            policy: &self.settings.policy,
            inventory: self.inventory_answers(),
            sampled: self.sampled,
            exact: self.counters_exact(now),
            watched_since: self.watched_since,
            pods_absent: self.sources.get(&SourceName::Pods).is_some_and(absent),
        };
        let mut assessments = BTreeMap::new();
        let mut members = Vec::new();
        for (uid, pod) in &mut self.pods {
            let Some(cluster) = self.clusters.get(usize::from(pod.record.cluster.0)) else { continue };
            let assessment = pod.assess(cluster, &world);
            members.push(pod.member(&assessment));
            assessments.insert(uid.clone(), assessment);
        }
        let needed = self.settings.policy.min_other_ready;
        let mut leaving = guard::leaving(&members, needed);
        if let Some((at, granted)) = &self.exits
            && now.since(*at) <= EXIT_VALID
        {
            leaving.extend(granted.iter().cloned());
        }
        let guards: BTreeMap<_, _> = members
            .iter()
            .filter_map(|member| Some((member, member.leaves?)))
            .map(|(member, (reason, _))| {
                (member.uid.clone(), GuardView::new(&members, member, reason, &leaving, needed))
            })
            .collect();
        for (uid, assessment) in assessments {
            let Some(pod) = self.pods.get_mut(&uid) else { continue };
            let Some(cluster) = self.clusters.get_mut(usize::from(pod.record.cluster.0)) else { continue };
            advance.wake(assessment.wake);
            for ((target, remote), spacing) in &assessment.contrasts {
                cluster.contrast(*target, *remote, *spacing, now, advance);
            }
            if let Some(at) = assessment.sample_at {
                if at <= now {
                    self.wants_sample = true;
                } else {
                    advance.wake(Some(at));
                }
            }
            pod.conclude(assessment, guards.get(&uid).copied(), cluster, &world, &mut self.log);
        }
    }

    /// What stands out about the node itself.
    fn tell_node(&mut self, now: MonoTime) {
        let mut findings: Vec<_> = self.kernel_lost(now).into_iter().collect();
        for turn in self.book.settle(&mut findings) {
            self.log.mention(turn.event(now));
        }
    }

    fn request(&mut self, now: MonoTime, advance: &mut Advance) {
        let ports: BTreeSet<u16> = self.clusters.iter().flat_map(Cluster::ports).collect();
        let ports: Vec<_> = ports.into_iter().take(MAX_PORTS).collect();
        if self.told.ports.as_ref() != Some(&ports) {
            self.told.ports = Some(ports.clone());
            advance.requests.push(Request::Ports(ports));
        }
        let (cgroups, netns) = self.attribution.selected();
        let selected = Request::Selected { cgroups, netns };
        if self.told.selected.as_ref() != Some(&selected) {
            self.told.selected = Some(selected.clone());
            advance.requests.push(selected);
        }
        if std::mem::take(&mut self.processes_changed) {
            let dialers = self.pods.values().flat_map(Pod::dialers).map(|(pid, _)| pid);
            let pids: BTreeSet<u32> = dialers.collect();
            let pids: Vec<_> = pids.into_iter().take(MAX_PROCESSES).collect();
            if self.told.processes != pids {
                self.told.processes.clone_from(&pids);
                advance.requests.push(Request::Processes(pids));
            }
        }
        if self.wants_sample || self.urgent_sample {
            let spacing = if self.urgent_sample { URGENT_SPACING } else { SAMPLE_SPACING };
            match self.told.sample {
                Some(last) if now.since(last) < spacing => advance.wake(Some(last + spacing)),
                _ => {
                    (self.wants_sample, self.urgent_sample) = (false, false);
                    self.told.sample = Some(now);
                    advance.requests.push(Request::Inventory);
                }
            }
        }
    }
}
