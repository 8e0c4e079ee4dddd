//! The agent and the demo as processes: what start, faults, signals and restarts look like from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod connections;
mod daemon;
mod demo;
mod doctor;
mod events;
mod explain;
mod life;
mod recording;
mod restart;
mod silence;
mod stale;
mod storage;
