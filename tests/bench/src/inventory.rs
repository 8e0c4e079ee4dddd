//! What one reading of the inventory costs, beside `ss` on the same sockets.

use crate::{
    hold::Holder,
    process::{children_time, thread_time},
    table::{Spread, Table},
};
use anyhow::{Context as _, Result, ensure};
use nix::sched::{CloneFlags, setns};
use std::{
    fs::File,
    process::{Command, Stdio},
    thread,
};
use storewatch::source::{
    inventory::{Reading, iterator, proc_net},
    kernel::{KernelSource, Settings, ticks::Ticks},
};
use storewatch_core::connection::TcpState;

/// Watched by this benchmark alone.
const PORT: u16 = 18_600;
const TURNS: usize = 7;
/// Sockets in one network: several processes, since each may open 20 000 files on some machines.
const CROWD: usize = if cfg!(debug_assertions) { 4_000 } else { 50_000 };
const CROWD_PROCESSES: usize = 4;
/// Pods, each with a network of its own, and the sockets of each.
const PODS: usize = if cfg!(debug_assertions) { 20 } else { 200 };
const EACH: usize = 50;

pub(crate) fn measure(table: &mut Table) -> Result<()> {
    let mut crowd = vec![Holder::start(PORT, CROWD / CROWD_PROCESSES, None)?];
    crowd[0].ready()?;
    let network = crowd[0].pid();
    for _ in 1..CROWD_PROCESSES {
        crowd.push(Holder::start(PORT, CROWD / CROWD_PROCESSES, Some(network))?);
    }
    crowd[1..].iter_mut().try_for_each(Holder::ready)?;
    let reader = Reader::new()?;
    let iterated = reader.times(CROWD, |reader| reader.iterate())?;
    let name = format!("inventory by iterator, {CROWD} sockets in one network");
    let met = iterated.median <= 30.0;
    table.judged(&name, text(iterated), "<= 30 ms CPU", met);
    table.figure("  beside it: ss -tn > /dev/null in that network", text(ss(network)?));
    let fallback = reader.times(CROWD, |reader| Ok(reader.fallback()))?;
    table.figure("  the fallback: /proc/PID/net/tcp of every network", text(fallback));
    drop(crowd);

    let mut pods = (0..PODS).map(|_| Holder::start(PORT, EACH, None)).collect::<Result<Vec<_>>>()?;
    pods.iter_mut().try_for_each(Holder::ready)?;
    let iterated = reader.times(PODS * EACH, |reader| reader.iterate())?;
    let name = format!("inventory by iterator, {PODS} pods with {EACH} sockets each");
    table.judged(&name, text(iterated), "<= 20 ms CPU", iterated.median <= 20.0);
    let fallback = reader.times(PODS * EACH, |reader| Ok(reader.fallback()))?;
    table.figure("  the fallback: /proc/PID/net/tcp of every network", text(fallback));
    Ok(())
}

/// The product's own readers.
struct Reader {
    source: KernelSource,
    _runtime: tokio::runtime::Runtime,
}

impl Reader {
    fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let source = {
            let _inside = runtime.enter();
            KernelSource::open(Settings { ports: vec![PORT], ..Settings::default() })
        };
        Ok(Self { source, _runtime: runtime })
    }

    fn iterate(&self) -> Result<Reading> {
        let handle = self.source.handle();
        let decoder = handle.decoder().with_context(|| format!("{:?}", self.source))?;
        let file = handle.open_inventory().map_err(anyhow::Error::msg)?;
        iterator::read(file, &decoder, Ticks::default()).map_err(anyhow::Error::msg)
    }

    #[expect(clippy::unused_self, reason = "the counterpart of the other reader")]
    fn fallback(&self) -> Reading {
        proc_net::read(&[PORT], Ticks::default())
    }

    /// Milliseconds of CPU of each reading, all of which must have found every socket.
    fn times(&self, sockets: usize, read: impl Fn(&Self) -> Result<Reading>) -> Result<Spread<f64>> {
        let mut times = Vec::new();
        for _ in 0..TURNS {
            let before = thread_time()?;
            let reading = read(self)?;
            times.push((thread_time()? - before).as_secs_f64() * 1e3);
            let found = reading.sample.sockets.iter().filter(|socket| socket.state == TcpState::Established).count();
            ensure!(found >= sockets, "{found} of {sockets} sockets were found: {}", reading.shortfall);
        }
        Spread::of(&times).context("no turn")
    }
}

/// Milliseconds of CPU that `ss` takes to list the sockets of a process's network.
fn ss(pid: u32) -> Result<Spread<f64>> {
    let work = move || -> Result<Spread<f64>> {
        setns(File::open(format!("/proc/{pid}/ns/net"))?, CloneFlags::CLONE_NEWNET)?;
        let mut times = Vec::new();
        for _ in 0..TURNS {
            let before = children_time()?;
            let status = Command::new("ss").arg("-tn").stdin(Stdio::null()).stdout(Stdio::null()).status()?;
            ensure!(status.success(), "ss -tn: {status}");
            times.push((children_time()? - before).as_secs_f64() * 1e3);
        }
        Spread::of(&times).context("no turn")
    };
    crate::stage::joined(thread::spawn(work))
}

fn text(spread: Spread<f64>) -> String {
    format!("median {:.1} ms ({:.1} to {:.1}, n {TURNS})", spread.median, spread.min, spread.max)
}
