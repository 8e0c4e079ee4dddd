//! Findings about a pod's connections, each with what was compared and what to do.

use crate::{
    connection::ConnectionOutcome,
    container::{MEMORY, POOL, Remote, count_since},
    event::{Event, EventKind},
    id::{PodRef, Role, TargetKey},
    pod::PodRecord,
    sockets::Received,
    time::MonoTime,
    verdict::{Finding, FindingCode, Remedy, Severity, StaleMode},
};
use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr, time::Duration};

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
    established: u32,
    pool_small_since: Option<MonoTime>,
    received: Received,
    active: bool,
}

impl TargetFacts {
    /// Adds what one container's connections to one address of the target came to.
    pub(crate) fn add(&mut self, address: SocketAddr, remote: &Remote, now: MonoTime, window: Duration) {
        let since = now - window;
        for (list, sums) in [(&remote.failed, &mut self.failed), (&remote.endings, &mut self.endings)] {
            for (_, outcome, added) in list.iter().filter(|(at, _, _)| *at >= since) {
                *sums.entry(*outcome).or_default() += added;
            }
        }
        self.slow += count_since(&remote.slow, since, |()| true);
        let memory = now - IDLE_DROP_MEMORY;
        self.idle_drops.extend(remote.idle_drops.iter().filter(|(at, _, _)| *at >= memory).map(|(_, idle, _)| *idle));
        for attempt in remote.counted(now - window.max(MEMORY)) {
            *self.counted.entry(attempt.outcome).or_default() += 1;
            if !self.counted_at.contains(&address) {
                self.counted_at.push(address);
            }
        }
        self.established += remote.established;
        self.pool_small_since = self.pool_small_since.max(remote.few_since);
        self.received.merge(remote.received);
        self.active |= remote.last_activity.is_some_and(|at| at >= since) || remote.established > 0;
    }

    fn outcomes(sums: &BTreeMap<ConnectionOutcome, u64>) -> String {
        let mut text = String::new();
        for (outcome, count) in sums {
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}{count} {}", outcome.as_str());
        }
        text
    }

    /// The findings that follow from this target's facts alone.
    pub(crate) fn findings(&self, draft: &Draft<'_>, target: TargetKey, word: NodeWord, now: MonoTime) -> Vec<Finding> {
        let mut found = Vec::new();
        let failures: BTreeMap<_, _> =
            self.failed.iter().filter(|(outcome, _)| crate::classify::counts_as_failure(**outcome)).collect();
        let failed: u64 = failures.values().copied().sum();
        let label = target.to_string();
        // Of PD there is PdDown, once no peer answers; one peer that is away is nobody's finding.
        let store = target.role() == Role::Store;
        if store && word.down && failed > 0 {
            found.push(draft.finding(
                FindingCode::StoreDown,
                &label,
                Severity::Warning,
                format!("attempts to reach {label} fail, and this node's ping gets no answer either"),
                Self::outcomes(&self.failed),
                Remedy {
                    now: format!("look at {label}: its process or its node is down"),
                    prevent: "keep at least three replicas of each partition".into(),
                },
            ));
        }
        if store && word.hung && self.active {
            found.push(draft.finding(
                FindingCode::StoreHung,
                &label,
                Severity::Warning,
                format!("{label} accepts connections and answers nothing"),
                format!("{} connections held by this pod", self.established),
                Remedy {
                    now: format!("look at {label}: a long garbage collection, a frozen process, or all threads busy"),
                    prevent: "a liveness probe on the store's own gRPC port".into(),
                },
            ));
        }
        if word.answers && !self.counted.is_empty() {
            let places: Vec<_> = self.counted_at.iter().map(ToString::to_string).collect();
            found.push(draft.finding(
                FindingCode::PathBlackhole,
                &label,
                Severity::Critical,
                format!("this pod does not reach {label} at {}, which answers this node", places.join(", ")),
                format!("{}, each bracketed by pings that were answered", Self::outcomes(&self.counted)),
                Remedy {
                    now: format!(
                        "check the network policies and routes between this pod and {label}; {}",
                        draft.restart()
                    ),
                    prevent: "allow the store's port in every network policy that selects this pod".into(),
                },
            ));
        }
        let resets = self.endings.get(&ConnectionOutcome::Reset).copied().unwrap_or(0);
        if resets >= 3 {
            found.push(draft.finding(
                FindingCode::ConnectionResets,
                &label,
                Severity::Warning,
                format!("connections to {label} are reset again and again"),
                format!("{resets} within the window"),
                Remedy {
                    now: format!("look at {label}'s log and at what stands between (load balancer, firewall)"),
                    prevent: "no middlebox with idle time-outs between servers and stores".into(),
                },
            ));
        }
        if let Some((count, idle)) = self.alike_idle_drops() {
            found.push(draft.finding(
                FindingCode::IdleDrop,
                &label,
                Severity::Warning,
                format!("connections to {label} die at their first use after a pause"),
                format!("{count} times after about {} s of silence", idle.as_secs()),
                Remedy {
                    now: "nothing: the next connection works".into(),
                    prevent: "a keep-alive shorter than the idle time-out on the way (net.ipv4.tcp_keepalive_time in the pod)"
                        .into(),
                },
            ));
        }
        if let Some(count) = self.endings.get(&ConnectionOutcome::KeepaliveDead) {
            found.push(draft.finding(
                FindingCode::KeepaliveDead,
                &label,
                Severity::Warning,
                format!("keep-alive gave up on connections to {label}"),
                format!("{count} within the window"),
                Remedy {
                    now: format!("check the way to {label}: it went silent under an idle connection"),
                    prevent: "none needed: keep-alive did its work".into(),
                },
            ));
        }
        let traffic = self.received.latest.is_some_and(|at| now.since(at) <= draft.window.max(MEMORY));
        if let Some(since) = self.pool_small_since.filter(|since| now.since(*since) >= draft.window && traffic)
            && store
        {
            found.push(Finding {
                since,
                ..draft.finding(
                    FindingCode::PoolCollapsed,
                    &label,
                    Severity::Info,
                    format!("few channels carry all traffic to {label}"),
                    format!("{} of {POOL} connections", self.established),
                    Remedy {
                        now: "nothing: known of every server up to 1.7.0".into(),
                        prevent: "a release after 1.7.0, which binds each stub to a channel of its own".into(),
                    },
                )
            });
        }
        if self.slow >= 3 && word.answers {
            found.push(draft.finding(
                FindingCode::Overloaded,
                &label,
                Severity::Warning,
                format!("{label} answers connection requests only after they are repeated"),
                format!("{} within the window", self.slow),
                Remedy {
                    now: format!("look at {label}'s load and accept queue (ss -lnt), and at packet loss on the way"),
                    prevent: "more stores, or a longer accept queue (net.core.somaxconn)".into(),
                },
            ));
        }
        let simple = [
            (
                ConnectionOutcome::LocalRoute,
                FindingCode::LocalRoute,
                "the pod's own routing refuses",
                "ip route in the pod's network namespace: a blackhole, unreachable or prohibit route covers the address",
                "none",
            ),
            (
                ConnectionOutcome::LocalPorts,
                FindingCode::LocalPortsExhausted,
                "the pod has no source port left for",
                "find what holds the connections (ss -tan in the pod's network namespace)",
                "a wider net.ipv4.ip_local_port_range in the pod",
            ),
        ];
        for (outcome, code, words, now, prevent) in simple {
            if let Some(count) = self.failed.get(&outcome) {
                found.push(draft.finding(
                    code,
                    &label,
                    Severity::Warning,
                    format!("{words} {label}"),
                    format!("{count} attempts within the window"),
                    Remedy { now: now.into(), prevent: prevent.into() },
                ));
            }
        }
        found
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

/// What findings about one pod have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) record: &'a PodRecord,
    pub(crate) now: MonoTime,
    pub(crate) window: Duration,
}

impl Draft<'_> {
    /// A finding that begins now; whoever remembers an earlier begin puts it in.
    pub(crate) fn finding(
        &self,
        code: FindingCode,
        target: &str,
        severity: Severity,
        message: String,
        evidence: String,
        remedy: Remedy,
    ) -> Finding {
        Finding {
            code,
            mode: None,
            target: target.into(),
            since: self.now,
            confirms_at: None,
            message,
            evidence,
            remedy,
            severity,
            carried: false,
        }
    }

    /// How to restart the pod.
    pub(crate) fn restart(&self) -> String {
        let PodRef { namespace, name } = &self.record.pod;
        format!("kubectl delete pod -n {namespace} {name} (on a plain host: restart the server process)")
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
    Came(Finding),
    Went { code: FindingCode, target: String },
}

impl Turn {
    /// The event that tells it, but for where it belongs.
    pub(crate) fn event(self, now: MonoTime) -> Event {
        let (code, target, from, to, message) = match self {
            Self::Came(finding) => (finding.code, finding.target, None, Some(finding.code), finding.message),
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
                None => turns.push(Turn::Came(finding.clone())),
            }
            since.insert(key, finding.since);
        }
        let went = std::mem::replace(&mut self.since, since);
        turns.extend(went.into_keys().map(|(code, _, target)| Turn::Went { code, target }));
        turns
    }

    /// Takes a begin back from an earlier run.
    pub(crate) fn restore(&mut self, key: (FindingCode, Option<StaleMode>, String), since: MonoTime) {
        self.since.insert(key, since);
    }
}
