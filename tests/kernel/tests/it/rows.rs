//! Rows of the kernel's own table that differ from the usual cases in one thing: who resets, who unreaches, who kills.

use anyhow::{Context as _, Result, ensure};
use std::{process::Command, time::Duration};
use storewatch::netns::{process::Process, topology::Topology};
use storewatch_core::connection::{ConnectionChange, Counted, KernelEvidence, TcpState};
use storewatch_tests_kernel::at;

use crate::stage::{Stage, run};

/// Longest time for what the kernel decides after several retransmissions.
const GIVES_UP: Duration = Duration::from_secs(30);

impl Stage {
    /// The evidence of the one attempt or connection that ended.
    fn evidence(&self) -> Result<KernelEvidence> {
        let netns = self.netns()?;
        let mut all = self.watch.events_of(netns).filter_map(|event| match event.what {
            ConnectionChange::Failed { evidence, .. } | ConnectionChange::Ended { evidence, .. } => Some(evidence),
            _ => None,
        });
        let evidence = all.next().context("nothing ended")?;
        ensure!(all.next().is_none(), "more than one ended: {:#?}", self.watch.events);
        Ok(evidence)
    }

    /// `nft` in the client's or the router's namespace: a chain at `hook` with one rule.
    fn rule(&self, at_router: bool, hook: &str, rule: &str) -> Result<()> {
        let namespace = if at_router { &self.topology.router } else { &self.topology.client };
        let table = "table inet swk {\nchain c {\ntype filter hook";
        Ok(namespace.nft(&format!("{table} {hook} priority 0;\n{rule}\n}}\n}}\n"))?)
    }

    /// Closes the client's sockets towards the server from outside, as `ss -K` does.
    fn kill_sockets(&self) -> Result<()> {
        let mut command = Command::new("ss");
        command.args(["-K", "-tn", "dst", &Topology::SERVER_V4.to_string()]).stdout(std::process::Stdio::null());
        let mut killer = Process::spawn(&mut command, &self.topology.client, None)?;
        let status = killer.child().wait()?;
        ensure!(status.success(), "ss -K: {status}");
        Ok(())
    }
}

#[test]
fn a_dial_begins_with_its_address_and_without_a_port() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        let target = at(Topology::SERVER_V4, stage.port);
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        stage.until_told(GIVES_UP, "begun 1, attempt refused 1, reset received 1").await?;
        let begun = stage.watch.events_of(netns).find(|e| e.what == ConnectionChange::Begun).context("no begin")?;
        ensure!(begun.remote == target && begun.local.port() == 0, "{begun:?}");
        ensure!(begun.owner.pid == Some(stage.client.pid()), "{begun:?}");
        let failed = stage.watch.events_of(netns).find(|e| matches!(e.what, ConnectionChange::Failed { .. }));
        ensure!(failed.is_some_and(|e| e.local.port() != 0), "the port is known at the end: {failed:?}");
        stage.finish().await
    })
}

#[test]
fn the_side_that_closes_first_ends_through_fin_wait() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.connected()?;
        stage.client.must("close a")?;
        stage.server.must("recv s 1 2000")?;
        stage.server.must("close s")?;
        stage.until_told(GIVES_UP, "begun 1, established 1, end closed 1").await?;
        let evidence = stage.evidence()?;
        ensure!(matches!(evidence.from, Some(TcpState::FinWait2 | TcpState::FinWait1)), "{evidence:?}");
        ensure!(evidence.error == 0 && !evidence.unanswered, "{evidence:?}");
        stage.finish().await
    })
}

#[test]
fn a_reset_after_the_peers_fin_is_a_broken_pipe() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.connected()?;
        stage.server.must("shut s")?;
        ensure!(stage.client.must("recv a 1 2000")? == "0", "the FIN has arrived");
        stage.server.must("linger s")?;
        stage.server.must("close s")?;
        stage.until_told(GIVES_UP, "begun 1, established 1, end reset 1, reset received 1").await?;
        let evidence = stage.evidence()?;
        ensure!(evidence.from == Some(TcpState::CloseWait) && evidence.error == 32, "{evidence:?}");
        stage.client.must("close a")?;
        stage.finish().await
    })
}

#[test]
fn a_socket_killed_from_outside_is_nobodys_fault_on_the_way() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.connected()?;
        stage.kill_sockets()?;
        stage.until_told(GIVES_UP, "begun 1, established 1, end killed_locally 1, reset sent 1").await?;
        let evidence = stage.evidence()?;
        ensure!(evidence.error == 103 && evidence.from == Some(TcpState::Established), "{evidence:?}");
        stage.client.must("close a")?;
        stage.finish().await
    })
}

#[test]
fn a_dial_killed_from_outside_is_no_failure_of_the_target() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.topology.blackhole()?;
        stage.client.must(&format!("begin a {}", at(Topology::SERVER_V4, stage.port)))?;
        stage.kill_sockets()?;
        stage.until_told(GIVES_UP, "begun 1, attempt killed_locally 1").await?;
        stage.client.must("close a")?;
        stage.finish().await
    })
}

#[test]
fn a_dial_closed_with_linger_zero_is_cancelled() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.topology.blackhole()?;
        stage.client.must(&format!("begin a {}", at(Topology::SERVER_V4, stage.port)))?;
        stage.client.must("linger a")?;
        stage.client.must("close a")?;
        stage.until_told(GIVES_UP, "begun 1, attempt cancelled 1").await?;
        let evidence = stage.evidence()?;
        ensure!(evidence.error == 0 && evidence.in_process && evidence.reset_sent.is_none(), "{evidence:?}");
        stage.finish().await
    })
}

#[test]
fn the_pods_own_firewall_rejects_while_the_socket_is_busy() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let port = stage.port;
        stage.rule(false, "output", &format!("tcp dport {port} reject with icmp port-unreachable"))?;
        let target = at(Topology::SERVER_V4, port);
        stage.client.must(&format!("begin a {target}"))?;
        let netns = stage.netns()?;
        stage
            .watch
            .until("the report", |w| {
                w.events_of(netns)
                    .any(|e| matches!(e.what, ConnectionChange::ErrorReported { state: TcpState::SynSent, .. }))
            })
            .await
            .or_else(|error| if stage.client.tell("poll a 3000")?.is_ok() { Ok(()) } else { Err(error) })?;
        stage.client.must("close a")?;
        stage.watch.until("the end", |w| w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 1).await?;
        let told = storewatch_tests_kernel::tally::Tally::of(&stage.watch, netns).to_string();
        ensure!(told.starts_with("begun 1, attempt icmp_unreachable 1"), "{told}: {:#?}", stage.watch.counts);
        stage.finish().await
    })
}

#[test]
fn a_router_that_forbids_is_host_unreachable_or_forbidden() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let target = at(Topology::SERVER_V4, stage.port);
        stage.rule(true, "forward", &format!("ip daddr {} reject with icmp admin-prohibited", target.ip()))?;
        let outcome = stage.client.tell(&format!("dial a {target} 3000"))?;
        ensure!(outcome == Err(libc::EHOSTUNREACH), "{outcome:?}");
        stage.client.must("close a")?;
        let netns = stage.netns()?;
        stage.watch.until("the end", |w| w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 1).await?;
        stage.watch.settle().await?;
        let told = storewatch_tests_kernel::tally::Tally::of(&stage.watch, netns).to_string();
        // The application took the error before it closed: kernels differ in what they leave for the end.
        let fits = ["begun 1, attempt icmp_unreachable 1", "begun 1, attempt host_unreachable 1"];
        ensure!(fits.iter().any(|fit| told.starts_with(fit)), "{told}: {:#?}", stage.watch.counts);
        ensure!(!told.contains("reset"), "{told}");
        stage.finish().await
    })
}

#[test]
fn a_reset_by_the_router_is_a_refusal() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let target = at(Topology::SERVER_V4, stage.port);
        stage.rule(true, "forward", &format!("tcp dport {} reject with tcp reset", target.port()))?;
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        stage.until_told(GIVES_UP, "begun 1, attempt refused 1, reset received 1").await?;
        stage.finish().await
    })
}

#[test]
fn a_router_without_a_route_for_ipv6_is_net_or_host_unreachable() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.topology.router.ip(&["-6", "route", "add", "unreachable", &format!("{}/128", Topology::SERVER_V6)])?;
        let target = at(Topology::SERVER_V6, stage.port);
        let outcome = stage.client.tell(&format!("dial a {target} 8000"))?;
        ensure!([Err(libc::ENETUNREACH), Err(libc::EHOSTUNREACH)].contains(&outcome), "{outcome:?}");
        stage.client.must("close a")?;
        let netns = stage.netns()?;
        stage.watch.until("the end", |w| w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 1).await?;
        stage.watch.settle().await?;
        let told = storewatch_tests_kernel::tally::Tally::of(&stage.watch, netns).to_string();
        let fits = ["begun 1, attempt net_unreachable 1", "begun 1, attempt host_unreachable 1"];
        ensure!(fits.iter().any(|fit| told.starts_with(fit)), "{told}: {:#?}", stage.watch.counts);
        stage.finish().await
    })
}

#[test]
fn a_dead_address_on_the_own_link_with_few_repetitions_may_be_a_plain_timeout() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.topology.client.sysctl("ipv4.tcp_syn_retries", "1")?;
        let target = at(std::net::Ipv4Addr::new(10, 251, 1, 78), stage.port);
        stage.client.must(&format!("begin a {target}"))?;
        stage
            .watch
            .until_in(GIVES_UP, "the end", |w| w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 1)
            .await?;
        stage.watch.settle().await?;
        let told = storewatch_tests_kernel::tally::Tally::of(&stage.watch, netns).to_string();
        let fits = ["begun 1, attempt no_answer_kernel 1", "begun 1, attempt host_unreachable 1"];
        ensure!(fits.iter().any(|fit| told.starts_with(fit)), "{told}: {:#?}", stage.watch.counts);
        stage.client.must("close a")?;
        stage.finish().await
    })
}
