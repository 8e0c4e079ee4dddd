//! The Unix socket: never open to others, never taken from an agent that lives, never left behind.

use super::bind::{BACKLOG, BindError};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::stat::{Mode, fchmod},
};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    net::{UnixListener, UnixSocket, UnixStream},
    time::{Instant, sleep, timeout},
};

/// Longest path that fits into a socket address, without its final zero byte.
const PATH_MAX: usize = 107;

/// How long to wait for another process that opens a socket in the same directory.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How long one that listens may take to take a connection into its queue.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// A Unix socket that listens; its file is removed with it.
#[derive(Debug)]
pub(super) struct Listening {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that nothing else is removed.
    identity: Option<(u64, u64)>,
}

impl Listening {
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path).ok() == self.identity {
            // At worst a file stays that the next agent replaces.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Opens the socket. The directory is locked meanwhile: of two agents that start at once, both might otherwise find an
/// orphan, and the second would remove the socket that the first has just made.
pub(super) async fn listen(key: &'static str, path: PathBuf) -> Result<Listening, BindError> {
    let fail = |reason: String| BindError::new(key, &path, reason);
    if path.as_os_str().len() > PATH_MAX {
        return Err(fail(format!(
            "the path is longer than the {PATH_MAX} bytes that a socket may have; choose another"
        )));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let _lock = lock(directory).await.map_err(&fail)?;
    remove_orphan(&path).await.map_err(&fail)?;

    let open = || -> io::Result<UnixListener> {
        let socket = UnixSocket::new_stream()?;
        // Before the file exists, so that it never has another mode.
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
        socket.bind(&path)?;
        socket.listen(BACKLOG)
    };
    let listener = open().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => fail("not permitted; run as root or choose a directory of your own".into()),
        _ => fail(error.to_string()),
    })?;
    let identity = identity(&path).ok();
    Ok(Listening { listener, path, identity })
}

async fn lock(directory: &Path) -> Result<Flock<File>, String> {
    let shown = directory.display();
    let mut file = File::open(directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("the directory {shown} does not exist; create it (`mkdir -p {shown}`)"),
        io::ErrorKind::PermissionDenied => format!("the directory {shown} may not be read; run as root"),
        _ => format!("the directory {shown}: {error}"),
    })?;
    if !file.metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(format!("{shown} is no directory; choose another path"));
    }
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((returned, nix::Error::EWOULDBLOCK)) if Instant::now() < deadline => file = returned,
            Err((_, error)) => return Err(format!("the directory {shown} is locked by another process: {error}")),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Removes a socket file on which nobody answers.
async fn remove_orphan(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err("there is a file that is no socket; remove it or choose another path".to_owned());
        }
        Ok(_) => {}
    }
    match timeout(ANSWER_WAIT, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| format!("the orphaned socket cannot be removed: {error}"))
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err("the socket that is there belongs to somebody else; run as root or choose another path".to_owned())
        }
        // A full queue or a silent process is a living one.
        Ok(Ok(_) | Err(_)) | Err(_) => {
            Err("another agent answers there; end it first, or give this one another path".to_owned())
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}
