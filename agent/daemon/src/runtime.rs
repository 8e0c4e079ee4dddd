//! Tasks, signals and logging of the process.

pub mod limits;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;
pub mod threads;
