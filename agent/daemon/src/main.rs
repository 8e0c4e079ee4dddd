//! The `storewatch` binary: parses, calls, and turns the outcome into the process's exit code. Called `kubectl-storewatch`, it
//! is kubectl's plug-in for all nodes of a cluster.

use clap::Parser;
use std::process::ExitCode;
use storewatch::cli::{Exit, Failure, complain, kubectl};

fn main() -> ExitCode {
    if kubectl::is_called(std::env::args_os().next().as_deref()) {
        act(kubectl::run)
    } else {
        act(storewatch::cli::run)
    }
}

fn act<C: Parser>(run: impl FnOnce(C) -> Result<ExitCode, Failure>) -> ExitCode {
    let command = match C::try_parse() {
        Ok(command) => command,
        Err(message) => {
            // A closed terminal is no reason for another exit code.
            let _ = message.print();
            return if message.use_stderr() { Exit::Wrong.into() } else { Exit::Done.into() };
        }
    };
    match run(command) {
        Ok(code) => code,
        Err(failure) => {
            complain(&failure);
            failure.exit().into()
        }
    }
}
