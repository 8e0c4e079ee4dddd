//! Tasks and signals of the process.

pub mod shutdown;
pub mod tasks;
