//! Exit codes and what is said with them.

use std::{
    fmt,
    io::{self, Write},
    ops::ControlFlow,
    process::ExitCode,
};

/// The exit codes, everywhere the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// The answer is no, or it failed while running.
    No,
    /// Wrong usage, configuration or file, or nobody answers.
    Wrong,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::No => 1,
            Exit::Wrong => 2,
        })
    }
}

/// Why a command gives no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    exit: Exit,
    lines: Vec<String>,
}

impl Failure {
    /// It failed while running.
    pub fn running(message: impl fmt::Display) -> Self {
        Self { exit: Exit::No, lines: vec![format!("storewatch: {message}")] }
    }

    /// Usage, configuration or a file is wrong, or nobody answers.
    pub fn wrong(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Wrong, lines: vec![format!("storewatch: {message}")] }
    }

    /// Mistakes in a file, a line each.
    pub fn mistakes(lines: Vec<String>) -> Self {
        Self { exit: Exit::Wrong, lines }
    }

    /// The exit code for it.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// What to tell.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

/// Writes the answer. A reader that has gone away, such as `head`, has had what it wanted.
pub(super) fn print(text: &str, out: &mut dyn io::Write) -> Result<(), Failure> {
    print_more(text, out).map(|_| ())
}

/// Writes a part of an answer that goes on, unless its reader has gone away.
pub(super) fn print_more(text: &str, out: &mut dyn io::Write) -> Result<ControlFlow<()>, Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::running(format!("cannot write the answer: {error}"))),
    }
}

/// A word beside the answer, which scripts do not read.
pub(super) fn remark(text: &str) {
    // Nobody is left to tell when this fails.
    let _ = writeln!(io::stderr().lock(), "storewatch: {text}");
}
