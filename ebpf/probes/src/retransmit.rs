//! Segments sent again, and errors that the kernel reported to a socket's owner.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use storewatch_ebpf_common::{
    counters::kind,
    evidence as bits,
    state::{CLOSE, NEW_SYN_RECV, SYN_RECV},
};

use crate::{
    reset::note,
    socket::{Socket, at_most},
    track::Track,
};

/// `tcp_retransmit_skb(sk, skb[, err])`.
#[raw_tracepoint(tracepoint = "tcp_retransmit_skb")]
pub fn tcp_retransmit_skb(ctx: RawTracePointContext) -> i32 {
    if let Some(socket) = Socket::watched(ctx.arg::<u64>(0)) {
        note(&socket, kind::RETRANSMIT, 0, 0);
    }
    0
}

/// `inet_sk_error_report(sk)`: remembered, because on older kernels the owner may take the error before the socket
/// closes, and because an error of 0 in SYN-SENT is an ICMP error that the owner has taken already.
#[raw_tracepoint(tracepoint = "inet_sk_error_report")]
pub fn inet_sk_error_report(ctx: RawTracePointContext) -> i32 {
    let Some(socket) = Socket::watched(ctx.arg::<u64>(0)) else { return 0 };
    // From 6.12 on the report also comes after the change to CLOSE, where it says nothing new.
    if !socket.is_tcp() || matches!(socket.state(), SYN_RECV | NEW_SYN_RECV | CLOSE) {
        return 0;
    }
    let reported = at_most(255, socket.error().into()) << bits::REPORTED_SHIFT;
    if let Some(track) = Track::find(&socket) {
        // SAFETY: as in `note`.
        let track = unsafe { &mut *track };
        track.seen &= !(0xff << bits::REPORTED_SHIFT);
    }
    note(&socket, kind::ERROR, bits::REPORTED | reported, reported);
    0
}
