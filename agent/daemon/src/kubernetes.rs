//! The API server: how it is reached, the parts of its objects that are read, and the word about each of the calls.
//!
//! Both sides use it: sources watch, publishers write. It knows neither.

pub mod client;
pub mod condition;
pub mod failure;
pub mod health;
pub mod manifest;
pub mod objects;
pub mod scope;
pub mod watch;
