//! One agent to a state file.
//!
//! Two that write the same file would each come back with the other's verdicts. The lock is one of the kernel's and ends
//! with the process, however it ends; the file that carries it stays, since removing it would let two hold it.

use super::disk;
use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Held for as long as the agent keeps the file.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "its descriptor holds the lock")] File);

/// Takes the lock of the state file at `path`; `None` when another process has it.
///
/// # Errors
/// When the file of the lock cannot be had, as on a disk that cannot be written.
pub(super) fn take(path: &Path) -> io::Result<Option<Lock>> {
    disk::make_folder(path)?;
    let lock = disk::beside(path, ".lock");
    // A pipe in its place would hold up the start for ever without O_NONBLOCK.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NONBLOCK);
    let file = options.open(lock)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock(file))),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
