//! The command line as a process: exit codes, what is printed where, and what a script can rely on.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod commands;
mod configuration;
mod happenings;
mod probe;
mod server;

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Output},
};

/// What a command left behind.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `storewatch` to its end in an environment of its own.
fn storewatch<A: AsRef<OsStr>>(arguments: &[A], environment: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storewatch"));
    command.env_clear().env("NODE_NAME", "node-a").envs(environment.iter().copied()).args(arguments);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// A folder for one test, with a file in it.
fn folder_with(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let path = shown(&path);
    (folder, path)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
