//! The processes that dial from judged pods: whether they live, and what their command lines say.
//!
//! ```text
//! Request::Processes ──► each second: does each live, since when ──► Observation::Processes
//!                        seldom, apart: its command line, as facts ─┘
//! ```
//!
//! No right is needed beyond seeing other processes. Reading a command line may block while its process is stuck in the
//! kernel, so it happens on a thread of its own that whether processes live does not wait for; and nothing but the facts
//! of [`CommandLine`] leaves the place where it is read.

mod command;
mod look;

pub use look::Proc;

use crate::{clock, observe::ObservationSender, requests::ProcessRequests, source::clock::every};
use look::Seen;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use storewatch_core::{
    observation::Observation,
    process::{CommandLine, ProcessReport, ProcessState},
    time::MonoTime,
};
use tokio::task::{JoinHandle, spawn_blocking};

/// How often it is looked whether processes live.
const PERIOD: Duration = Duration::from_secs(1);

/// A process that is younger may still become another program (a script that ends in `exec`)...
const YOUNG: Duration = Duration::from_secs(60);

/// ... and so is read again this often; an older one...
const YOUNG_AGAIN: Duration = Duration::from_secs(2);

/// ... this often.
const AGAIN: Duration = Duration::from_secs(60);

/// Begins of one process, as seen by two looks, differ by less.
const SAME: Duration = Duration::from_millis(50);

/// The source of processes, to be run as a task.
#[derive(Debug)]
pub struct Processes {
    proc: Proc,
    requests: ProcessRequests,
}

/// A process that is looked after.
#[derive(Clone, Copy, Debug)]
struct Known {
    started: MonoTime,
    command: Option<CommandLine>,
    read_at: Option<MonoTime>,
    told: bool,
}

type Commands = Vec<(u32, MonoTime, Option<CommandLine>)>;

impl Processes {
    /// Looks after what the engine asks for, as `/proc` shows it.
    pub fn new(requests: ProcessRequests) -> Self {
        Self { proc: Proc::of_machine(), requests }
    }

    /// Runs until the engine ends. Where the process numbers of this `/proc` are not the kernel's, it says so once in the
    /// log, and nothing is ever told.
    ///
    /// # Errors
    /// When a thread that reads files panicked.
    pub async fn run(self, sender: ObservationSender) -> anyhow::Result<()> {
        let Self { proc, mut requests } = self;
        if let Err(why) = proc.comparable() {
            tracing::warn!("processes are not looked at: {why}");
            return std::future::pending().await;
        }
        let mut timer = every(PERIOD);
        let mut known: BTreeMap<u32, Known> = BTreeMap::new();
        let mut reading: Option<JoinHandle<Commands>> = None;
        loop {
            let mut due = Vec::new();
            tokio::select! {
                _ = timer.tick() => due.extend(requests.borrow().iter().copied()),
                changed = requests.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                    let wanted: BTreeSet<u32> = requests.borrow_and_update().iter().copied().collect();
                    known.retain(|pid, _| wanted.contains(pid));
                    due.extend(wanted.into_iter().filter(|pid| !known.contains_key(pid)));
                }
                read = finished(&mut reading) => {
                    reading = None;
                    file(&mut known, read?);
                }
            }
            let mut reports = Vec::new();
            if !due.is_empty() {
                let looker = proc.clone();
                let at = clock::now();
                let seen = spawn_blocking(move || looker.look(&due)).await?;
                for (pid, seen) in seen {
                    reports.extend(take(&mut known, pid, seen, at));
                }
            }
            reports.extend(news(&mut known));
            if reading.is_none() {
                reading = read(&proc, &mut known);
            }
            if !reports.is_empty() && sender.send(Observation::Processes(reports)).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Files whether a process lives. What has ended is told each time, for the engine may have seen more of it meanwhile.
fn take(known: &mut BTreeMap<u32, Known>, pid: u32, seen: Seen, at: MonoTime) -> Option<ProcessReport> {
    match seen {
        Seen::Ended => {
            known.remove(&pid);
            Some(ProcessReport { pid, at, state: ProcessState::Ended })
        }
        Seen::Unreadable => None,
        Seen::Alive(started) => {
            let new = Known { started, command: None, read_at: None, told: false };
            let entry = known.entry(pid).or_insert(new);
            // The clocks' distance, read anew with each look, moves by less.
            if entry.started.since(started).max(started.since(entry.started)) > SAME {
                *entry = new;
            }
            None
        }
    }
}

/// What is not told yet.
fn news(known: &mut BTreeMap<u32, Known>) -> Vec<ProcessReport> {
    let at = clock::now();
    let mut reports = Vec::new();
    for (pid, Known { started, command, told, .. }) in known {
        if !std::mem::replace(told, true) {
            let state = ProcessState::Alive { started: *started, command: *command };
            reports.push(ProcessReport { pid: *pid, at, state });
        }
    }
    reports
}

/// Begins to read the command lines that are due.
fn read(proc: &Proc, known: &mut BTreeMap<u32, Known>) -> Option<JoinHandle<Commands>> {
    let now = clock::now();
    let mut due = Vec::new();
    for (pid, process) in known {
        let again = if now.since(process.started) < YOUNG { YOUNG_AGAIN } else { AGAIN };
        if process.read_at.is_none_or(|at| now.since(at) >= again) {
            process.read_at = Some(now);
            due.push((*pid, process.started));
        }
    }
    let proc = proc.clone();
    (!due.is_empty()).then(|| {
        spawn_blocking(move || due.into_iter().map(|(pid, started)| (pid, started, proc.command(pid))).collect())
    })
}

/// Files what was read; only a change is told.
fn file(known: &mut BTreeMap<u32, Known>, commands: Commands) {
    for (pid, started, command) in commands {
        if let Some(process) = known.get_mut(&pid).filter(|process| process.started == started)
            && command.is_some()
            && process.command != command
        {
            process.command = command;
            process.told = false;
        }
    }
}

async fn finished(reading: &mut Option<JoinHandle<Commands>>) -> Result<Commands, tokio::task::JoinError> {
    match reading {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
