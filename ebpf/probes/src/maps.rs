//! Maps and read-only globals. Sizes are defaults; the loader sets them for the machine.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, RingBuf},
};
use storewatch_ebpf_common::{
    config::{Offsets, Settings, WATCHED_WORDS},
    counters::{Count, CountKey, Totals},
};

use crate::track::Track;

/// Field offsets of the running kernel.
#[unsafe(no_mangle)]
pub static OFFSETS: Offsets = Offsets::NONE;

/// What does not change while the programs run.
#[unsafe(no_mangle)]
pub static SETTINGS: Settings = Settings::NONE;

/// Reads one field of a read-only global. The verifier knows the value and drops branches that it decides.
macro_rules! global {
    ($global:ident . $field:ident) => {{
        // SAFETY: an aligned field of a static; volatile, since the loader changes it after compilation.
        unsafe { core::ptr::addr_of!($crate::maps::$global.$field).read_volatile() }
    }};
}
pub(crate) use global;

/// Bitmap of watched ports.
#[map]
pub static WATCHED: Array<u64> = Array::with_max_entries(WATCHED_WORDS, 0);

/// Cgroups and network namespaces of the judged pods.
#[map]
pub static SELECTED: HashMap<u64, u32> = HashMap::with_max_entries(8192, 0);

/// Exact counters of the judged pods: nobody else can fill this map.
#[map]
pub static SELECTED_COUNTS: PerCpuHashMap<CountKey, Count> = PerCpuHashMap::with_max_entries(8192, 0);

/// Exact counters of everybody else, as long as there is room.
#[map]
pub static OTHER_COUNTS: PerCpuHashMap<CountKey, Count> = PerCpuHashMap::with_max_entries(2048, 0);

/// What found no room, summed per kind, port and evidence.
#[map]
pub static SUMS: PerCpuHashMap<CountKey, Count> = PerCpuHashMap::with_max_entries(1024, 0);

/// Totals by row and kind, one value so that one call reads all.
#[map]
pub static TOTALS: PerCpuArray<Totals> = PerCpuArray::with_max_entries(1, 0);

/// Sockets in SYN-SENT. Apart from the established ones, so that a storm of dials cannot evict these.
#[map]
pub static CONNECTING: LruHashMap<u64, Track> = LruHashMap::with_max_entries(16384, 0);

/// Client sockets from ESTABLISHED on.
#[map]
pub static ESTABLISHED: LruHashMap<u64, Track> = LruHashMap::with_max_entries(32768, 0);

/// Sockets that are no pod's client socket: the agent's own, and a server's end whose peer uses a watched port.
#[map]
pub static IGNORED: LruHashMap<u64, u32> = LruHashMap::with_max_entries(4096, 0);

/// 1 while the programs at connect's exit run, written by the loader: only then is [`DIALLING`] kept.
#[map]
pub static SEES_CALLS: Array<u32> = Array::with_max_entries(1, 0);

/// Threads within a connect call that has reached SYN-SENT, and its socket: what fails after that is told by the change of
/// state. An entry lives as long as the call.
#[map]
pub static DIALLING: LruHashMap<u64, u64> = LruHashMap::with_max_entries(4096, 0);

/// Details.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);
