//! What the kernel tests share: a network, processes that obey, and the kernel source under observation.

pub mod joined;
pub mod tally;

use anyhow::{Context as _, Result, bail, ensure};
use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr},
    path::Path,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};
use storewatch::{
    netns::{Namespace, cgroup::Cgroup, process::Process},
    observe::{self, ObservationReceiver},
    requests::{self, RequestSender},
    source::kernel::{KernelHandle, KernelSource, Settings, stats::KernelStats},
};
use storewatch_core::{
    connection::{AttemptCount, ConnectionEvent, Counted, InventorySample},
    id::{CgroupId, NetnsId},
    observation::Observation,
    request::Request,
    source::{Loss, SourceReport},
};
use tokio::task::JoinHandle;

/// Prefix of all names that the tests make.
pub const PREFIX: &str = "swk";

/// Longest time to wait for anything that is due at once.
pub const SOON: Duration = Duration::from_secs(5);

/// The same time on an emulated processor: `STOREWATCH_TEST_PATIENCE` says how many times slower it may be.
pub fn patience(limit: Duration) -> Duration {
    limit * std::env::var("STOREWATCH_TEST_PATIENCE").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// A port of this test process alone, so that runs side by side do not see each other.
pub fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 20_000 + u16::try_from(std::process::id() % 250).unwrap_or(0) * 40;
    base + NEXT.fetch_add(1, Ordering::Relaxed) % 40
}

/// A process that does what it is told; see `actor`.
pub struct Actor {
    process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot be placed or started.
    pub fn start(program: &str, namespace: &Namespace, cgroup: Option<&Cgroup>) -> Result<Self> {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command, namespace, cgroup)?;
        let stdin = process.child().stdin.take().context("no stdin")?;
        let stdout = BufReader::new(process.child().stdout.take().context("no stdout")?);
        Ok(Self { process, stdin, stdout })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Gives one command and returns what it says after `ok`, or the errno.
    ///
    /// # Errors
    /// When it has ended or answers nonsense.
    pub fn tell(&mut self, command: &str) -> Result<std::result::Result<String, i32>> {
        self.give(command)?;
        self.answer(command)
    }

    /// Gives one command and does not wait for its answer.
    ///
    /// # Errors
    /// When it has ended.
    pub fn give(&mut self, command: &str) -> Result<()> {
        writeln!(self.stdin, "{command}")?;
        Ok(self.stdin.flush()?)
    }

    /// Waits for the answer to what was given last.
    ///
    /// # Errors
    /// When it has ended or answers nonsense.
    pub fn answer(&mut self, command: &str) -> Result<std::result::Result<String, i32>> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
            ("ok", rest) => Ok(Ok(rest.to_owned())),
            ("err", errno) => Ok(Err(errno.parse()?)),
            other => bail!("{command}: the actor said {other:?}"),
        }
    }

    /// Gives a command that must succeed.
    ///
    /// # Errors
    /// When it does not.
    pub fn must(&mut self, command: &str) -> Result<String> {
        match self.tell(command)? {
            Ok(text) => Ok(text),
            Err(errno) => bail!("{command}: errno {errno}"),
        }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

/// The kernel source, running, with everything that it told so far.
pub struct Watch {
    /// For questions.
    pub handle: KernelHandle,
    receiver: ObservationReceiver,
    requests: RequestSender,
    task: JoinHandle<anyhow::Result<()>>,
    /// Details, in order.
    pub events: Vec<ConnectionEvent>,
    /// Counters, summed.
    pub counts: HashMap<(Option<CgroupId>, Option<NetnsId>, SocketAddr, Counted), AttemptCount>,
    /// Readings of the inventory.
    pub inventories: Vec<InventorySample>,
    /// Words of the sources.
    pub reports: Vec<SourceReport>,
    /// Losses.
    pub losses: Vec<Loss>,
}

impl Watch {
    /// Loads the programs and watches `ports`.
    pub fn start(settings: Settings) -> Self {
        let source = KernelSource::open(settings);
        let handle = source.handle();
        let (sender, receiver) = observe::channel();
        let (requests, _, kernel_requests) = requests::channel(0);
        // The test owns this one task and looks at its end.
        let task = tokio::task::spawn_local(source.run(sender, kernel_requests));
        Self {
            handle,
            receiver,
            requests,
            task,
            events: Vec::new(),
            counts: HashMap::new(),
            inventories: Vec::new(),
            reports: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// Passes a wish to the source.
    pub fn request(&self, request: Request) {
        self.requests.route(request);
    }

    /// Takes in what is told until `enough`, at most [`SOON`].
    ///
    /// # Errors
    /// When that time passes, or the source ends.
    pub async fn until(&mut self, what: &str, enough: impl Fn(&Self) -> bool) -> Result<()> {
        self.until_in(SOON, what, enough).await
    }

    /// The same with another limit.
    ///
    /// # Errors
    /// When the time passes, or the source ends.
    pub async fn until_in(&mut self, limit: Duration, what: &str, enough: impl Fn(&Self) -> bool) -> Result<()> {
        let limit = patience(limit);
        let deadline = Instant::now() + limit;
        while !enough(self) {
            ensure!(!self.task.is_finished(), "the kernel source has ended while waiting for {what}");
            let left = deadline.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.receiver.recv()).await {
                Ok(Some(observation)) => self.note(observation),
                Ok(None) => bail!("the kernel source has ended while waiting for {what}"),
                Err(_) => bail!("no {what} within {limit:?}; {}", self.state()),
            }
        }
        Ok(())
    }

    /// What there is to know when something did not come.
    fn state(&self) -> String {
        let missed = self.handle.stats().map_or_else(Vec::new, |stats| stats.programs);
        let missed: Vec<_> = missed.iter().filter(|program| program.missed > 0).collect();
        let reports = &self.reports[self.reports.len().saturating_sub(2)..];
        // The shortest first, and of a storm only the end: whoever reads this reads the beginning of it.
        let events = &self.events[self.events.len().saturating_sub(20)..];
        format!(
            "programs not run {missed:?}; losses {:?}; in the maps {:?}; totals {:?}; last reports {reports:?}; \
             counts {:#?}; last events {events:#?}",
            self.losses,
            self.handle.occupancy(),
            self.handle.stats().map(|stats| stats.kinds),
            self.counts
        )
    }

    /// Lets two whole readings of the counters pass, so that whatever was to be counted has been told.
    ///
    /// # Errors
    /// When the source ends.
    pub async fn settle(&mut self) -> Result<()> {
        let reports = self.reports.len();
        self.until("two regular readings", |watch| {
            watch.reports[reports..].iter().filter(|r| r.source == storewatch_core::source::SourceName::Kernel).count()
                >= 2
        })
        .await
    }

    fn note(&mut self, observation: Observation) {
        match observation {
            Observation::Connection(event) => self.events.push(event),
            Observation::Attempts { counts, .. } => {
                for count in counts {
                    let (cgroup, netns) = count.owner.map_or((None, None), |owner| (owner.cgroup, owner.netns));
                    let key = (cgroup, netns, count.remote, count.what);
                    let added = count.added;
                    self.counts.entry(key).and_modify(|sum| sum.added += added).or_insert(count);
                }
            }
            Observation::Inventory(sample) => self.inventories.push(sample),
            Observation::Source(report) => self.reports.push(report),
            Observation::Loss(loss) => self.losses.push(loss),
            other => panic!("the kernel source told {other:?}"),
        }
    }

    /// How often `matches` was counted for sockets of this namespace.
    pub fn counted(&self, netns: u32, matches: impl Fn(&Counted) -> bool) -> u64 {
        self.counts
            .iter()
            .filter(|((_, owner, _, what), _)| *owner == Some(NetnsId(netns)) && matches(what))
            .map(|(_, count)| count.added)
            .sum()
    }

    /// Details of sockets of this namespace.
    pub fn events_of(&self, netns: u32) -> impl Iterator<Item = &ConnectionEvent> {
        self.events.iter().filter(move |event| event.owner.netns == Some(NetnsId(netns)))
    }

    /// The programs' totals.
    ///
    /// # Errors
    /// When nothing is loaded.
    pub fn stats(&self) -> Result<KernelStats> {
        self.handle.stats().context("nothing is loaded")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `ip:port`, with brackets where they belong.
pub fn at(ip: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(ip.into(), port)
}

/// Fails with one clear line where the tests cannot run.
///
/// # Errors
/// Without root.
pub fn ready() -> Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "the kernel tests need root");
    ensure!(Path::new("/sys/kernel/btf/vmlinux").exists(), "the kernel tests need a kernel with BTF");
    storewatch::netns::sweep(PREFIX);
    Ok(())
}
