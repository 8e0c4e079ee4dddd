//! What the programs saw in all, what got lost, and what they cost.

use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray},
    programs::Program,
};
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::fs::FileExt as _,
    },
    sync::{Mutex, PoisonError},
    time::Duration,
};
use storewatch_ebpf_common::counters::{self, TOTALS, kind, total, total_index};

/// The programs' totals and their files.
pub struct Totals {
    map: PerCpuArray<MapData, counters::Totals>,
    programs: Vec<Description>,
    told: Mutex<Told>,
}

/// Totals at the last call of [`Totals::losses`].
#[derive(Clone, Copy, Default)]
struct Told {
    details: u64,
    counters: u64,
    missed: u64,
    seen: u64,
}

/// Tells whether counters can have grown, so that they are not read over and over on a quiet node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    seen: u64,
    grew: bool,
}

impl Activity {
    /// The next look counts as one that moves.
    pub const fn again() -> Self {
        Self { seen: 0, grew: true }
    }

    /// Takes all that was seen on watched ports. A program counts in the totals first and in its key then, so a key may still grow at the
    /// first look that finds the totals unchanged.
    pub fn moves(&mut self, seen: u64) -> bool {
        let grew = seen != self.seen;
        self.seen = seen;
        std::mem::replace(&mut self.grew, grew) || grew
    }
}

impl Told {
    fn since(self, before: Self) -> Self {
        Self {
            details: self.details.saturating_sub(before.details),
            counters: self.counters.saturating_sub(before.counters),
            missed: self.missed.saturating_sub(before.missed),
            seen: self.seen.saturating_sub(before.seen),
        }
    }
}

/// What was seen on watched ports, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Seen.
    pub seen: u64,
    /// Details handed to the ring buffer.
    pub emitted: u64,
    /// Details lost to a full ring buffer.
    pub lost: u64,
    /// Details held back by the rate limit.
    pub limited: u64,
    /// Not a client's: own sockets, servers' ends, other protocols.
    pub filtered: u64,
    /// Neither cgroup nor network namespace known.
    pub unattributed: u64,
    /// Of sockets not selected, counted in a sum only.
    pub summed: u64,
    /// Not counted at all.
    pub uncounted: u64,
    /// State that could not be kept.
    pub untracked: u64,
    /// Of selected sockets, counted in a sum only: the reserved map was full.
    pub overflowed: u64,
    /// Ends that were not seen when they happened, told when the socket was destroyed.
    pub recovered: u64,
}

/// One program's cost, while the kernel measures it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramStats {
    /// The tracepoint's name.
    pub name: String,
    /// Time spent in it; zero unless `kernel.bpf_stats_enabled` is on.
    pub run_time: Duration,
    /// Times it ran, likewise.
    pub run_count: u64,
    /// Times it could not run because it ran already on that CPU: events nobody saw.
    pub missed: u64,
}

/// Everything at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelStats {
    /// Indexed by kind: see [`kind`].
    pub kinds: [KindTotals; kind::COUNT as usize],
    /// Each program.
    pub programs: Vec<ProgramStats>,
}

impl KernelStats {
    /// Sum of one total over all kinds.
    pub fn sum(&self, pick: impl Fn(&KindTotals) -> u64) -> u64 {
        self.kinds.iter().map(pick).sum()
    }
}

impl Totals {
    /// Over the map, and the programs loaded so far.
    pub fn new(map: PerCpuArray<MapData, counters::Totals>, ebpf: &Ebpf) -> Self {
        let programs =
            ebpf.programs().filter_map(|(name, program)| Description::open(name, descriptor(program)?).ok()).collect();
        Self { map, programs, told: Mutex::new(Told::default()) }
    }

    /// Reads all.
    pub fn stats(&self) -> KernelStats {
        let totals = self.totals();
        let read = |row: u32, kind: u8| totals[total_index(row, kind)];
        let kinds = std::array::from_fn(|kind| {
            let kind = u8::try_from(kind).unwrap_or_default();
            KindTotals {
                seen: read(total::SEEN, kind),
                emitted: read(total::EMITTED, kind),
                lost: read(total::LOST, kind),
                limited: read(total::LIMITED, kind),
                filtered: read(total::FILTERED, kind),
                unattributed: read(total::UNATTRIBUTED, kind),
                summed: read(total::SUMMED, kind),
                uncounted: read(total::UNCOUNTED, kind),
                untracked: read(total::UNTRACKED, kind),
                overflowed: read(total::OVERFLOWED, kind),
                recovered: read(total::RECOVERED, kind),
            }
        });
        KernelStats { kinds, programs: self.programs.iter().map(Description::read).collect() }
    }

    /// Details lost, and counts that may no longer be exact, from the stats of the last call to these.
    ///
    /// An event that the kernel could not show to a program (it interrupted the same program on the same CPU) may have been
    /// of any port. Such misses count as loss only where watched ports had traffic at the time, so that a node busy with
    /// other things does not call its counters inexact.
    pub fn losses(&self, stats: &KernelStats) -> (u64, u64) {
        let now = Told {
            details: stats.sum(|kind| kind.lost),
            counters: stats.sum(|kind| kind.overflowed + kind.uncounted),
            missed: stats.programs.iter().map(|program| program.missed).sum(),
            seen: stats.sum(|kind| kind.seen),
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let grown = now.since(*told);
        *told = now;
        let missed = if grown.seen > 0 { grown.missed } else { 0 };
        (grown.details, grown.counters + missed)
    }

    fn totals(&self) -> counters::Totals {
        let mut sum = [0_u64; TOTALS];
        if let Ok(cpus) = self.map.get(&0, 0) {
            for cpu in cpus.iter() {
                for (sum, value) in sum.iter_mut().zip(cpu) {
                    *sum = sum.saturating_add(*value);
                }
            }
        }
        sum
    }
}

fn descriptor(program: &Program) -> Option<OwnedFd> {
    program.fd().ok()?.as_fd().try_clone_to_owned().ok()
}

/// The kernel's words about an open program, kept open: they are read every second.
#[derive(Debug)]
pub struct Description {
    name: String,
    file: File,
    /// It describes the descriptor of this number.
    _program: OwnedFd,
}

impl Description {
    /// Of the program that `program` holds.
    ///
    /// # Errors
    /// When `/proc` does not have it.
    pub fn open(name: &str, program: OwnedFd) -> io::Result<Self> {
        let file = File::open(format!("/proc/self/fdinfo/{}", program.as_raw_fd()))?;
        Ok(Self { name: name.to_owned(), file, _program: program })
    }

    /// What the kernel measured so far.
    pub fn read(&self) -> ProgramStats {
        let mut text = [0; 1024];
        let got = self.file.read_at(&mut text, 0).unwrap_or(0);
        parse(&self.name, &String::from_utf8_lossy(text.get(..got).unwrap_or_default()))
    }
}

/// The kernel's description of an open program; what it does not say is zero.
fn parse(name: &str, text: &str) -> ProgramStats {
    let number = |key: &str| -> u64 {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(0)
    };
    ProgramStats {
        name: name.to_owned(),
        run_time: Duration::from_nanos(number("run_time_ns")),
        run_count: number("run_cnt"),
        missed: number("recursion_misses"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grew_is_read_once_more_and_then_left_alone() {
        let mut activity = Activity::default();
        let looks = [(0, false), (3, true), (3, true), (3, false), (4, true), (5, true), (5, true), (5, false)];
        for (number, (seen, moves)) in looks.into_iter().enumerate() {
            assert_eq!(activity.moves(seen), moves, "look {number}");
        }
    }

    #[test]
    fn the_kernels_description_is_read_and_anything_else_is_zero() {
        let text = "pos:\t0\nprog_type:\t17\nrun_time_ns:\t1200\nrun_cnt:\t3\nrecursion_misses:\t1\n";
        let expected =
            ProgramStats { name: "x".to_owned(), run_time: Duration::from_nanos(1200), run_count: 3, missed: 1 };
        assert_eq!(parse("x", text), expected);
        assert_eq!(
            parse("x", "run_cnt:\t-1\nrun_time_ns"),
            ProgramStats { name: "x".to_owned(), ..Default::default() }
        );
    }
}
