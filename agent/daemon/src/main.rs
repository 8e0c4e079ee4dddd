//! The `storewatch` binary: parses, calls, and turns the outcome into the process's exit code.

use clap::Parser;
use std::process::ExitCode;
use storewatch::cli::{Cli, Exit, complain};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            // A closed terminal is no reason for another exit code.
            let _ = message.print();
            return if message.use_stderr() { Exit::Wrong.into() } else { Exit::Done.into() };
        }
    };
    match storewatch::cli::run(cli) {
        Ok(code) => code,
        Err(failure) => {
            complain(&failure);
            failure.exit().into()
        }
    }
}
