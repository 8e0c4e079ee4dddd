//! The core as a whole: disorder thrown at the judge. What it must say in situations that make sense is in
//! `tests/corpus`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod properties;
