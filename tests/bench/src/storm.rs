//! Twenty thousand failing dials a second in one pod: what is counted, what is lost, and what a probe notices of it.

use crate::{
    bare::Bare,
    probe::Probe,
    stage::{CLIENTS, METRICS, PROBE, STORE_PORT, Stage, joined, within},
    table::{Spread, Table},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Dials a second, and how long.
const RATE: u32 = 20_000;
const STORM: Duration = Duration::from_secs(5);
/// Threads that dial, and the pace of their batches.
const THREADS: u32 = 2;
const BATCH: Duration = Duration::from_millis(2);
/// How often a probe asks meanwhile.
const ASK: Duration = Duration::from_millis(2);
const LIMIT: Duration = Duration::from_secs(30);
const BARE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9471);
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9467);
/// Nobody listens there.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 2, 0, 1)), STORE_PORT);
/// Events timed, and their distance: fewer a second than the limit of details for one key.
const EVENTS: usize = 30;
const APART: Duration = Duration::from_millis(150);

pub(crate) fn measure(stage: &mut Stage, table: &mut Table) -> Result<()> {
    latency(stage, table)?;
    storm(stage, table)
}

fn storm(stage: &mut Stage, table: &mut Table) -> Result<()> {
    let answer = stage.probe.get("/readiness")?;
    let _bare = Bare::start(BARE, std::str::from_utf8(&answer.body)?)?;
    Probe::new(BARE).until("/readiness", LIMIT, |answer| answer.code == 200)?;
    let quiet = (tail(PROBE, STORM)?, tail(BARE, STORM)?);
    let counted = || metric("storewatch_connects_total{", &[&format!("pod=\"{}\"", CLIENTS[0]), "outcome=\"refused\""]);
    let lost = || metric("storewatch_kernel_events_lost_total", &[]);
    let before = (counted()?, lost()?);

    let mut dialling = Vec::new();
    for _ in 0..THREADS {
        dialling.push(within(stage.cluster.pod(CLIENTS[0])?, || dial(STORM * 2))?);
    }
    let during = (tail(PROBE, STORM)?, tail(BARE, STORM)?);
    let (mut dialled, mut longest) = (0_u64, Duration::ZERO);
    for thread in dialling {
        let (count, time) = joined(thread)?;
        dialled += count;
        longest = longest.max(time);
    }
    let begun = Instant::now();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let all = dialled as f64;
    while counted()? - before.0 < all && begun.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(50));
    }
    let seen = counted()? - before.0;
    #[expect(clippy::float_cmp, reason = "whole numbers")]
    table.judged(
        &format!("storm: failing dials counted, {RATE} a second wanted"),
        format!("{seen:.0} of {dialled}, made at {:.0} a second", all / longest.as_secs_f64()),
        "every one",
        seen == all,
    );
    table.figure("  details that a full buffer lost, by its metrics", format!("{:.0}", lost()? - before.1));
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    // The storm keeps the CPUs busy, so anybody's tail grows: what is ours is the difference to the bare handler.
    let grown = during.0.saturating_sub(quiet.0).saturating_sub(during.1.saturating_sub(quiet.1));
    table.judged(
        "storm: /readiness p99, beyond what a bare handler's grows",
        format!(
            "{:+.2} ms; {:.2} to {:.2} ms, bare {:.2} to {:.2} ms",
            ms(grown),
            ms(quiet.0),
            ms(during.0),
            ms(quiet.1),
            ms(during.1)
        ),
        "<= 1 ms",
        grown <= Duration::from_millis(1),
    );
    Ok(())
}

/// How long one answer in a hundred takes at least, of one that is asked at a steady pace.
fn tail(address: SocketAddr, time: Duration) -> Result<Duration> {
    let mut probe = Probe::new(address);
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        let sent = Instant::now();
        let answer = probe.get("/readiness")?;
        times.push(sent.elapsed());
        ensure!(answer.code == 200, "/readiness gave {}", answer.code);
        thread::sleep(ASK.saturating_sub(sent.elapsed()));
    }
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied().context("no answer")
}

/// Dials where nobody listens, at this thread's share of the rate. Gives how many there were, and in what time.
fn dial(time: Duration) -> Result<(u64, Duration)> {
    let batch = RATE / THREADS * u32::try_from(BATCH.as_micros())? / 1_000_000;
    let begun = Instant::now();
    let (mut count, mut next) = (0, begun);
    while begun.elapsed() < time {
        for _ in 0..batch {
            ensure!(TcpStream::connect(NOBODY).is_err(), "somebody listens at {NOBODY}");
        }
        count += u64::from(batch);
        next += BATCH;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok((count, begun.elapsed()))
}

/// Sum of the samples whose line begins so and holds all these labels.
fn metric(family: &str, labels: &[&str]) -> Result<f64> {
    let metrics = Probe::new(METRICS).get("/metrics")?;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    let fits = |line: &&str| line.starts_with(family) && labels.iter().all(|label| line.contains(label));
    let value = |line: &str| line.rsplit(' ').next().unwrap_or_default().parse::<f64>();
    text.lines().filter(fits).map(|line| value(line).context("a metric without a number")).sum()
}

/// From a dial that is refused to its event on the admin API's stream. Begins before the dial, so it is never shorter than
/// the truth.
fn latency(stage: &Stage, table: &mut Table) -> Result<()> {
    let mut stream = TcpStream::connect(ADMIN).context("the admin API does not answer")?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_nodelay(true)?;
    write!(
        stream,
        "GET /v1/events/stream?kind=connection&pod={} HTTP/1.1\r\nhost: {ADMIN}\r\naccept: text/event-stream\r\n\r\n",
        CLIENTS[0]
    )?;
    let (sender, receiver) = mpsc::channel();
    // Ends with the stream, which ends with the agent.
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let Some(data) = line.strip_prefix("data:") else { continue };
            let event: Value = serde_json::from_str(data.trim()).unwrap_or(Value::Null);
            if event["outcome"] == "refused" && sender.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    let mut times = Vec::new();
    for _ in 0..EVENTS {
        thread::sleep(APART);
        let begun = Instant::now();
        joined(within(stage.cluster.pod(CLIENTS[0])?, || {
            ensure!(TcpStream::connect(NOBODY).is_err(), "somebody listens at {NOBODY}");
            Ok(())
        })?)?;
        times.push(receiver.recv_timeout(LIMIT).context("no event of a refused dial")? - begun);
    }
    let spread = Spread::of(&times).context("no event")?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    table.judged(
        "a refused dial -> its event on the admin API",
        format!("median {:.1} ms ({:.1} to {:.1}, n {EVENTS})", ms(spread.median), ms(spread.min), ms(spread.max)),
        "<= 50 ms",
        spread.max <= Duration::from_millis(50),
    );
    Ok(())
}
