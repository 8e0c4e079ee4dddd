//! The judge on a large node, in a process of its own: what one tick takes, and whether its memory stays flat.

use crate::{process::memory, table::Table};
use anyhow::{Context as _, Result, ensure};
use std::{
    env,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use storewatch::{
    config,
    recording::{Start, format::encode_start},
};
use storewatch_core::{
    connection::{
        AttemptCount, ConnectionChange, ConnectionEvent, Counted, InventorySample, KernelEvidence, SocketId,
        SocketOwner, SocketSample, TcpState,
    },
    id::{CgroupId, ClusterId, NetnsId, PodRef, PodUid, TargetId},
    judge::Judge,
    observation::Observation,
    ping::{Phases, Ping, PingOutcome, Purpose, RoundEnded},
    pod::{Manager, PodRecord, Workload},
    request::Request,
    source::{SourceName, SourceReport, SourceState},
    table::TableQuery,
    time::MonoTime,
};

/// As first argument, it makes the benchmark's binary that process.
pub(crate) const COMMAND: &str = "engine";
const PODS: u32 = 100;
const TARGETS: u32 = 20;
const SOCKETS: u32 = 10_000;
/// What one tick is apart from the next, how many are timed, and how often the inventory is read and Stores are pinged.
const TICK: Duration = Duration::from_millis(100);
const TICKS: u32 = 600;
const INVENTORY: u32 = 150;
const ROUND: u32 = 20;
/// Events of the long run, and when memory is looked at first.
const EVENTS: u64 = if cfg!(debug_assertions) { 200_000 } else { 10_000_000 };
const FIRST_LOOK: u64 = EVENTS / 10;

/// Prints `tick_p99_us tick_max_us filing_max_us rss_kib rss_first_kib rss_last_kib memory_us memory_bytes`.
pub(crate) fn run() -> Result<()> {
    let mut node = Node::new()?;
    let mut ticks = Vec::new();
    let mut filing = Duration::ZERO;
    for number in 0..TICKS {
        if number % INVENTORY == 0 {
            let sample = node.sample(number);
            let begun = Instant::now();
            node.judge.observe(Observation::Inventory(sample));
            filing = filing.max(begun.elapsed());
        }
        if number % ROUND == 0 {
            node.round();
        }
        node.attempts(number);
        let begun = Instant::now();
        node.advance();
        ticks.push(begun.elapsed());
    }
    let tracked = node.judge.table(&TableQuery::default()).total;
    ensure!(tracked >= SOCKETS as usize, "{tracked} tracked");
    let id = std::process::id();
    let resident = memory(id, "VmRSS")?;
    let mut first = 0;
    for number in 0..EVENTS {
        node.event(number);
        if number % 1000 == 999 {
            node.advance();
        }
        if number + 1 == FIRST_LOOK {
            first = memory(id, "VmRSS")?;
        }
    }
    ticks.sort_unstable();
    let p99 = ticks.get(ticks.len() * 99 / 100).context("no tick")?.as_micros();
    let most = ticks.last().context("no tick")?.as_micros();
    let filing = filing.as_micros();
    let last = memory(id, "VmRSS")?;
    // What the state file holds, and a recording begins with.
    let begun = Instant::now();
    let kept = node.judge.memory(node.now);
    let taken = begun.elapsed().as_micros();
    let start = Start { settings: node.judge.settings().clone(), memory: kept };
    let bytes = encode_start(start).len();
    Ok(writeln!(io::stdout(), "{p99} {most} {filing} {resident} {first} {last} {taken} {bytes}")?)
}

pub(crate) fn measure(table: &mut Table) -> Result<()> {
    let output =
        Command::new(env::current_exe()?).arg(COMMAND).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the judge's process: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let numbers = text.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
    let [p99, most, filing, resident, first, last, taken, bytes] = numbers.as_slice() else {
        anyhow::bail!("it said {text:?}")
    };
    let node = format!("{PODS} pods, {TARGETS} targets, {SOCKETS} sockets");
    table.judged(
        &format!("judge: one tick, {node}"),
        format!("p99 {:.2} ms, max {:.2} ms (n {TICKS})", p99 / 1e3, most / 1e3),
        "<= 5 ms",
        *p99 <= 5000.0,
    );
    table.figure("  filing one inventory of them", format!("max {:.2} ms", filing / 1e3));
    table.figure(
        "  taking its memory, for the state file",
        format!("{:.2} ms, {:.1} MiB written", taken / 1e3, bytes / f64::from(1 << 20)),
    );
    table.judged(
        &format!("judge: RSS, {node}"),
        format!("{:.1} MiB", resident / 1024.0),
        "<= 40 MiB",
        *resident <= 40.0 * 1024.0,
    );
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let [early, all] = [FIRST_LOOK, EVENTS].map(|events| events as f64 / 1e6);
    table.judged(
        "judge: memory over many events",
        format!("{:.1} MiB after {early:.1} million, {:.1} MiB after {all:.1} million", first / 1024.0, last / 1024.0),
        "flat (<= 1 MiB)",
        (last - first).abs() <= 1024.0,
    );
    Ok(())
}

/// A node whose pods all talk to all Stores.
struct Node {
    judge: Judge,
    now: MonoTime,
    round: u64,
    targets: Vec<TargetId>,
}

impl Node {
    fn new() -> Result<Self> {
        let stores: Vec<_> = (0..TARGETS).map(|target| format!("'{}'", store(target))).collect();
        let folder = env::temp_dir().join(format!("storewatch-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("storewatch.yaml");
        let text = format!(
            "node: bench\nhugegraph: {{pd_peers: [], stores: [{}]}}\npods: {{source: none}}\nping: {{max_stores_per_round: 64}}\n",
            stores.join(", ")
        );
        std::fs::write(&path, text)?;
        let config = config::load(&path, &config::Surroundings::default());
        std::fs::remove_dir_all(&folder)?;
        let config = config.map_err(|mistakes| {
            anyhow::anyhow!("{}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        let now = MonoTime::from_nanos(1_000_000_000_000);
        let mut node = Self { judge: Judge::new(config.settings(), now), now, round: 0, targets: Vec::new() };
        let pods = (0..PODS).map(|pod| Arc::new(record(pod))).collect();
        node.judge.observe(Observation::Pods { at: now, pods });
        for source in [SourceName::Kernel, SourceName::Inventory, SourceName::Pods] {
            let report = SourceReport { source, at: now, state: SourceState::Active, detail: "".into() };
            node.judge.observe(Observation::Source(report));
        }
        node.advance();
        ensure!(node.targets.len() == TARGETS as usize, "{} targets", node.targets.len());
        Ok(node)
    }

    fn advance(&mut self) {
        self.now = self.now + TICK;
        for request in self.judge.advance(self.now).requests {
            if let Request::Targets { targets, .. } = request {
                self.targets = targets.iter().map(|target| target.id).collect();
            }
        }
    }

    /// Every Store answers.
    fn round(&mut self) {
        self.round += 1;
        for (target, index) in self.targets.iter().zip(0..) {
            self.judge.observe(Observation::Ping(Ping {
                target: *target,
                remote: Some(store(index)),
                purpose: Purpose::Round(self.round),
                fresh: self.round.is_multiple_of(10),
                started: self.now - Duration::from_millis(2),
                ended: self.now,
                outcome: PingOutcome::Serving,
                phases: Phases::default(),
                identity: None,
                detail: None,
            }));
        }
        self.judge.observe(Observation::RoundEnded(RoundEnded {
            cluster: ClusterId(0),
            round: self.round,
            started: self.now - Duration::from_millis(2),
            ended: self.now,
            asked: self.targets.clone(),
            sweep_complete: true,
            late: false,
        }));
    }

    /// All sockets, of which a tenth have received something since the last time.
    fn sample(&self, round: u32) -> InventorySample {
        let sockets = (0..SOCKETS).map(|number| SocketSample {
            socket: SocketId(u64::from(number) + 1),
            owner: owner(number % PODS),
            local: local(number % PODS, number),
            remote: store(number / PODS % TARGETS),
            state: TcpState::Established,
            bytes_received: Some(if number % 10 == 0 { u64::from(round) * 100 } else { 100 }),
            bytes_acked: Some(100),
            unanswered: 0,
            retransmits: 0,
            retransmits_total: Some(0),
            retransmitting: false,
            rtt: Some(Duration::from_micros(300)),
            last_received: Some(self.now - Duration::from_secs(1)),
            last_sent: Some(self.now - Duration::from_secs(2)),
        });
        InventorySample { at: self.now, ended: self.now, complete: true, sockets: sockets.collect() }
    }

    /// What one reading of the counters gives on a busy node: some pods' dials, some of them refused.
    fn attempts(&mut self, number: u32) {
        let refused = KernelEvidence {
            from: Some(TcpState::SynSent),
            error: 111,
            reset_received: true,
            ..KernelEvidence::default()
        };
        let counts = (0..PODS / 2).flat_map(|pod| {
            let what = if (pod + number).is_multiple_of(7) { Counted::Failed(refused) } else { Counted::Established };
            [Counted::Begun, what].map(|what| AttemptCount {
                owner: Some(owner(pod)),
                remote: store((pod + number) % TARGETS),
                what,
                added: 1,
                last_begun: Some(self.now - Duration::from_millis(3)),
                last_ended: self.now,
            })
        });
        let counts = counts.collect();
        self.judge.observe(Observation::Attempts { at: self.now, counts });
    }

    /// The details of short connections, one after the other, through all pods, Stores and ports.
    fn event(&mut self, number: u64) {
        let life = number / 3;
        let (pod, target) = ((life % u64::from(PODS)) as u32, (life / 7 % u64::from(TARGETS)) as u32);
        let begun = Some(self.now);
        let what = match number % 3 {
            0 => ConnectionChange::Begun,
            1 => ConnectionChange::Established { begun },
            _ => {
                let evidence = KernelEvidence { from: Some(TcpState::FinWait2), ..KernelEvidence::default() };
                ConnectionChange::Ended { begun, evidence, bytes_received: Some(7) }
            }
        };
        self.judge.observe(Observation::Connection(ConnectionEvent {
            at: self.now,
            socket: SocketId(1_000_000 + life % 50_000),
            owner: owner(pod),
            local: local(pod, (life % 30_000) as u32),
            remote: store(target),
            rtt: Some(Duration::from_micros(200)),
            retransmits_total: Some(0),
            what,
        }));
    }
}

fn store(target: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0a2a_0101 + target)), 8500)
}

fn local(pod: u32, number: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0x0af4_0001 + pod)), 20_000 + (number % 40_000) as u16)
}

fn owner(pod: u32) -> SocketOwner {
    SocketOwner {
        cgroup: Some(CgroupId(10_000 + u64::from(pod))),
        netns: Some(NetnsId(4_026_540_000 + pod)),
        pid: Some(1000 + pod),
    }
}

fn record(pod: u32) -> PodRecord {
    let owner = owner(pod);
    PodRecord {
        cluster: ClusterId(0),
        pod: PodRef { namespace: "graph".into(), name: format!("server-{pod}").into() },
        uid: PodUid(format!("uid-{pod}").into()),
        workload: Some(Workload { kind: "StatefulSet".into(), name: "server".into() }),
        ips: vec![local(pod, 0).ip()],
        host_network: false,
        cgroups: owner.cgroup.into_iter().collect(),
        netns: owner.netns,
        pids: Vec::new(),
        manager: Manager::Kubernetes,
        wiring: None,
    }
}
