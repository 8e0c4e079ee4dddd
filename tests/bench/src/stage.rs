//! The demo's node with PD, three Stores and three client pods, the shipped agent on it, and what is done to the Stores.

use crate::probe::{Answer, Probe};
use anyhow::{Context as _, Result, ensure};
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use storewatch::demo::{
    cluster::{Cluster, STORES, pd_name},
    world::{DIRECTORY, Pod},
};

/// The client pods.
pub(crate) const CLIENTS: [&str; 3] = ["server-0", "server-1", "server-2"];
/// The Stores' port, the default.
pub(crate) const STORE_PORT: u16 = 8500;
/// Where the agent answers probes.
pub(crate) const PROBE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9465);
/// Where it tells everything, to this machine only.
pub(crate) const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9467);
/// Where it tells its metrics.
pub(crate) const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9466);
/// Channels that a client pod of the demo's keeps to each Store.
const CHANNELS: usize = 2;
/// How long anything may take to become as it was.
const LIMIT: Duration = Duration::from_secs(90);
/// State of an established socket, and of a listener, in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// All of it.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) probe: Probe,
}

impl Stage {
    /// Starts everything but the agent.
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let stage = Self { cluster: Cluster::start(program, &CLIENTS)?, probe: Probe::new(PROBE) };
        // The chains are there from the start, so that silence is one rule away.
        stage.at_stores("add table ip bench; add chain ip bench input { type filter hook input priority 0; }")?;
        Ok(stage)
    }

    /// Ends the agent that there is, starts one and waits until all is well. All keys but the places have their defaults.
    pub(crate) fn fresh_agent(&mut self) -> Result<()> {
        self.lift()?;
        self.cluster.stop_agent()?;
        self.probe = Probe::new(PROBE);
        self.cluster.start_agent(&format!(
            "node: bench
listen: {{probe: \"{PROBE}\", metrics: \"{METRICS}\", admin: \"{ADMIN}\", admin_socket: {DIRECTORY}/admin.sock}}
hugegraph: {{pd_peers: [\"{}:8686\"]}}
pods: {{source: file, file: {DIRECTORY}/pods.yaml}}
state_file: \"\"
",
            pd_name()
        ))?;
        self.steady()
    }

    /// Waits until the agent has heard of every Store and every client has all its channels.
    pub(crate) fn steady(&mut self) -> Result<()> {
        self.probe.until("/readiness", LIMIT, all_well)?;
        for client in CLIENTS {
            let pid = self.cluster.pid(client).with_context(|| format!("{client} does not run"))?;
            until(&format!("{client} with all its channels"), || {
                Ok(sockets(pid, Column::Remote, ESTABLISHED)? == CHANNELS * usize::from(STORES))
            })?;
        }
        Ok(())
    }

    /// The agent's process.
    pub(crate) fn agent(&self) -> Result<u32> {
        self.cluster.pid("agent").context("the agent does not run")
    }

    /// Starts a Store that was killed; gives a moment at which it did not listen yet, just before it did.
    pub(crate) fn start_store(&mut self, index: u8) -> Result<Instant> {
        self.cluster.start_store(index)?;
        let name = format!("store-{index}");
        let pid = self.cluster.pid(&name).context("a Store has not started")?;
        let mut before = Instant::now();
        until(&format!("{name} to listen"), || {
            let looked = Instant::now();
            let listens = sockets(pid, Column::Local, LISTEN)? > 0;
            if !listens {
                before = looked;
            }
            Ok(listens)
        })?;
        Ok(before)
    }

    /// Makes the Stores' pods drop every packet that comes for them.
    pub(crate) fn silence(&self) -> Result<()> {
        self.at_stores(&format!("add rule ip bench input tcp dport {STORE_PORT} drop"))
    }

    /// Takes [`Self::silence`] back.
    pub(crate) fn lift(&self) -> Result<()> {
        self.at_stores("flush chain ip bench input")
    }

    /// Sends a signal to every Store.
    pub(crate) fn signal_stores(&self, signal: Signal) -> Result<()> {
        for index in 0..STORES {
            let pid = self.cluster.pid(&format!("store-{index}")).context("a Store does not run")?;
            kill(Pid::from_raw(pid.cast_signed()), signal)?;
        }
        Ok(())
    }

    /// Runs `nft` in all Stores' pods, side by side.
    fn at_stores(&self, script: &str) -> Result<()> {
        let mut running = Vec::new();
        for index in 0..STORES {
            let script = script.to_owned();
            running.push(within(self.cluster.pod(&format!("store-{index}"))?, move || {
                let output =
                    Command::new("nft").arg(&script).stdin(Stdio::null()).output().context("cannot run nft")?;
                let complaint = String::from_utf8_lossy(&output.stderr);
                ensure!(output.status.success(), "nft {script}: {}", complaint.trim());
                Ok(())
            })?);
        }
        running.into_iter().try_for_each(joined)
    }
}

/// Starts work in a pod's network, on a thread of its own.
pub(crate) fn within<T: Send + 'static>(
    pod: &Pod,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<thread::JoinHandle<Result<T>>> {
    let namespace = File::open(pod.netns()).context("a pod's namespace has gone")?;
    Ok(thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        work()
    }))
}

/// Waits for such work.
pub(crate) fn joined<T>(thread: thread::JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("a thread of the benchmark panicked"))?
}

fn all_well(answer: &Answer) -> bool {
    let body = answer.json();
    let unanswered = body.get("unanswered_stores").and_then(|list| list.as_array()).is_none_or(|list| !list.is_empty());
    let active = body.get("active_stores").and_then(serde_json::Value::as_u64);
    answer.code == 200 && body["status"] == "Ready" && !unanswered && active == Some(u64::from(STORES))
}

fn until(what: &str, mut there: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !there()? {
        ensure!(begun.elapsed() < LIMIT, "no {what} within {LIMIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Column {
    Local = 1,
    Remote = 2,
}

/// How many sockets of a process's network are in this state and have the Stores' port in this column. Looked up in the
/// kernel's list: a connection of our own would be an event for the agent.
fn sockets(pid: u32, column: Column, state: &str) -> Result<usize> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/tcp")).context("a part of the cluster has ended")?;
    let port = format!(":{STORE_PORT:04X}");
    let matches = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(column as usize).is_some_and(|address| address.ends_with(&port)) && fields.get(3) == Some(&state)
    };
    Ok(text.lines().skip(1).filter(matches).count())
}
