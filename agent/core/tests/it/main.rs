//! The core under disorder: anything in any order, floods, lists that make no sense, a large node. What situations come to
//! is in `tests/corpus`.
//!
//! `PROPTEST_CASES=N` makes N cases of each property (`make test-long`).

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod any;
mod bounds;
mod disorder;
mod floods;
mod heap;
mod large;
mod lists;

use proptest::prelude::ProptestConfig;

/// So many cases as a short run allows, unless the environment asks for more.
fn how_many(short: u32) -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let usual = ProptestConfig::default();
    ProptestConfig { cases: if asked { usual.cases } else { short }, ..usual }
}
