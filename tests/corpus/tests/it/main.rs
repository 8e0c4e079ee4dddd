//! The judge in situations that make sense: labelled ones, any sequence of faults, and what is told of events and
//! connections on the way.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::{
    num::NonZero,
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use storewatch_tests_corpus::{
    cases::{self, Case},
    course::Course,
};

mod endpoints;
mod events;
mod faults;
mod kills;
mod matrix;
mod recordings;
mod table;

/// How many cases: `PROPTEST_CASES` for a longer search, else so many as a short run allows.
fn how_many(short: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// How many instants of each situation: ten times as many in a longer search.
fn many(short: usize) -> usize {
    if std::env::var_os("PROPTEST_CASES").is_some() { 10 * short } else { short }
}

/// Does something with each situation that has a timeline, on all processors, and gathers what it gives.
fn each<T: Send>(what: impl Fn(&Case) -> T + Sync) -> Vec<T> {
    let all: Vec<_> = cases::all("").into_iter().filter(|case| !case.script().steps.is_empty()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = || all.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(mine).map(&what).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Instants spread over a situation: each change, a moment before it, and the middle between two. `most` of them are
/// taken, the begin always.
fn instants(course: &Course, most: usize) -> Vec<Duration> {
    let verdicts = course.verdicts.values().flatten().map(|(at, _)| *at);
    let spans = course.findings.values().flatten().flat_map(|(_, span)| [Some(span.from), span.to]);
    let mut changes: Vec<f64> = verdicts.chain(spans.flatten()).chain([0.0, course.end]).collect();
    changes.sort_by(f64::total_cmp);
    changes.dedup();
    let middles = changes.windows(2).map(|pair| pair.iter().sum::<f64>() / 2.0);
    let before = changes.iter().map(|at| at - 0.25);
    let mut all: Vec<f64> = middles.chain(before).chain(changes.iter().copied()).collect();
    all.retain(|at| *at >= 0.0 && *at < course.end);
    all.sort_by(f64::total_cmp);
    let count = all.len();
    let most = most.min(count);
    (0..most).filter_map(|n| all.get(n * count / most)).map(|at| Duration::from_secs_f64(*at)).collect()
}
