//! The source `kubernetes`: one word made of what each of the calls came to.
//!
//! A watch that breaks and is there again within moments is no news; one that may not be made, is.

use super::failure::{Failure, Why};
use crate::{clock, observe::ObservationSender};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use storewatch_core::{
    observation::Observation,
    source::{SourceName, SourceReport, SourceState},
    time::MonoTime,
};
use tokio::{sync::Notify, time::timeout};

/// How long something must fail before it is told.
const GRACE: Duration = Duration::from_secs(3);

/// How often an unchanged word is said again.
const CONFIRM: Duration = Duration::from_secs(5);

/// How many failures are told in words.
const TOLD: usize = 3;

/// How each part is.
type Parts = BTreeMap<String, State>;

#[derive(Clone, Debug)]
struct State {
    /// Since when it fails, and how.
    failing: Option<(MonoTime, Failure)>,
    /// It has had an answer.
    answered: bool,
    /// Said beside, also when it is well.
    remark: String,
}

/// All parts.
#[derive(Debug, Default)]
pub struct Health {
    parts: Mutex<Parts>,
    changed: Notify,
}

/// The end of one part.
#[derive(Clone, Debug)]
pub struct Part {
    name: String,
    health: Arc<Health>,
}

impl Health {
    /// A part that has not answered yet. It is gone from the word when it never says anything.
    pub fn part(self: &Arc<Self>, name: impl Into<String>) -> Part {
        Part { name: name.into(), health: Arc::clone(self) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Parts) -> T) -> T {
        act(&mut self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The whole: its state (`None` while nothing is known), its detail, and when to look again because something fails
    /// that is not told yet.
    fn word(&self, now: MonoTime) -> (Option<SourceState>, String, Option<MonoTime>) {
        self.with(|parts| {
            let told =
                |(since, failure): &(MonoTime, Failure)| failure.why == Why::Forbidden || now.since(*since) >= GRACE;
            // What fails in the same way is told together: when the API server is away, everything does.
            let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            let mut remarks = Vec::new();
            let mut next: Option<MonoTime> = None;
            for (name, state) in parts.iter() {
                match &state.failing {
                    Some(failure) if told(failure) => alike.entry(sentence(&failure.1)).or_default().push(name),
                    Some((since, _)) => next = Some(next.map_or(*since + GRACE, |next| next.min(*since + GRACE))),
                    None => {}
                }
                if !state.remark.is_empty() {
                    remarks.push(format!("{name}: {}", state.remark));
                }
            }
            let failing = alike.len();
            let mut details: Vec<_> = alike
                .iter()
                .map(|(words, names)| match names.as_slice() {
                    [first, _, more @ ..] => format!("{first} and {} more: {words}", more.len() + 1),
                    names => format!("{}: {words}", names.join("")),
                })
                .collect();
            details.extend(remarks);
            let more = details.len().saturating_sub(TOLD);
            details.truncate(TOLD);
            if more > 0 {
                details.push(format!("and {more} more"));
            }
            let answered = parts.values().any(|state| state.answered);
            let state = match (failing, answered) {
                (0, false) => None,
                (0, true) if details.is_empty() => Some(SourceState::Active),
                _ => Some(SourceState::Degraded),
            };
            (state, details.join("; "), next)
        })
    }

    /// Says the word whenever it changes, until the engine ends.
    pub async fn run(self: Arc<Self>, sender: ObservationSender) {
        let mut last = None;
        let mut said = clock::now();
        loop {
            let now = clock::now();
            let (state, detail, next) = self.word(now);
            if let Some(state) = state
                && (last.as_ref() != Some(&(state, detail.clone())) || now.since(said) >= CONFIRM)
            {
                let report =
                    SourceReport { source: SourceName::Kubernetes, at: now, state, detail: detail.as_str().into() };
                if sender.send(Observation::Source(report)).await.is_err() {
                    return;
                }
                last = Some((state, detail));
                said = now;
            }
            let wait = next.map_or(CONFIRM, |next| next.since(now).min(CONFIRM));
            let _ = timeout(wait.max(Duration::from_millis(10)), self.changed.notified()).await;
        }
    }
}

fn sentence(failure: &Failure) -> String {
    let Failure { why, words, .. } = failure;
    match why {
        Why::Forbidden => format!("may not be done ({words}); the agent's Role lacks this rule"),
        _ => words.clone(),
    }
}

impl Part {
    fn set(&self, change: impl FnOnce(&mut State)) {
        self.health.with(|parts| {
            let state = parts.entry(self.name.clone()).or_insert_with(|| State {
                failing: None,
                answered: false,
                remark: String::new(),
            });
            change(state);
        });
        self.health.changed.notify_one();
    }

    /// It answered.
    pub fn well(&self) {
        let known = self
            .health
            .with(|parts| parts.get(&self.name).is_some_and(|state| state.failing.is_none() && state.answered));
        if !known {
            self.set(|state| {
                state.failing = None;
                state.answered = true;
            });
        }
    }

    /// It did not.
    pub fn fails(&self, failure: Failure) {
        tracing::debug!(part = %self.name, why = ?failure.why, "{}", failure.words);
        let now = clock::now();
        self.set(|state| {
            let since = state.failing.as_ref().map_or(now, |(since, _)| *since);
            state.failing = Some((since, failure));
        });
    }

    /// What is worth saying even while it answers; an empty text takes it back.
    pub fn remark(&self, text: String) {
        self.set(|state| state.remark = text);
    }

    /// What it fails with at present, told or not.
    pub fn failing(&self) -> Option<String> {
        self.health.with(|parts| Some(sentence(&parts.get(&self.name)?.failing.as_ref()?.1)))
    }

    /// What it fails with, once that is told.
    pub fn trouble(&self) -> Option<String> {
        let now = clock::now();
        self.health.with(|parts| {
            let (since, failure) = parts.get(&self.name)?.failing.as_ref()?;
            (failure.why == Why::Forbidden || now.since(*since) >= GRACE)
                .then(|| format!("{}: {}", self.name, sentence(failure)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(why: Why) -> Failure {
        Failure { why, words: "words".to_owned(), retry_after: None }
    }

    #[test]
    fn what_fails_for_a_moment_is_no_news_and_what_is_forbidden_is() {
        let health = Arc::new(Health::default());
        let (pods, leases) = (health.part("pods"), health.part("leases"));
        assert_eq!(health.word(clock::now()).0, None, "nothing is known yet");
        pods.well();
        assert_eq!(health.word(clock::now()).0, Some(SourceState::Active));
        leases.fails(failure(Why::Away));
        let now = clock::now();
        let (state, detail, next) = health.word(now);
        assert_eq!((state, &*detail), (Some(SourceState::Active), ""));
        assert!(next.is_some_and(|next| next <= now + GRACE));
        let (state, detail, next) = health.word(now + GRACE);
        assert_eq!((state, &*detail, next), (Some(SourceState::Degraded), "leases: words", None));
        leases.well();
        assert_eq!(health.word(now + GRACE).0, Some(SourceState::Active));
        pods.fails(failure(Why::Forbidden));
        let (state, detail, _) = health.word(clock::now());
        assert_eq!(state, Some(SourceState::Degraded));
        assert!(detail.starts_with("pods: may not be done (words)"), "{detail}");
        assert!(pods.trouble().is_some() && leases.trouble().is_none());
    }
}
