//! One word about a source that consists of several parts, for example one for each cluster.

use std::sync::{Arc, Mutex, PoisonError};
use storewatch_core::{
    source::{SourceName, SourceReport, SourceState},
    time::MonoTime,
};

/// A part's last word.
type Part = (SourceState, Arc<str>);

/// The parts of one source, each with its last word.
#[derive(Debug)]
pub struct SourceParts {
    source: SourceName,
    parts: Mutex<Vec<Option<Part>>>,
}

impl SourceParts {
    /// A source of `count` parts that have not spoken yet.
    pub fn new(source: SourceName, count: usize) -> Self {
        Self { source, parts: Mutex::new(vec![None; count]) }
    }

    /// Files a part's word and gives the word for the whole: `None` until every part has spoken.
    ///
    /// The whole is active when every part is, absent when every part is, and degraded in between.
    pub fn set(&self, part: usize, at: MonoTime, state: SourceState, detail: &str) -> Option<SourceReport> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = parts.get_mut(part) {
            *slot = Some((state, detail.into()));
        }
        let known: Vec<_> = parts.iter().flatten().collect();
        if known.len() < parts.len() {
            return None;
        }
        let all = |wanted| known.iter().all(|(state, _)| *state == wanted);
        let state = if all(SourceState::Active) {
            SourceState::Active
        } else if all(SourceState::Absent) {
            SourceState::Absent
        } else {
            SourceState::Degraded
        };
        let mut details: Vec<&str> =
            known.iter().map(|(_, detail)| &**detail).filter(|text| !text.is_empty()).collect();
        details.dedup();
        Some(SourceReport { source: self.source, at, state, detail: details.join("; ").into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SourceState::{Absent, Active, Degraded};

    #[test]
    fn the_whole_is_what_its_parts_are() {
        let now = MonoTime::default();
        for (one, two, whole) in [
            (Active, Active, Active),
            (Absent, Absent, Absent),
            (Active, Absent, Degraded),
            (Degraded, Active, Degraded),
            (Absent, Degraded, Degraded),
        ] {
            let parts = SourceParts::new(SourceName::Pd, 2);
            assert_eq!(parts.set(0, now, one, "a"), None, "half of it has not spoken");
            let report = parts.set(1, now, two, "b").unwrap();
            assert_eq!((report.state, &*report.detail), (whole, "a; b"));
        }
    }
}
