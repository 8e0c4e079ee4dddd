//! The agent and the demo as processes: what start, faults, signals and restarts look like from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod connections;
mod daemon;
mod demo;
mod events;
mod life;
mod recording;
mod restart;
mod storage;
