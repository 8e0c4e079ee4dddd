//! From where a file says that a pod is to what the kernel's events carry: cgroup ids and a network namespace's inode.

use super::{cgroup, file::PodEntry, manager};
use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use storewatch_core::{
    id::{CgroupId, ContainerKey, NetnsId, PodUid},
    pod::{Manager, PodRecord},
};

/// Where this machine shows its processes and cgroups.
#[derive(Clone, Debug)]
pub struct Host {
    pub(super) proc: PathBuf,
    pub(super) cgroup: Option<PathBuf>,
    /// Whether a namespace's path must lie on the kernel's namespace file system.
    nsfs: bool,
}

impl Host {
    /// `/proc`, and cgroup v2 wherever it is mounted.
    pub fn of_machine() -> Self {
        Self { proc: PathBuf::from("/proc"), cgroup: cgroup::mount_point(), nsfs: true }
    }

    /// Plain directories that look like both, for tests.
    #[cfg(test)]
    pub(super) fn imitated(root: &Path) -> Self {
        Self { proc: root.join("proc"), cgroup: Some(root.join("cgroup")), nsfs: false }
    }
}

/// Locates pods, and remembers which process a pid meant.
#[derive(Debug)]
pub(super) struct Locator {
    host: Host,
    /// Start times by pod and pid.
    started: HashMap<(PodUid, u32), u64>,
    last: Vec<Arc<PodRecord>>,
}

/// A pod's place, as far as it could be found.
#[derive(Debug, Default)]
struct Place {
    cgroups: Vec<CgroupId>,
    netns: Option<NetnsId>,
    pids: Vec<u32>,
    manager: Manager,
}

impl Locator {
    pub(super) fn new(host: Host) -> Self {
        Self { host, started: HashMap::new(), last: Vec::new() }
    }

    /// A new list names processes afresh.
    pub(super) fn forget(&mut self) {
        self.started.clear();
    }

    /// One record per entry, also for a pod that cannot be found: it is still judged by the node's pings. What is not
    /// found is added to `problems`.
    pub(super) fn locate(&mut self, entries: &[PodEntry], problems: &mut Vec<String>) -> Vec<Arc<PodRecord>> {
        let own_netns = self.netns_of("self").ok();
        let own_cgroup = self.cgroup_of("self").ok().flatten();
        let mut records: Vec<PodRecord> = entries
            .iter()
            .map(|entry| {
                let mut place = self.place(entry, problems);
                // The agent's own cgroup holds more than the pod, so it tells nothing.
                place.cgroups.retain(|id| Some(*id) != own_cgroup);
                let host_network = entry.host_network || (place.netns.is_some() && place.netns == own_netns);
                PodRecord {
                    cluster: entry.cluster,
                    pod: entry.pod.clone(),
                    uid: entry.uid.clone(),
                    workload: entry.workload.clone(),
                    ips: entry.ips.clone(),
                    host_network,
                    cgroups: place.cgroups,
                    netns: place.netns.filter(|_| !host_network),
                    pids: place.pids,
                    wiring: entry.wiring.clone(),
                    manager: if entry.searched { Manager::Kubernetes } else { place.manager },
                }
            })
            .collect();
        share(&mut records);
        for (record, entry) in records.iter().zip(entries) {
            // Whoever has no place at all yet (a pod that is being made) lacks nothing.
            let placed = entry.cgroup.is_some() || entry.netns.is_some() || entry.pid.is_some();
            let found = placed && entry.pid.is_none_or(|pid| record.pids.contains(&pid));
            // By its processes alone it is found late, if at all: the kernel's counters know no process.
            let shared = record.cgroups.is_empty() && record.netns.is_none();
            if shared && found && !problems.iter().any(|text| text.starts_with(&prefix(entry))) {
                let reason = "its cgroup and network namespace are shared with others; give it a cgroup of its own";
                problems.push(format!("{}{reason}", prefix(entry)));
            }
        }
        // Unchanged records stay the same allocation.
        let list: Vec<_> = records
            .into_iter()
            .enumerate()
            .map(|(index, record)| {
                self.last.get(index).filter(|last| ***last == record).cloned().unwrap_or_else(|| Arc::new(record))
            })
            .collect();
        self.last.clone_from(&list);
        list
    }

    fn place(&mut self, entry: &PodEntry, problems: &mut Vec<String>) -> Place {
        let mut place = Place::default();
        let mut problem = |text: String| {
            if !entry.searched {
                problems.push(format!("{}{text}", prefix(entry)));
            }
        };
        if let Some(path) = &entry.netns {
            match self.netns_at(path) {
                Ok(id) => place.netns = Some(id),
                Err(reason) => problem(format!("netns {} {reason}", path.display())),
            }
        }
        if let Some(path) = &entry.cgroup {
            place.manager = manager::of_path(&path.to_string_lossy());
            match self.containers_at(path) {
                Ok(ids) => place.cgroups = ids,
                Err(reason) => problem(format!("cgroup {} {reason}", path.display())),
            }
        }
        if let Some(pid) = entry.pid {
            match self.process(entry, pid) {
                Ok(process) => {
                    place.pids.push(pid);
                    if place.netns.is_none() {
                        place.netns = process.netns;
                    }
                    if place.cgroups.is_empty() {
                        place.cgroups = process.cgroups;
                    }
                    if place.manager == Manager::Unknown {
                        place.manager = process.manager;
                    }
                }
                Err(reason) => problem(format!("pid {pid} {reason}")),
            }
        }
        place
    }

    fn netns_at(&self, path: &Path) -> Result<NetnsId, String> {
        let inode = fs::metadata(path).map_err(|error| gone(&error))?.ino();
        if self.host.nsfs {
            let kind = nix::sys::statfs::statfs(path).map_err(|error| format!("cannot be examined: {error}"))?;
            if kind.filesystem_type() != nix::sys::statfs::NSFS_MAGIC {
                return Err("is no namespace any more; is the pod gone?".to_owned());
            }
        }
        u32::try_from(inode).map(NetnsId).map_err(|_| "has an inode beyond any namespace's".to_owned())
    }

    fn containers_at(&self, path: &Path) -> Result<Vec<CgroupId>, String> {
        let root = self.host.cgroup.as_deref().ok_or("cannot be found: cgroup v2 is not mounted")?;
        let full = if path.starts_with(root) {
            path.to_owned()
        } else if path.starts_with("/sys/fs/cgroup") {
            return Err(format!("is not below the mount of cgroup v2, {}", root.display()));
        } else {
            root.join(path.strip_prefix("/").unwrap_or(path))
        };
        if full == root {
            return Err("is the root of all cgroups; name the pod's own".to_owned());
        }
        cgroup::containers(&full).map_err(|error| gone(&error))
    }

    fn process(&mut self, entry: &PodEntry, pid: u32) -> Result<Place, String> {
        let name = pid.to_string();
        let started = self.start_time(&name).map_err(|error| gone(&error))?;
        let known = *self.started.entry((entry.uid.clone(), pid)).or_insert(started);
        if known != started {
            return Err("is another process by now; write the list anew".to_owned());
        }
        Ok(Place {
            cgroups: self.cgroup_of(&name).ok().flatten().into_iter().collect(),
            // Readable for root and with SYS_PTRACE only; without it the cgroup has to do.
            netns: self.netns_of(&name).ok(),
            pids: vec![pid],
            manager: fs::read_to_string(self.host.proc.join(&name).join("cgroup"))
                .map(|table| manager::of_table(&table))
                .unwrap_or_default(),
        })
    }

    /// When the process began, in clock ticks since boot.
    fn start_time(&self, pid: &str) -> io::Result<u64> {
        let stat = fs::read_to_string(self.host.proc.join(pid).join("stat"))?;
        start_time(&stat).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn netns_of(&self, pid: &str) -> Result<NetnsId, String> {
        self.netns_at(&self.host.proc.join(pid).join("ns/net"))
    }

    /// The process's own cgroup; `None` when it is in the root or outside of what is mounted.
    fn cgroup_of(&self, pid: &str) -> io::Result<Option<CgroupId>> {
        let Some(root) = &self.host.cgroup else { return Ok(None) };
        let table = fs::read_to_string(self.host.proc.join(pid).join("cgroup"))?;
        let Some(path) = unified_path(&table) else { return Ok(None) };
        fs::metadata(root.join(path)).map(|data| Some(CgroupId(data.ino())))
    }
}

fn prefix(entry: &PodEntry) -> String {
    format!("{}: ", entry.pod)
}

fn gone(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "is gone".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read".to_owned(),
        io::ErrorKind::NotADirectory => "is no directory".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// Field 22 of `/proc/PID/stat`; the name in field 2 may contain spaces and parentheses.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The path in the v2 hierarchy, without its leading slash; `None` for the root and for one outside of this view.
fn unified_path(table: &str) -> Option<&str> {
    let path = table.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    (!path.is_empty() && !path.split('/').any(|part| part == "..")).then_some(path)
}

/// Takes away what several pods share: evidence found there could be anyone's.
fn share(records: &mut [PodRecord]) {
    let mut users: HashMap<ContainerKey, usize> = HashMap::new();
    for record in records.iter() {
        let cgroups = record.cgroups.iter().copied().map(ContainerKey::Cgroup);
        for key in cgroups.chain(record.netns.map(ContainerKey::Netns)) {
            *users.entry(key).or_default() += 1;
        }
    }
    let alone = |key: ContainerKey| users.get(&key).is_none_or(|count| *count == 1);
    for record in records.iter_mut() {
        record.cgroups.retain(|id| alone(ContainerKey::Cgroup(*id)));
        // A namespace shared by pods with cgroups of their own is only their second means.
        record.netns = record.netns.filter(|id| alone(ContainerKey::Netns(*id)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_survive_odd_names() {
        let rest = "S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 7777 1 1";
        for name in ["(bash)", "(a b)", "(x) y)", "(()"] {
            assert_eq!(start_time(&format!("12 {name} {rest}")), Some(7777), "{name}");
        }
        for broken in ["", "12 (bash", "12 (bash) S 1", "12 (bash) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 x 1"] {
            assert_eq!(start_time(broken), None, "{broken}");
        }
    }

    #[test]
    fn only_a_cgroup_of_its_own_is_taken_from_a_process() {
        let rows = [
            ("4:memory:/a\n0::/kubepods/pod1/c\n", Some("kubepods/pod1/c")),
            ("0::/a b\n", Some("a b")),
            ("0::/gone (deleted)\n", Some("gone")),
            ("0::/\n", None),
            ("0::/../../other\n", None),
            ("4:memory:/a\n", None),
            ("", None),
        ];
        for (table, expected) in rows {
            assert_eq!(unified_path(table), expected, "{table}");
        }
    }
}
