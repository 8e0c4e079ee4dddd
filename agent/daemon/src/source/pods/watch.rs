//! Notices that a file changed. A poll and not inotify: a ConfigMap is swapped by a symlink two levels above, a rename
//! replaces the inode, and network file systems send no events; looking once a second sees them all.

use crate::config::tree::read_file;
use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Room for thousands of pods.
const MAX_BYTES: u64 = 4 << 20;

/// A file written twice within its timestamp's granularity looks unchanged; while it is this young it is read anyway.
const YOUNG: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signature {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

/// A file whose content is followed.
#[derive(Debug)]
pub(super) struct Watched {
    path: PathBuf,
    signature: Option<Signature>,
    content: Option<Result<String, String>>,
}

impl Watched {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, signature: None, content: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The content, or why there is none, if either is new since the last call.
    pub(super) fn changed(&mut self) -> Option<Result<String, String>> {
        let metadata = std::fs::metadata(&self.path).ok();
        let signature = metadata.as_ref().map(|data| Signature {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            changed: (data.ctime(), data.ctime_nsec()),
            modified: (data.mtime(), data.mtime_nsec()),
        });
        let young = metadata.and_then(|data| data.modified().ok()).is_some_and(|modified| {
            // A time stamp in the future (another host's clock) is no proof of age.
            SystemTime::now().duration_since(modified).map_or(true, |age| age < YOUNG)
        });
        if signature.is_some() && signature == self.signature && !young {
            return None;
        }
        self.signature = signature;
        let content = read_file(&self.path, MAX_BYTES);
        if self.content.as_ref() == Some(&content) {
            return None;
        }
        self.content = Some(content.clone());
        Some(content)
    }
}
