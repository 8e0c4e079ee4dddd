//! The machine beyond the kernel: cgroups, `/proc`, the state file's folder.

use super::Check;
use crate::{config::Config, source::processes::Proc};
use nix::unistd::{AccessFlags, access};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The inode of the initial cgroup namespace: fixed by the kernel (`PROC_CGROUP_INIT_INO`).
const INITIAL_CGROUP: u64 = 0xefff_fffb;

pub(super) fn checks() -> Vec<Check> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::metadata("/proc/self/ns/cgroup").map(|data| data.ino()).is_ok_and(|inode| inode != INITIAL_CGROUP);
    let mut checks = vec![cgroups(&mounts, own)];
    checks.extend(processes(&mounts));
    checks
}

/// A mount, as far as it is needed.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

fn mounts(table: &str) -> impl Iterator<Item = Mount<'_>> {
    table.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, point) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let kind = back.next()?;
        Some(Mount { root, point, kind, options: back.nth(1).unwrap_or_default() })
    })
}

fn cgroups(table: &str, own_namespace: bool) -> Check {
    const LOST: &str = "telling a pod's containers apart: evidence is attributed by network namespace only";
    const NAME: &str = "cgroup";
    let v1 = mounts(table).any(|mount| mount.kind == "cgroup");
    let mut v2: Vec<_> = mounts(table).filter(|mount| mount.kind == "cgroup2").collect();
    v2.sort_by_key(|mount| (mount.root != "/", !mount.point.starts_with("/sys/fs/cgroup")));
    match v2.first() {
        None => Check::missing(
            NAME,
            if v1 { "v1 only" } else { "none is mounted" },
            LOST,
            "mount cgroup2 (systemd.unified_cgroup_hierarchy=1 at boot), and the host's in the container",
        ),
        Some(mount) if mount.root != "/" => Check::degraded(
            NAME,
            format!("v2 at {}, but only the part below {}", mount.point, mount.root),
            LOST,
            "the host's whole cgroup file system in the container, read-only",
        ),
        Some(mount) if own_namespace => Check::degraded(
            NAME,
            format!("v2 at {}, in a cgroup namespace of its own", mount.point),
            "the cgroups of pods that are given by pid: their paths lead out of what is seen here",
            "the host's cgroup namespace, or the pods' cgroups in the list of pods",
        ),
        Some(mount) if v1 => Check::ok(NAME, format!("v2 at {}, beside v1", mount.point)),
        Some(mount) => Check::ok(NAME, format!("v2 at {}", mount.point)),
    }
}

fn processes(table: &str) -> [Check; 2] {
    let hidden = mounts(table)
        .filter(|mount| mount.kind == "proc" && mount.point == "/proc")
        .flat_map(|mount| mount.options.split(','))
        .find(|option| option.strip_prefix("hidepid=").is_some_and(|value| !matches!(value, "0" | "off")));
    // Process 1 belongs to somebody else unless the agent is root: what may be read of it may be read of any pod's.
    let reads = |file: &str| fs::read(Path::new("/proc/1").join(file)).is_ok();
    let looks = fs::read_dir("/proc/1/fd").is_ok();
    let count = fs::read_dir("/proc").into_iter().flatten().flatten();
    let count =
        count.filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit())).count();
    let seen = match (Proc::of_machine().comparable(), hidden) {
        (Err(why), _) => Check::degraded(
            "/proc",
            why,
            "that evidence ends with its process, command lines in remedies, and the inventory without the iterator",
            "hostPID: true, or the host's pid namespace",
        ),
        (Ok(()), Some(option)) if !reads("cmdline") => Check::degraded(
            "/proc",
            format!("{count} processes seen, others are hidden ({option})"),
            "command lines in remedies, and the inventory without the iterator",
            "mount /proc without hidepid, run as root, or hold SYS_PTRACE",
        ),
        (Ok(()), _) => Check::ok("/proc", format!("{count} processes of the whole machine are seen")),
    };
    let owners = if looks {
        Check::ok("owners of sockets", "other processes' open files may be looked at")
    } else {
        Check::degraded(
            "owners of sockets",
            "other processes' open files may not be looked at",
            "attribution by process in the /proc inventory, network namespaces of pods given by pid",
            "SYS_PTRACE among the container's capabilities, or root; the iterator needs neither",
        )
    };
    [seen, owners]
}

/// Whether the state file can be kept. Nothing is written.
pub(super) fn state_file(config: &Config) -> Check {
    const LOST: &str = "a restart of the agent forgets verdicts and owners of addresses, and begins as Unknown";
    const NAME: &str = "state file";
    let Some(path) = &config.state_file else {
        return Check::degraded(NAME, "switched off by configuration (state_file: \"\")", LOST, "state_file: PATH");
    };
    if path.is_dir() {
        return Check::missing(NAME, format!("{} is a directory", path.display()), LOST, "name a file in state_file");
    }
    match can_make(path) {
        Ok(()) => Check::ok(NAME, format!("{} can be kept", path.display())),
        Err(reason) => {
            let how = "make it writable for the agent's user, or set state_file to a place that is";
            Check::missing(NAME, reason, LOST, how)
        }
    }
}

/// Whether a file can be made at `path`, with the folders that are missing above it.
pub(super) fn can_make(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let there = existing(folder);
    access(&there, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|error| format!("{} cannot be written: {}", there.display(), error.desc()))
}

/// The nearest folder above that exists.
fn existing(folder: &Path) -> PathBuf {
    let found = folder.ancestors().find(|folder| folder.exists());
    match found {
        Some(found) if !found.as_os_str().is_empty() => found.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    const HYBRID: &str = "30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                          31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                          32 30 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:3 - cgroup2 cgroup2 rw\n";

    #[test]
    fn cgroups_are_told_apart() {
        let unified = "1 2 0:1 / /sys/fs/cgroup rw - cgroup2 c rw\n";
        let part = "1 2 0:1 /kubepods/x /sys/fs/cgroup rw - cgroup2 c rw\n";
        let v1 = "31 30 0:27 / /a rw - cgroup cgroup rw\n";
        let rows = [
            (HYBRID, false, State::Ok, "v2 at /sys/fs/cgroup/unified, beside v1"),
            (unified, false, State::Ok, "v2 at /sys/fs/cgroup"),
            (unified, true, State::Degraded, "in a cgroup namespace of its own"),
            (part, false, State::Degraded, "only the part below /kubepods/x"),
            (v1, false, State::Missing, "v1 only"),
            ("", false, State::Missing, "none is mounted"),
        ];
        for (table, own, state, found) in rows {
            let check = cgroups(table, own);
            assert!(check.state == state && check.found.contains(found), "{check:?}");
            assert_eq!(check.how.is_empty(), state == State::Ok, "{check:?}");
        }
    }

    #[test]
    fn the_state_files_folder_is_looked_at_and_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = super::super::tests::config("");
        let mut check = |path: &str| {
            config.state_file = Some(folder.path().join(path));
            state_file(&config)
        };
        for path in ["state.json", "a/b/state.json"] {
            assert_eq!(check(path).state, State::Ok, "{path}");
        }
        assert_eq!(check("").state, State::Missing, "a folder is no file");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        config.state_file = None;
        assert_eq!(state_file(&config).state, State::Degraded);
    }
}
