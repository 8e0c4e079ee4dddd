//! The pure part of storewatch: observations in, verdicts out.
//!
//! ```text
//! Observation ──► Judge::observe ──► facts per cluster, pod and container
//!                 Judge::advance ──► rules at `now` ──► Snapshot, Events, Requests
//! ```
//!
//! Invariants, which Cargo upholds because this crate depends on nothing that could break them:
//! - no clock, no I/O, no logging: time is an argument;
//! - the set of inputs is closed ([`observation::Observation`]);
//! - what decides is in the [`snapshot::Snapshot`]; there is no hidden state;
//! - absent, stale and lost are values of their own, never "healthy" and never zero.

pub mod attribution;
pub mod classify;
mod cluster;
pub mod connection;
pub mod event;
pub mod id;
pub mod judge;
pub mod observation;
pub mod ownership;
mod pd;
pub mod ping;
pub mod pod;
pub mod policy;
pub mod request;
pub mod rounds;
pub mod snapshot;
pub mod source;
pub mod time;
pub mod topology;
pub mod verdict;
