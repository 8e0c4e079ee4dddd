//! What this machine and this process offer, read before anything is loaded, so that a refusal can be explained.

use std::{fs, path::Path};

/// Where the kernel describes its types.
pub const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Release of the running kernel, for messages.
    pub release: String,
    /// The kernel describes its types.
    pub btf: bool,
    /// May load programs and make maps.
    pub bpf: bool,
    /// May attach to tracepoints and read kernel memory.
    pub perfmon: bool,
    /// Kernel lockdown forbids reading kernel memory.
    pub locked_down: bool,
    /// The kernel measures the programs (`kernel.bpf_stats_enabled`).
    pub measures_programs: bool,
}

/// Something that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What, in one clause.
    pub what: &'static str,
    /// How to get it.
    pub remedy: &'static str,
}

impl Capabilities {
    /// Looks at `/proc` and `/sys`.
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let effective = effective(&text("/proc/self/status"));
        let has = |bit: u32| effective & (1 << bit) != 0;
        Self {
            release: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            btf: Path::new(BTF_PATH).exists(),
            bpf: has(CAP_BPF) || has(CAP_SYS_ADMIN),
            perfmon: has(CAP_PERFMON) || has(CAP_SYS_ADMIN),
            locked_down: text("/sys/kernel/security/lockdown").contains("[confidentiality]"),
            measures_programs: text("/proc/sys/kernel/bpf_stats_enabled").trim() == "1",
        }
    }

    /// What stands in the way of the eBPF programs; empty when nothing does.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut missing = |missing: bool, what, remedy| {
            if missing {
                problems.push(Problem { what, remedy });
            }
        };
        missing(!self.bpf, "no CAP_BPF", "add BPF to the container's capabilities, or run as root");
        missing(!self.perfmon, "no CAP_PERFMON", "add PERFMON to the container's capabilities, or run as root");
        missing(
            !self.btf,
            "the kernel does not describe its types (no /sys/kernel/btf/vmlinux)",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF, and let the container see /sys",
        );
        missing(
            self.locked_down,
            "kernel lockdown is in confidentiality mode, which forbids programs to read kernel memory",
            "boot with lockdown=integrity or none",
        );
        problems
    }
}

/// The effective capabilities in `/proc/<pid>/status`; none when the line is not there.
fn effective(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_capabilities_are_read_and_broken_text_is_none() {
        assert_eq!(effective("Name:\tx\nCapEff:\t000000c000000000\nSeccomp:\t0\n"), 1 << 38 | 1 << 39);
        assert_eq!(effective("CapEff:\tzz\n"), 0);
        assert_eq!(effective(""), 0);
    }

    #[test]
    fn each_missing_thing_is_named_with_its_remedy() {
        let none = Capabilities {
            release: "6.1".to_owned(),
            btf: false,
            bpf: false,
            perfmon: false,
            locked_down: true,
            measures_programs: false,
        };
        let problems = none.problems();
        assert_eq!(problems.len(), 4);
        assert!(problems.iter().all(|problem| !problem.remedy.is_empty()));
        let all = Capabilities { btf: true, bpf: true, perfmon: true, locked_down: false, ..none };
        assert!(all.problems().is_empty());
    }
}
