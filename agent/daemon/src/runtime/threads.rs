//! The agent's threads: one that observes and judges, and a few that answer.
//!
//! What observes wakes up some ten times a second, for a moment. On one thread nothing is handed from core to core for
//! that, which would cost more than the work; and who asks, however much, neither waits for it nor holds it up.

use std::{future::Future, io};
use tokio::runtime::{Builder, Handle};

/// Threads that answer. They wait far more than they compute, and a node's CPUs belong to its pods.
const ANSWERING: usize = 2;

/// Heaps that they share.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 2;

/// Runs `agent` to its end on this thread; it is given the runtime of those that answer.
///
/// # Errors
/// When no thread can be started.
pub fn run<F: Future>(agent: impl FnOnce(Handle) -> F) -> io::Result<F::Output> {
    // A heap for each thread would hold on to several times what is in use.
    // SAFETY: glibc's call has no preconditions.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
    let surface = Builder::new_multi_thread().worker_threads(ANSWERING).enable_all().build()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(agent(surface.handle().clone()));
    // A file that is being read from a hung file system must not hold up the end.
    runtime.shutdown_background();
    surface.shutdown_background();
    Ok(ended)
}
