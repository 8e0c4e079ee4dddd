//! The counterpart of the agent's HTTP: an axum handler that answers a constant, in a process of its own with as many
//! threads as the agent has.

use anyhow::{Context as _, Result};
use axum::{Router, http::header, routing::get};
use nix::sys::signal::Signal;
use std::{
    env,
    net::SocketAddr,
    process::{Child, Command, Stdio},
};
use tokio::net::TcpListener;

/// As first argument, it makes the benchmark's binary this server; then come address and body.
pub(crate) const COMMAND: &str = "bare";
/// The agent's number of threads.
const WORKERS: usize = 2;

/// Serves until it is killed.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let address: SocketAddr = arguments.next().context("no address")?.parse()?;
    let body: &'static str = arguments.next().context("no body")?.leak();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    runtime.block_on(async move {
        let constant = move || async move { ([(header::CONTENT_TYPE, "application/json")], body) };
        let router = Router::new().route("/readiness", get(constant));
        Ok(axum::serve(TcpListener::bind(address).await?, router).await?)
    })
}

/// The running server, ended on drop, and by the kernel when the thread that started it ends.
#[derive(Debug)]
pub(crate) struct Bare(Child);

impl Bare {
    pub(crate) fn start(address: SocketAddr, body: &str) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(env::current_exe()?);
        command.arg(COMMAND).arg(address.to_string()).arg(body).stdin(Stdio::null());
        // SAFETY: between fork and exec only the system call prctl is made.
        unsafe {
            command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
        }
        Ok(Self(command.spawn().context("cannot start the bare server")?))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
