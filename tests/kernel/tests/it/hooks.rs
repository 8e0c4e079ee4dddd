//! Each hook once, with the events and counters it must give and those it must not.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use storewatch::netns::topology::Topology;
use storewatch::source::kernel::loader::Tier;
use storewatch_core::{
    connection::{ConnectionChange, Counted, TcpState},
    source::{SourceName, SourceState},
};
use storewatch_ebpf_common::counters::kind;
use storewatch_tests_kernel::{Actor, at};

use crate::stage::{ACTOR, Stage, run};

#[test]
fn every_hook_is_active_on_this_kernel() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.watch.settle().await?;
        let (calls, rest): (Vec<_>, Vec<_>) =
            stage.watch.handle.hooks().iter().partition(|hook| hook.tier == Tier::Calls);
        ensure!(rest.len() == 7 && rest.iter().all(|hook| hook.missing.is_none()), "{rest:?}");
        let report = stage.watch.reports.iter().find(|r| r.source == SourceName::Kernel).context("no report")?;
        ensure!(report.state == SourceState::Active, "{report:?}");
        // A kernel without function tracing says what stays unseen, and why; any other has nothing to say.
        let missing = calls.iter().filter_map(|hook| hook.missing.as_deref()).next();
        ensure!(calls.len() == 2 && report.detail.is_empty() == missing.is_none(), "{calls:?} {report:?}");
        if let Some(reason) = missing {
            ensure!(report.detail.contains("AttemptsNotObservable") && report.detail.contains(reason), "{report:?}");
        }
        Ok(())
    })
}

#[test]
fn the_verifier_is_soon_done_with_every_program() -> Result<()> {
    /// The kernel gives up at a million. What an old verifier needs grows with every branch; this leaves room for others.
    const LIMIT: u64 = 100_000;
    run(async || {
        let stage = Stage::new()?;
        let mut verified = Vec::new();
        for descriptor in std::fs::read_dir("/proc/self/fdinfo")?.flatten() {
            let text = std::fs::read_to_string(descriptor.path()).unwrap_or_default();
            let number = |key: &str| -> Option<u64> {
                text.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
            };
            if let (Some(id), Some(count)) = (number("prog_id:"), number("verified_insns:")) {
                verified.push((id, count));
            }
        }
        verified.sort_unstable();
        verified.dedup();
        println!("instructions verified, program by program: {verified:?}");
        ensure!(verified.len() == stage.watch.handle.hooks().iter().filter(|hook| hook.missing.is_none()).count());
        ensure!(verified.iter().all(|(_, count)| *count < LIMIT), "{verified:?}");
        Ok(())
    })
}

#[test]
fn refused_by_each_family() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let (netns, port) = (stage.netns()?, stage.port);
        for ip in Topology::server_addresses() {
            let target = at(ip, port);
            ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
            ensure!(stage.client.tell(&format!("dial b {target} 2000"))? == Err(111));
        }
        stage.watch.until("6 refusals", |w| w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 6).await?;
        stage.watch.settle().await?;
        let w = &stage.watch;
        let failed = |e: &storewatch_core::connection::KernelEvidence| {
            e.error == 111 && e.from == Some(TcpState::SynSent) && e.reset_received && e.retransmits == 0
        };
        ensure!(w.counted(netns, |what| matches!(what, Counted::Failed(e) if failed(e))) == 6, "{:#?}", w.counts);
        ensure!(w.counted(netns, |what| *what == Counted::Begun) == 6);
        ensure!(w.counted(netns, |what| *what == Counted::ResetsReceived) == 6);
        ensure!(w.counted(netns, |what| *what == Counted::Established) == 0);
        ensure!(w.counted(netns, |what| matches!(what, Counted::Ended(_))) == 0);
        ensure!(w.counted(netns, |what| *what == Counted::Retransmits) == 0);
        ensure!(w.counted(netns, |what| *what == Counted::ResetsSent) == 0);
        // IPv4 through an IPv6 socket is the same target as IPv4.
        let v4 = at(Topology::SERVER_V4, port);
        let to_v4 = w.events_of(netns).filter(|e| e.remote == v4 && e.what == ConnectionChange::Begun).count();
        ensure!(to_v4 == 4, "{to_v4} dials to {v4}");
        stage.told("begun 6, attempt refused 6, reset received 6").await?;
        stage.finish().await
    })
}

#[test]
fn success_counts_no_failure() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let (netns, port) = (stage.netns()?, stage.port);
        for (n, ip) in Topology::server_addresses().into_iter().enumerate().take(2) {
            let target = at(ip, port);
            stage.server.must(&format!("listen l{n} {target}"))?;
            stage.client.must(&format!("dial a{n} {target} 2000"))?;
            stage.server.must(&format!("accept s{n} l{n}"))?;
            stage.client.must(&format!("send a{n} 100"))?;
            stage.server.must(&format!("recv s{n} 100 2000"))?;
            stage.server.must(&format!("send s{n} 1000"))?;
            stage.client.must(&format!("recv a{n} 1000 2000"))?;
            stage.client.must(&format!("close a{n}"))?;
            stage.server.must(&format!("recv s{n} 1 2000"))?;
            stage.server.must(&format!("close s{n}"))?;
        }
        stage.watch.until("2 ends", |w| w.counted(netns, |what| matches!(what, Counted::Ended(_))) == 2).await?;
        stage.watch.settle().await?;
        let w = &stage.watch;
        ensure!(w.counted(netns, |what| *what == Counted::Begun) == 2);
        ensure!(w.counted(netns, |what| *what == Counted::Established) == 2);
        ensure!(w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 0);
        ensure!(w.counted(netns, |what| matches!(what, Counted::ResetsReceived | Counted::ResetsSent)) == 0);
        ensure!(w.counted(netns, |what| *what == Counted::Retransmits) == 0);
        for event in w.events_of(netns) {
            if let ConnectionChange::Ended { bytes_received, begun, evidence } = event.what {
                ensure!(bytes_received == Some(1000), "{event:?}");
                ensure!(begun.is_some() && evidence.error == 0 && !evidence.unanswered, "{event:?}");
            }
        }
        stage.told("begun 2, established 2, end closed 2").await?;
        stage.finish().await
    })
}

#[test]
fn an_unwatched_port_counts_nothing() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        let target = at(Topology::SERVER_V4, stage.port + 12_000);
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        stage.watch.settle().await?;
        ensure!(stage.watch.events_of(netns).count() == 0);
        ensure!(stage.watch.counted(netns, |_| true) == 0);
        // Watched from now on, the same dial counts.
        stage.watch.handle.set_ports(&[stage.port, target.port()])?;
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        stage.watch.until("a failure", |w| w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 1).await?;
        stage.finish().await
    })
}

#[test]
fn a_blackhole_shows_the_syn_sent_again_and_the_application_giving_up() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let (netns, port) = (stage.netns()?, stage.port);
        stage.topology.blackhole()?;
        let target = at(Topology::SERVER_V4, port);
        stage.client.must(&format!("begin a {target}"))?;
        stage.watch.until("a SYN sent again", |w| w.counted(netns, |what| *what == Counted::Retransmits) >= 1).await?;
        ensure!(stage.watch.counted(netns, |what| matches!(what, Counted::Failed(_))) == 0, "still dialling");
        stage.client.must("close a")?;
        stage.watch.until("the end", |w| w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 1).await?;
        stage.told("begun 1, attempt no_answer_given_up 1, retransmitted").await?;
        let w = &stage.watch;
        let given_up = w.counted(netns, |what| {
            matches!(what, Counted::Failed(e) if e.error == 0 && e.retransmits >= 1 && e.in_process && !e.reset_received)
        });
        ensure!(given_up == 1, "{:#?}", w.counts);
        ensure!(w.counted(netns, |what| *what == Counted::Established) == 0);
        ensure!(
            w.events_of(netns).any(|e| matches!(e.what, ConnectionChange::Retransmit { state: TcpState::SynSent, .. }))
        );
        stage.finish().await
    })
}

#[test]
fn the_kernel_gives_up_in_softirq_and_the_pod_is_known_all_the_same() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let (netns, port) = (stage.netns()?, stage.port);
        stage.topology.blackhole()?;
        stage.topology.client.sysctl("ipv4.tcp_syn_retries", "1")?;
        stage.client.must(&format!("begin a {}", at(Topology::SERVER_V4, port)))?;
        stage
            .watch
            .until_in(Duration::from_secs(10), "the time-out", |w| {
                w.counted(netns, |what| matches!(what, Counted::Failed(e) if e.error == 110 && e.retransmits >= 1)) == 1
            })
            .await?;
        stage.told("begun 1, attempt no_answer_kernel 1, retransmitted").await?;
        stage.finish().await
    })
}

#[test]
fn an_icmp_reject_is_seen_though_the_socket_closes_without_error() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let (netns, port) = (stage.netns()?, stage.port);
        stage.topology.router.nft(&format!(
"table inet swk {{\nchain f {{\ntype filter hook forward priority 0;\nip daddr {} reject with icmp port-unreachable\n}}\n}}\n",
            Topology::SERVER_V4
        ))?;
        let target = at(Topology::SERVER_V4, port);
        let errno = stage.client.tell(&format!("dial a {target} 3000"))?;
        ensure!(errno == Err(111), "{errno:?}");
        stage.client.must("close a")?;
        stage.watch.until("the end", |w| w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 1).await?;
        stage.told("begun 1, attempt icmp_unreachable 1, retransmitted?").await?;
        let w = &stage.watch;
        let icmp = w.counted(
            netns,
            |what| matches!(what, Counted::Failed(e) if e.error == 0 && e.reported.is_some() && !e.reset_received),
        );
        ensure!(icmp == 1, "{:#?}", w.counts);
        ensure!(w.counted(netns, |what| *what == Counted::ResetsReceived) == 0);
        ensure!(
            w.events_of(netns)
                .any(|e| matches!(e.what, ConnectionChange::ErrorReported { state: TcpState::SynSent, .. }))
        );
        stage.finish().await
    })
}

#[test]
fn a_reset_received_and_a_reset_sent() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let (netns, port) = (stage.netns()?, stage.port);
        let target = at(Topology::SERVER_V4, port);
        stage.server.must(&format!("listen l {target}"))?;
        // The server aborts.
        stage.client.must(&format!("dial a {target} 2000"))?;
        stage.server.must("accept s l")?;
        stage.server.must("linger s")?;
        stage.server.must("close s")?;
        stage.watch.until("a reset", |w| w.counted(netns, |what| *what == Counted::ResetsReceived) == 1).await?;
        stage
            .watch
            .until("its end", |w| {
                w.counted(netns, |what| matches!(what, Counted::Ended(e) if e.error == 104 && e.reset_received)) == 1
            })
            .await?;
        ensure!(stage.watch.counted(netns, |what| *what == Counted::ResetsSent) == 0);
        // The client aborts.
        stage.client.must(&format!("dial b {target} 2000"))?;
        stage.client.must("linger b")?;
        stage.client.must("close b")?;
        stage.watch.until("a reset", |w| w.counted(netns, |what| *what == Counted::ResetsSent) == 1).await?;
        stage.watch.settle().await?;
        let w = &stage.watch;
        ensure!(w.counted(netns, |what| *what == Counted::ResetsReceived) == 1);
        ensure!(w.counted(netns, |what| *what == Counted::Established) == 2);
        ensure!(w.counted(netns, |what| matches!(what, Counted::Failed(_))) == 0);
        ensure!(w.counted(netns, |what| matches!(what, Counted::Ended(_))) == 2);
        stage.told("begun 2, established 2, end reset 1, end closed 1, reset received 1, reset sent 1").await?;
        stage.finish().await
    })
}

#[test]
fn a_server_on_the_same_node_is_not_the_client() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let (netns, port) = (stage.netns()?, stage.port);
        // Client and server in one namespace: the server's transitions run in the client's own call.
        let mut server = Actor::start(ACTOR, &stage.topology.client, None)?;
        let target = at(std::net::Ipv4Addr::LOCALHOST, port);
        server.must(&format!("listen l {target}"))?;
        stage.client.must(&format!("block a {target}"))?;
        server.must("accept s l")?;
        stage.client.must("close a")?;
        server.must("recv s 1 2000")?;
        server.must("close s")?;
        stage.watch.until("the end", |w| w.counted(netns, |what| matches!(what, Counted::Ended(_))) == 1).await?;
        stage.watch.settle().await?;
        let w = &stage.watch;
        ensure!(w.counted(netns, |what| *what == Counted::Begun) == 1);
        ensure!(w.counted(netns, |what| *what == Counted::Established) == 1);
        ensure!(w.events_of(netns).all(|e| e.remote == target), "{:#?}", w.events);
        stage.told("begun 1, established 1, end closed 1").await?;
        stage.finish().await
    })
}

#[test]
fn own_sockets_are_no_evidence() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let target = at(Topology::SERVER_V4, stage.port);
        let netns = stage.netns()?;
        let refused = stage.topology.client.enter(move || std::net::TcpStream::connect(target).is_err())?;
        ensure!(refused);
        stage.watch.settle().await?;
        ensure!(stage.watch.events_of(netns).count() == 0, "{:?}", stage.watch.events);
        ensure!(stage.watch.counted(netns, |_| true) == 0);
        let stats = stage.watch.stats()?;
        ensure!(stats.kinds[usize::from(kind::BEGUN)].filtered == 1, "{stats:?}");
        ensure!(stats.sum(|k| k.seen) == 0, "{stats:?}");
        stage.told("nothing").await?;
        stage.finish().await
    })
}
