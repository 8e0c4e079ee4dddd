//! `storewatch demo`: the whole product on one machine, on the real kernel, with a cluster that speaks the real wire.
//!
//! ```text
//! world    the node's and the pods' namespaces, links and drops
//! cluster  PD, Stores and client pods as processes in them, and the agent as `storewatch run`
//! story    what happens, told by the agent's own answers
//! ```

mod agent;
pub mod cluster;
pub mod part;
mod story;
pub mod world;

use crate::runtime::shutdown::Signals;
use agent::Agent;
use anyhow::{Context, Result, bail, ensure};
use cluster::Cluster;
use std::{io::Write, path::Path, process::ExitCode, time::Duration};

/// How often the parts are looked at while the story is told.
const WATCH: Duration = Duration::from_millis(200);

/// Runs the demo; `keep` leaves the cluster and the agent running until a signal.
///
/// Must be called before any other thread exists, since it moves the process into namespaces of its own.
///
/// # Errors
/// When the machine does not let it make its namespaces, when a part falls, or when the story does not go as told.
pub fn run(keep: bool) -> Result<ExitCode> {
    world::enter_node()?;
    // One thread only: children are tied to the thread that starts them, so that they end with it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tell(keep))
}

/// Runs one part of the demo's cluster.
///
/// # Errors
/// As [`part::Part::run`].
pub fn run_part(part: part::Part) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(part.run())?;
    Ok(ExitCode::SUCCESS)
}

async fn tell(keep: bool) -> Result<ExitCode> {
    let mut signals = Signals::install().context("cannot install signal handlers")?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "storewatch demo: a HugeGraph-shaped cluster in namespaces of its own; all that follows is the agent's word."
    )?;
    let mut cluster = Cluster::start(Path::new("/proc/self/exe"), &cluster::PODS)?;
    cluster.start_agent(&cluster::agent_config())?;
    let agent = Agent::new();
    let told = tokio::select! {
        told = story::tell(&mut cluster, &agent, &mut out) => told,
        signal = signals.next() => bail!("ended by {signal}"),
    };
    if let Err(error) = told {
        // A fallen part explains a story that went wrong better than the story does.
        match cluster.fallen() {
            Some(fallen) => return Err(error.context(fallen)),
            None => return Err(error),
        }
    }
    if keep {
        invite(&cluster, &mut out)?;
        loop {
            tokio::select! {
                signal = signals.next() => {
                    writeln!(out, "\n{signal}: the demo ends.")?;
                    break;
                }
                () = tokio::time::sleep(WATCH) => {
                    // Whoever looks around may kill what he likes; only without the agent is there nothing to see.
                    if let Some(fallen) = cluster.fallen() {
                        ensure!(cluster.pid("agent").is_some(), "{fallen}");
                        writeln!(out, "   {fallen}")?;
                        out.flush()?;
                    }
                }
            }
        }
    }
    writeln!(out, "\nThe end: the demo's processes and namespaces are gone with it.")?;
    Ok(ExitCode::SUCCESS)
}

fn invite(cluster: &Cluster, out: &mut impl Write) -> Result<()> {
    let pid = cluster.pid("agent").context("the agent does not run")?;
    let node = format!("nsenter -t {pid} -m -n");
    writeln!(out, "\n── It goes on running until Ctrl-C. In another terminal, as root:")?;
    for line in [
        format!("{node} curl -i http://127.0.0.1:{}/readiness", agent::PROBE),
        format!(
            "{node} curl -i http://127.0.0.1:{}/readiness/pods/{}/{}",
            agent::PROBE,
            cluster::NAMESPACE,
            cluster::PODS[0]
        ),
        format!("{node} curl http://127.0.0.1:{}/v1/snapshot", agent::ADMIN),
        format!("{node} curl http://127.0.0.1:9466/metrics"),
        format!("{node} {} --agent unix:{}/admin.sock status", own_path(), world::DIRECTORY),
        format!(
            "{node} {} --agent unix:{}/admin.sock explain    # of every pod that is not well",
            own_path(),
            world::DIRECTORY
        ),
    ] {
        writeln!(out, "   {line}")?;
    }
    for (name, what) in [("store-0", "STOP"), ("store-0", "CONT"), ("store-0", "KILL"), ("pd", "KILL")] {
        if let Some(pid) = cluster.pid(name) {
            writeln!(out, "   kill -{what} {pid}    # {name}")?;
        }
    }
    Ok(out.flush()?)
}

fn own_path() -> String {
    std::env::current_exe().map_or_else(|_| "storewatch".to_owned(), |path| path.display().to_string())
}
