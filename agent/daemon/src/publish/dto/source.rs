//! Sources.

use super::Clocks;
use serde::Serialize;
use storewatch_core::snapshot::SourceView;

#[derive(Debug, Serialize)]
pub(crate) struct SourceDto<'a> {
    name: &'static str,
    state: &'static str,
    detail: &'a str,
    lost: u64,
    /// Null before its first answer.
    age_ms: Option<u64>,
}

impl<'a> SourceDto<'a> {
    pub(crate) fn new(source: &'a SourceView, clocks: &Clocks) -> Self {
        let SourceView { name, state, detail, lost, last } = source;
        Self {
            name: name.as_str(),
            state: state.as_str(),
            detail,
            lost: *lost,
            age_ms: last.map(|at| clocks.age_ms(at)),
        }
    }
}
