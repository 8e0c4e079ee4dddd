//! Events and inventory against each other: what one of them missed the other puts right.

use anyhow::{Result, ensure};
use storewatch_tests_kernel::joined::Joined;

use crate::{attribution::Scene, stage::run};

const CONTAINER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn connections(joined: &Joined) -> (usize, usize) {
    let live = joined.live("server-0").len();
    (live, joined.connections("server-0").len() - live)
}

#[test]
fn a_missed_close_leaves_no_ghost_and_a_missed_open_hides_nothing() -> Result<()> {
    run(async || {
        let mut scene = Scene::new()?;
        let cgroup = scene.cgroup(&format!("kubepods/podaaaa/{CONTAINER}"))?;
        let mut actor = scene.actor(Some(&cgroup))?;
        let mut joined = scene.joined(&scene.cgroup_pod("server-0", "kubepods/podaaaa", ", host_network: true"))?;
        joined.until("the pod", |joined| joined.pod("server-0").is_some()).await?;
        let target = scene.target;
        actor.must(&format!("dial a {target} 2000"))?;
        joined.until("a connection", |joined| connections(joined) == (1, 0)).await?;
        let first = joined.live("server-0")[0].local;
        for round in 1..=5 {
            // The programs look away while one connection ends and another begins, often at the same kernel address.
            joined.handle.set_ports(&[])?;
            actor.must("close a")?;
            scene.server.must("accept s l")?;
            scene.server.must("close s")?;
            actor.must(&format!("dial a {target} 2000"))?;
            joined.handle.set_ports(&[target.port()])?;
            joined.settle().await?;
            let live = joined.live("server-0");
            ensure!(live.len() == 1, "round {round}: {live:#?}");
            let before = joined.connections("server-0").into_iter().filter(|c| c.ended.is_some()).count();
            ensure!(before == round, "round {round}: {before} ended; {:#?}", joined.connections("server-0"));
            ensure!(live[0].local != first, "round {round}: the ghost of the first: {live:#?}");
            ensure!(live[0].opened_at.is_none(), "round {round}: its begin was not seen: {live:#?}");
        }
        actor.must("close a")?;
        joined.until("the end", |joined| connections(joined) == (0, 6)).await?;
        Ok(())
    })
}

#[test]
fn a_socket_whose_owner_has_let_go_is_nobodys_evidence() -> Result<()> {
    run(async || {
        let scene = Scene::new()?;
        let cgroup = scene.cgroup(&format!("kubepods/podaaaa/{CONTAINER}"))?;
        let mut actor = scene.actor(Some(&cgroup))?;
        let mut joined = scene.joined(&scene.cgroup_pod("server-0", "kubepods/podaaaa", ", host_network: true"))?;
        joined.until("the pod", |joined| joined.pod("server-0").is_some()).await?;
        actor.must(&format!("dial a {} 2000", scene.target))?;
        joined.until("a connection", |joined| connections(joined) == (1, 0)).await?;
        // Its FIN gets no answer: the kernel keeps the socket for a while, the container does not.
        scene.topology.blackhole()?;
        actor.must("close a")?;
        joined.until("nothing", |joined| connections(joined).0 == 0).await?;
        Ok(())
    })
}
