//! The state file: what lets a restart of the agent change no verdict.
//!
//! ```text
//! start:  disk (read, bounded) ─► format (version, checksum) ─► shape ─► age (boot, dates) ─► Judge::restore
//! then:   engine ─► Recorder ─► watch<Arc<Memory>> ─► Writer ─► shape ─► format ─► disk (replace)
//! ```
//! A file that cannot be trusted is set aside and said, and the agent starts without it; a file that cannot be written
//! is said. Neither ends the agent.

mod age;
mod disk;
mod format;
mod lock;
#[cfg(test)]
mod tests;
mod writer;

pub use lock::Lock;
pub use writer::{Recorder, Writer};

use crate::clock::ClockPair;
use format::{BootId, Refusal};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use storewatch_core::memory::Memory;

/// Where the kernel tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A state file, and whose it is.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    node: Arc<str>,
    boot: BootId,
}

impl StateFile {
    /// The file at `path` of the node of that name, on this boot.
    pub fn new(path: PathBuf, node: &str) -> Self {
        // Without it nothing proves that a container is still the same one, as after a reboot.
        let boot = std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        Self { path, node: node.into(), boot }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps other agents from the file. Where no lock can be had at all, as on a disk that cannot be written, there is
    /// nothing to keep either: that is said, and no reason to end.
    ///
    /// # Errors
    /// When another process keeps this file.
    pub fn lock(&self) -> anyhow::Result<Option<Lock>> {
        let path = self.path.display();
        if !disk::is_ours(&self.path) {
            // Reading it says so; nothing is made beside it.
            return Ok(None);
        }
        match lock::take(&self.path) {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => anyhow::bail!(
                "state_file {path} is kept by another storewatch that runs: end it, or give this one a file of its own"
            ),
            Err(error) => {
                tracing::warn!("state_file {path} cannot be locked: {error}");
                Ok(None)
            }
        }
    }

    /// What an earlier run put away, on this boot's clock. A file whose content cannot be used is set aside; in that case,
    /// as without a file, there is nothing to restore. What happened is logged in one line.
    pub fn load(&self) -> Option<Memory> {
        let path = self.path.display();
        let clock = ClockPair::read();
        match self.read(&clock) {
            Ok(Some(memory)) => {
                let (clusters, pods) = (memory.clusters.len(), memory.pods.len());
                let age = clock.mono().since(memory.taken_at);
                tracing::info!(clusters, pods, age_seconds = age.as_secs(), "state restored from {path}");
                Some(memory)
            }
            Ok(None) => {
                tracing::info!("no earlier state in {path}");
                None
            }
            Err(why) if why.concerns_content() => {
                match disk::set_aside(&self.path) {
                    Ok(aside) => {
                        tracing::warn!("state_file {path} is not used: {why}; it is set aside as {}", aside.display());
                    }
                    Err(error) => {
                        tracing::warn!("state_file {path} is not used: {why}; it cannot be set aside: {error}");
                    }
                }
                None
            }
            Err(why) => {
                tracing::warn!("state_file {path} is not used: {why}");
                None
            }
        }
    }

    /// Both ends of what keeps the file up to date from now on.
    pub fn keep(self) -> (Recorder, Writer) {
        writer::channel(self)
    }

    fn read(&self, clock: &ClockPair) -> Result<Option<Memory>, Refusal> {
        let Some(bytes) = disk::read(&self.path)? else { return Ok(None) };
        let kept = format::decode(&bytes, &self.node)?;
        Ok(age::revive(kept, &self.boot, clock))
    }

    /// Puts it on the disk; whether it fitted whole.
    fn store(&self, memory: &Memory) -> io::Result<bool> {
        let (bytes, whole) = format::encode(memory, &self.node, &self.boot, &ClockPair::read())?;
        disk::replace(&self.path, &bytes)?;
        Ok(whole)
    }
}
