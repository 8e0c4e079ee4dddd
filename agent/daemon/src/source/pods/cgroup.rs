//! Cgroup v2 directories: where the hierarchy is mounted, and which of a pod's directories hold its processes.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use storewatch_core::id::CgroupId;

/// Directories looked at below one pod: a container runtime makes a few; anything may be nested in them.
const MAX_DIRECTORIES: usize = 512;
const MAX_DEPTH: usize = 8;

/// Where cgroup v2 is mounted, preferring the places where it usually is; `None` when it is not.
pub(super) fn mount_point() -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    find_mount(&table)
}

/// The first mount of the whole hierarchy in a `mountinfo` table: one that shows a part only cannot resolve every path.
fn find_mount(table: &str) -> Option<PathBuf> {
    // In a cgroup namespace of its own, a process sees the host's hierarchy with a root above its own: more than whole.
    let rank = |root: &str| match root {
        "/" => 1,
        _ if root.split('/').skip(1).all(|part| part == "..") => 0,
        _ => 2,
    };
    let mut mounts: Vec<(u8, &str)> = table
        .lines()
        .filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mut fields = front.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            (back.split(' ').next()? == "cgroup2").then_some((rank(root), point))
        })
        .collect();
    mounts.sort_by_key(|(rank, point)| (*rank, !point.starts_with("/sys/fs/cgroup")));
    // The table writes a space as \040.
    mounts.first().map(|(_, point)| PathBuf::from(point.replace("\\040", " ")))
}

/// Ids of the directories below `directory` (itself included) that can own sockets: leaves, and inner ones with
/// processes. Sorted.
pub(super) fn containers(directory: &Path) -> io::Result<Vec<CgroupId>> {
    let mut ids = Vec::new();
    let mut seen = 0;
    let mut waiting = vec![(directory.to_owned(), 0)];
    while let Some((path, depth)) = waiting.pop() {
        let listing = fs::metadata(&path).and_then(|data| Ok((data, fs::read_dir(&path)?)));
        let (data, entries) = match listing {
            Ok(found) => found,
            Err(error) if depth == 0 => return Err(error),
            // A container that ends takes its directory away while it is being read.
            Err(_) => continue,
        };
        if !data.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        let mut leaf = true;
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                leaf = false;
                seen += 1;
                if depth < MAX_DEPTH && seen < MAX_DIRECTORIES {
                    waiting.push((entry.path(), depth + 1));
                }
            }
        }
        if leaf || has_processes(&path) {
            ids.push(CgroupId(data.ino()));
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

fn has_processes(directory: &Path) -> bool {
    fs::read(directory.join("cgroup.procs")).is_ok_and(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_the_whole_hierarchy_wins() {
        let hybrid = "30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                      31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 30 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(find_mount(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let several = "1 2 0:1 /kubepods /mnt/part rw - cgroup2 cgroup2 rw\n\
                       3 2 0:1 / /host/my\\040cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find_mount(several), Some(PathBuf::from("/host/my cgroup")));
        let usual = "1 2 0:1 / /mnt/c rw - cgroup2 c rw\n3 2 0:1 / /sys/fs/cgroup rw - cgroup2 c rw\n";
        assert_eq!(find_mount(usual), Some(PathBuf::from("/sys/fs/cgroup")));
        let in_a_container = "1 2 0:1 / /sys/fs/cgroup ro - cgroup2 c ro\n\
                              3 2 0:1 /../../.. /host/sys/fs/cgroup ro - cgroup2 c ro\n";
        assert_eq!(find_mount(in_a_container), Some(PathBuf::from("/host/sys/fs/cgroup")));
        assert_eq!(find_mount("31 30 0:27 / /a rw - cgroup cgroup rw\nnonsense\n - cgroup2\n"), None);
    }

    #[test]
    fn leaves_and_inner_directories_with_processes_count() {
        let root = tempfile::tempdir().unwrap();
        let id = |path: &str| CgroupId(fs::metadata(root.path().join(path)).unwrap().ino());
        for path in ["pod/a", "pod/b/inner"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        fs::write(root.path().join("pod/cgroup.procs"), "").unwrap();
        fs::write(root.path().join("pod/b/cgroup.procs"), "17\n").unwrap();
        let mut expected = vec![id("pod/a"), id("pod/b"), id("pod/b/inner")];
        expected.sort_unstable();
        assert_eq!(containers(&root.path().join("pod")).unwrap(), expected);
        assert!(containers(&root.path().join("gone")).is_err());
        assert!(containers(&root.path().join("pod/cgroup.procs")).is_err());
    }
}
