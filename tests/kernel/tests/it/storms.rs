//! Many at once: counters stay exact, maps come back empty, what is lost is counted.

use anyhow::{Context as _, Result, ensure};
use std::time::{Duration, Instant};
use storewatch::{netns::topology::Topology, requests::Selected, source::kernel::Settings};
use storewatch_core::connection::Counted;
use storewatch_ebpf_common::counters::kind;
use storewatch_tests_kernel::{Actor, SOON, at};

use crate::stage::{ACTOR, Stage, run};

#[test]
fn after_twenty_thousand_refusals_a_success_is_still_one() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        let target = at(Topology::SERVER_V4, stage.port);
        // The reader works meanwhile: nothing is lost.
        let command = format!("dials {target} 20000");
        stage.client.give(&command)?;
        stage
            .watch
            .until_in(Duration::from_secs(60), "all dials", |w| {
                w.counted(netns, |what| *what == Counted::Begun) >= 20_000
            })
            .await?;
        ensure!(stage.client.answer(&command)? == Ok("111:20000".to_owned()));
        stage.connected()?;
        stage
            .watch
            .until("all", |w| {
                w.counted(netns, |what| matches!(what, Counted::Failed(e) if e.error == 111)) == 20_000
                    && w.counted(netns, |what| *what == Counted::Established) == 1
            })
            .await?;
        ensure!(stage.watch.counted(netns, |what| *what == Counted::Begun) == 20_001);
        ensure!(stage.watch.counted(netns, |what| *what == Counted::ResetsReceived) == 20_000);
        stage.client.must("close a")?;
        stage.server.must("close s")?;
        stage.watch.until("the end", |w| w.counted(netns, |what| matches!(what, Counted::Ended(_))) == 1).await?;
        let limited = stage.watch.stats()?.sum(|k| k.limited);
        ensure!(limited > 50_000, "details are limited and the limit is counted: {limited}");
        stage.told("begun 20001, established 1, attempt refused 20000, end closed 1, reset received 20000").await?;
        stage.finish().await
    })
}

#[test]
fn two_thousand_dials_into_a_blackhole_leave_nothing_behind() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.topology.client.sysctl("ipv4.tcp_syn_retries", "1")?;
        stage.topology.blackhole()?;
        let target = at(Topology::SERVER_V4, stage.port);
        stage.client.must(&format!("begins a {target} 900"))?;
        let mut second = Actor::start(ACTOR, &stage.topology.client, Some(&stage.cgroup))?;
        second.must(&format!("begins a {target} 900"))?;
        let held = stage.watch.handle.occupancy().context("nothing is loaded")?;
        // On a slow machine the first may be over before the last begins.
        stage.watch.settle().await?;
        let over = stage.watch.counted(netns, |what| matches!(what, Counted::Failed(_)));
        ensure!(held.connecting > 900 && held.connecting as u64 + over >= 1800, "{held:?}, {over} are over");
        // The kernel's own count: a program is not run where it would interrupt itself, nor, on some hosts, over tasks of the
        // hypervisor. Whose end it did not see it tells when the socket is closed.
        let snmp = format!("/proc/{}/net/snmp", stage.client.pid());
        let over = || attempts_over(&std::fs::read_to_string(&snmp).unwrap_or_default()) >= 1800;
        stage.watch.until_in(Duration::from_secs(60), "all time-outs", |_| over()).await?;
        stage.watch.settle().await?;
        ensure!(stage.watch.counted(netns, |what| matches!(what, Counted::Failed(_))) > 0);
        stage.client.must("closes a 900")?;
        drop(second);
        stage.until_told(SOON, "begun 1800, attempt no_answer_kernel 1800, retransmitted").await?;
        stage.finish().await
    })
}

/// `AttemptFails` of `/proc/net/snmp`: connects that went from SYN-SENT straight to CLOSE; 0 when it is not there.
fn attempts_over(snmp: &str) -> u64 {
    let mut tcp = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: ")).map(str::split_whitespace);
    let (Some(names), Some(values)) = (tcp.next(), tcp.next()) else { return 0 };
    names.zip(values).find(|(name, _)| *name == "AttemptFails").and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[test]
fn counters_stay_exact_while_four_processes_fail_and_nobody_reads_the_details() -> Result<()> {
    /// Dials of each process.
    const EACH: u64 = 5000;
    /// At least this long nobody reads.
    const UNREAD: Duration = Duration::from_secs(2);
    run(async || {
        // As many details as happen, into the smallest buffer, which nobody empties: this thread is its reader.
        let mut stage =
            Stage::with(|settings| Settings { details_per_second: u32::MAX, ring_bytes: 64 * 1024, ..settings })?;
        let netns = stage.netns()?;
        let target = at(Topology::SERVER_V4, stage.port);
        let mut others = Vec::new();
        for _ in 1..4 {
            others.push(Actor::start(ACTOR, &stage.topology.client, Some(&stage.cgroup))?);
        }
        let begun = Instant::now();
        let command = format!("dials {target} {EACH}");
        let mut processes: Vec<_> = others.iter_mut().chain([&mut stage.client]).collect();
        for process in &mut processes {
            process.give(&command)?;
        }
        for process in &mut processes {
            ensure!(process.answer(&command)? == Ok(format!("111:{EACH}")));
        }
        std::thread::sleep(UNREAD.saturating_sub(begun.elapsed()));
        let all = 4 * EACH;
        stage
            .until_told(Duration::from_secs(10), &format!("begun {all}, attempt refused {all}, reset received {all}"))
            .await?;
        let w = &stage.watch;
        let stats = w.stats()?;
        for kind in [kind::BEGUN, kind::FAILED, kind::RESET_RECEIVED] {
            let totals = stats.kinds[usize::from(kind)];
            ensure!(totals.seen == all && totals.emitted + totals.lost == all && totals.limited == 0, "{totals:?}");
        }
        let lost = stats.sum(|k| k.lost);
        ensure!(lost > 0, "the case must overflow the buffer");
        let told: u64 = w.losses.iter().filter(|loss| !loss.counters).map(|loss| loss.lost).sum();
        ensure!(told == lost, "told {told}, lost {lost}");
        // Where programs can be preempted (PREEMPT_RT), the kernel misses what comes meanwhile on that CPU. It says how often,
        // not of what, so that is told as loss; here none of it was a dial of these.
        let missed: u64 = stats.programs.iter().map(|program| program.missed).sum();
        let inexact: u64 = w.losses.iter().filter(|loss| loss.counters).map(|loss| loss.lost).sum();
        ensure!(inexact <= missed, "{missed} missed, told {:?}", w.losses);
        ensure!(w.events.len() as u64 == stats.sum(|k| k.emitted), "{} details arrived", w.events.len());
        ensure!(w.events_of(netns).all(|event| event.remote == target));
        let held = w.handle.occupancy().context("nothing is loaded")?;
        ensure!(held.connecting == 0 && held.established == 0, "left in the maps: {held:?}");
        Ok(())
    })
}

#[test]
fn an_end_that_was_missed_is_told_when_the_socket_is_destroyed() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.topology.blackhole()?;
        stage.client.must(&format!("begin a {}", at(Topology::SERVER_V4, stage.port)))?;
        stage.watch.until("the dial", |w| w.counted(netns, |what| *what == Counted::Begun) == 1).await?;
        // The refusal comes while the programs look away; the socket is closed after.
        stage.watch.handle.set_ports(&[])?;
        stage.topology.lift_blackhole()?;
        stage.client.must("poll a 5000")?;
        ensure!(stage.watch.counted(netns, |what| matches!(what, Counted::Failed(_))) == 0);
        stage.watch.handle.set_ports(&[stage.port])?;
        stage.client.must("close a")?;
        stage
            .watch
            .until("the end", |w| w.counted(netns, |what| matches!(what, Counted::Failed(e) if e.error == 111)) == 1)
            .await?;
        ensure!(stage.watch.stats()?.kinds[usize::from(kind::FAILED)].recovered == 1);
        stage.finish().await
    })
}

#[test]
fn others_cannot_take_the_room_of_the_selected() -> Result<()> {
    run(async || {
        let mut stage = Stage::with(|settings| Settings { selected_keys: Some(1024), ..settings })?;
        let netns = stage.netns()?;
        // Nobody is selected: everybody shares what is left, and is summed when that is full.
        stage.watch.handle.select(&Selected::default())?;
        stage.topology.client.ip(&["route", "add", "local", "10.252.0.0/16", "dev", "lo"])?;
        for host in 0..400 {
            let target = at(std::net::Ipv4Addr::new(10, 252, (host / 200) as u8, (host % 200 + 1) as u8), stage.port);
            ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        }
        stage.watch.settle().await?;
        let w = &stage.watch;
        let exact = w.counted(netns, |what| matches!(what, Counted::Failed(_)));
        let summed: u64 = w
            .counts
            .iter()
            .filter(|((_, owner, _, what), _)| owner.is_none() && matches!(what, Counted::Failed(_)))
            .map(|(_, count)| count.added)
            .sum();
        ensure!(exact + summed == 400 && summed > 0, "{exact} exact, {summed} summed");
        ensure!(w.losses.is_empty(), "sums are no loss: {:?}", w.losses);
        // The judged pod still has its own room.
        stage.watch.handle.select(&Selected { cgroups: vec![], netns: vec![storewatch_core::id::NetnsId(netns)] })?;
        let target = at(Topology::SERVER_V4, stage.port);
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        stage
            .watch
            .until("the pod's own failure", |w| {
                w.counts.iter().any(|((_, owner, remote, what), _)| {
                    *owner == Some(storewatch_core::id::NetnsId(netns))
                        && *remote == target
                        && matches!(what, Counted::Failed(_))
                })
            })
            .await?;
        Ok(())
    })
}
