//! Looks at processes in `/proc`.

use super::command;
use crate::clock;
use nix::{
    errno::Errno,
    sys::signal::kill,
    time::{ClockId, clock_gettime},
    unistd::{Pid, SysconfVar, sysconf},
};
use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    time::Duration,
};
use storewatch_core::{process::CommandLine, time::MonoTime};

/// The inode of the initial pid namespace: fixed by the kernel (`PROC_PID_INIT_INO`).
const INITIAL: u64 = 0xefff_fffc;

/// Ticks of a second where the kernel does not say; the same on every architecture that Linux runs on.
const TICKS: u64 = 100;

/// What one look showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It lives, and began at this time.
    Alive(MonoTime),
    /// No such process lives.
    Ended,
    /// It lives, but nothing more may be known.
    Unreadable,
}

/// A `/proc` file system.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Proc {
    /// This machine's.
    pub fn of_machine() -> Self {
        Self { root: PathBuf::from("/proc") }
    }

    /// Whether its numbers are those that the kernel's events carry.
    ///
    /// # Errors
    /// Why not, and how to get it.
    pub fn comparable(&self) -> Result<(), String> {
        match fs::metadata(self.root.join("self/ns/pid")).map(|data| data.ino()) {
            Ok(INITIAL) => Ok(()),
            Ok(_) => Err("the agent runs in a pid namespace of its own; run it with hostPID: true".to_owned()),
            Err(error) => Err(format!("{}/self/ns/pid cannot be read: {error}", self.root.display())),
        }
    }

    /// Looks whether these processes live.
    pub(super) fn look(&self, pids: &[u32]) -> Vec<(u32, Seen)> {
        let asleep = asleep();
        pids.iter().map(|pid| (*pid, self.look_at(*pid, asleep))).collect()
    }

    fn look_at(&self, pid: u32, asleep: Duration) -> Seen {
        // Not by the directory: it may be hidden (mount option `hidepid`) from who may not look into the process.
        let Some(number) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else { return Seen::Ended };
        if kill(Pid::from_raw(number), None) == Err(Errno::ESRCH) {
            return Seen::Ended;
        }
        let stat = fs::read_to_string(self.root.join(pid.to_string()).join("stat"));
        match stat.ok().as_deref().and_then(Stat::parse) {
            Some(Stat { zombie: true, .. }) => Seen::Ended,
            Some(Stat { started, .. }) => Seen::Alive(MonoTime::from_nanos(started) - asleep),
            None => Seen::Unreadable,
        }
    }

    /// What a command line says; `None` when it cannot be read, or is empty, as that of a process that is just beginning.
    pub(super) fn command(&self, pid: u32) -> Option<CommandLine> {
        let file = File::open(self.root.join(pid.to_string()).join("cmdline")).ok()?;
        let mut bytes = Vec::new();
        file.take(command::LONGEST as u64 + 1).read_to_end(&mut bytes).ok()?;
        command::facts(&bytes)
    }
}

/// How long the machine has slept since its boot: processes' begins count that time, the kernel's stamps do not.
fn asleep() -> Duration {
    let awake = clock::now();
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, |boot| {
        MonoTime::from_nanos(boot.tv_sec() * 1_000_000_000 + boot.tv_nsec()).since(awake)
    })
}

/// What is needed of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// It has ended, and nobody has taken note.
    zombie: bool,
    /// Nanoseconds since boot, sleep included.
    started: i64,
}

impl Stat {
    /// The name in field 2 may contain spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        // Fields 20 and 22, counted from 1.
        let threads: u64 = fields.nth(16)?.parse().ok()?;
        let ticks: u64 = fields.nth(1)?.parse().ok()?;
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
        let nanos = 1_000_000_000 / per_second.filter(|ticks| *ticks > 0).unwrap_or(TICKS);
        Some(Self {
            // A leader that has ended while other threads go on still holds everything.
            zombie: matches!(state, "Z" | "X") && threads <= 1,
            started: i64::try_from(ticks.checked_mul(nanos)?).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    proptest::proptest! {
        #[test]
        fn any_text_is_a_stat_or_none(text in "\\PC{0,200}", number in proptest::prelude::any::<i128>()) {
            let _ = Stat::parse(&text);
            let _ = Stat::parse(&format!("12 ({text}) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {number} 1 1"));
        }
    }

    #[test]
    fn stat_is_read_whatever_the_name() {
        let rest =
            |state: &str, threads: u32| format!("{state} 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 7777 1 1");
        for name in ["(bash)", "(a b)", "(x) y)", "(()"] {
            let stat = Stat::parse(&format!("12 {name} {}", rest("S", 1)));
            assert_eq!(stat, Some(Stat { zombie: false, started: 77_770_000_000 }), "{name}");
        }
        assert!(Stat::parse(&format!("12 (a) {}", rest("Z", 1))).unwrap().zombie);
        assert!(!Stat::parse(&format!("12 (a) {}", rest("Z", 2))).unwrap().zombie);
        for broken in [
            "",
            "12 (a",
            "12 (a) S 1",
            "12 (a) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 x 0 1",
            "12 (a) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 99999999999999999999",
        ] {
            assert_eq!(Stat::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_process_lives_until_it_has_ended_even_if_nobody_takes_note() {
        let proc = Proc::of_machine();
        let before = clock::now();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let Seen::Alive(started) = proc.look(&[child.id()])[0].1 else { panic!("it lives") };
        assert!(started <= clock::now() && before.since(started) < Duration::from_millis(50), "{started:?} {before:?}");
        drop(child.stdin.take());
        let begun = std::time::Instant::now();
        while proc.look(&[child.id()])[0].1 != Seen::Ended {
            assert!(begun.elapsed() < Duration::from_secs(10), "a zombie counts as living");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(
            proc.look(&[child.id(), 0, u32::MAX]).into_iter().map(|(_, seen)| seen).collect::<Vec<_>>(),
            [Seen::Ended; 3]
        );
    }

    #[test]
    fn a_process_whose_directory_is_hidden_has_not_ended() {
        let empty = tempfile::tempdir().unwrap();
        let proc = Proc { root: empty.path().to_owned() };
        assert_eq!(proc.look(&[std::process::id()])[0].1, Seen::Unreadable);
        assert!(proc.comparable().is_err());
    }
}
