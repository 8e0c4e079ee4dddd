//! Labelled situations: what happens, and what must follow from it by the contract.
//!
//! Each file below `cases/` is one situation. Above the line `---` stands what happens: a timeline for a simulated node
//! ([`node`], in the language of [`script`]), or the name of a recording of a real agent. Below it stands what is right,
//! in the language of [`labels`]: which verdict holds when and for which reason, which findings come and go, and nothing
//! else. The labels are written by hand from the contract's definitions, with the time that these allow; what the judge
//! says is never copied into them.
//!
//! `cargo run -p storewatch-tests-corpus` plays all and prints the confusion matrix ([`matrix`]); a part of a file's path
//! as argument plays those files and prints what was said. A bug report becomes a case by adding its recording, and a
//! file that names it and says what is right:
//!
//! ```text
//! # What the reporter saw, and what should have been.
//! recording trouble.rec
//! ---
//! server-0 Ready StoreAnswering 0..0
//! ```

#![expect(clippy::unwrap_used, reason = "a broken case is a failed test")]

pub mod cases;
pub mod course;
pub mod labels;
pub mod matrix;
pub mod node;
pub mod script;
