//! `/readiness` under load, beside the bare handler.

use crate::{
    bare::Bare,
    load::{self, Load},
    probe::Probe,
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

pub(crate) fn measure(stage: &mut Stage, table: &mut Table) -> Result<()> {
    // The same number of bytes to send, so that only the work before differs.
    let answer = stage.probe.get("/readiness")?;
    let _bare = Bare::start(BARE, std::str::from_utf8(&answer.body)?)?;
    Probe::new(BARE).until("/readiness", LIMIT, |answer| answer.code == 200)?;

    let pairs = in_turns(16, 200)?;
    let ratios: Vec<_> = pairs.iter().map(|(agent, bare)| agent.rate / bare.rate).collect();
    let ratio = Spread::of(&ratios).context("no turn")?;
    let rate = |pick: fn(&(Load, Load)) -> f64| Spread::of(&pairs.iter().map(pick).collect::<Vec<_>>());
    let agent = rate(|pair| pair.0.rate).context("no turn")?.median;
    let bare = rate(|pair| pair.1.rate).context("no turn")?.median;
    table.judged(
        "/readiness requests per second / bare",
        format!(
            "median {:.2} ({:.2} to {:.2}, n {TURNS}); {agent:.0}/s to {bare:.0}/s",
            ratio.median, ratio.min, ratio.max
        ),
        ">= 0.80",
        ratio.median >= 0.8,
    );

    stage.silence()?;
    stage.probe.until("/readiness", LIMIT, |answer| answer.code == 503)?;
    let pairs = in_turns(100, 503)?;
    let tail = |pick: fn(&(Load, Load)) -> &Load| {
        let tails: Vec<_> = pairs.iter().map(|pair| percentile_99(&pick(pair).latencies)).collect();
        Spread::of(&tails).map(|tails| tails.median)
    };
    let agent = tail(|pair| &pair.0).context("no turn")?;
    let bare = tail(|pair| &pair.1).context("no turn")?;
    let above = agent - bare;
    table.judged(
        "all silent, 100 in parallel: p99 above bare",
        format!("{above:+.2} ms ({agent:.2} ms to {bare:.2} ms, medians of {TURNS})"),
        "<= 2 ms",
        above <= 2.0,
    );
    stage.lift()
}

/// Agent and bare handler by turns.
fn in_turns(connections: usize, code: u16) -> Result<Vec<(Load, Load)>> {
    (0..TURNS)
        .map(|turn| {
            let agent = || load::run(PROBE, connections, TURN, code);
            let bare = || load::run(BARE, connections, TURN, 200);
            // Who is first changes: a machine that slows down or warms up favours neither.
            if turn % 2 == 0 {
                let agent = agent()?;
                Ok((agent, bare()?))
            } else {
                let bare = bare()?;
                Ok((agent()?, bare))
            }
        })
        .collect()
}

/// In milliseconds.
fn percentile_99(latencies: &[Duration]) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * 99 / 100).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1000.0)
}
