//! `/readiness` under load, beside the bare handler.

use crate::{
    bare::Bare,
    load::{self, Load},
    probe::Probe,
    process::cpu_time,
    stage::{PROBE, Stage},
    table::{Spread, Table},
};
use anyhow::{Context as _, Result};
use std::{net::SocketAddr, time::Duration};

const BARE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9470);
/// Turns of each server.
const TURNS: usize = 7;
const TURN: Duration = Duration::from_millis(1500);
const LIMIT: Duration = Duration::from_secs(30);

/// One turn of one server.
struct Turn {
    load: Load,
    /// Its time on CPUs for one request, in microseconds: what other processes on the machine leave alone.
    cpu: f64,
}

/// A server under load.
#[derive(Clone, Copy)]
struct Server {
    address: SocketAddr,
    pid: u32,
    code: u16,
}

pub(crate) fn measure(stage: &mut Stage, table: &mut Table) -> Result<()> {
    // The same number of bytes to send, so that only the work before differs.
    let answer = stage.probe.get("/readiness")?;
    let process = Bare::start(BARE, std::str::from_utf8(&answer.body)?)?;
    Probe::new(BARE).until("/readiness", LIMIT, |answer| answer.code == 200)?;
    let bare = Server { address: BARE, pid: process.pid(), code: 200 };
    let agent = Server { address: PROBE, pid: stage.agent()?, code: 200 };

    let pairs = in_turns(agent, bare, 16)?;
    let ratio = spread(&pairs, |(agent, bare)| agent.load.rate / bare.load.rate)?;
    table.judged(
        "/readiness requests per second / bare",
        format!(
            "median {:.2} ({:.2} to {:.2}, n {TURNS}); {:.0}/s to {:.0}/s",
            ratio.median,
            ratio.min,
            ratio.max,
            spread(&pairs, |pair| pair.0.load.rate)?.median,
            spread(&pairs, |pair| pair.1.load.rate)?.median
        ),
        ">= 0.80",
        ratio.median >= 0.8,
    );
    table.figure(
        "  the servers' CPU time for a request",
        format!(
            "bare / agent {:.2}; {:.1} us to {:.1} us",
            spread(&pairs, |(agent, bare)| bare.cpu / agent.cpu)?.median,
            spread(&pairs, |pair| pair.0.cpu)?.median,
            spread(&pairs, |pair| pair.1.cpu)?.median
        ),
    );

    stage.silence()?;
    stage.probe.until("/readiness", LIMIT, |answer| answer.code == 503)?;
    let pairs = in_turns(Server { code: 503, ..agent }, bare, 100)?;
    let agent = spread(&pairs, |pair| percentile_99(&pair.0.load.latencies))?.median;
    let bare = spread(&pairs, |pair| percentile_99(&pair.1.load.latencies))?.median;
    let above = agent - bare;
    table.judged(
        "all silent, 100 in parallel: p99 above bare",
        format!("{above:+.2} ms ({agent:.2} ms to {bare:.2} ms, medians of {TURNS})"),
        "<= 2 ms",
        above <= 2.0,
    );
    stage.lift()
}

/// Both by turns.
fn in_turns(agent: Server, bare: Server, connections: usize) -> Result<Vec<(Turn, Turn)>> {
    (0..TURNS)
        .map(|turn| {
            // Who is first changes: a machine that slows down or warms up favours neither.
            if turn % 2 == 0 {
                let agent = agent.turn(connections)?;
                Ok((agent, bare.turn(connections)?))
            } else {
                let bare = bare.turn(connections)?;
                Ok((agent.turn(connections)?, bare))
            }
        })
        .collect()
}

impl Server {
    fn turn(self, connections: usize) -> Result<Turn> {
        let before = cpu_time(self.pid)?;
        let load = load::run(self.address, connections, TURN, self.code)?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let requests = load.latencies.len() as f64;
        Ok(Turn { cpu: (cpu_time(self.pid)? - before).as_secs_f64() * 1e6 / requests, load })
    }
}

fn spread(pairs: &[(Turn, Turn)], pick: impl Fn(&(Turn, Turn)) -> f64) -> Result<Spread<f64>> {
    Spread::of(&pairs.iter().map(pick).collect::<Vec<_>>()).context("no turn")
}

/// In milliseconds.
fn percentile_99(latencies: &[Duration]) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * 99 / 100).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1000.0)
}
