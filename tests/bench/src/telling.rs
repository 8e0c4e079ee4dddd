//! From what a pod does in the kernel to the admin side: the event stream, and the connection table.

use crate::{
    probe::Probe,
    stage::{ADMIN, CLIENTS, STORE_PORT, Stage, joined, within},
    table::Table,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};
use storewatch::demo::cluster::store_address;

const REPETITIONS: usize = 50;
/// How long one may take before it counts as lost.
const LIMIT: Duration = Duration::from_secs(5);
/// Between two dials: details of one kind are limited to 20 a second for each processor, and what is beyond is not told.
const PACE: Duration = Duration::from_millis(100);
/// What the contract of the product grants.
const TARGET: Duration = Duration::from_millis(50);

/// Every time begins before the dial, so that what is measured is never shorter than the truth.
pub(crate) fn measure(stage: &mut Stage, table: &mut Table) -> Result<()> {
    let (mut told, mut listed) = (Vec::new(), Vec::new());
    let mut events = follow()?;
    let mut admin = Probe::new(ADMIN);
    let store = SocketAddr::from((store_address(0), STORE_PORT));
    for _ in 0..REPETITIONS {
        let (begun, socket) = joined(within(stage.cluster.pod(CLIENTS[0])?, move || {
            let begun = Instant::now();
            Ok((begun, TcpStream::connect_timeout(&store, LIMIT)?))
        })?)?;
        established(&mut events)?;
        told.push(begun.elapsed());
        let local = socket.local_addr()?.to_string();
        let path = format!("/v1/connections?pod={}&state=established", CLIENTS[0]);
        admin.until(&path, LIMIT, |answer| {
            answer.json().as_array().is_some_and(|rows| rows.iter().any(|row| row["local"] == local))
        })?;
        listed.push(begun.elapsed());
        std::thread::sleep(PACE);
    }
    table.times("a pod's dial -> the event stream", &told, Some(TARGET));
    table.times("a pod's dial -> the connection table", &listed, Some(TARGET));
    Ok(())
}

fn follow() -> Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect_timeout(&ADMIN, LIMIT).context("nobody listens at listen.admin")?;
    stream.set_read_timeout(Some(LIMIT))?;
    // HTTP/1.0: the events come as they are.
    let path = format!("/v1/events/stream?kind=connection&pod={}", CLIENTS[0]);
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {ADMIN}\r\n\r\n")?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(reader.read_line(&mut head)? > 0, "the stream has no beginning: {head}");
    }
    ensure!(head.split(' ').nth(1) == Some("200"), "the stream is refused: {head}");
    Ok(reader)
}

/// Reads on to the next dial that succeeded.
fn established(events: &mut BufReader<TcpStream>) -> Result<()> {
    loop {
        let mut line = String::new();
        ensure!(events.read_line(&mut line)? > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ")
            && serde_json::from_str::<Value>(data)?["outcome"] == "established"
        {
            return Ok(());
        }
    }
}
