//! Cgroup v2 directories named as kubelet names them.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::NetnsError;

/// How long the kernel may take to let go of a directory whose last process has just ended.
const RELEASE: Duration = Duration::from_secs(2);

/// A cgroup directory, removed on drop together with the parents that it made.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// Made by this guard, outermost first.
    made: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes the directory at `path` below the root of cgroup v2.
    ///
    /// # Errors
    /// When cgroup v2 is not mounted, or not writable.
    pub fn create(path: &str) -> Result<Self, NetnsError> {
        let root = root().ok_or(NetnsError::Missing("cgroup v2 is not mounted"))?;
        let full = root.join(path.trim_start_matches('/'));
        let mut guard = Self { path: full.clone(), made: Vec::new() };
        let mut step = root;
        for part in Path::new(path.trim_start_matches('/')) {
            step.push(part);
            match fs::create_dir(&step) {
                Ok(()) => guard.made.push(step.clone()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(NetnsError::Io { path: step, error }),
            }
        }
        Ok(guard)
    }

    /// One container of a burstable pod, by the path that kubelet's cgroupfs driver gives it.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn container(pod_uid: &str, container_id: &str) -> Result<Self, NetnsError> {
        Self::create(&format!("kubepods/burstable/pod{pod_uid}/{container_id}"))
    }

    /// Its id: the inode of the directory.
    ///
    /// # Errors
    /// When it is gone.
    pub fn id(&self) -> Result<u64, NetnsError> {
        let failed = |error| NetnsError::Io { path: self.path.clone(), error };
        Ok(fs::metadata(&self.path).map_err(failed)?.ino())
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file that takes processes in.
    ///
    /// # Errors
    /// When it is gone.
    pub fn open_procs(&self) -> Result<File, NetnsError> {
        let path = self.path.join("cgroup.procs");
        OpenOptions::new().write(true).open(&path).map_err(|error| NetnsError::Io { path, error })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            let until = Instant::now() + RELEASE;
            while let Err(error) = fs::remove_dir(path) {
                // Another guard may still use a parent that this one made; that one cannot know, so it stays.
                if error.kind() == io::ErrorKind::NotFound || Instant::now() > until || has_children(path) {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

fn has_children(path: &Path) -> bool {
    fs::read_dir(path).into_iter().flatten().flatten().any(|entry| entry.path().is_dir())
}

/// Where cgroup v2 is mounted, on its own or beside v1.
pub fn root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    })
}
