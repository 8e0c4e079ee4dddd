//! Connections over loopback, one after the other: made, accepted and closed at both ends.

use crate::process::thread_time;
use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, unshare};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Connections in a second.
    pub(crate) per_second: f64,
    /// Time on the CPU of one connection, in nanoseconds. Over loopback, the kernel's work for both ends is in it.
    pub(crate) cpu: f64,
}

/// In a new network of its own, which takes its sockets in TIME-WAIT with it.
pub(crate) fn in_new_network(port: u16, time: Duration) -> Result<Rate> {
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let set = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("cannot run ip")?;
        anyhow::ensure!(set.success(), "ip link set lo up: {set}");
        run(port, time)
    });
    crate::stage::joined(thread)
}

/// In the network of the calling thread.
pub(crate) fn run(port: u16, time: Duration) -> Result<Rate> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).context("cannot listen")?;
    let (begun, cpu) = (Instant::now(), thread_time()?);
    let mut count = 0_u32;
    while begun.elapsed() < time {
        // Many addresses, since a port is free again only when TIME-WAIT is over.
        let near = SocketAddr::from((Ipv4Addr::new(127, 1, 0, count.to_le_bytes()[0]), port));
        let client = TcpStream::connect(near).context("cannot connect over loopback")?;
        let (server, _) = listener.accept()?;
        drop(client);
        drop(server);
        count += 1;
    }
    let count = f64::from(count);
    let cpu = (thread_time()? - cpu).as_secs_f64() * 1e9 / count;
    Ok(Rate { per_second: count / begun.elapsed().as_secs_f64(), cpu })
}

/// Dials a port where nobody listens.
pub(crate) fn refused(port: u16, time: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let dialled = TcpStream::connect(SocketAddr::from((Ipv4Addr::new(127, 2, 0, 1), port)));
        anyhow::ensure!(dialled.is_err(), "somebody listens on port {port}");
    }
    Ok(())
}
