//! Findings about a pod's connections, each with what was compared and what to do.

use crate::{
    classify,
    cluster::Cluster,
    connection::ConnectionOutcome,
    container::{MEMORY, POOL, Remote, count_since},
    event::{Event, EventKind},
    id::{Role, TargetKey},
    naming::Named,
    pod::PodRecord,
    remedy::{self, Case, Client},
    sockets::Received,
    time::{MonoTime, short},
    verdict::{Facts, Finding, FindingCode, Severity, StaleMode},
};
use std::{cell::LazyCell, collections::BTreeMap, net::SocketAddr, time::Duration};

/// How alike the idle times before two drops must be: within a quarter.
const ALIKE: f64 = 0.25;

/// Idle drops are rare, so they are remembered longer than the window.
const IDLE_DROP_MEMORY: Duration = Duration::from_secs(3600);

/// What the node's own pings say about a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeWord {
    /// It answers.
    pub(crate) answers: bool,
    /// It lets itself be connected to and does not answer.
    pub(crate) hung: bool,
    /// It does not answer at all.
    pub(crate) down: bool,
    /// Pings in a row without an answer.
    pub(crate) silent: u32,
    /// How the last one ended.
    pub(crate) outcome: Option<&'static str>,
    /// The last one that was answered.
    pub(crate) answer: Option<Answered>,
}

/// An answered ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Where.
    pub remote: SocketAddr,
    /// When it was answered.
    pub at: MonoTime,
    /// How long the answer took.
    pub took: Duration,
}

impl NodeWord {
    /// How the node's own pings fare.
    fn words(&self, now: MonoTime) -> String {
        match (self.answers, self.answer, self.outcome) {
            (true, Some(Answered { at, took, .. }), _) => {
                format!("it answered this node in {}, {} ago", short(took), short(now.since(at)))
            }
            (true, None, _) => "it answers this node".into(),
            (false, _, Some(outcome)) => format!("this node's last {} pings ended as {outcome}", self.silent.max(1)),
            (false, _, None) => "this node has not pinged it yet".into(),
        }
    }

    /// Adds where the target answers at present.
    pub(crate) fn fill(&self, facts: &mut Facts) {
        if let Some(Answered { remote, took, .. }) = self.answer.filter(|_| self.answers) {
            facts.present = Some(remote);
            facts.ping = Some(took);
        }
    }
}

/// What stands out, before it is a finding.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) code: FindingCode,
    pub(crate) severity: Severity,
    pub(crate) message: String,
    pub(crate) evidence: String,
    pub(crate) facts: Facts,
    pub(crate) mode: Option<StaleMode>,
    /// Since when, if that is not now.
    pub(crate) since: Option<MonoTime>,
}

impl Said {
    pub(crate) fn new(code: FindingCode, severity: Severity, message: String, evidence: String) -> Self {
        Self { code, severity, message, evidence, facts: Facts::default(), mode: None, since: None }
    }

    pub(crate) fn facts(self, facts: Facts) -> Self {
        Self { facts, ..self }
    }
}

/// What a pod's connections to one target came to within the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetFacts {
    pub(crate) failed: BTreeMap<ConnectionOutcome, u64>,
    endings: BTreeMap<ConnectionOutcome, u64>,
    slow: u64,
    idle_drops: Vec<Duration>,
    pub(crate) counted: BTreeMap<ConnectionOutcome, u64>,
    pub(crate) counted_at: Vec<SocketAddr>,
    last_counted: Option<MonoTime>,
    last_answer: Option<MonoTime>,
    established: u32,
    pool_small_since: Option<MonoTime>,
    received: Received,
    active: bool,
    answers: u64,
    first_failed: Option<MonoTime>,
    last_failed: Option<MonoTime>,
    last_attempt: Option<MonoTime>,
    last_ending: Option<MonoTime>,
}

impl TargetFacts {
    /// Adds what one container's connections to one address of the target came to.
    pub(crate) fn add(&mut self, address: SocketAddr, remote: &Remote, now: MonoTime, window: Duration) {
        let since = now - window;
        for (list, sums) in [(&remote.failed, &mut self.failed), (&remote.endings, &mut self.endings)] {
            for (_, outcome, added) in list.iter().filter(|(at, _, _)| *at >= since) {
                let sum: &mut u64 = sums.entry(*outcome).or_default();
                *sum = sum.saturating_add(*added);
            }
        }
        for (at, _, _) in remote.failed.iter().filter(|(at, _, _)| *at >= since) {
            self.first_failed = Some(self.first_failed.map_or(*at, |first| first.min(*at)));
            self.last_failed = self.last_failed.max(Some(*at));
        }
        self.answers = self.answers.saturating_add(count_since(&remote.answers, since, |()| true));
        self.last_answer = self.last_answer.max(remote.last_established);
        self.last_attempt = self.last_attempt.max(remote.last_begun);
        self.last_ending = self.last_ending.max(remote.endings.back().map(|(at, _, _)| *at));
        self.slow = self.slow.saturating_add(count_since(&remote.slow, since, |()| true));
        let memory = now - IDLE_DROP_MEMORY;
        self.idle_drops.extend(remote.idle_drops.iter().filter(|(at, _, _)| *at >= memory).map(|(_, idle, _)| *idle));
        for attempt in remote.counted(now - window.max(MEMORY)) {
            *self.counted.entry(attempt.outcome).or_default() += 1;
            self.last_counted = self.last_counted.max(Some(attempt.ended));
            if !self.counted_at.contains(&address) {
                self.counted_at.push(address);
            }
        }
        self.established += remote.established;
        self.pool_small_since = self.pool_small_since.max(remote.few_since);
        self.received.merge(remote.received);
        self.active |= remote.last_activity.is_some_and(|at| at >= since) || remote.established > 0;
    }

    /// The findings that follow from this target's facts alone.
    pub(crate) fn findings(&self, draft: &Draft<'_>, target: TargetKey, cluster: &Cluster) -> Vec<Finding> {
        let word = cluster.node_word(target);
        // Of a hundred pods' targets few stand out, and only those need a name.
        let named = LazyCell::new(|| cluster.named(target));
        let name = || named.name.as_str();
        let mut said = Vec::new();
        // Of PD there is PdDown, once no peer answers; one peer that is away is nobody's finding.
        if target.role() == Role::Store {
            said.extend(self.down(draft, &word, name));
            said.extend(self.hung(&word, name));
        }
        said.extend(self.blackhole(draft, &word, name));
        said.extend(self.endings(draft, name));
        said.extend(self.idle(name));
        said.extend(self.pool(draft, target, name));
        said.extend(self.overloaded(&word, name));
        said.extend(self.local(draft, name));
        said.into_iter()
            .map(|mut said| {
                word.fill(&mut said.facts);
                draft.finding(Some((target, &named)), said)
            })
            .collect()
    }

    /// The attempts of the window, as numbers.
    fn attempts(&self) -> Facts {
        Facts {
            attempts: Some(self.total()),
            answers: Some(self.answers),
            first_attempt: self.first_failed,
            last_attempt: self.last_attempt.max(self.last_failed),
            connections: Some(self.established.into()),
            ..Facts::default()
        }
    }

    /// The failed attempts of the window, in words.
    fn failures(&self, draft: &Draft<'_>) -> String {
        let answered = if self.answers > 0 { format!("{} answered, ", self.answers) } else { String::new() };
        format!(
            "{} within {} ({answered}{}), {}",
            plural(self.total(), "attempt"),
            short(draft.window),
            outcomes(&self.failed),
            self.last(draft)
        )
    }

    fn total(&self) -> u64 {
        self.failed.values().copied().fold(self.answers, u64::saturating_add)
    }

    fn last(&self, draft: &Draft<'_>) -> String {
        let last = self.last_attempt.max(self.last_failed);
        last.map_or_else(
            || "the last at an unknown time".into(),
            |at| format!("the last {} ago", short(draft.now.since(at))),
        )
    }

    fn down<'a>(&self, draft: &Draft<'_>, word: &NodeWord, name: impl Fn() -> &'a str) -> Option<Said> {
        let failures = self.failed.iter().filter(|(outcome, _)| classify::counts_as_failure(**outcome));
        let failed = failures.map(|(_, count)| *count).fold(0, u64::saturating_add);
        (word.down && failed > 0).then(|| {
            Said::new(
                FindingCode::StoreDown,
                Severity::Warning,
                format!("attempts to reach {} fail, and it does not answer this node either", name()),
                format!("{}; {}", self.failures(draft), word.words(draft.now)),
            )
            .facts(self.attempts())
        })
    }

    fn hung<'a>(&self, word: &NodeWord, name: impl Fn() -> &'a str) -> Option<Said> {
        (word.hung && self.active).then(|| {
            Said::new(
                FindingCode::StoreHung,
                Severity::Warning,
                format!("{} accepts connections and answers nothing", name()),
                format!(
                    "this pod holds {}; this node's last {} pings connected and ran into their time-out",
                    plural(self.established.into(), "connection"),
                    word.silent
                ),
            )
            .facts(self.attempts())
        })
    }

    fn blackhole<'a>(&self, draft: &Draft<'_>, word: &NodeWord, name: impl Fn() -> &'a str) -> Option<Said> {
        (word.answers && !self.counted.is_empty()).then(|| {
            let places: Vec<_> = self.counted_at.iter().map(ToString::to_string).collect();
            let address = self.counted_at.first().copied();
            let count = self.counted.values().copied().fold(0, u64::saturating_add);
            let last = self.last_counted.map(|at| short(draft.now.since(at))).unwrap_or_default();
            // The finding outlives its cause by a while, and the Store may have moved on meanwhile.
            let again = self.last_answer.max(self.received.latest).filter(|at| Some(*at) > self.last_counted);
            let (does, now) = match again {
                None => ("does", String::new()),
                Some(at) => ("did", format!("; since then it did again: data or an answer came {} ago", short(draft.now.since(at)))),
            };
            let places = places.join(", ");
            Said::new(
                FindingCode::PathBlackhole,
                if again.is_none() { Severity::Critical } else { Severity::Warning },
                format!("this pod {does} not reach {} at {places}, which answers this node{now}", name()),
                format!(
                    "{} failed ({}), each between two pings of this node to the same address that were answered, the last \
                     {last} ago; {}",
                    plural(count, "attempt"),
                    outcomes(&self.counted),
                    word.words(draft.now)
                ),
            )
            .facts(Facts { address, attempts: Some(count), answers: Some(0), ..self.attempts() })
        })
    }

    /// How established connections ended.
    fn endings<'a>(&self, draft: &Draft<'_>, name: impl Fn() -> &'a str) -> impl Iterator<Item = Said> {
        let ending = |outcome, at_least, code, words: &str| {
            let count = self.endings.get(&outcome).copied().filter(|count| *count >= at_least)?;
            let last = self.last_ending.map_or_else(String::new, |at| {
                format!(", the last connection ended {} ago", short(draft.now.since(at)))
            });
            let evidence = format!("{count} within {}{last}", short(draft.window));
            Some(
                Said::new(code, Severity::Warning, format!("{words} {}", name()), evidence)
                    .facts(Facts { connections: Some(self.established.into()), ..Facts::default() }),
            )
        };
        let found = [
            ending(
                ConnectionOutcome::Reset,
                3,
                FindingCode::ConnectionResets,
                "again and again a reset ends connections to",
            ),
            ending(
                ConnectionOutcome::KeepaliveDead,
                1,
                FindingCode::KeepaliveDead,
                "keep-alive gave up on connections to",
            ),
        ];
        found.into_iter().flatten()
    }

    fn idle<'a>(&self, name: impl Fn() -> &'a str) -> Option<Said> {
        self.alike_idle_drops().map(|(count, idle)| {
            Said::new(
                FindingCode::IdleDrop,
                Severity::Warning,
                format!("connections to {} die at their first use after a pause", name()),
                format!("{count} times within an hour, each after about {} of silence", short(idle)),
            )
        })
    }

    fn pool<'a>(&self, draft: &Draft<'_>, target: TargetKey, name: impl Fn() -> &'a str) -> Option<Said> {
        let traffic = self.received.latest.is_some_and(|at| draft.now.since(at) <= draft.window.max(MEMORY));
        let since = self.pool_small_since.filter(|since| draft.now.since(*since) >= draft.window && traffic)?;
        (target.role() == Role::Store).then(|| Said {
            since: Some(since),
            facts: Facts { connections: Some(self.established.into()), ..Facts::default() },
            ..Said::new(
                FindingCode::PoolCollapsed,
                Severity::Info,
                format!("few channels carry all traffic to {}", name()),
                format!("{} of {POOL} connections", self.established),
            )
        })
    }

    fn overloaded<'a>(&self, word: &NodeWord, name: impl Fn() -> &'a str) -> Option<Said> {
        (self.slow >= 3 && word.answers).then(|| {
            Said::new(
                FindingCode::Overloaded,
                Severity::Warning,
                format!("{} answers connection requests only after they are repeated", name()),
                format!("{} requests within the window were answered only after a repetition", self.slow),
            )
            .facts(self.attempts())
        })
    }

    /// What the pod's own side refused.
    fn local<'a>(&self, draft: &Draft<'_>, name: impl Fn() -> &'a str) -> impl Iterator<Item = Said> {
        let refused = |outcome, code, words: &str| {
            let count = self.failed.get(&outcome)?;
            let evidence =
                format!("{} within {}, {}", plural(*count, "attempt"), short(draft.window), self.last(draft));
            let facts = Facts { attempts: Some(*count), answers: Some(0), ..self.attempts() };
            Some(Said::new(code, Severity::Warning, format!("{words} {}", name()), evidence).facts(facts))
        };
        let found = [
            refused(ConnectionOutcome::LocalRoute, FindingCode::LocalRoute, "the pod's own routing refuses"),
            refused(
                ConnectionOutcome::LocalPorts,
                FindingCode::LocalPortsExhausted,
                "the pod has no source port left for",
            ),
        ];
        found.into_iter().flatten()
    }

    /// The largest group of drops after alike idle times, if it has two or more.
    fn alike_idle_drops(&self) -> Option<(usize, Duration)> {
        self.idle_drops
            .iter()
            .map(|idle| {
                let alike =
                    |other: &&Duration| (other.as_secs_f64() - idle.as_secs_f64()).abs() <= ALIKE * idle.as_secs_f64();
                (self.idle_drops.iter().filter(alike).count(), *idle)
            })
            .filter(|(count, _)| *count >= 2)
            .max()
    }
}

/// `2 refused, 3 unanswered`.
fn outcomes(sums: &BTreeMap<ConnectionOutcome, u64>) -> String {
    let mut spoken: BTreeMap<&str, u64> = BTreeMap::new();
    for (outcome, count) in sums {
        let sum = spoken.entry(words(*outcome)).or_default();
        *sum = sum.saturating_add(*count);
    }
    spoken.iter().map(|(words, count)| format!("{count} {words}")).collect::<Vec<_>>().join(", ")
}

/// How an attempt ended, for sentences.
fn words(outcome: ConnectionOutcome) -> &'static str {
    match outcome {
        ConnectionOutcome::NoAnswerKernel | ConnectionOutcome::NoAnswerGivenUp => "unanswered",
        ConnectionOutcome::IcmpUnreachable => "rejected on the way (ICMP)",
        ConnectionOutcome::HostUnreachable => "without a way to the host",
        ConnectionOutcome::NetUnreachable => "without a way to the network",
        ConnectionOutcome::Cancelled => "cancelled by the client",
        ConnectionOutcome::LocalPorts => "without a source port",
        ConnectionOutcome::LocalRoute => "refused by the pod's own routing",
        other => other.as_str(),
    }
}

/// `1 attempt`, `2 attempts`.
pub(crate) fn plural(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// What findings about one pod have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) record: &'a PodRecord,
    /// What is known of the process that dials.
    pub(crate) client: Client,
    pub(crate) now: MonoTime,
    pub(crate) window: Duration,
}

impl Draft<'_> {
    /// The finding, with its remedy; whoever remembers an earlier begin puts it in.
    pub(crate) fn finding(&self, target: Option<(TargetKey, &Named)>, said: Said) -> Finding {
        let Said { code, severity, message, evidence, facts, mode, since } = said;
        let case = Case {
            pod: Some((self.record, self.client)),
            target: target.map(|(_, named)| named),
            mode,
            severity,
            facts: &facts,
        };
        Finding {
            remedy: remedy::remedy(code, &case),
            code,
            mode,
            target: target.map(|(key, _)| key.to_string()).unwrap_or_default(),
            since: since.unwrap_or(self.now),
            confirms_at: None,
            message,
            evidence,
            facts,
            severity,
            carried: false,
        }
    }
}

/// Remembers since when each finding holds, across evaluations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    since: BTreeMap<(FindingCode, Option<StaleMode>, String), MonoTime>,
}

/// A finding that came or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Came { code: FindingCode, target: String, message: String },
    Went { code: FindingCode, target: String },
}

impl Turn {
    /// The event that tells it, but for where it belongs.
    pub(crate) fn event(self, now: MonoTime) -> Event {
        let (code, target, from, to, message) = match self {
            Self::Came { code, target, message } => (code, target, None, Some(code), message),
            Self::Went { code, target } => (code, target, Some(code), None, "no longer holds".into()),
        };
        let name = |code: FindingCode| code.as_str().to_owned();
        let event =
            Event::new(now, EventKind::Finding, message).outcome(code.as_str()).change(from.map(name), to.map(name));
        if target.is_empty() { event } else { event.target(target) }
    }
}

impl Book {
    /// Puts the remembered begins in and tells what changed.
    pub(crate) fn settle(&mut self, findings: &mut Vec<Finding>) -> Vec<Turn> {
        findings.sort_by(|a, b| (a.code, &a.target, a.mode).cmp(&(b.code, &b.target, b.mode)));
        findings.dedup_by(|a, b| (a.code, &a.target, a.mode) == (b.code, &b.target, b.mode));
        let mut turns = Vec::new();
        let mut since = BTreeMap::new();
        for finding in findings.iter_mut() {
            let key = (finding.code, finding.mode, finding.target.clone());
            match self.since.remove(&key) {
                Some(begun) => finding.since = begun.min(finding.since),
                None => turns.push(Turn::Came {
                    code: finding.code,
                    target: finding.target.clone(),
                    message: finding.message.clone(),
                }),
            }
            since.insert(key, finding.since);
        }
        let went = std::mem::replace(&mut self.since, since);
        turns.extend(went.into_keys().map(|(code, _, target)| Turn::Went { code, target }));
        turns
    }

    /// The one after a judgement that came to these.
    pub(crate) fn of<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Self {
        let entry = |finding: &Finding| ((finding.code, finding.mode, finding.target.clone()), finding.since);
        Self { since: findings.into_iter().map(entry).collect() }
    }
}
