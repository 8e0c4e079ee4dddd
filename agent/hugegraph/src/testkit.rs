//! A PD and Stores that speak the real wire protocol, with faults that can be switched, and a client that behaves on the
//! network as a HugeGraph Server's channels do. For tests and for the demonstration, never for production.
//!
//! Servers run on a listener that the caller made, so each may live in its own task, process or network namespace. Faults
//! are switched through a `watch` channel while they run.

pub mod client;
mod local;
pub mod pd;
mod raw;
mod serve;
pub mod store;

pub use local::{LocalPd, LocalStore};
