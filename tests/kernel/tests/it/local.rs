//! Dials that never leave the pod: its own routing refuses them, and no tracepoint fires.
//!
//! Where the kernel can trace functions they are seen all the same. Elsewhere the source must say that it does not see
//! them, and must not have counted anything: silence is no health.

use anyhow::{Context as _, Result, ensure};
use std::{net::Ipv6Addr, time::Duration};
use storewatch::{netns::topology::Topology, source::kernel::loader::Tier};
use storewatch_core::{
    connection::{ConnectionChange, TcpState},
    source::SourceName,
};
use storewatch_tests_kernel::at;

use crate::stage::{Stage, run};

impl Stage {
    fn sees_calls(&self) -> bool {
        self.watch.handle.hooks().iter().all(|hook| hook.tier != Tier::Calls || hook.missing.is_none())
    }

    /// So many refusals, or the word that they cannot be seen.
    async fn refused_locally(&mut self, count: u32) -> Result<()> {
        if self.sees_calls() {
            return self.until_told(Duration::from_secs(5), &format!("attempt local_route {count}")).await;
        }
        self.told("nothing").await?;
        let mut reports = self.watch.reports.iter().rev();
        let last = reports.find(|report| report.source == SourceName::Kernel).context("no report")?;
        ensure!(last.detail.contains("AttemptsNotObservable"), "{last:?}");
        Ok(())
    }
}

#[test]
fn what_the_own_routing_refuses_is_seen_or_said_to_be_invisible() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let target = at(Topology::SERVER_V4, stage.port);
        let mapped = at(Topology::SERVER_V4.to_ipv6_mapped(), stage.port);
        let net = format!("{}/32", Topology::SERVER_V4);
        for (kind, errno) in
            [("blackhole", libc::EINVAL), ("unreachable", libc::EHOSTUNREACH), ("prohibit", libc::EACCES)]
        {
            stage.topology.client.ip(&["route", "add", kind, &net])?;
            for address in [target, mapped] {
                ensure!(stage.client.tell(&format!("block a {address}"))? == Err(errno), "{kind} {address}");
                ensure!(stage.client.tell(&format!("begin b {address}"))? == Err(errno), "{kind} {address}");
            }
            stage.topology.client.ip(&["route", "del", kind, &net])?;
        }
        // A mapped address is refused once, not once by each of the two functions that it passes.
        stage.refused_locally(12).await?;
        let netns = stage.netns()?;
        for event in stage.watch.events_of(netns) {
            ensure!(event.remote == target && event.owner.pid == Some(stage.client.pid()), "{event:?}");
            let ConnectionChange::Failed { evidence, begun } = event.what else { anyhow::bail!("{event:?}") };
            ensure!(evidence.from == Some(TcpState::Close) && evidence.in_process && begun.is_some(), "{event:?}");
            ensure!([22, 113, 13].contains(&evidence.error), "{event:?}");
        }
        stage.finish().await
    })
}

#[test]
fn the_same_for_ipv6() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let target = at(Topology::SERVER_V6, stage.port);
        let net = format!("{}/128", Topology::SERVER_V6);
        stage.topology.client.ip(&["-6", "route", "add", "unreachable", &net])?;
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(libc::EHOSTUNREACH));
        stage.refused_locally(1).await?;
        stage.finish().await
    })
}

#[test]
fn what_fails_after_the_begin_is_told_once() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        // No port to dial from: the call fails after the socket has left CLOSE and returned to it.
        stage.topology.client.sysctl("ipv4.ip_local_port_range", "41000 41000")?;
        stage.connected()?;
        let target = at(Topology::SERVER_V4, stage.port);
        for _ in 0..3 {
            ensure!(stage.client.tell(&format!("block b {target}"))? == Err(libc::EADDRNOTAVAIL));
        }
        stage.until_told(Duration::from_secs(5), "begun 4, established 1, attempt local_ports 3").await?;
        stage.client.must("close a")?;
        stage.server.must("recv s 1 2000")?;
        stage.server.must("close s")?;
        stage.until_told(Duration::from_secs(5), "begun 4, established 1, attempt local_ports 3, end closed 1").await?;
        stage.finish().await
    })
}

#[test]
fn a_dial_that_goes_out_after_one_that_could_not_is_an_attempt_of_its_own() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let target = at(Topology::SERVER_V4, stage.port);
        let net = format!("{}/32", Topology::SERVER_V4);
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        stage.topology.client.ip(&["route", "add", "unreachable", &net])?;
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(113));
        stage.topology.client.ip(&["route", "del", "unreachable", &net])?;
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        let seen = if stage.sees_calls() { ", attempt local_route 1" } else { "" };
        stage
            .until_told(Duration::from_secs(5), &format!("begun 2, attempt refused 2{seen}, reset received 2"))
            .await?;
        stage.finish().await
    })
}

#[test]
fn unwatched_ports_and_other_addresses_stay_nobodys_business() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.topology.client.ip(&["route", "add", "unreachable", "10.253.0.0/16"])?;
        let elsewhere = at(std::net::Ipv4Addr::new(10, 253, 0, 1), stage.port + 12_000);
        ensure!(stage.client.tell(&format!("block a {elsewhere}"))? == Err(113));
        let nowhere = at(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9), stage.port + 12_000);
        ensure!(stage.client.tell(&format!("block a {nowhere}"))?.is_err());
        stage.told("nothing").await?;
        stage.finish().await
    })
}
