//! What was said in the course of a situation, in seconds since its begin.

use std::collections::BTreeMap;
use storewatch::recording::{Mark, News, Replayed, Standing, Subject, Told};
use storewatch_core::{time::MonoTime, verdict::Reason};

/// How the node is called.
pub const NODE: &str = "node";

/// A time in which something holds; without an end it holds to the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Begin.
    pub from: f64,
    /// End.
    pub to: Option<f64>,
}

/// What was said.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// When the situation ends.
    pub end: f64,
    /// Of each subject, each reason with its begin; `None` while it is not there.
    pub verdicts: BTreeMap<String, Vec<(f64, Option<Reason>)>>,
    /// Of each subject, each finding with its time.
    pub findings: BTreeMap<String, Vec<(Mark, Span)>>,
    /// When a verdict was marked as carried over a restart.
    pub carried: BTreeMap<String, Vec<Span>>,
    /// What was said in words: of whom, when, and the sentences.
    pub words: Vec<(String, f64, Vec<String>)>,
    /// At the end, of each pod and target: what was counted.
    pub counts: BTreeMap<(String, String), BTreeMap<String, u64>>,
}

/// How a subject is called in labels.
pub fn name(subject: &Subject) -> String {
    match subject {
        Subject::Node(_) => NODE.to_owned(),
        Subject::Pod { pod, uid: _ } => pod.name.to_string(),
    }
}

impl Course {
    /// Adds how a subject stood at the begin.
    pub fn begin(&mut self, subject: &Subject, standing: &Standing) {
        let name = name(subject);
        self.verdicts.entry(name.clone()).or_default().push((0.0, Some(standing.reason)));
        let findings = self.findings.entry(name).or_default();
        findings.extend(standing.findings.iter().map(|mark| (mark.clone(), Span { from: 0.0, to: None })));
    }

    /// Adds the news of one instant. A name may pass to another pod at once, so who goes is taken first.
    pub fn add(&mut self, at: f64, news: &[Told]) {
        let goes = |told: &&Told| matches!(told.what, News::Verdict { to: None, .. });
        for told in news.iter().filter(goes).chain(news.iter().filter(|told| !goes(told))) {
            let name = name(&told.who);
            let findings = self.findings.entry(name.clone()).or_default();
            let open = |mark: &Mark, list: &mut Vec<(Mark, Span)>| {
                let open = list.iter_mut().filter(|(known, span)| known == mark && span.to.is_none()).last();
                if let Some((_, span)) = open {
                    span.to = Some(at);
                }
            };
            match &told.what {
                News::Verdict { to, .. } => {
                    if to.is_none() {
                        findings
                            .iter_mut()
                            .filter(|(_, span)| span.to.is_none())
                            .for_each(|(_, span)| span.to = Some(at));
                    }
                    self.verdicts.entry(name).or_default().push((at, *to));
                }
                News::Came(mark) => findings.push((mark.clone(), Span { from: at, to: None })),
                News::Went(mark) => open(mark, findings),
            }
        }
    }

    /// What a replay said.
    pub fn of(replayed: &Replayed) -> Self {
        let seconds = |at: MonoTime| at.since(replayed.header.at).as_secs_f64();
        let mut course = Self { end: seconds(replayed.until), ..Self::default() };
        for (subject, standing) in &replayed.before {
            course.begin(subject, standing);
        }
        let told: Vec<Told> = replayed.told.iter().map(|(told, _)| told.clone()).collect();
        for news in told.chunk_by(|one, other| one.at == other.at) {
            course.add(news.first().map_or(0.0, |told| seconds(told.at)), news);
        }
        course
    }

    /// The same for people, a line for each change.
    pub fn show(&self) -> String {
        let mut lines = Vec::new();
        for (name, verdicts) in &self.verdicts {
            for (at, reason) in verdicts {
                let said = reason.map_or_else(
                    || "gone".to_owned(),
                    |reason| format!("{} {}", reason.status().as_str(), reason.as_str()),
                );
                lines.push((*at, format!("{name} {said}")));
            }
        }
        for (name, findings) in &self.findings {
            for (mark, span) in findings {
                lines.push((span.from, format!("{name} + {}", show(mark))));
                lines.extend(span.to.map(|to| (to, format!("{name} - {}", show(mark)))));
            }
        }
        for (name, spans) in &self.carried {
            for Span { from, to } in spans {
                lines.push((*from, format!("{name} carried until {:.3}", to.unwrap_or(self.end))));
            }
        }
        lines.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut text: String = lines.iter().map(|(at, line)| format!("{at:8.3} {line}\n")).collect();
        for (who, at, words) in &self.words {
            text.push_str(&format!("{at:8.3} {who} says\n"));
            text.extend(words.iter().map(|line| format!("         > {line}\n")));
        }
        for ((pod, target), counts) in &self.counts {
            let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{what}={count}")).collect();
            text.push_str(&format!("     end {pod} = {target} {}\n", counts.join(" ")));
        }
        text
    }
}

/// `CODE MODE TARGET SEVERITY`.
pub fn show(mark: &Mark) -> String {
    let Mark { code, mode, target, severity } = mark;
    let mode = mode.map(|mode| format!(" {}", mode.as_str())).unwrap_or_default();
    let target = if target.is_empty() { String::new() } else { format!(" {target}") };
    format!("{}{mode}{target} {}", code.as_str(), severity.as_str())
}
