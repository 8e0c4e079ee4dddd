//! The composition root; to come.

use crate::config::Config;
use anyhow::{Result, bail};
use std::process::ExitCode;

/// Runs the agent until a signal.
///
/// # Errors
/// Always: the parts are not joined yet.
pub async fn run(_config: Config) -> Result<ExitCode> {
    bail!("the agent's parts are not joined in this build")
}
