//! What exists without an event.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use storewatch::{
    netns::topology::Topology,
    source::{inventory::proc_net, kernel::Settings},
};
use storewatch_core::{
    connection::{ConnectionChange, InventorySample, SocketSample, TcpState},
    id::{CgroupId, NetnsId},
    request::Request,
};
use storewatch_tests_kernel::{at, patience};

use crate::stage::{Stage, run};

fn of(sample: &InventorySample, netns: u32) -> Vec<SocketSample> {
    sample.sockets.iter().filter(|socket| socket.owner.netns == Some(NetnsId(netns))).copied().collect()
}

impl Stage {
    /// A fresh reading of the client's sockets.
    async fn sample(&mut self) -> Result<Vec<SocketSample>> {
        // One may be under way; the one after it is fresh for certain.
        for _ in 0..2 {
            let seen = self.watch.inventories.len();
            self.watch.request(Request::Inventory);
            self.watch.until("an inventory", |w| w.inventories.len() > seen).await?;
        }
        let netns = self.netns()?;
        Ok(of(self.watch.inventories.last().context("no inventory")?, netns))
    }
}

/// Five minutes after the boot the kernel's ticks do not tell how long one is, see `source::kernel::ticks`.
fn blind() -> Result<bool> {
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let seconds: f64 = uptime.split(' ').next().context("no uptime")?.parse()?;
    Ok((265.0..335.0).contains(&seconds))
}

#[test]
fn a_connection_is_found_with_its_owner_and_its_bytes() -> Result<()> {
    found_with_its_owner_and_its_bytes(true, "sockets")
}

#[test]
fn a_connection_is_found_where_the_verifier_refuses_plain_loads() -> Result<()> {
    found_with_its_owner_and_its_bytes(false, "sockets_checked")
}

fn found_with_its_owner_and_its_bytes(plain_loads: bool, program: &str) -> Result<()> {
    run(async || {
        let mut stage = Stage::with(|settings| Settings { plain_loads, ..settings })?;
        stage.connected()?;
        let loaded = stage.watch.stats()?.programs;
        ensure!(loaded.iter().any(|loaded| loaded.name == program), "{program} is not loaded: {loaded:?}");
        stage.server.must("send s 100")?;
        stage.client.must("recv a 100 2000")?;
        stage.client.must("send a 40")?;
        stage.server.must("recv s 40 2000")?;
        let sockets = stage.sample().await?;
        let [socket] = sockets.as_slice() else { anyhow::bail!("{sockets:#?}") };
        ensure!(socket.owner.cgroup == Some(CgroupId(stage.cgroup.id()?)), "{socket:?}");
        ensure!(socket.owner.pid == Some(stage.client.pid()), "{socket:?}");
        ensure!(socket.remote == at(Topology::SERVER_V4, stage.port));
        ensure!(socket.state == TcpState::Established && socket.bytes_received == Some(100), "{socket:?}");
        ensure!(socket.bytes_acked == Some(40) && socket.unanswered == 0, "{socket:?}");
        ensure!(socket.rtt.is_some_and(|rtt| rtt < patience(Duration::from_secs(1))), "{socket:?}");
        ensure!(socket.retransmits_total == Some(0), "{socket:?}");
        // The handshake is the first measurement: the detail of its end has it already.
        let netns = stage.netns()?;
        let established = stage.watch.events_of(netns).find(|e| matches!(e.what, ConnectionChange::Established { .. }));
        let established = established.context("no detail")?;
        ensure!(established.rtt.is_some_and(|rtt| rtt < Duration::from_secs(1)), "{established:?}");
        ensure!(established.retransmits_total == Some(0), "{established:?}");
        let at = stage.watch.inventories.last().context("no inventory")?.at;
        let idle = socket.last_received.map(|last| at.since(last));
        ensure!(idle.map_or(blind()?, |idle| idle < patience(Duration::from_secs(10))), "{socket:?} idle {idle:?}");
        // Data flows: the count grows by what arrives.
        stage.server.must("send s 7")?;
        stage.client.must("recv a 7 2000")?;
        let again = stage.sample().await?;
        ensure!(again.first().context("gone")?.bytes_received == Some(107), "{again:?}");
        ensure!(again.first().map(|s| s.socket) == Some(socket.socket));
        stage.client.must("close a")?;
        stage.server.must("close s")?;
        ensure!(stage.sample().await?.is_empty());
        stage.finish().await
    })
}

#[test]
fn the_fallback_finds_the_same_sockets() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.connected()?;
        let netns = stage.netns()?;
        let by_kernel = stage.sample().await?;
        let reading = proc_net::read(&[stage.port], storewatch::source::kernel::ticks::Ticks::default());
        let by_proc = of(&reading.sample, netns);
        ensure!(by_kernel.len() == 1 && by_proc.len() == 1, "{by_kernel:?} {by_proc:?}");
        let (a, b) = (&by_kernel[0], &by_proc[0]);
        ensure!((a.owner, a.local, a.remote, a.state) == (b.owner, b.local, b.remote, b.state), "{a:?} {b:?}");
        Ok(())
    })
}

#[test]
fn what_was_there_before_the_agent_is_found() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.connected()?;
        // Another agent starts now; it saw no event of this connection.
        let settings = Settings { ports: vec![stage.port], ..Settings::default() };
        stage.watch = storewatch_tests_kernel::Watch::start(settings);
        let sockets = stage.sample().await?;
        ensure!(sockets.len() == 1, "{sockets:?}");
        ensure!(stage.watch.events.is_empty());
        // Its end is told although its begin was not seen.
        stage.client.must("close a")?;
        stage.server.must("close s")?;
        let netns = stage.netns()?;
        stage.watch.until("the end", |w| w.events_of(netns).count() == 1).await?;
        Ok(())
    })
}

#[test]
fn a_stuck_socket_shows_queue_and_timer() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.connected()?;
        stage.topology.blackhole()?;
        stage.client.must("send a 64")?;
        let netns = stage.netns()?;
        stage
            .watch
            .until("data sent again", |w| {
                w.counted(netns, |what| *what == storewatch_core::connection::Counted::Retransmits) >= 2
            })
            .await?;
        let target = at(Topology::SERVER_V4, stage.port);
        stage.client.must(&format!("begin b {target}"))?;
        let sockets = stage.sample().await?;
        let stuck = sockets.iter().find(|s| s.state == TcpState::Established).context("not found")?;
        ensure!(stuck.unanswered == 64 && stuck.retransmits >= 1 && stuck.retransmitting, "{stuck:?}");
        ensure!(stuck.retransmits_total.is_some_and(|total| total >= stuck.retransmits.into()), "{stuck:?}");
        let last =
            stage.watch.events_of(netns).filter(|e| matches!(e.what, ConnectionChange::Retransmit { .. })).last();
        ensure!(last.and_then(|event| event.retransmits_total) >= Some(2), "{last:?}");
        // Once it flows again nothing is sent again, and the total stays.
        stage.topology.lift_blackhole()?;
        stage.server.must("recv s 64 5000")?;
        let flowing = stage.sample().await?;
        let flowing = flowing.iter().find(|s| s.local == stuck.local).context("gone")?;
        ensure!(flowing.unanswered == 0 && flowing.retransmits == 0, "{flowing:?}");
        ensure!(flowing.retransmits_total >= stuck.retransmits_total, "{flowing:?} after {stuck:?}");
        let dialling = sockets.iter().find(|s| s.state == TcpState::SynSent).context("no dial")?;
        ensure!(dialling.unanswered == 0 && dialling.bytes_received == Some(0), "{dialling:?}");
        Ok(())
    })
}

#[test]
fn a_socket_without_an_owner_is_nobodys() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.connected()?;
        stage.topology.blackhole()?;
        // The FIN gets no answer: the kernel keeps the socket, no process does.
        stage.client.must("close a")?;
        ensure!(stage.sample().await?.is_empty());
        Ok(())
    })
}

#[test]
fn own_sockets_are_not_listed() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        let target = at(Topology::SERVER_V4, stage.port);
        stage.server.must(&format!("listen l {target}"))?;
        let own = stage.topology.client.enter(move || std::net::TcpStream::connect(target))??;
        ensure!(stage.sample().await?.is_empty());
        drop(own);
        stage.server.must("accept s l")?;
        stage.server.must("close s")?;
        stage.finish().await
    })
}

#[test]
fn an_idle_connection_to_a_server_that_vanished_is_found_by_the_inventory_alone() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.connected()?;
        stage.told("begun 1, established 1").await?;
        // The node of the server dies: no FIN, no RST, and the client has nothing to say.
        stage.topology.server.ip(&["link", "set", "eth0", "down"])?;
        stage.server.kill();
        for _ in 0..3 {
            let sockets = stage.sample().await?;
            let [socket] = sockets.as_slice() else { anyhow::bail!("{sockets:#?}") };
            ensure!(socket.state == TcpState::Established && socket.unanswered == 0, "{socket:?}");
            ensure!(socket.remote == at(Topology::SERVER_V4, stage.port), "{socket:?}");
        }
        // Held, and silent: no event tells of it.
        stage.told("begun 1, established 1").await
    })
}

#[test]
fn many_sockets_are_listed_once_each_however_many_hold_them() -> Result<()> {
    run(async || {
        let mut stage = Stage::new()?;
        stage.topology.blackhole()?;
        let target = at(Topology::SERVER_V4, stage.port);
        stage.client.must(&format!("begins a {target} 800"))?;
        // A child that inherits all of them is a second holder.
        stage.client.must("fork")?;
        let sockets = stage.sample().await?;
        let mut ports: Vec<_> = sockets.iter().map(|socket| socket.local.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        ensure!(sockets.len() == 800 && ports.len() == 800, "{} sockets, {} ports", sockets.len(), ports.len());
        ensure!(sockets.iter().all(|socket| socket.state == TcpState::SynSent && socket.unanswered == 0));
        let reading = proc_net::read(&[stage.port], storewatch::source::kernel::ticks::Ticks::default());
        let netns = stage.netns()?;
        ensure!(of(&reading.sample, netns).len() == 800 && reading.sample.complete, "{}", reading.shortfall);
        Ok(())
    })
}
