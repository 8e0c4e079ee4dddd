//! Which Events there are: transitions only, each kind a series of its own, and never more than a person would read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storewatch_core::{
    id::{PodRef, PodUid},
    snapshot::{PodView, Snapshot},
    time::MonoTime,
    verdict::{Finding, FindingCode, Reason, Remedy, Status},
};

/// The same again within this time is one more of a series, as the API server's own clients count.
const SERIES: Duration = Duration::from_secs(360);

/// Writes about one pod: this many at once, and then one each so often. What does not fit is counted in its series.
const BURST: u32 = 10;
const REFILL: Duration = Duration::from_secs(60);

/// The longest note that the API server takes, in bytes.
const MAX_NOTE: usize = 1024;

/// Something to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Say {
    /// The Event's own name.
    pub(super) name: String,
    /// How often it has happened: 1 is a new Event.
    pub(super) count: i32,
    pub(super) words: Words,
}

/// What an Event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::publish) struct Words {
    pub(in crate::publish) pod: PodRef,
    pub(in crate::publish) uid: PodUid,
    pub(in crate::publish) reason: &'static str,
    pub(in crate::publish) warning: bool,
    pub(in crate::publish) note: String,
}

/// What was told about each pod.
#[derive(Debug, Default)]
pub(super) struct Teller {
    pods: BTreeMap<PodUid, Told>,
}

#[derive(Debug)]
struct Told {
    reason: Reason,
    /// The last Event was about trouble, so that its end is worth one too.
    trouble: bool,
    held: bool,
    series: BTreeMap<&'static str, Series>,
    /// Writes that may be made at once, and since when they grow again.
    tokens: u32,
    refilled: MonoTime,
}

#[derive(Debug)]
struct Series {
    name: String,
    last: MonoTime,
    count: i32,
}

impl Teller {
    /// What is new in a snapshot. `random` makes names that no other agent gives.
    pub(super) fn look(&mut self, snapshot: &Snapshot, now: MonoTime, mut random: impl FnMut() -> u64) -> Vec<Say> {
        let present: BTreeSet<_> = snapshot.pods.iter().map(|pod| &pod.record.uid).collect();
        self.pods.retain(|uid, _| present.contains(uid));
        let mut list = Vec::new();
        for pod in &snapshot.pods {
            let told = self.pods.entry(pod.record.uid.clone()).or_insert_with(|| Told::new(pod, now));
            for (reason, warning, note) in told.news(pod) {
                let words = Words { pod: pod.record.pod.clone(), uid: pod.record.uid.clone(), reason, warning, note };
                list.extend(told.say(words, now, &mut random));
            }
        }
        list
    }
}

impl Told {
    /// A pod that is new to this agent is as it is: a verdict that was carried over was told by whoever made it.
    fn new(pod: &PodView, now: MonoTime) -> Self {
        let carried = pod.verdict.carried;
        Self {
            reason: if carried { pod.verdict.reason } else { Reason::NoEvidenceYet },
            trouble: carried && pod.verdict.status == Status::NotReady,
            held: false,
            series: BTreeMap::new(),
            tokens: BURST,
            refilled: now,
        }
    }

    fn news(&mut self, pod: &PodView) -> Vec<(&'static str, bool, String)> {
        let verdict = &pod.verdict;
        let mut news = Vec::new();
        if verdict.reason != self.reason {
            let before = self.reason.status();
            let known = self.reason != Reason::NoEvidenceYet;
            let tell = match verdict.status {
                Status::NotReady => Some(true),
                Status::Ready if self.trouble => Some(false),
                Status::Ready => None,
                Status::Unknown if verdict.reason == Reason::Maintenance => Some(false),
                // To know nothing at first is no news.
                Status::Unknown => (known && before != Status::Unknown).then_some(true),
            };
            self.reason = verdict.reason;
            if let Some(warning) = tell {
                self.trouble = warning;
                let remedy = remedy(verdict.reason, &pod.findings).or(pod.remedy.as_ref());
                news.push((verdict.reason.as_str(), warning, note(&verdict.message, remedy)));
            }
        }
        let held = pod.findings.iter().find(|finding| finding.code == FindingCode::GuardHeld);
        if let Some(finding) = held.filter(|_| !self.held) {
            news.push((finding.code.as_str(), true, note(&finding.message, Some(&finding.remedy))));
        }
        self.held = held.is_some();
        news
    }

    fn say(&mut self, words: Words, now: MonoTime, random: &mut impl FnMut() -> u64) -> Option<Say> {
        while self.tokens < BURST && now.since(self.refilled) >= REFILL {
            self.tokens += 1;
            self.refilled = self.refilled + REFILL;
        }
        if self.tokens == BURST {
            self.refilled = now;
        }
        let running = self.series.get(words.reason).is_some_and(|series| now.since(series.last) < SERIES);
        if !running {
            let name = name(&words.pod, random());
            self.series.insert(words.reason, Series { name, last: now, count: 0 });
        }
        let series = self.series.get_mut(words.reason)?;
        series.last = now;
        if self.tokens == 0 {
            // A series that was never begun cannot be gone on with.
            series.count += i32::from(series.count > 0);
            return None;
        }
        self.tokens -= 1;
        series.count = series.count.saturating_add(1);
        Some(Say { name: series.name.clone(), count: series.count, words })
    }
}

/// A name that no other Event has.
pub(super) fn name(pod: &PodRef, random: u64) -> String {
    format!("{}.{random:016x}", pod.name.chars().take(230).collect::<String>())
}

/// The remedy of the finding that explains a reason best.
fn remedy(reason: Reason, findings: &[Finding]) -> Option<&Remedy> {
    let codes: &[FindingCode] = match reason {
        Reason::StaleTransport => &[FindingCode::StaleTransport],
        Reason::PodCannotReachStores => &[FindingCode::PathBlackhole, FindingCode::LocalRoute, FindingCode::StoreDown],
        _ => return None,
    };
    let of = |code| findings.iter().filter(move |finding| finding.code == code).max_by_key(|finding| finding.severity);
    codes.iter().find_map(|code| of(*code)).map(|finding| &finding.remedy)
}

fn note(message: &str, remedy: Option<&Remedy>) -> String {
    let mut note = message.to_owned();
    if let Some(Remedy { now, prevent }) = remedy {
        note.push_str(&format!(". Now: {now}. To prevent it: {prevent}"));
    }
    if note.len() > MAX_NOTE {
        let end = (0..=MAX_NOTE - 3).rev().find(|at| note.is_char_boundary(*at)).unwrap_or(0);
        note.truncate(end);
        note.push_str("...");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::testing;
    use std::net::IpAddr;
    use storewatch_core::verdict::{Facts, Severity};

    fn at(seconds: i64) -> MonoTime {
        MonoTime::from_millis(seconds * 1000)
    }

    fn snapshot(reason: Reason, carried: bool, codes: &[FindingCode]) -> Snapshot {
        let mut pod = testing::pod("server-0", IpAddr::from([10, 0, 0, 5]), reason);
        pod.verdict.carried = carried;
        pod.verdict.message = "what it is".into();
        pod.findings = codes.iter().map(|code| finding(*code)).collect();
        Snapshot { pods: vec![pod], clusters: Vec::new(), ..testing::snapshot() }
    }

    fn finding(code: FindingCode) -> Finding {
        Finding {
            code,
            mode: None,
            target: String::new(),
            since: at(0),
            confirms_at: None,
            message: "what stands out".into(),
            evidence: String::new(),
            facts: Facts::default(),
            remedy: Remedy { now: "do this".into(), prevent: "do that".into() },
            severity: Severity::Critical,
            carried: false,
        }
    }

    /// Reasons told, each with its count, `!` for a warning.
    fn told(teller: &mut Teller, snapshot: &Snapshot, now: i64) -> String {
        let mut number = 0;
        let says = teller.look(snapshot, at(now), || {
            number += 1;
            number
        });
        let texts: Vec<_> = says
            .iter()
            .map(|say| format!("{}{}x{}", if say.words.warning { "!" } else { "" }, say.words.reason, say.count))
            .collect();
        texts.join(" ")
    }

    #[test]
    fn transitions_are_told_once() {
        use Reason::{
            EvidenceExpired, Maintenance, NoEvidenceYet, NoStoreAnswers, PassiveOnly, StaleTransport, StoreAnswering,
        };
        for (name, steps) in [
            (
                "a start is no news",
                vec![(NoEvidenceYet, ""), (StoreAnswering, ""), (PassiveOnly, ""), (StoreAnswering, "")],
            ),
            (
                "out and back",
                vec![
                    (StoreAnswering, ""),
                    (NoStoreAnswers, "!NoStoreAnswersx1"),
                    (NoStoreAnswers, ""),
                    (StoreAnswering, "StoreAnsweringx1"),
                ],
            ),
            ("a start in trouble", vec![(NoStoreAnswers, "!NoStoreAnswersx1")]),
            (
                "one trouble after another",
                vec![(NoStoreAnswers, "!NoStoreAnswersx1"), (StaleTransport, "!StaleTransportx1")],
            ),
            (
                "no longer known",
                vec![
                    (StoreAnswering, ""),
                    (EvidenceExpired, "!EvidenceExpiredx1"),
                    (StoreAnswering, "StoreAnsweringx1"),
                ],
            ),
            ("out of judgement", vec![(StoreAnswering, ""), (Maintenance, "Maintenancex1"), (StoreAnswering, "")]),
            (
                "a series",
                vec![
                    (NoStoreAnswers, "!NoStoreAnswersx1"),
                    (StoreAnswering, "StoreAnsweringx1"),
                    (NoStoreAnswers, "!NoStoreAnswersx2"),
                ],
            ),
        ] {
            let mut teller = Teller::default();
            for (number, (reason, expected)) in (0..).zip(steps) {
                assert_eq!(told(&mut teller, &snapshot(reason, false, &[]), number), expected, "{name}, step {number}");
            }
        }
        let mut restarted = Teller::default();
        assert_eq!(told(&mut restarted, &snapshot(NoStoreAnswers, true, &[]), 0), "", "it was told before the restart");
        assert_eq!(told(&mut restarted, &snapshot(StoreAnswering, false, &[]), 1), "StoreAnsweringx1");
        let mut held = Teller::default();
        let guarded = snapshot(StoreAnswering, false, &[FindingCode::GuardHeld]);
        assert_eq!(told(&mut held, &guarded, 0), "!GuardHeldx1");
        assert_eq!(told(&mut held, &guarded, 1), "");
    }

    #[test]
    fn a_pod_that_flaps_is_told_less_and_counted_all_the_same() {
        let mut teller = Teller::default();
        let (ill, well) = (snapshot(Reason::NoStoreAnswers, false, &[]), snapshot(Reason::StoreAnswering, false, &[]));
        let mut written = 0;
        for second in 0..40 {
            written += usize::from(!told(&mut teller, if second % 2 == 0 { &ill } else { &well }, second).is_empty());
        }
        assert_eq!(written, 10);
        assert_eq!(told(&mut teller, &ill, 100), "!NoStoreAnswersx21", "twenty before, most of them not written");
        assert_eq!(told(&mut teller, &well, 101), "", "one more each minute");
        assert_eq!(told(&mut teller, &ill, 1000), "!NoStoreAnswersx1", "a new Event after a long time");
    }

    #[test]
    fn a_note_holds_the_remedy_and_fits() {
        let view = snapshot(Reason::StaleTransport, false, &[FindingCode::StoreDown, FindingCode::StaleTransport]);
        let says = Teller::default().look(&view, at(0), || 7);
        assert_eq!(says[0].words.note, "what it is. Now: do this. To prevent it: do that");
        assert_eq!(says[0].name, "server-0.0000000000000007");
        let long = note(&"ä".repeat(2000), None);
        assert!(long.len() <= MAX_NOTE && long.ends_with("..."), "{}", long.len());
    }
}
