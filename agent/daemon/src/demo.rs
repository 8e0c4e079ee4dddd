//! The demo; to come.

use anyhow::{Result, bail};
use std::process::ExitCode;

/// Runs the demo.
///
/// # Errors
/// Always: it does not exist yet.
pub fn run(_keep: bool) -> Result<ExitCode> {
    bail!("this build has no demo")
}
