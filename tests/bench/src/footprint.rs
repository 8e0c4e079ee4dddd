//! Memory and CPU of the agent.

use crate::{
    probe::Probe,
    process::{cpu_time, memory, thread_time, wakes},
    stage::{self, METRICS, STORE_PORT, Stage, within},
    table::Table,
};
use anyhow::{Context as _, Result, ensure};
use std::{
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};
use storewatch::demo::cluster::{STORES, store_address};

/// How long CPU at rest is watched.
const REST: Duration = Duration::from_secs(20);
/// Client pods of the large node, and their sockets in all.
const PODS: usize = 100;
const SOCKETS: usize = 10_000;
/// Two readings of the inventory, at its default interval of 15 s, so that the agent has met every socket.
const INVENTORIES: Duration = Duration::from_secs(32);
/// Opens HTTP/2: the preface and empty settings, as a channel that waits for its first call has sent.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub(crate) fn measure(stage: &mut Stage, table: &mut Table) -> Result<()> {
    at_rest(stage, table)?;
    large(stage, table)
}

fn at_rest(stage: &mut Stage, table: &mut Table) -> Result<()> {
    let agent = stage.agent()?;
    // What starting took is not rest: names and PD's list have been read, the allocator has given back what it can.
    thread::sleep(Duration::from_secs(5));
    let (before, woken, begun) = (cpu_time(agent)?, wakes(agent)?, Instant::now());
    thread::sleep(REST);
    let share = (cpu_time(agent)? - before).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
    let woken = wakes(agent)?.saturating_sub(woken).max(1);
    resident(agent, table, "RSS at rest, 3 Stores, 3 pods", 24.0)?;
    let measured = format!("{share:.2} % of a core over {} s", REST.as_secs());
    table.judged("CPU at rest, 3 Stores, 3 pods", measured, "<= 0.3 %", share <= 0.3);
    let every = REST / u32::try_from(woken)?;
    let share = idle(every)?;
    let per_second = 1.0 / every.as_secs_f64();
    table.figure(
        "  beside it: a thread that only wakes up as often",
        format!("{share:.2} % of a core, {per_second:.1} times a second"),
    );
    Ok(())
}

/// What waking up alone takes on this machine, in percent of a core.
fn idle(every: Duration) -> Result<f64> {
    let waking = thread::spawn(move || -> Result<f64> {
        let (before, begun) = (thread_time()?, Instant::now());
        while begun.elapsed() < REST {
            thread::sleep(every);
        }
        Ok((thread_time()? - before).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0)
    });
    stage::joined(waking)
}

fn large(stage: &mut Stage, table: &mut Table) -> Result<()> {
    let mut holders = Vec::new();
    let mut sockets = Vec::new();
    for number in 0..PODS {
        let name = format!("crowd-{number}");
        stage.cluster.add_client(&name, Ipv4Addr::new(10, 244, 8, u8::try_from(number + 1)?))?;
    }
    stage.fresh_agent()?;
    for number in 0..PODS {
        let pod = stage.cluster.pod(&format!("crowd-{number}"))?;
        holders.push(within(pod, move || dial(SOCKETS / PODS, number))?);
        // Not all at once: the Stores' queues of connections are finite, and this is no storm.
        if holders.len() == 4 {
            for holder in holders.drain(..) {
                sockets.extend(stage::joined(holder)?);
            }
        }
    }
    ensure!(sockets.len() == SOCKETS, "{} of {SOCKETS} sockets are open", sockets.len());
    thread::sleep(INVENTORIES);
    for socket in &sockets {
        ensure!(socket.take_error()?.is_none(), "a socket did not live through the measurement");
    }
    resident(stage.agent()?, table, "RSS, 103 pods, 10 000 sockets", 40.0)?;
    let known = known()?;
    table.figure("  connections that this agent told of, by its metrics", known.to_string());
    Ok(())
}

/// Connections in the agent's metrics: proof that it met the crowd.
fn known() -> Result<f64> {
    let metrics = Probe::new(METRICS).get("/metrics")?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("storewatch_connections{"));
    lines
        .map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>().context("a metric without a number"))
        .sum()
}

/// Opens connections from the thread's network to the Stores in turn.
fn dial(count: usize, offset: usize) -> Result<Vec<TcpStream>> {
    (0..count)
        .map(|number| {
            let index = u8::try_from((number + offset) % usize::from(STORES))?;
            let address = SocketAddr::from((store_address(index), STORE_PORT));
            let mut socket = TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
            socket.write_all(PREFACE)?;
            Ok(socket)
        })
        .collect()
}

fn resident(agent: u32, table: &mut Table, name: &str, limit: f64) -> Result<()> {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let [all, anonymous] = [memory(agent, "VmRSS")?, memory(agent, "RssAnon")?].map(|kib| kib as f64 / 1024.0);
    let measured = format!("{all:.1} MiB ({anonymous:.1} anonymous)");
    table.judged(name, measured, &format!("<= {limit} MiB"), all <= limit);
    Ok(())
}
