//! RSTs, received and sent.

use aya_ebpf::{helpers::generated::bpf_ktime_get_ns, macros::raw_tracepoint, programs::RawTracePointContext};
use storewatch_ebpf_common::{
    counters::kind,
    evidence as bits,
    state::{LISTEN, NEW_SYN_RECV, SYN_RECV, TIME_WAIT},
};

use crate::{
    connect::late,
    emit::{Happening, record},
    maps::global,
    socket::Socket,
    track::Track,
};

/// `tcp_receive_reset(sk)`: an acceptable RST arrived; the socket still has the state that it hits.
#[raw_tracepoint(tracepoint = "tcp_receive_reset")]
pub fn tcp_receive_reset(ctx: RawTracePointContext) -> i32 {
    if let Some(socket) = Socket::watched(ctx.arg::<u64>(0)) {
        note(&socket, kind::RESET_RECEIVED, bits::RESET_RECEIVED, 0);
    }
    0
}

/// `tcp_send_reset(sk, skb[, reason])`: without a socket, or with the small one of TIME-WAIT, it is nobody's client.
#[raw_tracepoint(tracepoint = "tcp_send_reset")]
pub fn tcp_send_reset(ctx: RawTracePointContext) -> i32 {
    let address = ctx.arg::<u64>(0);
    if address == 0 {
        return 0;
    }
    if let Some(socket) = Socket::watched(address) {
        let reason = if global!(OFFSETS.send_reset_args) >= 3 { u64::from(ctx.arg::<u32>(2) & 0xff) } else { 0 };
        note(
            &socket,
            kind::RESET_SENT,
            bits::RESET_SENT | reason << bits::RESET_REASON_SHIFT,
            reason << bits::RESET_REASON_SHIFT,
        );
    }
    0
}

/// Remembers `seen` for the evidence of the end, counts and tells; `key` tells apart what is counted.
#[inline(always)]
pub fn note(socket: &Socket, kind: u8, seen: u64, key: u64) {
    let state = socket.state();
    if matches!(state, LISTEN | SYN_RECV | NEW_SYN_RECV | TIME_WAIT) {
        return;
    }
    let track = match Track::find(socket) {
        Some(track) => {
            // SAFETY: a live map value; only programs for this socket, which the kernel holds locked, write to it.
            let track = unsafe { &mut *track };
            track.seen |= seen;
            *track
        }
        None => match late(socket, kind) {
            Some(track) => track,
            None => return,
        },
    };
    // SAFETY: no arguments, no effect.
    let now = unsafe { bpf_ktime_get_ns() };
    let evidence = key | u64::from(state & 15) << bits::FROM_SHIFT;
    record(socket, &Happening { kind, state, evidence, track }, now);
}
