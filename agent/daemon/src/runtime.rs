//! Tasks, signals and logging of the process.

pub mod shutdown;
pub mod tasks;
pub mod telemetry;
pub mod threads;
