//! Reading and replacing the file.

use super::format::{MAX_BYTES, Refusal};
use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The same path with `suffix` after the file's name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Where a file that cannot be used is put; an earlier one is replaced, so that there is one at most.
pub(super) fn aside(path: &Path) -> PathBuf {
    beside(path, ".damaged")
}

/// All bytes; `None` when there is no file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, Refusal> {
    // Without O_NONBLOCK a pipe in its place would hold up the start for ever.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(Refusal::NoFile);
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_BYTES) {
        Ok(Some(bytes))
    } else {
        Err(Refusal::TooLarge)
    }
}

/// Puts the file out of the way.
pub(super) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = aside(path);
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// The directory of the file, made where it is missing.
pub(super) fn make_folder(path: &Path) -> io::Result<&Path> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    Ok(folder)
}

/// Whether a state can stand there: a file, a link, or nothing yet. A device, a pipe or a directory is somebody else's.
pub(super) fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() || found.is_symlink()) || !path.exists()
}

/// Replaces the file so that at every moment, and after a loss of power, there is either the old one or the new one in
/// full. A missing directory is made.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if !is_ours(path) {
        return Err(io::Error::other("it is no regular file"));
    }
    let folder = make_folder(path)?;
    let temporary = beside(path, ".new");
    let written = write_and_rename(&temporary, path, bytes);
    if written.is_err() {
        // What is left would be replaced by the next attempt anyway; on a full disk its room is needed.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    File::open(folder)?.sync_all()
}

fn write_and_rename(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file each time: nobody else's link, mode or open descriptor is written through.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}
