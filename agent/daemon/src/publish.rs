//! What the agent says to others. A publisher knows the [`Publication`] and nothing upstream of it.
//!
//! ```text
//! Publication ──► probe    (listen.probe: readiness, own health, grpc.health.v1)
//!             ├─► metrics  (listen.metrics: Prometheus)
//!             └─► admin    (listen.admin and the Unix socket: the whole truth; also asks the engine itself)
//! ```
//!
//! Every answer is made from one snapshot in memory: no I/O, nothing held across requests. What is too large to publish
//! with each snapshot the admin side asks for, in a way that cannot hold up the engine ([`crate::ask`]). The probe side is open to
//! whoever reaches the node, so it names no address, no host and lists no pods; the admin side is for this machine only.
//! [`serve`] gives each router a listener.

pub mod admin;
mod dto;
pub mod events;
mod feed;
pub mod gate;
mod health;
pub mod metrics;
pub mod probe;
mod problem;
mod publication;
mod query;
mod readiness;
mod recording;
pub mod serve;
#[cfg(test)]
pub(crate) mod testing;

pub use publication::{Publication, Publisher, channel};
pub use recording::AGENT_ENDS;
