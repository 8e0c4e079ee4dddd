//! Count, then tell: the counter is exact, the detail goes out within the rate limit and is counted when it does not.

use aya_ebpf::maps::PerCpuHashMap;
use storewatch_ebpf_common::{
    ABI_VERSION,
    config::{selected_cgroup, selected_netns},
    counters::{Count, CountKey, TOTALS as TOTALS_LEN, total, total_index},
    event::RawEvent,
};

use crate::{
    maps::{EVENTS, OTHER_COUNTS, SELECTED, SELECTED_COUNTS, SUMS, TOTALS, global},
    socket::Socket,
    track::Track,
};

const SECOND: u64 = 1_000_000_000;
const BPF_NOEXIST: u64 = 1;

/// One more of a total.
#[inline(always)]
pub fn tally(total: u32, kind: u8) {
    if let Some(totals) = TOTALS.get_ptr_mut(0) {
        // The mask is for the verifier, which does not know the range of a kind that came through a branch.
        let index = total_index(total, kind & 15);
        if index < TOTALS_LEN {
            // SAFETY: within the value.
            add(unsafe { totals.cast::<u64>().add(index) }, 1);
        }
    }
}

/// Adds to a per-CPU word. Atomic, because a program in softirq context may interrupt one on the same CPU.
#[inline(always)]
fn add(slot: *mut u64, by: u64) {
    // SAFETY: a live map value, aligned. The precompiled core of this target has no atomic operations.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("lock *(u64 *)({slot} + 0) += {by}", slot = in(reg) slot, by = in(reg) by);
    }
    #[cfg(not(target_arch = "bpf"))]
    // SAFETY: as above.
    unsafe {
        *slot += by;
    }
}

/// Something that happened to a client socket.
pub struct Happening {
    /// What, see [`storewatch_ebpf_common::counters::kind`].
    pub kind: u8,
    /// The state that ended or that was hit.
    pub state: u8,
    /// What tells counters of one kind apart, see [`storewatch_ebpf_common::evidence`].
    pub evidence: u64,
    /// Whose socket.
    pub track: Track,
}

/// Counts what happened and tells it. Once per program: inlined, it takes most of the 512 bytes of stack.
#[inline(always)]
pub fn record(socket: &Socket, happening: &Happening, now: u64) {
    let Happening { kind, state, evidence, ref track } = *happening;
    tally(total::SEEN, kind);
    if track.cgroup == 0 && track.netns == 0 {
        tally(total::UNATTRIBUTED, kind);
    }
    let port = socket.remote_port();
    let mut key = CountKey { cgroup: track.cgroup, evidence, remote: [0; 16], netns: track.netns, port, kind, zero: 0 };
    // SAFETY: on the stack.
    unsafe { socket.remote_to(&raw mut key.remote) };
    let Some(count) = slot(&mut key) else {
        tally(total::UNCOUNTED, kind);
        return;
    };
    // SAFETY: a live map value of this CPU.
    let count = unsafe { &mut *count };
    add(&raw mut count.count, 1);
    if count.first == 0 {
        count.first = now;
    }
    if track.begun > count.last_begun {
        count.last_begun = track.begun;
    }
    count.last_ended = now;
    if now.wrapping_sub(count.window) >= SECOND {
        count.window = now;
        count.sent = 0;
    }
    if count.sent >= global!(SETTINGS.details_per_second) {
        tally(total::LIMITED, kind);
        return;
    }
    count.sent += 1;
    let Some(mut entry) = EVENTS.reserve::<RawEvent>(0) else {
        tally(total::LOST, kind);
        return;
    };
    let event = entry.as_mut_ptr();
    // SAFETY: reserved memory of this size; every byte of it is written, field by field to spare the stack.
    unsafe {
        (&raw mut (*event).at).write(now);
        (&raw mut (*event).begun).write(track.begun);
        (&raw mut (*event).socket).write(socket.address);
        (&raw mut (*event).cgroup).write(track.cgroup);
        (&raw mut (*event).evidence).write(evidence);
        (&raw mut (*event).bytes_received).write(socket.bytes_received());
        (&raw mut (*event).bytes_acked).write(socket.bytes_acked());
        socket.local_to(&raw mut (*event).local);
        socket.remote_to(&raw mut (*event).remote);
        (&raw mut (*event).netns).write(track.netns);
        (&raw mut (*event).tgid).write(track.tgid);
        (&raw mut (*event).srtt_us).write(socket.srtt_us());
        (&raw mut (*event).total_retrans).write(socket.total_retrans());
        (&raw mut (*event).local_port).write(socket.local_port());
        (&raw mut (*event).remote_port).write(port);
        (&raw mut (*event).abi).write(ABI_VERSION);
        (&raw mut (*event).kind).write(kind);
        (&raw mut (*event).state).write(state);
        (&raw mut (*event).retransmits).write(socket.retransmits());
        (&raw mut (*event).zero).write([0; 7]);
    }
    entry.submit(0);
    tally(total::EMITTED, kind);
}

/// The counter of a key: exact where there is room, else the sum.
#[inline(always)]
fn slot(key: &mut CountKey) -> Option<*mut Count> {
    let selected = SELECTED.get_ptr(selected_cgroup(key.cgroup)).is_some()
        || SELECTED.get_ptr(selected_netns(key.netns)).is_some();
    let map = if selected { &SELECTED_COUNTS } else { &OTHER_COUNTS };
    if let Some(count) = find_or_insert(map, key) {
        return Some(count);
    }
    tally(if selected { total::OVERFLOWED } else { total::SUMMED }, key.kind);
    key.cgroup = 0;
    key.netns = 0;
    key.remote = [0; 16];
    find_or_insert(&SUMS, key)
}

#[inline(always)]
fn find_or_insert(map: &PerCpuHashMap<CountKey, Count>, key: &CountKey) -> Option<*mut Count> {
    if let Some(count) = map.get_ptr_mut(key) {
        return Some(count);
    }
    // Another CPU may be first; then its entry is found.
    let _ = map.insert(key, Count::ZERO, BPF_NOEXIST);
    map.get_ptr_mut(key)
}
