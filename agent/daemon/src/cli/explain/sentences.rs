//! The sentences of a note.

use super::{
    age,
    wire::{Detail, Finding, Target},
};
use crate::cli::{
    table::{human, human_ms},
    wire::Store,
};
use jiff::Timestamp;
use std::time::Duration;

/// Stores that are named in one sentence.
const NAMED: usize = 6;

/// One pod's note in the making.
pub(super) struct Story<'a> {
    detail: &'a Detail,
    now: Timestamp,
}

impl<'a> Story<'a> {
    pub(super) fn new(detail: &'a Detail, now: Timestamp) -> Self {
        Self { detail, now }
    }

    /// The finding that the verdict rests on.
    pub(super) fn behind(&self) -> Option<&'a Finding> {
        let code = match self.detail.reason.as_str() {
            "StaleTransport" => "StaleTransport",
            "PodCannotReachStores" => "PathBlackhole",
            "PassiveOnly" => "AgentCannotReachStores",
            _ => return None,
        };
        // Of several, the one that holds longest; an idle connection that is held takes no pod out.
        let mut all: Vec<_> = self.detail.findings.iter().filter(|finding| finding.code == code).collect();
        all.sort_by_key(|finding| (finding.severity != "critical", date(finding.since.as_deref())));
        all.first().copied()
    }

    /// The findings beside it, the worst first; those that say the same of several targets together.
    pub(super) fn others(&self) -> Vec<Vec<&'a Finding>> {
        let behind = self.behind();
        let mut others: Vec<_> = self
            .detail
            .findings
            .iter()
            .filter(|finding| !behind.is_some_and(|behind| std::ptr::eq(behind, *finding)))
            .collect();
        let rank = |finding: &Finding| match finding.severity.as_str() {
            "critical" => 0,
            "warning" => 1,
            _ => 2,
        };
        others.sort_by_key(|finding| rank(finding));
        let mut groups: Vec<Vec<&Finding>> = Vec::new();
        for finding in others {
            let same = |group: &&mut Vec<&Finding>| {
                group.iter().all(|other| {
                    (&other.code, &other.mode, &other.severity) == (&finding.code, &finding.mode, &finding.severity)
                })
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(finding),
                None => groups.push(vec![finding]),
            }
        }
        groups
    }

    /// Why the verdict is as it is.
    pub(super) fn why(&self) -> Vec<String> {
        let detail = self.detail;
        let mut lines = match self.behind() {
            Some(finding) => self.about(finding),
            None => vec![],
        };
        if lines.is_empty() {
            lines.push(self.verdict());
        }
        match detail.status.as_str() {
            "Ready" => {
                lines.extend(self.stores());
                lines.extend(self.pod());
                lines.push(match (detail.findings.len(), detail.findings.iter().any(|f| f.severity != "info")) {
                    (0, _) => "nothing speaks against this pod".to_owned(),
                    (_, false) => "nothing speaks against this pod; what else was noticed follows".to_owned(),
                    (_, true) => "what follows has not taken this pod out".to_owned(),
                });
            }
            "NotReady" if self.behind().is_none() => lines.extend(self.stores()),
            "NotReady" => lines.extend(self.guard()),
            _ => {
                let meaning = if detail.ready { "ready" } else { "not ready" };
                lines.push(format!("Unknown counts as {meaning} (verdict.on_unknown)"));
            }
        }
        if detail.carried {
            lines.push("this is from before the agent's restart; nothing seen since confirms or contradicts it".into());
        }
        lines
    }

    /// The verdict's own sentence.
    fn verdict(&self) -> String {
        match self.detail.reason.as_str() {
            // Its numbers follow in a sentence of their own.
            "StoreAnswering" if self.detail.stores.iter().any(|store| store.answering == Some(true)) => {
                "the node reaches the storage".into()
            }
            "NoStoreAnswers" => "no store answers this node, so this pod cannot work".into(),
            "NoStoreRegistered" => {
                "PD has a leader and lists no store, again and again, and none was ever known".into()
            }
            "PassiveOnly" => "the node's own pings prove nothing, but this pod exchanges data with a store".into(),
            _ => self.detail.message.clone(),
        }
    }

    /// What the node's pings found.
    fn stores(&self) -> Option<String> {
        let stores = &self.detail.stores;
        if stores.is_empty() {
            return Some("no store is known".to_owned());
        }
        let answering = stores.iter().filter(|store| store.answering == Some(true)).count();
        let mut each: Vec<_> = stores.iter().take(NAMED).map(ping).collect();
        if stores.len() > NAMED {
            each.push(format!("{} more", stores.len() - NAMED));
        }
        Some(format!("{answering} of {} stores answer this node: {}", stores.len(), each.join(", ")))
    }

    /// What was seen of the pod itself.
    fn pod(&self) -> Option<String> {
        let targets: Vec<_> = self.detail.targets.iter().filter(|target| target.target != "other").collect();
        let sum = |count: &dyn Fn(&Target) -> u64| {
            targets.iter().fold(0, |sum: u64, target| sum.saturating_add(count(target)))
        };
        let attempts = sum(&|target| target.attempts);
        let held = sum(&|target| target.connections.current);
        let former = sum(&|target| target.connections.previous);
        if attempts + held + former == 0 {
            return Some(self.unseen());
        }
        let answered = sum(&|target| target.connects.get("established").copied().unwrap_or_default());
        let mut parts = vec![match former {
            0 => format!("this pod holds {}", plural(held, "connection")),
            _ => format!(
                "this pod holds {} to present addresses and {former} to former ones",
                plural(held, "connection")
            ),
        }];
        if let Some(millis) = targets.iter().filter_map(|target| target.received_age_ms).min() {
            parts.push(format!("data arrived {} ago", human_ms(millis)));
        }
        if attempts > 0 {
            let last = targets.iter().filter_map(|target| target.last_attempt_age_ms).min();
            let last = last.map_or_else(String::new, |millis| format!(" (the last {} ago)", human_ms(millis)));
            let answered = match attempts - answered.min(attempts) {
                0 => "all answered".to_owned(),
                missing => format!("{missing} not answered"),
            };
            parts.push(format!("{}{last}, {answered}", plural(attempts, "dial")));
        }
        Some(parts.join(", "))
    }

    /// Why nothing was seen.
    fn unseen(&self) -> String {
        let source = |name| self.detail.sources.iter().find(|source| source.name == name);
        // The list of pods tells whose place it did not find.
        let prefix = format!("{}/{}: ", self.detail.namespace, self.detail.name);
        let kernel = source("kernel").filter(|kernel| kernel.state == "absent");
        match kernel.or_else(|| source("pods").filter(|pods| pods.detail.contains(&prefix))) {
            Some(reason) => format!("this pod's own connections are not seen: {}", reason.detail),
            None => "this pod has dialled no store since the agent watches it; silence proves nothing".into(),
        }
    }

    /// Why the guard lets the pod leave; where it does not, a finding says so.
    fn guard(&self) -> Option<String> {
        let guard = self.detail.guard.as_ref().filter(|guard| !guard.holds)?;
        Some(match guard.needed {
            0 => "the guard is off (verdict.min_other_ready: 0)".into(),
            needed => format!(
                "the guard lets it leave: of {} of its workload on this node {} {} ready and free of this, and {needed} must \
                 be (verdict.min_other_ready)",
                plural(guard.others.into(), "other pod"),
                guard.free,
                if guard.free == 1 { "is" } else { "are" },
            ),
        })
    }

    /// For a verdict that is none: what is missing.
    pub(super) fn missing(&self) -> Vec<String> {
        let detail = self.detail;
        let mut lines = Vec::new();
        match detail.reason.as_str() {
            "NoEvidenceYet" => {
                let pinged = detail.stores.iter().filter(|store| store.last_ping.is_some()).count();
                lines.push(match detail.stores.len() {
                    0 => "a list of stores: neither PD nor the configuration has named one".to_owned(),
                    all if pinged < all => format!("pings: {pinged} of {all} stores were asked so far"),
                    all => format!(
                        "an answer: {} asked, and none has ever answered this agent",
                        plural(all as u64, "store")
                    ),
                });
                // Who did not answer, and how: a time-out is no answer either way.
                lines.extend(self.stores().filter(|_| pinged > 0));
            }
            "EvidenceExpired" => {
                let old =
                    detail.age_ms.map_or_else(|| "of unknown age".to_owned(), |age| format!("{} old", human_ms(age)));
                lines.push(format!("anything newer: the youngest evidence is {old}"));
            }
            "PodSourceAbsent" => lines.push("a list of this node's pods".to_owned()),
            _ => return lines,
        }
        let wanting = detail.sources.iter().filter(|source| source.state != "active" && !source.detail.is_empty());
        lines.extend(wanting.map(|source| format!("{} ({}): {}", source.name, source.state, source.detail)));
        lines
    }

    /// What a finding says, in one or two lines.
    pub(super) fn about(&self, finding: &Finding) -> Vec<String> {
        let mut lines = self.stale(finding).unwrap_or_else(|| {
            let mut parts = finding.evidence.splitn(2, "; ");
            let first = parts.next().filter(|part| !part.is_empty());
            let head = first.map_or_else(|| finding.message.clone(), |part| format!("{}: {part}", finding.message));
            std::iter::once(head).chain(parts.map(str::to_owned)).collect()
        });
        if self.is_stale(finding)
            && let Some(last) = lines.last_mut()
        {
            last.push_str("; ");
            last.push_str(&self.workload(finding));
        }
        if finding.carried && !self.detail.carried {
            lines.push("this is from before the agent's restart, and was not seen since".into());
        }
        lines
    }

    fn is_stale(&self, finding: &Finding) -> bool {
        matches!(finding.code.as_str(), "StaleTransport" | "StaleTransportSuspected")
    }

    /// The sentence about dials to a former address, with its dates; the agent's own where it has no numbers.
    fn stale(&self, finding: &Finding) -> Option<Vec<String>> {
        let facts = &finding.facts;
        let (attempts, answers, address) = (facts.attempts?, facts.answers?, facts.address.as_deref()?);
        let (first, last, left) = (
            date(facts.first_attempt.as_deref())?,
            date(facts.last_attempt.as_deref())?,
            date(facts.left_at.as_deref())?,
        );
        let every = if facts.every_attempt { "every attempt" } else { "attempts" };
        let name = self.target(finding)?;
        let head = format!(
            "{every} since {} went to {address}, which stopped being {name} {} ago: {}, {}, the last {} ago",
            clock(first, self.now, false),
            age(left, self.now),
            plural(attempts, "attempt"),
            plural(answers, "answer"),
            age(last, self.now),
        );
        let rest = finding.evidence.split_once("; ").map(|(_, rest)| rest.to_owned());
        Some(std::iter::once(head).chain(rest).collect())
    }

    /// Whether other pods of the workload fare better with the same target.
    fn workload(&self, finding: &Finding) -> String {
        let others = &self.detail.others;
        if self.detail.workload.is_none() {
            return "no workload is known for this pod, so there is nothing to compare it with".into();
        }
        let reach: Vec<_> = others.iter().filter(|other| other.reaches.contains(&finding.target)).collect();
        match (others.as_slice(), reach.as_slice()) {
            ([], _) => "this node has no other pod of this workload".into(),
            ([_], [_]) => "the other pod of this workload reaches it".into(),
            ([other], []) => {
                format!("the other pod of this workload ({}, {}) is not seen to reach it", other.name, other.status)
            }
            (all, []) => format!("none of the {} other pods of this workload is seen to reach it", all.len()),
            (all, reach) => format!("{} of the {} other pods of this workload reach it", reach.len(), all.len()),
        }
    }

    /// What happened when.
    pub(super) fn when(&self) -> Vec<String> {
        let Some(finding) = self.behind() else { return Vec::new() };
        let mut moments = self.moments(finding);
        if let Some(since) = date(self.detail.since.as_deref()) {
            moments.push((since, self.detail.status.clone()));
        }
        self.in_order(moments)
    }

    /// What happened when with a finding; nothing where there is no more to tell than since when.
    pub(super) fn dates(&self, finding: &Finding) -> Vec<String> {
        let moments = self.moments(finding);
        if moments.len() < 2 { Vec::new() } else { self.in_order(moments) }
    }

    fn moments(&self, finding: &Finding) -> Vec<(Timestamp, String)> {
        let facts = &finding.facts;
        let address = facts.address.as_deref().unwrap_or("the address");
        let name = self.target(finding).unwrap_or_else(|| "its owner".to_owned());
        let stale = self.is_stale(finding);
        let all = [
            (&facts.left_at, format!("{name} left {address}")),
            (&facts.first_attempt, if stale { "first attempt there".to_owned() } else { "first failure".to_owned() }),
            (&facts.suspected_at, "suspected".to_owned()),
            (&facts.confirmed_at, "confirmed".to_owned()),
            (&finding.confirms_at, "to be confirmed, if it goes on".to_owned()),
        ];
        all.into_iter().filter_map(|(at, what)| Some((date(at.as_deref())?, what))).collect()
    }

    fn in_order(&self, mut moments: Vec<(Timestamp, String)>) -> Vec<String> {
        moments.sort_by_key(|(at, _)| *at);
        let told: Vec<_> =
            moments.into_iter().map(|(at, what)| format!("{} {what}", clock(at, self.now, true))).collect();
        if told.is_empty() { Vec::new() } else { vec![format!("{} (UTC)", told.join("; "))] }
    }

    /// What ends the verdict.
    pub(super) fn until(&self) -> Vec<String> {
        let text = match self.detail.reason.as_str() {
            "StaleTransport" => {
                "data arrives from the store's present address, no socket to the former one is left, and for verdict.window none \
                 is dialled; or its process or container is restarted"
            }
            "PodCannotReachStores" => {
                "a connection is established or data arrives; or for verdict.window there is no attempt and no stuck socket"
            }
            "NoStoreAnswers" => "a store answers this node",
            "NoStoreRegistered" | "StoreListUnknown" => "PD names a store, or the configuration does",
            _ => return Vec::new(),
        };
        vec![text.to_owned()]
    }

    /// The name of a finding's target among people.
    pub(super) fn target(&self, finding: &Finding) -> Option<String> {
        let known = self.detail.stores.iter().find(|store| store.label == finding.target);
        match (finding.target.as_str(), known) {
            ("", _) => None,
            ("pd", _) => Some("PD".to_owned()),
            // A name that is an address would be that of today in a sentence about yesterday's.
            (label, Some(store)) if self.is_stale(finding) && name(store).ends_with(&store.address) => {
                Some(format!("store {label}"))
            }
            (_, Some(store)) => Some(name(store).to_owned()),
            (label, None) => Some(label.to_owned()),
        }
    }
}

fn name(store: &Store) -> &str {
    store.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&store.label)
}

/// How a Store fared with the node's last ping.
fn ping(store: &Store) -> String {
    let name = name(store);
    match (&store.last_ping, store.answering) {
        (None, _) => format!("{name} not asked yet"),
        (Some(ping), Some(true)) => {
            let took = ping.total().filter(|took| *took > Duration::ZERO).map(|took| format!(" in {}", human(took)));
            format!("{name}{}", took.unwrap_or_default())
        }
        (Some(ping), _) => format!("{name} {} ({} ago)", outcome(&ping.outcome), human_ms(ping.age_ms)),
    }
}

/// How a ping without an answer ended, in words.
fn outcome(name: &str) -> &str {
    match name {
        "deadline" => "gave no answer in time",
        "protocol" => "does not speak as a store does",
        "identity" => "is another store",
        "unreachable" => "cannot be reached",
        // "refused" is a word already; what a later agent says stays as it is.
        other => other,
    }
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn date(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// The time of day in UTC, as the logs of a cluster have it; with the day unless it is today.
fn clock(at: Timestamp, now: Timestamp, seconds: bool) -> String {
    let text = at.to_string();
    let (day, time) = text.split_once('T').unwrap_or(("", &text));
    let time = time.get(..if seconds { 8 } else { 5 }).unwrap_or(time);
    let today = now.to_string().starts_with(day);
    match (today, seconds) {
        (true, true) => time.to_owned(),
        (true, false) => format!("{time} UTC"),
        (false, true) => format!("{day} {time}"),
        (false, false) => format!("{day} {time} UTC"),
    }
}
