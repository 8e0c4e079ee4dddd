//! The judge in situations that make sense: labelled ones, any sequence of faults, and what is told of events and
//! connections on the way.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod events;
mod faults;
mod matrix;
mod recordings;
mod table;
