//! What is right, and how far what was said is from it.
//!
//! | Label | Means |
//! |---|---|
//! | `SUBJECT STATUS REASON A..B` | from an instant between A and B on, this is the verdict, until the next such line of the same subject |
//! | `SUBJECT gone A..B` | from then on it is not there |
//! | `SUBJECT + CODE [MODE] [TARGET] [SEVERITY] A..B` | between A and B this finding comes, and stays to the end ... |
//! | `... A..B to C..D` | ... or goes between C and D |
//! | `SUBJECT ~ CODE [MODE] [TARGET] [SEVERITY]` | this finding may be there; it is not what the situation is about |
//! | `SUBJECT never CODE` | it is not there; said for the reader, since what is not named must not be there anyway |
//! | `SUBJECT carried A..B` | between A and B, and at no other time, the verdict may be marked as carried, and it is |
//! | `SUBJECT says A`, then lines `> TEXT` | at the instant A, where what happens says `words SUBJECT`, these are the sentences: the verdict and its remedy, then each finding with message, evidence and remedy |
//! | `SUBJECT = TARGET OUTCOME=N ..` | at the end so many attempts ended so, `ended:OUTCOME` so many connections, `rst:received` and `rst:sent` RSTs; all others 0 (`retransmits` only if named) |
//!
//! `SUBJECT` is `node` or a pod's name, in `~` and `never` also `*` for all. Before its first verdict a subject may be
//! Unknown. Times are seconds; those of a window are the earliest and the latest that the contract allows.

use crate::course::{Course, Span, show};
use std::collections::{BTreeMap, BTreeSet};
use storewatch::recording::Mark;
use storewatch_core::verdict::{FindingCode, Reason, Status};

const REASONS: [Reason; 11] = [
    Reason::StoreAnswering,
    Reason::PassiveOnly,
    Reason::NoStoreAnswers,
    Reason::NoStoreRegistered,
    Reason::StoreListUnknown,
    Reason::PodCannotReachStores,
    Reason::StaleTransport,
    Reason::NoEvidenceYet,
    Reason::EvidenceExpired,
    Reason::PodSourceAbsent,
    Reason::Maintenance,
];

/// Every finding of the contract.
pub const CODES: [FindingCode; 21] = [
    FindingCode::StaleTransportSuspected,
    FindingCode::StaleTransport,
    FindingCode::StoreDown,
    FindingCode::StoreHung,
    FindingCode::PathBlackhole,
    FindingCode::IpReused,
    FindingCode::ConnectionResets,
    FindingCode::IdleDrop,
    FindingCode::PoolCollapsed,
    FindingCode::Overloaded,
    FindingCode::LocalRoute,
    FindingCode::LocalPortsExhausted,
    FindingCode::KeepaliveDead,
    FindingCode::PdDown,
    FindingCode::PdNoLeader,
    FindingCode::PdAuthRefused,
    FindingCode::KernelEventsLost,
    FindingCode::AttemptsNotObservable,
    FindingCode::GuardHeld,
    FindingCode::AgentCannotReachStores,
    FindingCode::UnknownStoreAddress,
];

/// The earliest and the latest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Earliest.
    pub from: f64,
    /// Latest.
    pub to: f64,
}

impl Window {
    fn holds(self, at: f64) -> bool {
        // Instants are whole milliseconds at least.
        at >= self.from - 1e-6 && at <= self.to + 1e-6
    }
}

/// A finding as a label names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// Its code.
    pub code: FindingCode,
    mode: Option<String>,
    target: Option<String>,
    severity: Option<String>,
}

impl Pattern {
    fn fits(&self, mark: &Mark) -> bool {
        let same = |wanted: &Option<String>, got: &str| wanted.as_deref().is_none_or(|wanted| wanted == got);
        self.code == mark.code
            && same(&self.mode, mark.mode.map(|mode| mode.as_str()).unwrap_or_default())
            && same(&self.target, &mark.target)
            && same(&self.severity, mark.severity.as_str())
    }
}

#[derive(Clone, Debug)]
struct Expected {
    pattern: Pattern,
    comes: Window,
    goes: Option<Window>,
    line: String,
}

/// What is right for one subject.
#[derive(Clone, Debug, Default)]
struct Of {
    /// `None` for gone.
    verdicts: Vec<(Option<Reason>, Window)>,
    findings: Vec<Expected>,
    may: Vec<Pattern>,
    never: Vec<FindingCode>,
    carried: Vec<Window>,
}

/// What is right.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    of: BTreeMap<String, Of>,
    counts: BTreeMap<(String, String), BTreeMap<String, u64>>,
    /// Of whom, when, and the sentences.
    words: Vec<(String, f64, Vec<String>)>,
}

/// One thing that is not right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// NotReady where it must not be.
    FalseNotReady,
    /// Not NotReady where it must be.
    Missed,
    /// The right status for the wrong reason, or another status.
    WrongReason,
    /// A finding that must be there and is not (at that time).
    Missing(String),
    /// A finding that must not be there.
    Forbidden(String),
    /// A wrong count.
    Count,
    /// Other words.
    Words,
    /// Carried, or not, where it must be otherwise.
    Carried,
}

/// The comparison.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Labelled reason and the one that was told, once for each stretch.
    pub verdicts: Vec<(String, String)>,
    /// Findings that were labelled, by code; and of those the ones that were told.
    pub findings: BTreeMap<&'static str, (u64, u64)>,
    /// What is wrong, with a sentence.
    pub faults: Vec<(Fault, String)>,
}

impl Labels {
    /// Reads labels; `name` and `line` say where they stand.
    ///
    /// # Panics
    /// When one cannot be read.
    pub fn parse(name: &str, line: usize, text: &str) -> Self {
        let mut labels = Self::default();
        for (line, content) in (line..).zip(text.lines()) {
            let place = format!("{name}:{line}");
            if let Some(text) = content.strip_prefix("> ") {
                let (_, _, text_of) = labels.words.last_mut().unwrap_or_else(|| panic!("{place}: whose words?"));
                text_of.push(text.to_owned());
                continue;
            }
            let content = content.split('#').next().unwrap_or_default();
            let words: Vec<&str> = content.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            labels.read(&words).unwrap_or_else(|why| panic!("{place}: {why}: {content}"));
        }
        labels
    }

    fn read(&mut self, words: &[&str]) -> Result<(), &'static str> {
        let [subject, what, rest @ ..] = words else { return Err("too few words") };
        if *what == "=" {
            let [target, counts @ ..] = rest else { return Err("no target") };
            let pair = |text: &&str| {
                let (what, count) = text.split_once('=')?;
                Some((what.to_owned(), count.parse().ok()?))
            };
            let counts: Option<_> = counts.iter().map(pair).collect();
            self.counts.insert(((*subject).into(), (*target).into()), counts.ok_or("no OUTCOME=N")?);
            return Ok(());
        }
        if *what == "says" {
            let at = rest.first().and_then(|at| at.parse().ok()).ok_or("no instant")?;
            self.words.push(((*subject).into(), at, Vec::new()));
            return Ok(());
        }
        let of = self.of.entry((*subject).into()).or_default();
        match *what {
            "+" => {
                let (words, goes) = match rest.iter().position(|word| *word == "to") {
                    Some(at) => (&rest[..at], Some(window(rest.get(at + 1).ok_or("no window after `to`")?)?)),
                    None => (rest, None),
                };
                let (last, words) = words.split_last().ok_or("no code")?;
                let expected = Expected {
                    pattern: pattern(words)?,
                    comes: window(last)?,
                    goes,
                    line: format!("{subject} + {}", rest.join(" ")),
                };
                of.findings.push(expected);
            }
            "~" => of.may.push(pattern(rest)?),
            "never" => of.never.push(pattern(rest)?.code),
            "carried" => of.carried.push(window(rest.first().ok_or("no window")?)?),
            "gone" => of.verdicts.push((None, window(rest.first().ok_or("no window")?)?)),
            status => {
                let [reason, when] = rest else { return Err("no `STATUS REASON A..B`") };
                let reason = REASONS.into_iter().find(|known| known.as_str() == *reason).ok_or("no such reason")?;
                if reason.status().as_str() != status {
                    return Err("this reason has another status");
                }
                let when = window(when)?;
                if of.verdicts.last().is_some_and(|(_, before)| before.from > when.from) {
                    return Err("its window begins before the one above");
                }
                of.verdicts.push((Some(reason), when));
            }
        }
        Ok(())
    }

    /// Compares.
    pub fn judge(&self, course: &Course) -> Judged {
        let mut judged = Judged::default();
        let everybody = Of::default();
        let everybody = self.of.get("*").unwrap_or(&everybody);
        let subjects: BTreeSet<&String> =
            self.of.keys().chain(course.verdicts.keys()).filter(|name| *name != "*").collect();
        for subject in subjects {
            let none = Of::default();
            let of = self.of.get(subject).unwrap_or(&none);
            of.verdicts(subject, course, &mut judged);
            of.findings(subject, everybody, course, &mut judged);
            of.carried(subject, course, &mut judged);
        }
        judged.faults.extend(self.said(course).into_iter().map(|what| (Fault::Words, what)));
        for ((pod, target), wanted) in &self.counts {
            let none = BTreeMap::new();
            let got = course.counts.get(&(pod.clone(), target.clone())).unwrap_or(&none);
            let named = |what: &String| what != "retransmits" || wanted.contains_key(what);
            let got: BTreeMap<_, _> = got.iter().filter(|(what, count)| **count > 0 && named(what)).collect();
            let wanted: BTreeMap<_, _> = wanted.iter().filter(|(_, count)| **count > 0).collect();
            if got != wanted {
                judged.faults.push((Fault::Count, format!("{pod} = {target}: counted {got:?}, right is {wanted:?}")));
            }
        }
        judged
    }
}

impl Labels {
    /// Where the words are others.
    fn said(&self, course: &Course) -> Vec<String> {
        let mut wrong = Vec::new();
        let same = |(who, at, _): &&(String, f64, Vec<String>), other: &(String, f64, Vec<String>)| {
            *who == other.0 && (at - other.1).abs() < 1e-6
        };
        for label in &self.words {
            let Some((_, _, said)) = course.words.iter().find(|said| same(said, label)) else {
                wrong.push(format!("{} is not asked for words at {}", label.0, label.1));
                continue;
            };
            let missing = label.2.iter().filter(|line| !said.contains(line)).map(|line| format!("\n      - {line}"));
            let extra = said.iter().filter(|line| !label.2.contains(line)).map(|line| format!("\n      + {line}"));
            if said != &label.2 {
                let lines: String = missing.chain(extra).collect();
                wrong.push(format!("{} has other words at {}:{lines}", label.0, label.1));
            }
        }
        let unlabelled = course.words.iter().filter(|said| !self.words.iter().any(|label| same(said, label)));
        wrong.extend(unlabelled.map(|(who, at, _)| format!("what {who} says at {at} is not labelled")));
        wrong
    }
}

fn window(text: &str) -> Result<Window, &'static str> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let window = Window { from: from.parse().map_err(|_| "no window")?, to: to.parse().map_err(|_| "no window")? };
    if window.from <= window.to { Ok(window) } else { Err("the window ends before it begins") }
}

fn pattern(words: &[&str]) -> Result<Pattern, &'static str> {
    let [code, more @ ..] = words else { return Err("no code") };
    let code = CODES.into_iter().find(|known| known.as_str() == *code).ok_or("no such finding")?;
    let mut pattern = Pattern { code, mode: None, target: None, severity: None };
    for word in more {
        let part = match *word {
            "dialing" | "holding" => &mut pattern.mode,
            "info" | "warning" | "critical" => &mut pattern.severity,
            _ => &mut pattern.target,
        };
        if part.replace((*word).to_owned()).is_some() {
            return Err("a finding has one mode, one target and one severity");
        }
    }
    Ok(pattern)
}

fn shown(reason: Option<Reason>) -> String {
    reason.map_or_else(|| "gone".to_owned(), |reason| reason.as_str().to_owned())
}

impl Of {
    /// The verdicts that are right at an instant; `None` while any Unknown is.
    fn right(&self, at: f64) -> (BTreeSet<Option<Reason>>, bool) {
        let until = |next: usize| self.verdicts.get(next).map_or(f64::INFINITY, |(_, window)| window.to);
        let may =
            self.verdicts.iter().enumerate().filter(|(index, (_, window))| window.from <= at && at < until(index + 1));
        (may.map(|(_, (reason, _))| *reason).collect(), at < until(0))
    }

    fn verdicts(&self, subject: &str, course: &Course, judged: &mut Judged) {
        let none = Vec::new();
        let told = course.verdicts.get(subject).unwrap_or(&none);
        if self.verdicts.is_empty() {
            let fault = format!("{subject} is not labelled");
            judged.faults.push((Fault::WrongReason, fault));
            return;
        }
        let mut cuts: Vec<f64> = told.iter().map(|(at, _)| *at).chain([0.0, course.end]).collect();
        cuts.extend(self.verdicts.iter().flat_map(|(_, window)| [window.from, window.to]));
        cuts.retain(|at| (0.0..=course.end).contains(at));
        cuts.sort_by(f64::total_cmp);
        cuts.dedup();
        let mut before: Option<String> = None;
        for pair in cuts.windows(2) {
            let &[from, to] = pair else { continue };
            let middle = f64::midpoint(from, to);
            let said = told.iter().rev().find(|(at, _)| *at <= middle).map(|(_, reason)| *reason);
            let (right, start) = self.right(middle);
            // Not there yet is as good as Unknown.
            let unknown = said.flatten().is_none_or(|reason| reason.status() == Status::Unknown);
            if said.is_some_and(|said| right.contains(&said)) || (start && unknown) {
                before = None;
            } else {
                let not_ready =
                    |reason: Option<Reason>| reason.is_some_and(|reason| reason.status() == Status::NotReady);
                let said = said.flatten();
                let fault = match (not_ready(said), right.iter().any(|right| not_ready(*right))) {
                    (true, false) => Fault::FalseNotReady,
                    (false, true) if !right.iter().any(|right| !not_ready(*right)) => Fault::Missed,
                    _ => Fault::WrongReason,
                };
                let names: Vec<_> = right.iter().map(|right| shown(*right)).collect();
                let right = if start { "Unknown".to_owned() } else { names.join(" or ") };
                let what = format!("{subject} is {}, right is {right}", shown(said));
                if before.as_ref() != Some(&what) {
                    judged.faults.push((fault, format!("{from:.3}: {what} (until {to:.3} at least)")));
                    judged.verdicts.push((right, shown(said)));
                    before = Some(what);
                }
            }
        }
        let right: Vec<_> = self.verdicts.iter().map(|(reason, _)| shown(*reason)).collect();
        judged.verdicts.extend(right.iter().map(|right| (right.clone(), right.clone())));
        let skip = told.iter().take_while(|(_, reason)| {
            reason.is_none_or(|reason| reason.status() == Status::Unknown && Some(reason) != self.verdicts[0].0)
        });
        let sequence: Vec<_> = told.iter().skip(skip.count()).map(|(_, reason)| shown(*reason)).collect();
        if judged.faults.is_empty() && sequence != right {
            let fault = format!("{subject} went through {}, right is {}", sequence.join(", "), right.join(", "));
            judged.faults.push((Fault::WrongReason, fault));
        }
    }

    fn findings(&self, subject: &str, everybody: &Self, course: &Course, judged: &mut Judged) {
        let mut told: Vec<(Mark, Span)> = course.findings.get(subject).cloned().unwrap_or_default();
        for Expected { pattern, comes, goes, line } in &self.findings {
            let count = judged.findings.entry(pattern.code.as_str()).or_default();
            count.0 += 1;
            let right = |span: &Span| {
                let gone = match (span.to, goes) {
                    (None, None) => true,
                    (Some(to), Some(goes)) => goes.holds(to),
                    // What goes when everything ends may as well have stayed.
                    (None, Some(goes)) => goes.holds(course.end),
                    (Some(to), None) => to >= course.end,
                };
                comes.holds(span.from) && gone
            };
            let fits = |(mark, _): &(Mark, Span)| pattern.fits(mark);
            let exact = told.iter().position(|one| fits(one) && right(&one.1));
            if let Some(at) = exact {
                told.remove(at);
                count.1 += 1;
                continue;
            }
            let instead = told.iter().position(fits).map(|at| told.remove(at).1);
            let instead = instead.map_or_else(
                || "it was never there".to_owned(),
                |Span { from, to }| match to {
                    Some(to) => format!("it was there from {from:.3} to {to:.3}"),
                    None => format!("it was there from {from:.3} on"),
                },
            );
            judged.faults.push((Fault::Missing(pattern.code.as_str().into()), format!("`{line}`: {instead}")));
        }
        let never: Vec<_> = self.never.iter().chain(&everybody.never).collect();
        let may = |mark: &Mark| self.may.iter().chain(&everybody.may).any(|pattern| pattern.fits(mark));
        for (mark, Span { from, to }) in told {
            if never.contains(&&mark.code) || !may(&mark) {
                let to = to.map_or_else(|| "the end".to_owned(), |to| format!("{to:.3}"));
                let fault = format!("{subject} shows {} from {from:.3} to {to}", show(&mark));
                judged.faults.push((Fault::Forbidden(mark.code.as_str().into()), fault));
            }
        }
    }

    fn carried(&self, subject: &str, course: &Course, judged: &mut Judged) {
        let none = Vec::new();
        let told = course.carried.get(subject).unwrap_or(&none);
        for span in told {
            let to = span.to.unwrap_or(course.end);
            if !self.carried.iter().any(|window| window.holds(span.from) && window.holds(to)) {
                judged.faults.push((Fault::Carried, format!("{subject} is carried from {:.3} to {to:.3}", span.from)));
            }
        }
        for window in &self.carried {
            if !told.iter().any(|span| window.holds(span.from)) {
                let Window { from, to } = window;
                judged.faults.push((Fault::Carried, format!("{subject} is not carried between {from:.3} and {to:.3}")));
            }
        }
    }
}
