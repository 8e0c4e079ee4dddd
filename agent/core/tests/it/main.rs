//! The core as a whole: timelines in, verdict timelines out.
//!
//! `scenarios` plays the files of `tests/scenarios` through a simulated node ([`node`]) whose pings, DNS and PD behave as
//! the file says, and compares what the judge says with the file's own ending. `UPDATE=1` writes the endings anew; read
//! the difference before you believe it. `kubernetes` is about what a control plane adds, `properties` throws disorder at
//! the judge. Labelled situations, and scripts of what happened and of the connection table, are in `tests/corpus`.

#![expect(clippy::unwrap_used, reason = "a broken scenario is a failed test")]

mod kubernetes;
mod node;
mod properties;
mod scenarios;
mod script;
