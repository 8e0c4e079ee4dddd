//! What the kernel saw: eBPF programs on the TCP tracepoints, their exact counters and rate-limited details.
//!
//! Counters decide, details explain. A detail that arrives makes the counters be read within [`COALESCE`], so that the
//! engine hears of a failure within 50 ms; without one they are read every second. Whatever was lost, limited or could not
//! be loaded is told: as [`Loss`], in the [`SourceReport`], in [`KernelStats`].

use aya::Ebpf;
use aya_log::EbpfLogger;
use std::{
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use storewatch_core::{
    observation::Observation,
    source::{Loss, SourceName, SourceReport, SourceState},
    verdict::FindingCode,
};
use storewatch_ebpf_common::config::{WATCHED_WORDS, selected_cgroup, selected_netns};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Instant, sleep_until},
};

use crate::{
    clock,
    observe::ObservationSender,
    requests::{KernelRequests, Selected},
    source::{
        clock::every,
        inventory::{self, Inventory},
    },
};

pub mod btf;
pub mod capability;
pub mod counters;
pub mod decode;
pub mod loader;
pub mod offsets;
pub mod stats;
pub mod ticks;

use capability::Capabilities;
use counters::{Counters, Reading};
use decode::{DecodeError, Decoder};
use loader::{Control, Hook, Loaded, Tier};
use stats::{Activity, KernelStats, Totals};

/// Details gather for this long before the counters are read.
const COALESCE: Duration = Duration::from_millis(20);
/// A reading that took t is followed by a pause of at least this many t, so that reading never takes a CPU.
const PAUSE_FACTOR: u32 = 10;
/// Idle counters are removed this often.
const PRUNE: Duration = Duration::from_secs(60);
/// Details handled before the loop looks at its other duties.
const BATCH: usize = 512;
/// Least distance between two lines about records that are refused.
const REFUSED_SPACING: Duration = Duration::from_secs(1);

/// What the kernel source is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// False: load nothing, and say so.
    pub enabled: bool,
    /// Ports to watch from the first moment; requests replace them.
    pub ports: Vec<u16>,
    /// Counters are read at least this often.
    pub counter_interval: Duration,
    /// How often the inventory is read.
    pub inventory_interval: Duration,
    /// Details per counter key, CPU and second; more are only counted.
    pub details_per_second: u32,
    /// Size of the ring buffer: a power of two of pages.
    pub ring_bytes: u32,
    /// Keys of counters reserved for the judged pods; `None`: by the machine.
    pub selected_keys: Option<usize>,
    /// Sockets of this process are no evidence. Only tests, which dial themselves, set it to false.
    pub ignore_own: bool,
    /// The inventory reads by plain loads where the verifier allows it. Only tests, which want the other way as well, set it
    /// to false.
    pub plain_loads: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            ports: Vec::new(),
            counter_interval: Duration::from_secs(1),
            inventory_interval: Duration::from_secs(15),
            details_per_second: 20,
            ring_bytes: 256 * 1024,
            selected_keys: None,
            ignore_own: true,
            plain_loads: true,
        }
    }
}

/// The kernel source, loaded and attached as far as the machine allows.
pub struct KernelSource {
    settings: Settings,
    handle: KernelHandle,
    state: SourceState,
    detail: Arc<str>,
    readers: Option<Readers>,
    inventory: Inventory,
}

struct Readers {
    decoder: Decoder,
    counters: Counters,
    activity: Activity,
    events: AsyncFd<aya::maps::RingBuf<aya::maps::MapData>>,
    log: Option<AsyncFd<EbpfLogger<&'static dyn log::Log>>>,
    refused: Refused,
}

/// What others may ask of the kernel source at any time.
#[derive(Clone)]
pub struct KernelHandle(Arc<Shared>);

struct Shared {
    capabilities: Capabilities,
    hooks: Vec<Hook>,
    programs: Option<Mutex<Ebpf>>,
    control: Option<Mutex<Control>>,
    totals: Option<Totals>,
    decoder: Option<Decoder>,
}

impl std::fmt::Debug for KernelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shared { capabilities, hooks, programs: _, control: _, totals: _, decoder: _ } = &*self.0;
        f.debug_struct("KernelHandle").field("capabilities", capabilities).field("hooks", hooks).finish()
    }
}

impl std::fmt::Debug for KernelSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelSource").field("state", &self.state).field("detail", &self.detail).finish_non_exhaustive()
    }
}

impl KernelSource {
    /// Loads and attaches; takes some 100 ms. Never fails: what is not possible stands in [`Self::reports`]. Must be called
    /// within a Tokio runtime.
    pub fn open(settings: Settings) -> Self {
        let capabilities = Capabilities::read();
        let loaded = if settings.enabled {
            loader::load(&settings, &capabilities).map_err(|error| error.to_string())
        } else {
            Err("switched off by configuration (kernel.mode: off)".to_owned())
        };
        // BTF is some megabytes, wanted once.
        // SAFETY: glibc's call has no preconditions.
        #[cfg(target_env = "gnu")]
        unsafe {
            libc::malloc_trim(0);
        }
        match loaded.and_then(|loaded| Self::over(settings.clone(), capabilities.clone(), loaded)) {
            Ok(source) => source,
            Err(reason) => Self {
                inventory: Inventory::from_proc(reason.as_str().into()),
                settings,
                handle: KernelHandle(Arc::new(Shared {
                    capabilities,
                    hooks: Vec::new(),
                    programs: None,
                    control: None,
                    totals: None,
                    decoder: None,
                })),
                state: SourceState::Absent,
                detail: reason.into(),
                readers: None,
            },
        }
    }

    fn over(settings: Settings, capabilities: Capabilities, loaded: Loaded) -> Result<Self, String> {
        let Loaded { mut ebpf, hooks, missing_fields, offsets, control, counters, totals, events } = loaded;
        let decoder = Decoder::new(&offsets);
        let log = EbpfLogger::init(&mut ebpf)
            .map_err(|error| error.to_string())
            .and_then(|log| poll(log).map_err(|error| error.to_string()));
        if let Err(error) = &log {
            tracing::warn!(error, "the programs' own messages cannot be read");
        }
        let events = poll(events).map_err(|error| format!("the ring buffer cannot be polled: {error}"))?;
        let missing: Vec<_> = hooks
            .iter()
            .filter(|hook| hook.tier == Tier::Events)
            .filter_map(|hook| Some((hook, hook.missing.as_deref()?)))
            .map(|(hook, reason)| format!("without {}: {} ({reason})", hook.name, hook.lost))
            .chain(missing_fields.iter().map(ToString::to_string))
            .collect();
        let state = if missing.is_empty() { SourceState::Active } else { SourceState::Degraded };
        let unseen = hooks.iter().filter(|hook| hook.tier == Tier::Calls).find_map(|hook| {
            let reason = hook.missing.as_deref()?;
            // Nothing is wrong with the rest: the source stays active, and says what it cannot see.
            Some(format!("{}: {} ({reason})", FindingCode::AttemptsNotObservable.as_str(), hook.lost))
        });
        let inventory = match hooks.iter().find(|hook| hook.name == loader::ITERATOR.0) {
            Some(Hook { missing: Some(reason), .. }) => Inventory::from_proc(reason.as_str().into()),
            _ => Inventory::from_kernel(decoder),
        };
        let handle = KernelHandle(Arc::new(Shared {
            capabilities,
            totals: Some(Totals::new(totals, &ebpf)),
            hooks,
            programs: Some(Mutex::new(ebpf)),
            control: Some(Mutex::new(control)),
            decoder: Some(decoder),
        }));
        handle.set_ports(&settings.ports).map_err(|error| format!("the ports cannot be set: {error}"))?;
        Ok(Self {
            settings,
            handle,
            state,
            detail: missing.into_iter().chain(unseen).collect::<Vec<_>>().join("; ").into(),
            readers: Some(Readers {
                decoder,
                counters,
                activity: Activity::default(),
                events,
                log: log.ok(),
                refused: Refused::default(),
            }),
            inventory,
        })
    }

    /// For others to ask.
    pub fn handle(&self) -> KernelHandle {
        self.handle.clone()
    }

    /// How the kernel source and the inventory are, as of now.
    pub fn reports(&self) -> Vec<SourceReport> {
        vec![self.report(), self.inventory.report()]
    }

    fn report(&self) -> SourceReport {
        SourceReport {
            source: SourceName::Kernel,
            at: clock::now(),
            state: self.state,
            detail: Arc::clone(&self.detail),
        }
    }

    /// Reads and tells until the engine ends. Dropped, everything is detached.
    ///
    /// # Errors
    /// When the ring buffer can no longer be polled.
    pub async fn run(mut self, observations: ObservationSender, mut requests: KernelRequests) -> anyhow::Result<()> {
        for report in self.reports() {
            if observations.send(Observation::Source(report)).await.is_err() {
                return Ok(());
            }
        }
        let mut tick = every(self.settings.counter_interval);
        let mut prune = every(PRUNE);
        let mut sample = every(self.settings.inventory_interval);
        let mut read_at: Option<Instant> = None;
        let mut not_before = Instant::now();
        let mut ports = self.settings.ports.clone();
        let mut sampling: Option<tokio::task::JoinHandle<inventory::Finished>> = None;
        let mut again = false;
        let mut began = Instant::now();
        let mut next_sample = Instant::now();
        loop {
            let due = read_at.map(|at| at.max(not_before));
            tokio::select! {
                details = next_details(&mut self.readers, &observations) => {
                    details?;
                    read_at.get_or_insert_with(|| Instant::now() + COALESCE);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    read_at = None;
                    let began = Instant::now();
                    if !self.read_counters(&observations, false).await {
                        return Ok(());
                    }
                    not_before = Instant::now() + began.elapsed() * PAUSE_FACTOR;
                }
                _ = tick.tick() => {
                    if !self.read_counters(&observations, true).await {
                        return Ok(());
                    }
                    if let Some(readers) = &mut self.readers {
                        readers.counters.relieve(clock::now());
                    }
                }
                _ = prune.tick() => {
                    if let Some(readers) = &mut self.readers {
                        readers.counters.prune(clock::now());
                    }
                }
                _ = sample.tick() => again = true,
                () = requests.sample.notified() => again = true,
                () = sleep_until(next_sample), if again && sampling.is_none() => {}
                finished = finished(&mut sampling) => {
                    sampling = None;
                    next_sample = Instant::now() + began.elapsed() * PAUSE_FACTOR;
                    if !self.inventory.tell(finished, &observations).await {
                        return Ok(());
                    }
                }
                Ok(()) = requests.ports.changed() => {
                    ports.clone_from(&requests.ports.borrow_and_update());
                    if let Err(error) = self.handle.set_ports(&ports) {
                        tracing::error!(error = %error, "the watched ports cannot be changed");
                    }
                    again = true;
                }
                Ok(()) = requests.selected.changed() => {
                    let selected = requests.selected.borrow_and_update().clone();
                    if let Err(error) = self.handle.select(&selected) {
                        tracing::error!(error = %error, "the selected pods cannot be changed");
                    }
                }
            }
            if again && sampling.is_none() && Instant::now() >= next_sample {
                again = false;
                began = Instant::now();
                sampling = Some(self.inventory.begin(&self.handle, &ports));
            }
        }
    }

    /// False when the engine has ended.
    async fn read_counters(&mut self, observations: &ObservationSender, regular: bool) -> bool {
        let at = clock::now();
        let mut told = Vec::new();
        if let Some(readers) = &mut self.readers {
            let totals = self.handle.0.totals.as_ref();
            let mut stats = totals.map(Totals::stats);
            let moves = stats.as_ref().is_none_or(|stats| readers.activity.moves(stats.sum(|kind| kind.seen)));
            let mut reading = Reading::default();
            if moves {
                reading = readers.counters.read();
                // What got lost meanwhile belongs to this reading.
                stats = totals.map(Totals::stats);
            }
            if !reading.counts.is_empty() {
                told.push(Observation::Attempts { at, counts: reading.counts });
            }
            let mut lost = Loss { source: SourceName::Kernel, at, lost: 0, counters: true };
            if let Some((count, reason)) = reading.refused {
                tracing::error!(count, %reason, "the kernel's counters hold what this agent does not understand");
                lost.lost += count;
            }
            if let Some(error) = reading.failed {
                tracing::error!(error, "the kernel's counters cannot be read");
                readers.activity = Activity::again();
                lost.lost += 1;
            }
            let losses = totals.zip(stats).map(|(totals, stats)| totals.losses(&stats));
            let (details, counters) = losses.unwrap_or_default();
            lost.lost += counters;
            told.extend((lost.lost > 0).then_some(Observation::Loss(lost)));
            told.extend((details > 0).then_some(Observation::Loss(Loss { lost: details, counters: false, ..lost })));
        }
        if regular {
            told.push(Observation::Source(self.report()));
        }
        for observation in told {
            if observations.send(observation).await.is_err() {
                return false;
            }
        }
        true
    }
}

fn poll<T: AsFd + AsRawFd>(ring: T) -> std::io::Result<AsyncFd<T>> {
    // SAFETY: a ring buffer owns its descriptor and keeps it open and unchanged until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?)
}

async fn finished(sampling: &mut Option<tokio::task::JoinHandle<inventory::Finished>>) -> inventory::Finished {
    match sampling {
        Some(task) => task.await.unwrap_or_else(|error| Err(format!("reading panicked: {error}"))),
        None => std::future::pending().await,
    }
}

/// Records that this agent does not understand: each is lost and counted, and of those of a second one is named.
#[derive(Debug, Default)]
struct Refused {
    /// Since when the present second runs, and how many it has had.
    second: Option<(Instant, u64)>,
}

impl Refused {
    fn say(&mut self, reason: DecodeError) {
        match &mut self.second {
            Some((begun, count)) if begun.elapsed() < REFUSED_SPACING => *count += 1,
            second => {
                let before = second.map_or(0, |(_, count)| count);
                *second = Some((Instant::now(), 0));
                tracing::error!(%reason, before, "a record of the kernel is refused");
            }
        }
    }
}

/// Passes on what waits in the ring buffer, or waits for it. Cancel-safe: it awaits readiness only.
async fn next_details(readers: &mut Option<Readers>, observations: &ObservationSender) -> anyhow::Result<()> {
    let Some(Readers { decoder, events, log, refused, .. }) = readers else { return std::future::pending().await };
    loop {
        let (mut ready, is_log) = tokio::select! {
            ready = events.readable_mut() => (Some(ready?), false),
            () = flush(log) => (None, true),
        };
        if is_log {
            continue;
        }
        let Some(ready) = &mut ready else { continue };
        let mut handled = 0;
        while let Some(record) = ready.get_inner_mut().next() {
            match decoder.event(&record) {
                Ok(event) => observations.offer(SourceName::Kernel, Observation::Connection(event)),
                Err(reason) => {
                    observations.not_understood(SourceName::Kernel);
                    refused.say(reason);
                }
            }
            handled += 1;
            if handled == BATCH {
                return Ok(());
            }
        }
        ready.clear_ready();
        if handled > 0 {
            return Ok(());
        }
    }
}

/// Carries the programs' own messages into the log.
async fn flush(log: &mut Option<AsyncFd<EbpfLogger<&'static dyn log::Log>>>) {
    let Some(log) = log else { return std::future::pending().await };
    match log.readable_mut().await {
        Ok(mut ready) => {
            ready.get_inner_mut().flush();
            ready.clear_ready();
        }
        Err(_) => std::future::pending().await,
    }
}

/// Sockets that the programs remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// In SYN-SENT.
    pub connecting: usize,
    /// Established and after.
    pub established: usize,
    /// The agent's own, and servers' ends.
    pub ignored: usize,
}

/// Why a map could not be changed.
pub type ControlError = aya::maps::MapError;

impl KernelHandle {
    /// What this machine and process offer.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// Each program's fate; empty when nothing was loaded.
    pub fn hooks(&self) -> &[Hook] {
        &self.0.hooks
    }

    /// Watches exactly these ports from now on.
    ///
    /// # Errors
    /// When the kernel refuses the change of its map.
    pub fn set_ports(&self, ports: &[u16]) -> Result<(), ControlError> {
        let Some(mut control) = self.control() else { return Ok(()) };
        let mut words = vec![0_u64; WATCHED_WORDS as usize];
        for port in ports.iter().copied().filter(|port| *port != 0) {
            if let Some(word) = words.get_mut(usize::from(port >> 6)) {
                *word |= 1 << (port & 63);
            }
        }
        for (index, word) in (0..).zip(words) {
            // Written only where it differs: 1024 calls at start, two or three later.
            if control.watched.get(&index, 0)? != word {
                control.watched.set(index, word, 0)?;
            }
        }
        Ok(())
    }

    /// Keeps room for exactly these pods from now on.
    ///
    /// # Errors
    /// When the kernel refuses the change of its map.
    pub fn select(&self, selected: &Selected) -> Result<(), ControlError> {
        let Some(mut control) = self.control() else { return Ok(()) };
        let wanted: std::collections::HashSet<u64> = selected
            .cgroups
            .iter()
            .map(|cgroup| selected_cgroup(cgroup.0))
            .chain(selected.netns.iter().map(|netns| selected_netns(netns.0)))
            .collect();
        let present = control.selected.keys().collect::<Result<std::collections::HashSet<_>, _>>()?;
        for key in present.difference(&wanted) {
            control.selected.remove(key)?;
        }
        for key in wanted.difference(&present) {
            control.selected.insert(key, 1, 0)?;
        }
        Ok(())
    }

    /// Totals and the programs' cost so far; `None` when nothing is loaded.
    pub fn stats(&self) -> Option<KernelStats> {
        self.0.totals.as_ref().map(Totals::stats)
    }

    /// Time spent in each program so far; `None` while the kernel does not measure it, or nothing is loaded.
    pub fn program_seconds(&self) -> Option<Vec<(String, Duration)>> {
        let measured = std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").is_ok_and(|on| on.trim() != "0");
        let stats = measured.then(|| self.stats()).flatten()?;
        Some(stats.programs.into_iter().map(|program| (program.name, program.run_time)).collect())
    }

    /// How many sockets the programs remember at this moment; `None` when nothing is loaded or the maps cannot be read.
    pub fn occupancy(&self) -> Option<Occupancy> {
        let control = self.control()?;
        Some(Occupancy {
            connecting: control.connecting.keys().collect::<Result<Vec<_>, _>>().ok()?.len(),
            established: control.established.keys().collect::<Result<Vec<_>, _>>().ok()?.len(),
            ignored: control.ignored.keys().collect::<Result<Vec<_>, _>>().ok()?.len(),
        })
    }

    /// Understands this kernel's records; `None` when nothing is loaded.
    pub fn decoder(&self) -> Option<Decoder> {
        self.0.decoder
    }

    /// Opens the inventory for one reading from begin to end.
    ///
    /// # Errors
    /// When there is no iterator, or the kernel refuses.
    pub fn open_inventory(&self) -> Result<std::fs::File, String> {
        let programs = self.0.programs.as_ref().ok_or("nothing is loaded")?;
        let mut ebpf = programs.lock().unwrap_or_else(PoisonError::into_inner);
        let program = loader::iterator(&mut ebpf)?;
        let link = program.attach().map_err(|error| error.to_string())?;
        let link = program.take_link(link).map_err(|error| error.to_string())?;
        link.into_file().map_err(|error| error.to_string())
    }

    fn control(&self) -> Option<std::sync::MutexGuard<'_, Control>> {
        Some(self.0.control.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
