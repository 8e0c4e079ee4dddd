//! The core as a whole: timelines in, verdict timelines out.
//!
//! `scenarios` plays the files of `tests/scenarios` through a simulated node ([`node`]) whose pings, DNS and PD behave as
//! the file says, and compares what the judge says with the file's own ending. `UPDATE=1` writes the endings anew; read
//! the difference before you believe it. `events` and `table` play scripts for what happened and for the connection table; `kubernetes` for what
//! a control plane adds.
//! `properties` throws disorder at the judge.

#![expect(clippy::unwrap_used, reason = "a broken scenario is a failed test")]

mod events;
mod kubernetes;
mod node;
mod properties;
mod scenarios;
mod script;
mod table;
