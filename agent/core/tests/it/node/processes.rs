//! Processes: which one dials from a container, when it ends, and what its command line says.

use super::*;
use storewatch_core::process::{CommandLine, FlagValue, ProcessReport, ProcessState};

/// How often the processes that the judge asked about are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    cgroup: u64,
    started: MonoTime,
    ended: bool,
    command: Option<CommandLine>,
}

impl Node {
    /// The process that dials from a container at present.
    pub(super) fn pid(&self, cgroup: u64) -> Option<u32> {
        self.running.get(&cgroup).copied()
    }

    /// `process CGROUP PID [java] [ttl=N] [cache=N] [manager] [cut]`: it begins now, and dials. Without a further word its command
    /// line cannot be read.
    pub(super) fn process_begins(&mut self, step: &Step) {
        let pid = u32::try_from(step.number(2)).unwrap();
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
        let process = Process { cgroup: step.number(1), started: self.now, ended: false, command };
        self.running.insert(process.cgroup, pid);
        self.processes.insert(pid, process);
    }

    /// `ends PID`: its sockets are nobody's from now on.
    pub(super) fn process_ends(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { panic!("no process {pid}") };
        process.ended = true;
        let cgroup = process.cgroup;
        self.connections.retain(|_, connection| connection.pid != Some(pid));
        self.clients.retain(|_, client| client.cgroup != cgroup);
    }

    /// What is found of the processes that the judge asked about.
    pub(super) fn look(&mut self) {
        let report = |pid: &u32| {
            let state = match self.processes.get(pid) {
                Some(Process { ended: false, started, command, .. }) => {
                    ProcessState::Alive { started: *started, command: *command }
                }
                _ => ProcessState::Ended,
            };
            ProcessReport { pid: *pid, at: self.now, state }
        };
        let reports: Vec<_> = self.asked.iter().map(report).collect();
        if !reports.is_empty() {
            self.observe(Observation::Processes(reports));
        }
    }
}
