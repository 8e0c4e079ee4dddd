//! Network namespaces and cgroups of one's own, for the demo and the kernel tests.
//!
//! Everything is a guard: dropped, also by a panic, it is gone. What a killed process left behind is removed by
//! [`sweep`], since every name carries the id of the process that made it. Needs root and iproute2.

use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::fs::MetadataExt as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

pub mod cgroup;
pub mod process;
pub mod topology;

use cgroup::Cgroup;

/// Where `ip netns` keeps its names.
const RUN: &str = "/run/netns";

/// Why the kit could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// A command could not be run or failed.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// The command line.
        command: String,
        /// What it said, or why it could not start.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The machine lacks something.
    #[error("{0}")]
    Missing(&'static str),
}

/// A network namespace, removed on drop.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one with a name that begins with `prefix` (at most 5 characters, so that interfaces can be named after it) and
    /// ends with `role`. Loopback is up.
    ///
    /// # Errors
    /// When `ip` is missing or not allowed to.
    pub fn create(prefix: &str, role: &str) -> Result<Self, NetnsError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{number}-{role}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    pub fn path(&self) -> PathBuf {
        Path::new(RUN).join(&self.name)
    }

    /// Its inode number, which sockets in it carry.
    ///
    /// # Errors
    /// When the file is gone.
    pub fn inum(&self) -> Result<u32, NetnsError> {
        let path = self.path();
        let inode = fs::metadata(&path).map_err(|error| NetnsError::Io { path, error })?.ino();
        u32::try_from(inode).map_err(|_| NetnsError::Missing("the namespace has no number"))
    }

    /// `ip` with these arguments, within it.
    ///
    /// # Errors
    /// When it fails.
    pub fn ip(&self, arguments: &[&str]) -> Result<Output, NetnsError> {
        run(Command::new("ip").args(["-n", &self.name]).args(arguments))
    }

    /// Sets a value below `/proc/sys/net`, for example `ipv4.tcp_syn_retries`. Values that this kernel does not have are
    /// skipped.
    ///
    /// # Errors
    /// When the kernel refuses the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), NetnsError> {
        let path = Path::new("/proc/sys/net").join(key.replace('.', "/"));
        let value = value.to_owned();
        self.enter(move || match fs::write(&path, value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NetnsError::Io { path, error }),
            _ => Ok(()),
        })?
    }

    /// Loads a script into nftables, within it.
    ///
    /// # Errors
    /// When `nft` is missing or refuses the script.
    pub fn nft(&self, script: &str) -> Result<(), NetnsError> {
        let mut command = Command::new("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.place(&mut command, None)?;
        let failed = |reason: String| NetnsError::Command { command: format!("nft -f - <<< {script}"), reason };
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(script.as_bytes()).map_err(|error| failed(error.to_string()))?;
        }
        let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
        if output.status.success() { Ok(()) } else { Err(failed(text(&output.stderr))) }
    }

    /// Makes a command run in it, and in a cgroup if one is given, before it does anything of its own.
    ///
    /// # Errors
    /// When the namespace or the cgroup is gone.
    pub fn place(&self, command: &mut Command, cgroup: Option<&Cgroup>) -> Result<(), NetnsError> {
        let path = self.path();
        let namespace = File::open(&path).map_err(|error| NetnsError::Io { path, error })?;
        let mut procs = cgroup.map(Cgroup::open_procs).transpose()?;
        // SAFETY: after the fork only system calls are made, with files opened before it.
        unsafe {
            command.pre_exec(move || {
                if let Some(procs) = &mut procs {
                    procs.write_all(b"0")?;
                }
                setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
                Ok(())
            });
        }
        Ok(())
    }

    /// Runs something in it, on a thread of its own, and waits.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn enter<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NetnsError> {
        let path = self.path();
        let failed = |error: io::Error| NetnsError::Io { path: self.path(), error };
        let namespace = File::open(&path).map_err(failed)?;
        thread::spawn(move || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
        .join()
        .map_err(|_| NetnsError::Missing("the work in the namespace panicked"))?
        .map_err(failed)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("ip").args(["netns", "del", &self.name])) {
            tracing::warn!(%error, "a network namespace is left behind");
        }
    }
}

/// Removes the namespaces with this prefix whose makers are dead, and ends what still runs in them.
pub fn sweep(prefix: &str) {
    for entry in fs::read_dir(RUN).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let maker = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')?.split('-').next());
        if maker.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
            if let Ok(pids) = run(Command::new("ip").args(["netns", "pids", name])) {
                for pid in text(&pids.stdout).lines().filter_map(|pid| pid.trim().parse().ok()) {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
            }
            let _ = run(Command::new("ip").args(["netns", "del", name]));
        }
    }
}

fn run(command: &mut Command) -> Result<Output, NetnsError> {
    let reason = match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => return Ok(output),
        Ok(output) => text(&output.stderr),
        Err(error) => error.to_string(),
    };
    Err(NetnsError::Command { command: format!("{command:?}").replace('"', ""), reason })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
