//! Processes: which one dials from a container, when it ends, and what its command line says.

use super::{steps::small, *};
use storewatch_core::process::{CommandLine, FlagValue, ProcessReport, ProcessState};

/// How often the processes that the judge asked about are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// A process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    who: String,
    started: MonoTime,
    ended: bool,
    command: Option<CommandLine>,
}

impl Node {
    /// The process that dials from a container at present.
    pub(super) fn pid(&self, who: &str) -> Option<u32> {
        self.running.get(who).copied()
    }

    pub(super) fn process_begins(&mut self, step: &Step) {
        let words = step.rest(3);
        let number = |key: &str| {
            let value = words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            value.map(|value| value.parse().map_or(FlagValue::Other, FlagValue::Number))
        };
        let has = |word: &str| words.iter().any(|other| other == word);
        let command = (!words.is_empty()).then(|| CommandLine {
            java: has("java"),
            whole: !has("cut"),
            dns_ttl: number("ttl"),
            cache_ttl: number("cache"),
            security_manager: has("manager"),
            more_elsewhere: false,
        });
        let process = Process { who: step.word(1).into(), started: self.now, ended: false, command };
        self.running.insert(process.who.clone(), small(step, 2));
        self.processes.insert(small(step, 2), process);
    }

    /// Its sockets are nobody's from now on.
    pub(super) fn process_ends(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { panic!("no process {pid}") };
        process.ended = true;
        let who = process.who.clone();
        self.connections.retain(|_, connection| connection.owner.and_then(|owner| owner.pid) != Some(pid));
        self.clients.retain(|_, client| client.who != who);
    }

    /// What is found of the processes that the judge asked about.
    pub(super) fn look(&mut self) {
        // Of a number that no `process` has, a script says nothing.
        let report = |pid: &u32| {
            let Process { started, ended, command, .. } = self.processes.get(pid)?;
            let alive = ProcessState::Alive { started: *started, command: *command };
            Some(ProcessReport { pid: *pid, at: self.now, state: if *ended { ProcessState::Ended } else { alive } })
        };
        let reports: Vec<_> = self.asked.iter().filter_map(report).collect();
        if !reports.is_empty() {
            self.observe(Observation::Processes(reports));
        }
    }
}
