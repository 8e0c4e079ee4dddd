//! Where observations come from. A source knows the [`ObservationSender`](crate::observe::ObservationSender) and nothing
//! downstream of it.

pub mod clock;
pub mod endpoints;
pub mod inventory;
pub mod kernel;
pub mod names;
pub mod pd;
pub mod pings;
pub mod pods;
pub mod processes;
pub mod status;
