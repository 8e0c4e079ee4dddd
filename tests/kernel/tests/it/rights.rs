//! With fewer rights, or on a machine that shows less: what still works, and what is said of the rest.

use anyhow::{Context as _, Result, ensure};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::Ipv4Addr,
    process::{ChildStdin, ChildStdout, Command, Stdio},
};
use storewatch::netns::{Namespace, process::Process};
use storewatch_tests_kernel::{Actor, PREFIX, at, port, ready};

use crate::stage::ACTOR;

const WATCHER: &str = env!("CARGO_BIN_EXE_watcher");

/// The kernel source in a process of its own; see `watcher`.
struct Watcher {
    _process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Watcher {
    fn start(mode: &str, port: u16, namespace: &Namespace) -> Result<Self> {
        let mut command = Command::new(WATCHER);
        command.args([mode, &port.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command, namespace, None)?;
        let stdin = process.child().stdin.take().context("no stdin")?;
        let stdout = BufReader::new(process.child().stdout.take().context("no stdout")?);
        let mut watcher = Self { _process: process, stdin, stdout };
        ensure!(watcher.line()? == "ready", "{mode}: the watcher does not start");
        Ok(watcher)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.stdout.read_line(&mut line)? > 0, "the watcher has ended");
        Ok(line.trim_end().to_owned())
    }

    fn ask(&mut self, question: &str) -> Result<String> {
        writeln!(self.stdin, "{question}")?;
        self.stdin.flush()?;
        self.line()
    }
}

/// Two namespaces: where the watcher lives, and where a pod dials itself over loopback.
struct Scene {
    node: Namespace,
    pod: Namespace,
    client: Actor,
    server: Actor,
    port: u16,
}

impl Scene {
    fn new() -> Result<Self> {
        ready()?;
        let (node, pod) = (Namespace::create(PREFIX, "n")?, Namespace::create(PREFIX, "p")?);
        pod.ip(&["link", "set", "lo", "up"])?;
        let (client, server) = (Actor::start(ACTOR, &pod, None)?, Actor::start(ACTOR, &pod, None)?);
        Ok(Self { node, pod, client, server, port: port() })
    }

    fn watcher(&self, mode: &str) -> Result<Watcher> {
        Watcher::start(mode, self.port, &self.node)
    }

    /// One refusal, then one connection that stays and has received 9 bytes.
    fn act(&mut self) -> Result<()> {
        let target = at(Ipv4Addr::LOCALHOST, self.port);
        ensure!(self.client.tell(&format!("block a {target}"))? == Err(111));
        self.server.must(&format!("listen l {target}"))?;
        self.client.must(&format!("dial b {target} 2000"))?;
        self.server.must("accept s l")?;
        self.server.must("send s 9")?;
        self.client.must("recv b 9 2000")?;
        Ok(())
    }

    /// Everything is seen: counters, and the inventory with byte counts.
    fn sees_all(&mut self, mode: &str) -> Result<()> {
        let mut watcher = self.watcher(mode)?;
        let hooks = watcher.ask("hooks")?;
        let missing: Vec<_> = hooks.split("; ").filter(|hook| !hook.ends_with("=active")).collect();
        ensure!(hooks.split("; ").count() == 9, "{mode}: {hooks}");
        ensure!(missing.iter().all(|hook| hook.contains("=Calls: ")), "{mode}: {missing:?}");
        self.act()?;
        let netns = self.pod.inum()?;
        let told = watcher.ask(&format!("tally {netns}"))?;
        ensure!(told == "begun 2, established 1, attempt refused 1, reset received 1", "{mode}: {told}");
        let sockets = watcher.ask(&format!("sockets {netns}"))?;
        ensure!(sockets == format!("127.0.0.1:{} Some(9)", self.port), "{mode}: {sockets}");
        let reports = watcher.ask("reports")?;
        ensure!(reports.starts_with("kernel active") && reports.contains("| inventory active"), "{mode}: {reports}");
        Ok(())
    }
}

#[test]
fn two_capabilities_are_enough_for_root() -> Result<()> {
    Scene::new()?.sees_all("root")
}

#[test]
fn two_capabilities_are_enough_for_anybody() -> Result<()> {
    Scene::new()?.sees_all("nobody")
}

#[test]
fn tracefs_is_not_needed() -> Result<()> {
    Scene::new()?.sees_all("no-tracefs")
}

#[test]
fn without_any_right_the_reason_and_the_remedy_are_said() -> Result<()> {
    let mut scene = Scene::new()?;
    let mut watcher = scene.watcher("bare")?;
    ensure!(watcher.ask("hooks")?.is_empty(), "nothing can be loaded");
    scene.act()?;
    let told = watcher.ask(&format!("tally {}", scene.pod.inum()?))?;
    ensure!(told == "nothing", "{told}");
    let reports = watcher.ask("reports")?;
    ensure!(reports.starts_with("kernel absent: no CAP_BPF (to get it: "), "{reports}");
    ensure!(
        reports.contains("no CAP_PERFMON") && reports.contains("| inventory degraded: read from /proc"),
        "{reports}"
    );
    Ok(())
}

#[test]
fn a_kernel_that_does_not_describe_its_types_is_said_to_be_one() -> Result<()> {
    let mut scene = Scene::new()?;
    let mut watcher = scene.watcher("no-btf")?;
    ensure!(watcher.ask("hooks")?.is_empty(), "without BTF nothing is loaded");
    scene.act()?;
    let netns = scene.pod.inum()?;
    let told = watcher.ask(&format!("tally {netns}"))?;
    ensure!(told == "nothing", "{told}");
    let reports = watcher.ask("reports")?;
    ensure!(reports.starts_with("kernel absent: the kernel does not describe its types"), "{reports}");
    // The fallback still finds the connection, without byte counts.
    let sockets = watcher.ask(&format!("sockets {netns}"))?;
    ensure!(sockets == format!("127.0.0.1:{} None", scene.port), "{sockets}");
    Ok(())
}
