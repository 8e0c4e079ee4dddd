//! Ways in which connections end that look alike and are not: for each the evidence the kernel leaves.

use anyhow::{Result, ensure};
use std::time::Duration;
use storewatch::netns::{Namespace, cgroup::Cgroup, topology::Topology};
use storewatch_core::{
    connection::{ConnectionChange, Counted, KernelEvidence, TcpState},
    id::CgroupId,
};
use storewatch_tests_kernel::{Actor, PREFIX, Watch, at};

use crate::stage::{ACTOR, Stage, run};

/// Longest time for what the kernel decides after several retransmissions.
const GIVES_UP: Duration = Duration::from_secs(30);

fn failed(watch: &Watch, netns: u32, fits: impl Fn(&KernelEvidence) -> bool) -> u64 {
    watch.counted(netns, |what| matches!(what, Counted::Failed(e) if fits(e)))
}

fn ended(watch: &Watch, netns: u32, fits: impl Fn(&KernelEvidence) -> bool) -> u64 {
    watch.counted(netns, |what| matches!(what, Counted::Ended(e) if fits(e)))
}

impl Stage {
    /// One established connection `a` to the server, which knows it as `s`.
    pub(crate) fn connected(&mut self) -> Result<()> {
        let target = at(Topology::SERVER_V4, self.port);
        self.server.must(&format!("listen l {target}"))?;
        self.client.must(&format!("dial a {target} 2000"))?;
        self.server.must("accept s l")?;
        Ok(())
    }
}

#[test]
fn a_thousand_connections_closed_at_once_by_both_are_successes() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        let target = at(Topology::SERVER_V4, stage.port);
        stage.server.must(&format!("listen l {target}"))?;
        for _ in 0..10 {
            ensure!(stage.client.must(&format!("dials {target} 100"))? == "0:100");
            stage.server.must("accepts s l 100")?;
            stage.server.must("closes s 100")?;
        }
        stage.watch.until("1000 ends", |w| ended(w, netns, |_| true) == 1000).await?;
        stage.watch.settle().await?;
        let w = &stage.watch;
        ensure!(w.counted(netns, |what| *what == Counted::Begun) == 1000);
        ensure!(w.counted(netns, |what| *what == Counted::Established) == 1000);
        ensure!(failed(w, netns, |_| true) == 0, "{:#?}", w.counts);
        ensure!(
            ended(w, netns, |e| e.error == 0 && !e.reset_received && e.reset_sent.is_none()) == 1000,
            "{:#?}",
            w.counts
        );
        stage.told("begun 1000, established 1000, end closed 1000").await?;
        stage.finish().await
    })
}

#[test]
fn a_second_connect_on_the_same_socket_is_the_same_attempt() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        let target = at(Topology::SERVER_V4, stage.port);
        stage.server.must(&format!("listen l {target}"))?;
        stage.client.must(&format!("begin a {target}"))?;
        stage.client.must("outcome a 2000")?;
        let again = stage.client.tell(&format!("again a {target}"))?;
        ensure!(again.is_ok() || again == Err(libc::EISCONN), "{again:?}");
        stage.client.must("close a")?;
        stage.watch.settle().await?;
        let w = &stage.watch;
        ensure!(w.counted(netns, |what| *what == Counted::Begun) == 1);
        ensure!(w.counted(netns, |what| *what == Counted::Established) == 1);
        ensure!(failed(w, netns, |_| true) == 0);
        stage.server.must("accept s l")?;
        stage.server.must("close s")?;
        stage.watch.until("the end", |w| ended(w, netns, |_| true) == 1).await?;
        stage.told("begun 1, established 1, end closed 1").await?;
        stage.finish().await
    })
}

#[test]
fn a_router_without_a_route_gives_host_or_net_unreachable() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        let router = &stage.topology.router;
        router.ip(&["route", "add", "unreachable", &format!("{}/32", Topology::SERVER_V4)])?;
        router.ip(&["-6", "route", "add", "unreachable", &format!("{}/128", Topology::SERVER_V6)])?;
        let (v4, v6) = (at(Topology::SERVER_V4, stage.port), at(Topology::SERVER_V6, stage.port));
        ensure!(stage.client.tell(&format!("block a {v4}"))? == Err(libc::EHOSTUNREACH));
        let outcome = stage.client.tell(&format!("dial b {v6} 8000"))?;
        ensure!(outcome.is_err(), "{outcome:?}");
        stage.client.must("close b")?;
        stage.watch.until("2 failures", |w| failed(w, netns, |_| true) == 2).await?;
        let w = &stage.watch;
        let unreachable = |e: &KernelEvidence| {
            [e.error, e.soft_error, e.reported.unwrap_or(0)].iter().any(|errno| [101, 113].contains(errno))
                || e.reported == Some(0)
        };
        ensure!(failed(w, netns, |e| unreachable(e) && !e.reset_received) == 2, "{:#?}", w.counts);
        ensure!(w.counted(netns, |what| *what == Counted::Established) == 0);
        stage.finish().await
    })
}

#[test]
fn keepalive_gives_up_on_an_idle_connection_without_a_retransmission() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.connected()?;
        stage.client.must("keepalive a 1 2")?;
        stage.topology.blackhole()?;
        stage.watch.until_in(GIVES_UP, "the end", |w| ended(w, netns, |e| e.error == 110) == 1).await?;
        stage.watch.settle().await?;
        let w = &stage.watch;
        ensure!(ended(w, netns, |e| !e.unanswered && e.from == Some(TcpState::Established)) == 1, "{:#?}", w.counts);
        ensure!(w.counted(netns, |what| *what == Counted::Retransmits) == 0);
        ensure!(w.counted(netns, |what| *what == Counted::ResetsSent) == 1);
        ensure!(failed(w, netns, |_| true) == 0, "a held connection that dies is no failed dial");
        let keepalive = w.events_of(netns).any(|e| {
            matches!(
                e.what,
                ConnectionChange::ResetSent { reason: Some(15), .. } | ConnectionChange::ResetSent { reason: None, .. }
            )
        });
        ensure!(keepalive, "{:#?}", w.events);
        stage.told("begun 1, established 1, end keepalive_dead 1, reset sent 1").await?;
        stage.finish().await
    })
}

#[test]
fn data_without_an_answer_is_sent_again_until_the_kernel_gives_up() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.connected()?;
        stage.topology.blackhole()?;
        stage.client.must("send a 10")?;
        stage
            .watch
            .until_in(Duration::from_secs(3), "data sent again", |w| {
                w.events_of(netns)
                    .any(|e| matches!(e.what, ConnectionChange::Retransmit { state: TcpState::Established, .. }))
            })
            .await?;
        ensure!(ended(&stage.watch, netns, |_| true) == 0, "still held");
        stage
            .watch
            .until_in(GIVES_UP, "the end", |w| {
                ended(w, netns, |e| e.error == 110 && e.retransmits >= 3 && e.unanswered) == 1
            })
            .await?;
        ensure!(failed(&stage.watch, netns, |_| true) == 0);
        stage.told("begun 1, established 1, end user_timeout 1, retransmitted").await?;
        stage.finish().await
    })
}

#[test]
fn a_user_timeout_ends_it_sooner() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.connected()?;
        stage.client.must("user_timeout a 1000")?;
        stage.topology.blackhole()?;
        stage.client.must("send a 10")?;
        stage.watch.until_in(GIVES_UP, "the end", |w| ended(w, netns, |e| e.error == 110 && e.unanswered) == 1).await?;
        stage.told("begun 1, established 1, end user_timeout 1, retransmitted").await?;
        stage.finish().await
    })
}

#[test]
fn a_peer_replaced_under_the_same_address_answers_with_a_reset() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.connected()?;
        // The old server vanishes without a word, and another takes its address.
        stage.topology.server.ip(&["link", "set", "eth0", "down"])?;
        stage.server.kill();
        let heir = Namespace::create(PREFIX, "h")?;
        stage.topology.router.ip(&["link", "del", "rt1"])?;
        heir.ip(&[
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            "name",
            "rt2",
            "netns",
            stage.topology.router.name(),
        ])?;
        heir.ip(&["addr", "add", "10.251.2.2/24", "dev", "eth0"])?;
        heir.ip(&["link", "set", "eth0", "up"])?;
        heir.ip(&["route", "add", "default", "via", "10.251.2.1"])?;
        stage.topology.router.ip(&["addr", "add", "10.251.2.1/24", "dev", "rt2"])?;
        stage.topology.router.ip(&["link", "set", "rt2", "up"])?;
        stage.client.must("send a 10")?;
        stage
            .watch
            .until_in(GIVES_UP, "the reset", |w| ended(w, netns, |e| e.error == 104 && e.reset_received) == 1)
            .await?;
        ensure!(stage.watch.counted(netns, |what| *what == Counted::ResetsReceived) == 1);
        ensure!(failed(&stage.watch, netns, |_| true) == 0);
        stage.told("begun 1, established 1, end reset 1, reset received 1, retransmitted?").await?;
        stage.finish().await
    })
}

#[test]
fn the_peer_closes_first_and_the_end_says_so() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.connected()?;
        stage.server.must("send s 5")?;
        stage.client.must("recv a 5 2000")?;
        stage.server.must("close s")?;
        ensure!(stage.client.must("recv a 5 2000")? == "0");
        stage.client.must("close a")?;
        stage
            .watch
            .until("the end", |w| ended(w, netns, |e| e.from == Some(TcpState::LastAck) && e.error == 0) == 1)
            .await?;
        stage.told("begun 1, established 1, end peer_closed 1").await?;
        let received = stage.watch.events_of(netns).find_map(|e| match e.what {
            ConnectionChange::Ended { bytes_received, .. } => Some(bytes_received),
            _ => None,
        });
        ensure!(received == Some(Some(5)), "the FIN is no payload: {received:?}");
        stage.finish().await
    })
}

#[test]
fn unread_data_at_close_sends_a_reset_and_is_no_failure() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.connected()?;
        stage.server.must("send s 5")?;
        // Arrived, not read.
        stage.client.must("recv a 0 2000")?;
        stage.client.must("close a")?;
        stage.watch.until("a reset", |w| w.counted(netns, |what| *what == Counted::ResetsSent) == 1).await?;
        stage.watch.until("the end", |w| ended(w, netns, |e| e.error == 0) == 1).await?;
        ensure!(failed(&stage.watch, netns, |_| true) == 0);
        stage.told("begun 1, established 1, end closed 1, reset sent 1").await?;
        stage.finish().await
    })
}

#[test]
fn a_dead_address_on_the_own_link_is_host_unreachable() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.topology.client.sysctl("ipv4.tcp_syn_retries", "6")?;
        let target = at(std::net::Ipv4Addr::new(10, 251, 1, 77), stage.port);
        stage.client.must(&format!("begin a {target}"))?;
        stage
            .watch
            .until_in(GIVES_UP, "the failure", |w| {
                failed(w, netns, |e| e.error == 113 || e.reported == Some(113) || e.soft_error == 113) == 1
            })
            .await?;
        ensure!(stage.watch.counted(netns, |what| *what == Counted::Established) == 0);
        stage.told("begun 1, attempt host_unreachable 1, retransmitted?").await?;
        stage.finish().await
    })
}

#[test]
fn without_a_source_port_nothing_was_sent() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.topology.client.sysctl("ipv4.ip_local_port_range", "41000 41000")?;
        stage.connected()?;
        let target = at(Topology::SERVER_V4, stage.port);
        ensure!(stage.client.tell(&format!("block b {target}"))? == Err(libc::EADDRNOTAVAIL));
        stage
            .watch
            .until("the failure", |w| failed(w, netns, |e| e.no_source_port && e.error == 0 && e.retransmits == 0) == 1)
            .await?;
        ensure!(stage.watch.counted(netns, |what| *what == Counted::Retransmits) == 0);
        stage.client.must("close a")?;
        stage.server.must("close s")?;
        stage.watch.until("the end", |w| ended(w, netns, |_| true) == 1).await?;
        stage.told("begun 2, established 1, attempt local_ports 1, end closed 1").await?;
        stage.finish().await
    })
}

#[test]
fn closed_before_anything_could_be_known_is_a_cancelled_attempt() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.topology.blackhole()?;
        stage.client.must(&format!("begin a {}", at(Topology::SERVER_V4, stage.port)))?;
        stage.client.must("close a")?;
        stage
            .watch
            .until("the end", |w| {
                failed(w, netns, |e| e.error == 0 && e.retransmits == 0 && e.in_process && e.reported.is_none()) == 1
            })
            .await?;
        stage.told("begun 1, attempt cancelled 1").await?;
        stage.finish().await
    })
}

#[test]
fn a_killed_process_leaves_its_dial_as_given_up() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let netns = stage.netns()?;
        stage.topology.blackhole()?;
        stage.client.must(&format!("begin a {}", at(Topology::SERVER_V4, stage.port)))?;
        stage.watch.until("a SYN sent again", |w| w.counted(netns, |what| *what == Counted::Retransmits) >= 1).await?;
        stage.client.kill();
        stage.watch.until("the end", |w| failed(w, netns, |e| e.error == 0 && e.retransmits >= 1) == 1).await?;
        stage.told("begun 1, attempt no_answer_given_up 1, retransmitted").await?;
        stage.finish().await
    })
}

#[test]
fn two_containers_in_one_namespace_are_told_apart_by_cgroup() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let other = Cgroup::create(&format!("{PREFIX}-{}-{}b/kubepods/podbbbb/c2", std::process::id(), stage.port))?;
        let mut neighbour = Actor::start(ACTOR, &stage.topology.client, Some(&other))?;
        let target = at(Topology::SERVER_V4, stage.port);
        ensure!(stage.client.tell(&format!("block a {target}"))? == Err(111));
        for _ in 0..2 {
            ensure!(neighbour.tell(&format!("block a {target}"))? == Err(111));
        }
        let (first, second) = (CgroupId(stage.cgroup.id()?), CgroupId(other.id()?));
        let of = |w: &Watch, cgroup: CgroupId| -> u64 {
            w.counts
                .iter()
                .filter(|((owner, _, _, what), _)| *owner == Some(cgroup) && matches!(what, Counted::Failed(_)))
                .map(|(_, count)| count.added)
                .sum()
        };
        stage.watch.until("3 failures", |w| of(w, first) == 1 && of(w, second) == 2).await?;
        neighbour.kill();
        Ok(())
    })
}
