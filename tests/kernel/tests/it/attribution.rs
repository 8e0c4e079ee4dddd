//! Whose a connection is, with the pods' list, the kernel source and the judge joined as in the agent.

use anyhow::{Result, ensure};
use std::{
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};
use storewatch::netns::{Namespace, cgroup::Cgroup, topology::Topology};
use storewatch_core::{
    attribution::Unattributed,
    snapshot::PodView,
    source::SourceName,
    table::{ConnectionView, Via},
    verdict::FindingCode,
};
use storewatch_tests_kernel::{Actor, PREFIX, SOON, at, joined::Joined, patience, port, ready};

use crate::stage::{ACTOR, run};

/// Longer than evidence waits for its pod.
const WAITS: Duration = Duration::from_secs(45);

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";

/// A network and a server in it; the pods are each test's own.
pub(crate) struct Scene {
    pub(crate) server: Actor,
    pub(crate) topology: Topology,
    pub(crate) target: SocketAddr,
    /// All cgroups of this test are below it.
    base: String,
}

impl Scene {
    pub(crate) fn new() -> Result<Self> {
        ready()?;
        let topology = Topology::create(PREFIX)?;
        let port = port();
        let target = at(Topology::SERVER_V4, port);
        let mut server = Actor::start(ACTOR, &topology.server, None)?;
        server.must(&format!("listen l {target}"))?;
        Ok(Self { server, topology, target, base: format!("{PREFIX}-{}-{port}", std::process::id()) })
    }

    pub(crate) fn joined(&self, pods: &str) -> Result<Joined> {
        Joined::start(self.target.port(), pods)
    }

    pub(crate) fn cgroup(&self, path: &str) -> Result<Cgroup> {
        Ok(Cgroup::create(&format!("{}/{path}", self.base))?)
    }

    pub(crate) fn actor(&self, cgroup: Option<&Cgroup>) -> Result<Actor> {
        Actor::start(ACTOR, &self.topology.client, cgroup)
    }

    fn pod(&self, name: &str, place: &str) -> String {
        format!("- {{namespace: graph, name: {name}, uid: uid-of-{name}, workload: StatefulSet/server, {place}}}\n")
    }

    pub(crate) fn cgroup_pod(&self, name: &str, path: &str, more: &str) -> String {
        self.pod(name, &format!("cgroup: '/{}/{path}'{more}", self.base))
    }
}

fn unattributed(joined: &Joined, why: Unattributed) -> u64 {
    joined.snapshot().unattributed.iter().filter(|(reason, _)| *reason == why).map(|(_, count)| count).sum()
}

/// Changes of state that the kernel told, whoever's.
fn told(joined: &Joined) -> u64 {
    joined.snapshot().kernel.state
}

/// The source of pods has this to say of its list.
fn pods_say(joined: &Joined, words: &str) -> bool {
    let sources = joined.snapshot().sources;
    sources.iter().any(|view| view.name == SourceName::Pods && view.detail.contains(words))
}

fn finds(pod: Option<PodView>, code: FindingCode) -> bool {
    pod.is_some_and(|pod| pod.findings.iter().any(|finding| finding.code == code))
}

/// Paths as kubelet names them: the cgroupfs driver's for two classes of service, and the systemd driver's.
#[test]
fn host_network_pods_are_told_apart_by_either_drivers_paths() -> Result<()> {
    run(async || {
        let scene = Scene::new()?;
        let slice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6d0f_0001.slice";
        let places = [
            ("server-0", "kubepods/burstable/pod6d0f-0000".to_owned(), CONTAINER.to_owned()),
            ("server-1", "kubepods/pod6d0f-0002".to_owned(), CONTAINER.to_owned()),
            ("server-2", slice.to_owned(), format!("cri-containerd-{CONTAINER}.scope")),
            // A runtime that nests one more, as crun and systemd inside a container do.
            ("server-3", "kubepods/burstable/pod6d0f-0003".to_owned(), format!("{CONTAINER}/init.scope")),
        ];
        let mut pods = String::new();
        let mut kept = Vec::new();
        for (name, pod, container) in &places {
            let cgroup = scene.cgroup(&format!("{pod}/{container}"))?;
            // The sandbox has a directory of its own beside the container's.
            let sandbox = scene.cgroup(&format!("{pod}/{OTHER}"))?;
            let actor = scene.actor(Some(&cgroup))?;
            pods.push_str(&scene.cgroup_pod(name, pod, ", host_network: true"));
            kept.push((*name, actor, sandbox, cgroup));
        }
        let mut joined = scene.joined(&pods)?;
        joined.until("all pods", |joined| joined.snapshot().pods.len() == 4).await?;
        for (_, actor, ..) in &mut kept {
            actor.must(&format!("dial a {} 2000", scene.target))?;
        }
        joined.until("a connection of each", |j| places.iter().all(|(name, ..)| j.live(name).len() == 1)).await?;
        joined.settle().await?;
        for (name, actor, ..) in &mut kept {
            let connections = joined.connections(name);
            ensure!(connections.len() == 1 && connections[0].remote == scene.target, "{name}: {connections:#?}");
            actor.must("close a")?;
        }
        ensure!(unattributed(&joined, Unattributed::Stranger) == 0, "{:?}", joined.snapshot().unattributed);
        joined.until("their ends", |j| places.iter().all(|(name, ..)| j.live(name).is_empty())).await?;
        Ok(())
    })
}

#[test]
fn a_container_that_restarts_under_one_uid_starts_clean() -> Result<()> {
    run(async || {
        let mut scene = Scene::new()?;
        let first = scene.cgroup(&format!("kubepods/podaaaa/{CONTAINER}"))?;
        let mut actor = scene.actor(Some(&first))?;
        let mut joined = scene.joined(&scene.cgroup_pod("server-0", "kubepods/podaaaa", ", host_network: true"))?;
        joined.until("the pod", |joined| joined.pod("server-0").is_some()).await?;
        actor.must(&format!("dial a {} 2000", scene.target))?;
        joined.until("its connection", |joined| joined.live("server-0").len() == 1).await?;
        let old = joined.live("server-0")[0].local;
        // The new container is made before the old one is gone, as a runtime may do.
        let second = scene.cgroup(&format!("kubepods/podaaaa/{OTHER}"))?;
        actor.kill();
        drop(first);
        scene.server.must("accept s l")?;
        let mut heir = scene.actor(Some(&second))?;
        heir.must(&format!("dial a {} 2000", scene.target))?;
        joined
            .until("the heir's connection alone", |joined| {
                let all = joined.connections("server-0");
                all.len() == 1 && all[0].local != old && all[0].ended.is_none()
            })
            .await?;
        heir.must("close a")?;
        Ok(())
    })
}

#[test]
fn a_pod_younger_than_its_first_dial_gets_it_all_the_same() -> Result<()> {
    run(async || {
        let scene = Scene::new()?;
        let cgroup = scene.cgroup(&format!("kubepods/podaaaa/{CONTAINER}"))?;
        let mut actor = scene.actor(Some(&cgroup))?;
        let mut joined = scene.joined("[]\n")?;
        joined.settle().await?;
        actor.must(&format!("dial a {} 2000", scene.target))?;
        joined.settle().await?;
        ensure!(joined.connections("server-0").is_empty());
        joined.list(&scene.cgroup_pod("server-0", "kubepods/podaaaa", ", host_network: true"))?;
        joined.until("its connection", |joined| joined.live("server-0").len() == 1).await?;
        actor.must("close a")?;
        joined.until("its end", |joined| joined.live("server-0").is_empty()).await?;
        Ok(())
    })
}

#[test]
fn an_old_connection_of_a_pod_that_is_found_late_is_in_the_inventory() -> Result<()> {
    run(async || {
        let scene = Scene::new()?;
        // Both dial before there is an agent; the second pod is listed only later.
        let cgroups = ["podaaaa", "podbbbb"].map(|pod| scene.cgroup(&format!("kubepods/{pod}/{CONTAINER}")));
        let [one, two] = cgroups;
        let (one, two) = (one?, two?);
        let mut actors = [scene.actor(Some(&one))?, scene.actor(Some(&two))?];
        for actor in &mut actors {
            actor.must(&format!("dial a {} 2000", scene.target))?;
        }
        let first = scene.cgroup_pod("server-0", "kubepods/podaaaa", ", host_network: true");
        let mut joined = scene.joined(&first)?;
        joined.until("the first's connection", |joined| joined.live("server-0").len() == 1).await?;
        ensure!(joined.live("server-0")[0].opened_at.is_none(), "its begin was before the agent's");
        joined.list(&format!("{first}{}", scene.cgroup_pod("server-1", "kubepods/podbbbb", ", host_network: true")))?;
        joined.until("the second's connection", |joined| joined.live("server-1").len() == 1).await?;
        for actor in &mut actors {
            actor.must("close a")?;
        }
        Ok(())
    })
}

/// On a node whose containers live in cgroup v1 alone every socket carries the root of v2: the namespace has to do.
#[test]
fn without_cgroups_of_v2_the_network_namespace_names_the_pod() -> Result<()> {
    run(async || {
        let scene = Scene::new()?;
        let place = format!("netns: '{}'", scene.topology.client.path().display());
        let mut joined = scene.joined(&scene.pod("server-0", &place))?;
        joined.until("the pod", |joined| joined.pod("server-0").is_some()).await?;
        let mut actor = scene.actor(None)?;
        if let Some(group) = Legacy::create(&scene.base)? {
            group.take_in(actor.pid())?;
        }
        actor.must(&format!("dial a {} 2000", scene.target))?;
        joined.until("its connection", |joined| joined.live("server-0").len() == 1).await?;
        actor.must("close a")?;
        joined.until("its end", |joined| joined.live("server-0").is_empty()).await?;
        Ok(())
    })
}

/// A directory in the first hierarchy of cgroup v1 that this machine has; `None` on one with v2 alone.
struct Legacy(std::path::PathBuf);

impl Legacy {
    fn create(name: &str) -> Result<Option<Self>> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (path, kind) = (fields.next()?, fields.next()?);
            (kind == "cgroup").then(|| path.to_owned())
        });
        let Some(root) = root else { return Ok(None) };
        let path = std::path::Path::new(&root).join(name);
        match fs::create_dir(&path) {
            Ok(()) => Ok(Some(Self(path))),
            // Mounted read-only, as in a container: then it is as if there were none.
            Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn take_in(&self, pid: u32) -> Result<()> {
        Ok(fs::write(self.0.join("cgroup.procs"), pid.to_string())?)
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        let until = Instant::now() + SOON;
        while fs::remove_dir(&self.0).is_err() && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_belongs_to_nobody_is_a_bucket_with_a_reason() -> Result<()> {
    run(async || {
        let scene = Scene::new()?;
        let cgroup = scene.cgroup(&format!("kubepods/podaaaa/{CONTAINER}"))?;
        let mut joined = scene.joined(&scene.cgroup_pod("server-0", "kubepods/podaaaa", ", host_network: true"))?;
        joined.until("the pod", |joined| joined.pod("server-0").is_some()).await?;
        let mut stranger = scene.actor(None)?;
        stranger.must(&format!("dial a {} 2000", scene.target))?;
        // It might belong to a pod that is listed in a moment: for half a minute it waits.
        let stranger = |joined: &Joined| unattributed(joined, Unattributed::Stranger) > 0;
        joined.until_in(WAITS, "a stranger", stranger).await?;
        ensure!(joined.connections("server-0").is_empty(), "the node's address is no proof of a pod");
        drop(cgroup);
        Ok(())
    })
}

/// The kernel gives a namespace's number away again at once.
#[test]
fn a_namespace_number_that_is_used_again_is_another_pod() -> Result<()> {
    run(async || {
        let mut scene = Scene::new()?;
        let mut tries = 0;
        let (mut joined, heir) = loop {
            let first = Namespace::create(PREFIX, "a")?;
            let inum = first.inum()?;
            let old = format!("netns: '{}'", first.path().display());
            let mut joined = scene.joined(&scene.pod("server-0", &old))?;
            joined.until("the pod", |joined| joined.pod("server-0").is_some()).await?;
            drop(first);
            tries += 1;
            match again(inum) {
                Ok(heir) => break (joined, heir),
                // Somebody else on this machine has made a namespace of some kind in between, and keeps it.
                Err(_) if tries < 3 => {}
                Err(error) => return Err(error),
            }
        };
        heir.ip(&["link", "set", "lo", "up"])?;
        // The list still names the old path, where no namespace is any more.
        joined.settle().await?;
        let mut actor = Actor::start(ACTOR, &heir, None)?;
        let near = at(std::net::Ipv4Addr::LOCALHOST, scene.target.port());
        ensure!(actor.tell(&format!("block a {near}"))? == Err(111));
        joined.until("the refusal", |joined| told(joined) > 0).await?;
        ensure!(joined.connections("server-0").is_empty(), "{:#?}", joined.connections("server-0"));
        // Listed under its own name, it is that pod.
        joined.list(&scene.pod("server-1", &format!("netns: '{}'", heir.path().display())))?;
        joined.until("the new pod", |joined| joined.pod("server-1").is_some()).await?;
        ensure!(actor.tell(&format!("block a {near}"))? == Err(111));
        joined.until("its dial", |joined| !joined.connections("server-1").is_empty()).await?;
        ensure!(joined.connections("server-0").is_empty());
        scene.server.kill();
        Ok(())
    })
}

/// A namespace with this number; others are made and dropped until it comes up.
fn again(inum: u32) -> Result<Namespace> {
    let mut others = Vec::new();
    let until = Instant::now() + patience(SOON);
    while Instant::now() < until {
        let namespace = Namespace::create(PREFIX, "b")?;
        if namespace.inum()? == inum {
            return Ok(namespace);
        }
        others.push(namespace);
    }
    anyhow::bail!("the kernel did not give number {inum} again; it gave {} others", others.len())
}

/// A process number that is used again is not the process that was listed.
#[test]
fn a_process_number_that_is_used_again_is_nobody() -> Result<()> {
    run(async || {
        let scene = Scene::new()?;
        let cgroup = scene.cgroup(&format!("kubepods/podaaaa/{CONTAINER}"))?;
        let mut actor = scene.actor(Some(&cgroup))?;
        let pid = actor.pid();
        let mut joined = scene.joined(&scene.pod("server-0", &format!("pid: {pid}, host_network: true")))?;
        actor.must(&format!("dial a {} 2000", scene.target))?;
        joined.until("its connection", |joined| joined.live("server-0").len() == 1).await?;
        actor.kill();
        let other = scene.cgroup(&format!("kubepods/podbbbb/{OTHER}"))?;
        let mut heir = scene.actor(Some(&other))?;
        // Processes are looked at once a second; a number is never given again that soon but where all others are in use.
        joined.until("the end of the process", |joined| pods_say(joined, "is gone")).await?;
        let before = told(&joined);
        heir.must(&format!("twin {pid} {}", scene.target))?;
        joined.until("its dial", |joined| told(joined) > before).await?;
        joined.settle().await?;
        ensure!(joined.live("server-0").is_empty(), "{:#?}", joined.live("server-0"));
        joined.until("the word for it", |joined| pods_say(joined, "is another process by now")).await?;
        Ok(())
    })
}

/// A proxy beside the application: what the application reaches is the proxy.
#[test]
fn a_proxy_in_the_pod_makes_attempts_unobservable() -> Result<()> {
    run(async || {
        let scene = Scene::new()?;
        let (application, proxy) = (
            scene.cgroup(&format!("kubepods/podaaaa/{CONTAINER}"))?,
            scene.cgroup(&format!("kubepods/podaaaa/{OTHER}"))?,
        );
        let port = scene.target.port();
        let place = format!(
            "cgroup: '/{}/kubepods/podaaaa/{CONTAINER}', netns: '{}'",
            scene.base,
            scene.topology.client.path().display()
        );
        let mut joined = scene.joined(&scene.pod("server-0", &place))?;
        joined.until("the pod", |joined| joined.pod("server-0").is_some()).await?;
        ensure!(!finds(joined.pod("server-0"), FindingCode::AttemptsNotObservable));
        // The application's dials are turned to a port of the proxy's; its own, by their source port, are not.
        scene.topology.client.nft(&format!(
            "table ip swk {{\nchain o {{\ntype nat hook output priority -100;\nip daddr {} tcp dport {port} tcp sport 0-39999 redirect to :{}\n}}\n}}\n",
            scene.target.ip(),
            port + 1
        ))?;
        scene.topology.client.sysctl("ipv4.ip_local_port_range", "32768 39999")?;
        scene.topology.client.ip(&["link", "set", "lo", "up"])?;
        let mut side = scene.actor(Some(&proxy))?;
        side.must(&format!("listen p 0.0.0.0:{}", port + 1))?;
        let mut app = scene.actor(Some(&application))?;
        app.must(&format!("dial a {} 2000", scene.target))?;
        side.must("accept in p")?;
        scene.topology.client.sysctl("ipv4.ip_local_port_range", "40000 49999")?;
        side.must(&format!("dial out {} 2000", scene.target))?;
        joined
            .until("the proxy to be noticed", |joined| {
                finds(joined.pod("server-0"), FindingCode::AttemptsNotObservable)
            })
            .await?;
        let through = |view: &ConnectionView| matches!(view.via, Via::Proxy);
        joined.until("its way", |joined| joined.live("server-0").iter().any(through)).await?;
        Ok(())
    })
}
