//! What the eBPF programs cost, beside an empty program on the same tracepoint in the same run, and what an inventory
//! costs.
//!
//! `bench-kernel ACTOR` (the kernel tests' `actor`). The kernel measures the programs (`BPF_ENABLE_STATS`, for as long as
//! this process lives); each program's mean over the whole workload is printed. The dials go over loopback within a
//! namespace of its own, so that nothing but the kernel is measured.

#![expect(clippy::print_stdout, reason = "the table is the result")]

#[path = "kernel/bpf.rs"]
mod bpf;

use anyhow::{Context as _, Result, ensure};
use std::{
    env,
    net::Ipv4Addr,
    time::{Duration, Instant},
};
use storewatch::{
    netns::Namespace,
    requests::Selected,
    source::kernel::{KernelHandle, KernelSource, Settings, stats::ProgramStats},
};
use storewatch_core::id::NetnsId;
use storewatch_tests_kernel::{Actor, PREFIX, at, port, ready};

const DIALS: u32 = 20_000;
const ROUNDS: u32 = 8;
const SOCKETS: u32 = 900;
const READINGS: u64 = 10;

fn main() -> Result<()> {
    let actor = env::args().nth(1).context("usage: bench-kernel ACTOR (the path of tests/kernel's `actor`)")?;
    ready()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let _guard = runtime.enter();
    let namespace = Namespace::create(PREFIX, "b")?;
    let mut client = Actor::start(&actor, &namespace, None)?;
    let (watched, unwatched) = (port(), port() + 12_000);
    let target = |port| at(Ipv4Addr::LOCALHOST, port);
    let mut server = Actor::start(&actor, &namespace, None)?;
    for port in [watched, unwatched] {
        server.must(&format!("listen l{port} {}", target(port)))?;
    }

    let mut dial = |port: u16, count: u32| -> Result<Duration> {
        let began = Instant::now();
        for _ in 0..count / 500 {
            ensure!(client.must(&format!("dials {} 500", target(port)))? == "0:500");
            server.must(&format!("accepts s l{port} 500"))?;
            server.must("closes s 500")?;
        }
        Ok(began.elapsed())
    };
    dial(unwatched, 2000)?; // warm
    // The best of several short runs: whatever else the machine does only ever adds.
    let best = |dial: &mut dyn FnMut(u16, u32) -> Result<Duration>, port: u16| -> Result<Duration> {
        (0..ROUNDS).map(|_| dial(port, DIALS / ROUNDS)).try_fold(Duration::MAX, |best, time| Ok(best.min(time?)))
    };
    let bare = best(&mut dial, unwatched)?;

    let before = resident()?;
    let source = KernelSource::open(Settings { ports: vec![watched], ..Settings::default() });
    let handle = source.handle();
    ensure!(!handle.hooks().is_empty(), "the programs could not be loaded: {:?}", source.reports());
    println!("memory of the agent's process: {before} KiB before loading, {} KiB after", resident()?);
    handle.select(&Selected { cgroups: vec![], netns: vec![NetnsId(namespace.inum()?)] })?;
    let without_stats = best(&mut dial, unwatched)?;
    let watched_rate = best(&mut dial, watched)?;

    let _stats = bpf::enable_stats()?;
    let empty = bpf::Empty::attach("inet_sock_set_state")?;
    let missed: u64 = programs(&handle)?.iter().map(|stats| stats.missed).sum();
    println!("events missed before the kernel began to measure: {missed} of some {}", 10 * 2 * DIALS);
    let cold = (programs(&handle)?, empty.stats()?);
    dial(unwatched, DIALS)?;
    let ignored = (programs(&handle)?, empty.stats()?);
    dial(watched, DIALS)?;
    let seen = (programs(&handle)?, empty.stats()?);

    println!("{:<24} {:>12} {:>14} {:>12} {:>14}", "program", "unwatched", "ns per event", "watched", "ns per event");
    let per = |from: &ProgramStats, to: &ProgramStats| {
        let count = to.run_count - from.run_count;
        let nanos = (to.run_time - from.run_time).as_nanos();
        (count, if count == 0 { 0.0 } else { nanos as f64 / count as f64 })
    };
    let mut rows = vec![("(empty program)".to_owned(), per(&cold.1, &ignored.1), per(&ignored.1, &seen.1))];
    for ((a, b), c) in cold.0.iter().zip(&ignored.0).zip(&seen.0) {
        rows.push((b.name.clone(), per(a, b), per(b, c)));
    }
    for (name, unwatched, watched) in &rows {
        println!("{name:<24} {:>12} {:>14.1} {:>12} {:>14.1}", unwatched.0, unwatched.1, watched.0, watched.1);
    }
    for (program, stats) in
        [("(empty program)", &seen.1)].into_iter().chain(seen.0.iter().map(|s| (s.name.as_str(), s)))
    {
        if stats.missed > 0 {
            println!("{program}: {} events missed, since it ran already on that CPU", stats.missed);
        }
    }
    let rate = |time: Duration| f64::from(DIALS / ROUNDS) / time.as_secs_f64();
    println!();
    println!("connect+close per second, no agent          {:>10.0}", rate(bare));
    println!(
        "  agent, unwatched port                     {:>10.0}  ratio {:.3}",
        rate(without_stats),
        bare.as_secs_f64() / without_stats.as_secs_f64()
    );
    println!(
        "  agent, watched port                       {:>10.0}  ratio {:.3}",
        rate(watched_rate),
        bare.as_secs_f64() / watched_rate.as_secs_f64()
    );

    inventory(&handle, &namespace, &actor, target(watched), watched)?;
    Ok(())
}

fn inventory(
    handle: &KernelHandle,
    namespace: &Namespace,
    actor: &str,
    target: std::net::SocketAddr,
    port: u16,
) -> Result<()> {
    let mut server = Actor::start(actor, namespace, None)?;
    let address = at(Ipv4Addr::new(127, 0, 0, 2), port);
    server.must(&format!("listen l {address}"))?;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Actor::start(actor, namespace, None)?;
        client.must(&format!("begins a {target} {SOCKETS}"))?;
        clients.push(client);
    }
    let decoder = handle.decoder().context("nothing is loaded")?;
    let mut best = Duration::MAX;
    let mut found = 0;
    for _ in 0..READINGS {
        let began = Instant::now();
        let file = handle.open_inventory().map_err(anyhow::Error::msg)?;
        let reading = storewatch::source::inventory::iterator::read(file, &decoder, Default::default())
            .map_err(anyhow::Error::msg)?;
        best = best.min(began.elapsed());
        found = reading.sample.sockets.len();
    }
    println!();
    println!("inventory by the iterator: {found} sockets of the whole node in {:.2} ms", best.as_secs_f64() * 1e3);
    if let Some(stats) = programs(handle)?.into_iter().find(|stats| stats.name == "sockets") {
        println!(
            "  in the program itself:   {} open files in {:.2} ms per reading",
            stats.run_count / READINGS,
            stats.run_time.as_secs_f64() * 1e3 / READINGS as f64
        );
    }
    let began = Instant::now();
    let reading = storewatch::source::inventory::proc_net::read(&[port], Default::default());
    println!(
        "inventory from /proc:      {} sockets of the whole node in {:.2} ms",
        reading.sample.sockets.len(),
        began.elapsed().as_secs_f64() * 1e3
    );
    Ok(())
}

fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

fn programs(handle: &KernelHandle) -> Result<Vec<ProgramStats>> {
    Ok(handle.stats().context("nothing is loaded")?.programs)
}
