//! `open-gates`: leaves no gate shut behind.

use super::{ConfigArgs, Exit, Failure, check_config, exit::print};
use crate::publish::gate::{GateSettings, open_all};
use std::{io, process::ExitCode};

/// Opens the gates of all selected pods, on all nodes.
pub(super) async fn run(args: &ConfigArgs, out: &mut dyn io::Write) -> Result<ExitCode, Failure> {
    let config = check_config::load(args)?;
    let opened = open_all(&GateSettings::new(&config)).await.map_err(|error| Failure::running(format!("{error:#}")))?;
    print(&format!("{opened} gates opened\n"), out)?;
    Ok(Exit::Done.into())
}
