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
//! - absent, stale and lost are values of their own, never "healthy" and never zero;
//! - every list and map is bounded by a constant that says why, and what does not fit is counted
//!   ([`snapshot::Dropped`]).
//!
//! Where a question is answered:
//! - what happened to a connection: `classify`; whose it is: `attribution`; who owned the address: `ownership`;
//! - whether the node reaches its storage: `rounds`, `pd`, `cluster`;
//! - what a container's dials came to, against the node's own pings: `container`, `pings`, `sockets`;
//! - whose doing that was, and what ends with a process: `dialers`;
//! - what follows for a pod: `pods` (its rules in `pods/rules`), `stale`, `guard`, `findings`;
//! - what people are told to do about it: `remedy`, `naming`;
//! - what is published, remembered, told: `judge/publish`, `memory`, `event`, `table`.

pub mod attribution;
pub mod classify;
mod cluster;
pub mod connection;
mod container;
mod dialers;
pub mod endpoints;
pub mod event;
mod findings;
pub mod gate;
pub mod guard;
pub mod heal;
pub mod id;
pub mod judge;
pub mod memory;
mod naming;
pub mod observation;
pub mod ownership;
mod pd;
pub mod ping;
mod pings;
pub mod pod;
pub mod pods;
pub mod policy;
pub mod process;
mod remedy;
pub mod request;
pub mod rounds;
pub mod snapshot;
mod sockets;
pub mod source;
pub mod stale;
pub mod table;
pub mod time;
pub mod topology;
pub mod verdict;
