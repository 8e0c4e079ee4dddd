//! Loads what can be loaded and says of the rest why not and what is lost.

use aya::{
    Btf as KernelTypes, Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, PerCpuArray, PerCpuHashMap, RingBuf},
    programs::{FExit, Iter, RawTracePoint},
};
use std::{fs, os::unix::fs::MetadataExt as _, path::Path};
use storewatch_ebpf_common::{
    config::{OFFSETS_GLOBAL, Offsets, SETTINGS_GLOBAL, Settings as RawSettings},
    counters::{Count, CountKey, Totals},
};

use super::{
    Settings,
    btf::{Btf, BtfError},
    capability::{BTF_PATH, Capabilities},
    counters::Counters,
    offsets,
};

#[cfg(ebpf_object = "real")]
const OBJECT: Option<&[u8]> = Some(aya::include_bytes_aligned!(env!("STOREWATCH_EBPF_OBJECT")));
#[cfg(not(ebpf_object = "real"))]
const OBJECT: Option<&[u8]> = None;

/// Room for counters in all, over the CPUs: bounds the kernel memory on large machines.
const COUNTER_BYTES: usize = 24 << 20;
/// Keys of selected pods, at most and at least.
const SELECTED_KEYS: std::ops::RangeInclusive<usize> = 1024..=8192;

/// Size of the programs' memory of a socket, in words.
const TRACK_WORDS: usize = 4;

/// The tracepoints and what cannot be known without each. The first is essential.
pub const TRACEPOINTS: [(&str, &str); 6] = [
    ("inet_sock_set_state", "every connection outcome"),
    ("inet_sk_error_report", "ICMP errors that the application took before it closed"),
    ("tcp_receive_reset", "resets received"),
    ("tcp_send_reset", "resets sent, and the end of connections by keep-alive"),
    ("tcp_retransmit_skb", "retransmissions"),
    ("tcp_destroy_sock", "nothing but the early release of map entries"),
];
/// The iterator's program, and what it is good for.
pub const ITERATOR: (&str, &str) = ("sockets", "the inventory with byte counts; /proc is read instead");
/// The same program with reads that every kernel's verifier allows.
const ITERATOR_CHECKED: &str = "sockets_checked";

/// The kernel functions whose exit tells of connect calls that failed without a tracepoint.
pub const CALLS: [(&str, &str); 2] = [
    ("tcp_v4_connect", "dials that the pod's own routing refuses"),
    ("tcp_v6_connect", "dials that the pod's own routing refuses"),
];

/// What a program is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// What happened to connections: without one of these the kernel source is degraded.
    Events,
    /// The inventory, which has a fallback of its own.
    Inventory,
    /// Failures of a connect call itself. Kernels without function tracing do not have it, and nothing else suffers.
    Calls,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The tracepoint, the kernel function, or the iterator.
    pub name: &'static str,
    /// What it is needed for.
    pub tier: Tier,
    /// What cannot be known without it.
    pub lost: &'static str,
    /// Why it is missing; `None` when it is active.
    pub missing: Option<String>,
}

/// Why nothing could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// This binary was built without the programs.
    #[error(
        "this binary carries no eBPF programs ({0}); use a release, or build where the eBPF toolchain is installed"
    )]
    Stub(&'static str),
    /// The machine does not allow it.
    #[error("{0}")]
    Refused(String),
    /// The kernel's types cannot be read.
    #[error("{BTF_PATH}: {0}")]
    Btf(#[from] BtfError),
    /// The kernel's types cannot be read at all.
    #[error("{BTF_PATH}: {0}")]
    Read(#[from] std::io::Error),
    /// Loading failed as a whole.
    #[error("the programs could not be loaded: {0}")]
    Load(String),
    /// An essential program failed.
    #[error("{name} could not be attached: {reason}")]
    Essential {
        /// Its tracepoint.
        name: &'static str,
        /// Why.
        reason: String,
    },
}

/// Everything that runs in the kernel. Dropped, it is gone from there.
pub struct Loaded {
    /// Owner of the programs.
    pub ebpf: Ebpf,
    /// Each program's fate.
    pub hooks: Vec<Hook>,
    /// Fields that this kernel does not have.
    pub missing_fields: Vec<BtfError>,
    /// Where fields lie.
    pub offsets: Offsets,
    /// Maps that user space writes.
    pub control: Control,
    /// Exact counters.
    pub counters: Counters,
    /// Totals per kind.
    pub totals: PerCpuArray<MapData, Totals>,
    /// Details.
    pub events: RingBuf<MapData>,
}

/// Maps that user space writes at run time.
pub struct Control {
    /// Bitmap of watched ports.
    pub watched: Array<MapData, u64>,
    /// Cgroups and network namespaces of judged pods.
    pub selected: HashMap<MapData, u64, u32>,
    /// Sockets that are remembered; their values are the programs' own.
    pub connecting: HashMap<MapData, u64, [u64; TRACK_WORDS]>,
    /// Likewise.
    pub established: HashMap<MapData, u64, [u64; TRACK_WORDS]>,
    /// Sockets that are ignored.
    pub ignored: HashMap<MapData, u64, u32>,
}

/// Loads and attaches.
///
/// # Errors
/// When the essential part is not possible; the message says why and how to get it.
pub fn load(settings: &Settings, capabilities: &Capabilities) -> Result<Loaded, LoadError> {
    let object = OBJECT.ok_or(LoadError::Stub(option_env!("STOREWATCH_EBPF_STUB_REASON").unwrap_or_default()))?;
    let problems = capabilities.problems();
    if !problems.is_empty() {
        let text: Vec<_> = problems.iter().map(|p| format!("{} (to get it: {})", p.what, p.remedy)).collect();
        return Err(LoadError::Refused(text.join("; ")));
    }
    let bytes = fs::read(BTF_PATH)?;
    let btf = Btf::parse(&bytes)?;
    let resolved = offsets::resolve(&btf)?;
    let arguments = TRACEPOINTS.map(|(name, _)| btf.tracepoint_arguments(name));
    let iterates = btf.has_function("bpf_iter_task_file");
    let traced = CALLS.map(|(name, _)| btf.has_function(name));
    drop(btf);
    drop(bytes);

    let types = KernelTypes::from_sys_fs().map_err(|error| LoadError::Load(error.to_string()))?;
    let [selected_keys, other_keys, sum_keys] = sizes(settings);
    let raw = raw_settings(settings);
    let mut ebpf = EbpfLoader::new()
        .btf(Some(&types))
        .override_global(OFFSETS_GLOBAL, &resolved.offsets, true)
        .override_global(SETTINGS_GLOBAL, &raw, true)
        .map_max_entries("SELECTED_COUNTS", selected_keys)
        .map_max_entries("OTHER_COUNTS", other_keys)
        .map_max_entries("SUMS", sum_keys)
        .map_max_entries("EVENTS", settings.ring_bytes)
        .load(object)
        .map_err(|error| LoadError::Load(chain(&error)))?;

    let mut hooks = Vec::with_capacity(TRACEPOINTS.len() + CALLS.len() + 1);
    for ((name, lost), arguments) in TRACEPOINTS.into_iter().zip(arguments) {
        let missing = match arguments {
            Some(_) => attach(&mut ebpf, name).err(),
            None => Some("this kernel has no such tracepoint".to_owned()),
        };
        hooks.push(Hook { name, tier: Tier::Events, lost, missing });
    }
    if let Some(Hook { name, missing: Some(reason), .. }) = hooks.first() {
        return Err(LoadError::Essential { name, reason: reason.clone() });
    }
    let (name, lost) = ITERATOR;
    let missing = if iterates {
        load_iterator(&mut ebpf, &types, settings.plain_loads).err()
    } else {
        Some("this kernel cannot iterate over open files".to_owned())
    };
    hooks.push(Hook { name, tier: Tier::Inventory, lost, missing });
    hooks.extend(calls(&mut ebpf, &types, traced)?);

    let control = Control {
        watched: take(&mut ebpf, "WATCHED")?,
        selected: take(&mut ebpf, "SELECTED")?,
        connecting: take(&mut ebpf, "CONNECTING")?,
        established: take(&mut ebpf, "ESTABLISHED")?,
        ignored: take(&mut ebpf, "IGNORED")?,
    };
    let maps: [PerCpuHashMap<MapData, CountKey, Count>; 3] =
        [take(&mut ebpf, "SELECTED_COUNTS")?, take(&mut ebpf, "OTHER_COUNTS")?, take(&mut ebpf, "SUMS")?];
    let [selected, other, sums] = maps;
    let capacities = [selected_keys, other_keys, sum_keys].map(|keys| keys as usize);
    Ok(Loaded {
        counters: Counters::new(selected, other, sums, capacities),
        totals: take(&mut ebpf, "TOTALS")?,
        events: take(&mut ebpf, "EVENTS")?,
        control,
        ebpf,
        hooks,
        missing_fields: resolved.missing,
        offsets: resolved.offsets,
    })
}

/// The inventory's program, in the form that is loaded.
///
/// # Errors
/// When none is.
pub fn iterator(ebpf: &mut Ebpf) -> Result<&mut Iter, String> {
    let is_loaded = |name: &&str| ebpf.program(name).is_some_and(|program| program.fd().is_ok());
    let name = [ITERATOR.0, ITERATOR_CHECKED].into_iter().find(is_loaded).ok_or("no such program is loaded")?;
    named(ebpf, name)
}

fn named<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Iter, String> {
    let program = ebpf.program_mut(name).ok_or("the object has no such program")?;
    program.try_into().map_err(|error: aya::programs::ProgramError| chain(&error))
}

/// Loads the fast form of the inventory's program, or else the one that every verifier allows.
fn load_iterator(ebpf: &mut Ebpf, types: &KernelTypes, plain_loads: bool) -> Result<(), String> {
    let mut load = |name| named(ebpf, name)?.load("task_file", types).map_err(|error| chain(&error));
    let plain = if plain_loads { load(ITERATOR.0) } else { Err("not wanted".to_owned()) };
    plain.or_else(|reason| {
        tracing::debug!(reason, "the inventory reads with checks, several times as slow");
        load(ITERATOR_CHECKED)
    })
}

/// The programs at connect's exit. They are marked as running before they run, so that no failure is told twice.
fn calls(ebpf: &mut Ebpf, types: &KernelTypes, known: [bool; 2]) -> Result<[Hook; 2], LoadError> {
    let mut sees: Array<MapData, u32> = take(ebpf, "SEES_CALLS")?;
    let mut mark = |value: u32| sees.set(0, value, 0).map_err(|error| LoadError::Load(format!("SEES_CALLS: {error}")));
    mark(1)?;
    let mut index = 0;
    let hooks = CALLS.map(|(name, lost)| {
        let missing = if known[index] {
            attach_exit(ebpf, name, types).err()
        } else {
            Some("this kernel has no such function".to_owned())
        };
        index += 1;
        Hook { name, tier: Tier::Calls, lost, missing }
    });
    if hooks.iter().all(|hook| hook.missing.is_some()) {
        mark(0)?;
    }
    Ok(hooks)
}

fn attach_exit(ebpf: &mut Ebpf, name: &str, types: &KernelTypes) -> Result<(), String> {
    let program = ebpf.program_mut(name).ok_or("the object has no such program")?;
    let program: &mut FExit = program.try_into().map_err(|error: aya::programs::ProgramError| chain(&error))?;
    let refused = |error| format!("this kernel lets no function be traced: {}", chain(&error));
    program.load(name, types).map_err(refused)?;
    program.attach().map_err(refused)?;
    Ok(())
}

fn attach(ebpf: &mut Ebpf, name: &str) -> Result<(), String> {
    let program = ebpf.program_mut(name).ok_or("the object has no such program")?;
    let program: &mut RawTracePoint = program.try_into().map_err(|error: aya::programs::ProgramError| chain(&error))?;
    program.load().map_err(|error| chain(&error))?;
    program.attach(name).map_err(|error| chain(&error))?;
    Ok(())
}

fn take<M: TryFrom<aya::maps::Map, Error = aya::maps::MapError>>(ebpf: &mut Ebpf, name: &str) -> Result<M, LoadError> {
    let map = ebpf.take_map(name).ok_or_else(|| LoadError::Load(format!("the object has no map {name}")))?;
    M::try_from(map).map_err(|error| LoadError::Load(format!("map {name}: {error}")))
}

/// Keys of the three counter maps: what a selected pod can need, bounded by memory on machines with many CPUs.
fn sizes(settings: &Settings) -> [u32; 3] {
    let cpus = aya::util::nr_cpus().unwrap_or(1).max(1);
    let fits = COUNTER_BYTES / (cpus * size_of::<Count>());
    let selected = settings.selected_keys.unwrap_or((fits / 2).clamp(*SELECTED_KEYS.start(), *SELECTED_KEYS.end()));
    [selected, (selected / 4).max(256), 1024].map(|keys| u32::try_from(keys).unwrap_or(u32::MAX))
}

fn raw_settings(settings: &Settings) -> RawSettings {
    let mut raw = RawSettings { details_per_second: settings.details_per_second, ..RawSettings::NONE };
    if settings.ignore_own
        && let Ok(namespace) = fs::metadata(Path::new("/proc/self/ns/pid"))
    {
        let device = namespace.dev();
        // The kernel compares with its own encoding, not with that of `stat`.
        raw.pidns_dev = u64::from(libc::major(device)) << 20 | u64::from(libc::minor(device));
        raw.pidns_ino = namespace.ino();
        raw.own_tgid = std::process::id();
    }
    raw
}

/// An error with all its causes in one line, without the verifier's log beyond its end.
fn chain(error: &dyn std::error::Error) -> String {
    const LONGEST: usize = 600;
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // What the verifier has not said.
    let line = line.strip_suffix(". Verifier output:").map(ToOwned::to_owned).unwrap_or(line);
    match line.char_indices().rev().nth(LONGEST) {
        Some((at, _)) if line.len() > 2 * LONGEST => {
            let head: String = line.chars().take(200).collect();
            format!("{head} … {}", &line[at..])
        }
        _ => line,
    }
}
