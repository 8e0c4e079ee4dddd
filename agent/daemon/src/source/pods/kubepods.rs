//! Where the kubelet keeps a pod's cgroups, for both of its drivers.
//!
//! `cgroupfs`: `kubepods/[burstable/|besteffort/]podUID/CONTAINER`; `systemd`:
//! `kubepods.slice/[kubepods-burstable.slice/]kubepods-[burstable-]podUID.slice/RUNTIME-CONTAINER.scope`, with `_` for `-`
//! in the uid. The root lies below the hierarchy's own, or deeper where a kubelet runs in a container or with
//! `--cgroup-root`. Both shapes can exist at once: a kubelet leaves empty directories behind where its runtime uses the
//! other driver.

use super::locate::Host;
use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How deep the kubelet's root is looked for, and how many directories for that.
const MAX_DEPTH: usize = 4;
const MAX_DIRECTORIES: usize = 4096;

/// How often it is looked for again while a pod is not found.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Containers of one pod that are asked for a process.
const MAX_CONTAINERS: usize = 16;

/// Finds pods' directories.
#[derive(Debug)]
pub(super) struct Kubepods {
    host: Host,
    roots: Vec<PathBuf>,
    looked: Option<Instant>,
}

impl Kubepods {
    pub(super) fn new(host: Host) -> Self {
        Self { host, roots: Vec::new(), looked: None }
    }

    /// The pod's directory; `None` while there is none.
    pub(super) fn directory(&mut self, uid: &str) -> Option<PathBuf> {
        // It becomes part of a path.
        if uid.is_empty() || !uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return None;
        }
        self.find(uid).or_else(|| {
            if self.looked.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
                return None;
            }
            self.looked = Some(Instant::now());
            self.roots = roots(self.host.cgroup.as_deref()?);
            self.find(uid)
        })
    }

    fn find(&self, uid: &str) -> Option<PathBuf> {
        let found = self.roots.iter().flat_map(|root| candidates(root, uid)).filter(|path| path.is_dir());
        // The one with containers in it.
        found.max_by_key(|path| children(path).count())
    }

    /// The path of the network namespace of a process in the pod; `None` when there is none or it may not be seen.
    pub(super) fn netns(&self, pod: &Path) -> Option<PathBuf> {
        let leaves = children(pod).take(MAX_CONTAINERS).flat_map(|path| {
            let inner: Vec<_> = children(&path).take(MAX_CONTAINERS).collect();
            std::iter::once(path).chain(inner)
        });
        leaves
            .filter_map(|path| {
                let processes = fs::read_to_string(path.join("cgroup.procs")).ok()?;
                let path = self.host.proc.join(processes.lines().next()?).join("ns/net");
                fs::metadata(&path).is_ok().then_some(path)
            })
            .next()
    }
}

/// The directories below `path`.
fn children(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn is_root(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name == "kubepods" || name.ends_with("kubepods.slice"))
}

/// The kubelets' roots below the hierarchy's.
fn roots(hierarchy: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(hierarchy.to_owned(), 0)]);
    let mut seen = 0;
    while let Some((path, depth)) = waiting.pop_front() {
        for child in children(&path) {
            seen += 1;
            if is_root(&child) {
                found.push(child);
            } else if depth + 1 < MAX_DEPTH && seen < MAX_DIRECTORIES {
                waiting.push_back((child, depth + 1));
            }
        }
    }
    found
}

fn candidates(root: &Path, uid: &str) -> [PathBuf; 3] {
    let name = root.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name.strip_suffix(".slice") {
        Some(prefix) => {
            let uid = uid.replace('-', "_");
            [
                root.join(format!("{prefix}-pod{uid}.slice")),
                root.join(format!("{prefix}-burstable.slice/{prefix}-burstable-pod{uid}.slice")),
                root.join(format!("{prefix}-besteffort.slice/{prefix}-besteffort-pod{uid}.slice")),
            ]
        }
        None => ["", "burstable/", "besteffort/"].map(|class| root.join(format!("{class}pod{uid}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_under_every_driver() {
        let machine = tempfile::tempdir().unwrap();
        let mut made: Vec<&str> = vec![
            "kubepods/pod11-a/c1",
            "kubepods/burstable/pod22-b/c1",
            "kubepods/besteffort/pod33-c/c1",
            "kubepods.slice/kubepods-pod44_d.slice/cri-containerd-c1.scope",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod55_e.slice/crio-c1.scope/container",
            // Left by a kubelet whose runtime uses the other driver.
            "kubepods/burstable/pod55-e",
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod66_f.slice/c1",
            "docker/0123/kubelet/kubepods/burstable/pod77-g/c1",
            "other/pod88-h/c1",
        ];
        for path in &made {
            fs::create_dir_all(machine.path().join("cgroup").join(path)).unwrap();
        }
        made.remove(5);
        let mut kubepods = Kubepods::new(Host::imitated(machine.path()));
        for (uid, path) in ["11-a", "22-b", "33-c", "44-d", "55-e", "66-f", "77-g"].into_iter().zip(made) {
            let found = kubepods.directory(uid).unwrap();
            let found = found.strip_prefix(machine.path().join("cgroup")).unwrap();
            assert!(
                Path::new(path).starts_with(found) && path != found.to_str().unwrap(),
                "{uid}: {}",
                found.display()
            );
        }
        for none in ["88-h", "99", "", "../..", "11-a/c1"] {
            assert_eq!(kubepods.directory(none), None, "{none}");
        }
    }

    #[test]
    fn a_process_tells_the_network_namespace() {
        let machine = tempfile::tempdir().unwrap();
        let pod = machine.path().join("cgroup/kubepods/pod1");
        fs::create_dir_all(pod.join("c1")).unwrap();
        fs::create_dir_all(pod.join("c2/inner")).unwrap();
        fs::write(pod.join("c1/cgroup.procs"), "").unwrap();
        let kubepods = Kubepods::new(Host::imitated(machine.path()));
        assert_eq!(kubepods.netns(&pod), None);
        fs::write(pod.join("c2/inner/cgroup.procs"), "17\n18\n").unwrap();
        assert_eq!(kubepods.netns(&pod), None, "its namespace may not be seen");
        fs::create_dir_all(machine.path().join("proc/17/ns")).unwrap();
        fs::write(machine.path().join("proc/17/ns/net"), "").unwrap();
        assert_eq!(kubepods.netns(&pod), Some(machine.path().join("proc/17/ns/net")));
    }
}
