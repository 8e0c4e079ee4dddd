//! What the programs cost those whose connections they see.

use crate::{
    bpf::{Empty, Runs, Stats, runs_at, runs_of},
    connections::{self, Rate},
    stage::{CLIENTS, STORE_PORT, Stage, joined, within},
    table::{Spread, Table},
};
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use std::{
    env,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Where every connection passes several times.
const STATE: &str = "inet_sock_set_state";
/// Where every connection ends.
const END: &str = "tcp_destroy_sock";
/// Watched by nobody.
const UNWATCHED: u16 = 18_500;
/// How long load is put on for one figure.
const LOAD: Duration = Duration::from_secs(2);
/// The same where programs are compared: many short ones, since an interrupt within a run counts as its time.
const SLICES: usize = 11;
const SLICE: Duration = Duration::from_millis(400);
/// Turns of the rates, each with and without the agent.
const TURNS: usize = 7;
const TURN: Duration = Duration::from_secs(1);

pub(crate) fn measure(stage: &mut Stage, table: &mut Table) -> Result<()> {
    {
        let _stats = Stats::enable()?;
        programs(stage, table)?;
        others(table);
    }
    rates(stage, table)
}

/// What one run of a program takes.
fn programs(stage: &Stage, table: &mut Table) -> Result<()> {
    let agent = stage.agent()?;
    let empty = Empty::attach(STATE)?;

    let mut slices = Vec::new();
    for _ in 0..SLICES {
        let before = (runs_at(agent, STATE)?, empty.runs()?);
        connections::in_new_network(UNWATCHED, SLICE)?;
        let (mine, least) = (runs_at(agent, STATE)?.since(before.0), empty.runs()?.since(before.1));
        ensure!(mine.count > 100, "only {} state changes were seen", mine.count);
        slices.push((mine.each().context("no run")?, least.each().context("no run")?));
    }
    let middle = |pick: fn(&(f64, f64)) -> f64| Spread::of(&slices.iter().map(pick).collect::<Vec<_>>());
    let above = middle(|(mine, least)| mine - least).context("no slice")?;
    let (mine, least) = (middle(|pair| pair.0).context("no slice")?, middle(|pair| pair.1).context("no slice")?);
    table.judged(
        "kernel: one unwatched state change above empty",
        format!(
            "median {:+.1} ns ({:+.1} to {:+.1}, n {SLICES}); {:.1} ns to {:.1} ns",
            above.median, above.min, above.max, mine.median, least.median
        ),
        "<= 25 ns",
        above.median <= 25.0,
    );

    let pod = || stage.cluster.pod(CLIENTS[0]);
    let before = (runs_at(agent, STATE)?, runs_of(agent)?);
    joined(within(pod()?, || connections::run(STORE_PORT, LOAD))?)?;
    let (state, all) = (runs_at(agent, STATE)?.since(before.0), runs_of(agent)?.since(before.1));
    let each = state.each().context("no state change")?;
    table.judged(
        "kernel: one watched state change, judged pod",
        format!("{each:.0} ns ({} runs)", state.count),
        "<= 500 ns",
        each <= 500.0,
    );
    table.figure("  all programs on the same connections", per_run(all)?);

    let before = (runs_at(agent, STATE)?, runs_of(agent)?);
    joined(within(pod()?, || connections::refused(STORE_PORT, LOAD))?)?;
    let (state, all) = (runs_at(agent, STATE)?.since(before.0), runs_of(agent)?.since(before.1));
    let each = state.each().context("no state change")?;
    table.judged(
        "kernel: one watched state change, dials refused",
        format!("{each:.0} ns ({} runs)", state.count),
        "<= 500 ns",
        each <= 500.0,
    );
    table.figure("  all programs on the same dials", per_run(all)?);
    Ok(())
}

fn per_run(runs: Runs) -> Result<String> {
    Ok(format!("{:.0} ns a run ({} runs)", runs.each().context("no run")?, runs.count))
}

/// What others' tools take for the same, where this machine has them.
fn others(table: &mut Table) {
    let one_liner = format!("tracepoint:sock:{STATE} {{ @[args->newstate] = count(); }}");
    for (name, command) in [
        ("  beside it: tcpstates (libbpf-tools)", vec!["tcpstates"]),
        ("  beside it: tcpconnect (libbpf-tools)", vec!["tcpconnect"]),
        ("  beside it: bpftrace, a count by state", vec!["bpftrace", "-e", &one_liner]),
    ] {
        match other(&command) {
            Ok(text) => table.figure(name, text),
            // Absent or unfit for this kernel: a figure less to compare with, no failure of ours.
            Err(error) => table.figure(name, format!("none: {error:#}")),
        }
    }
}

fn other(command: &[&str]) -> Result<String> {
    let [program, arguments @ ..] = command else { bail!("no command") };
    let found = env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file());
    ensure!(found, "{program} is not installed");
    let mut tool = Command::new(program);
    tool.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only the system call prctl is made.
    unsafe {
        tool.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
    let mut tool = Tool(tool.spawn().with_context(|| format!("cannot start {program}"))?);
    let pid = tool.0.id();
    let begun = Instant::now();
    let seen = loop {
        if tool.0.try_wait()?.is_some() {
            // Little enough to fit a pipe, so nobody waits for a reader.
            let said = tool.0.stderr.take().map(std::io::read_to_string).transpose()?.unwrap_or_default();
            bail!("{}", complaint(&said));
        }
        ensure!(begun.elapsed() < Duration::from_secs(20), "{program} has attached nothing that ran within 20 s");
        // Some connections, until one of its programs has run.
        connections::in_new_network(UNWATCHED, Duration::from_millis(50))?;
        match runs_of(pid) {
            Ok(runs) if runs.count > 0 => break runs,
            _ => thread::sleep(Duration::from_millis(200)),
        }
    };
    connections::in_new_network(UNWATCHED, LOAD)?;
    per_run(runs_of(pid)?.since(seen))
}

/// The line of a tool's last words that names what it lacks, else the first, at a table's width.
fn complaint(said: &str) -> String {
    let mut lines = said.lines().filter(|line| !line.is_empty());
    let telling = lines.clone().find(|line| line.contains("not found") || line.contains("No such"));
    telling.or_else(|| lines.next()).unwrap_or("it ended").chars().take(70).collect()
}

/// Somebody else's tool, killed on drop.
struct Tool(Child);

impl Drop for Tool {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What is left of the rate of connections while the agent runs, and what programs that do nothing leave of it.
fn rates(stage: &mut Stage, table: &mut Table) -> Result<()> {
    let (mut unwatched, mut watched, mut least) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..TURNS {
        // Who is first changes: a machine that slows down or warms up favours neither.
        let (with, without);
        if turn % 2 == 0 {
            stage.fresh_agent()?;
            with = both()?;
            stage.cluster.stop_agent()?;
            least.push(empty()?);
            without = both()?;
        } else {
            stage.cluster.stop_agent()?;
            without = both()?;
            least.push(empty()?);
            stage.fresh_agent()?;
            with = both()?;
        }
        unwatched.push((with.0, without.0));
        watched.push((with.1, without.1));
    }
    let floor: Vec<_> = least.into_iter().zip(&unwatched).map(|(empty, (_, without))| (empty, *without)).collect();
    let (measured, ratio) = compare(&unwatched)?;
    table.judged("connect+close, unwatched, with / without the agent", measured, ">= 0.98", ratio >= 0.98);
    table.figure("  beside it: empty programs at the two tracepoints on its way", compare(&floor)?.0);
    table.figure("connect+close, watched, with / without the agent", compare(&watched)?.0);
    Ok(())
}

/// Unwatched, with programs that do nothing where the agent's look at every connection.
fn empty() -> Result<Rate> {
    let _programs = [Empty::attach(STATE)?, Empty::attach(END)?];
    connections::in_new_network(UNWATCHED, TURN)
}

/// Unwatched and watched.
fn both() -> Result<(Rate, Rate)> {
    Ok((connections::in_new_network(UNWATCHED, TURN)?, connections::in_new_network(STORE_PORT, TURN)?))
}

fn compare(pairs: &[(Rate, Rate)]) -> Result<(String, f64)> {
    let spread =
        |pick: fn(&(Rate, Rate)) -> f64| Spread::of(&pairs.iter().map(pick).collect::<Vec<_>>()).context("no turn");
    let ratio = spread(|(with, without)| with.per_second / without.per_second)?;
    let cpu = spread(|(with, without)| without.cpu / with.cpu)?;
    let (with, without) = (spread(|pair| pair.0.per_second)?, spread(|pair| pair.1.per_second)?);
    let text = format!(
        "median {:.3} ({:.3} to {:.3}, n {TURNS}); {:.0}/s to {:.0}/s; by CPU time {:.3}",
        ratio.median, ratio.min, ratio.max, with.median, without.median, cpu.median
    );
    Ok((text, ratio.median))
}
