//! Connect calls that fail before the socket leaves CLOSE: the own routing refuses, and no tracepoint fires.
//!
//! Seen at the exit of the kernel functions behind connect, where the kernel can trace functions. What fails later in the
//! same call has changed the socket's state, and is told from there.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, generated::bpf_ktime_get_ns},
    macros::fexit,
    programs::FExitContext,
};
use storewatch_ebpf_common::{
    counters::{kind, total},
    evidence as bits,
    state::CLOSE,
};

use crate::{
    emit::{Happening, record, tally},
    maps::{DIALLING, SEES_CALLS},
    socket::{Socket, at_most, current_is_agent},
    track::Track,
};

/// Index of the return value: it follows `(sk, uaddr, addr_len)`.
const RETURNED: usize = 3;

/// `tcp_v4_connect(sk, uaddr, addr_len)`: also for IPv4 through an IPv6 socket.
#[fexit(function = "tcp_v4_connect")]
pub fn tcp_v4_connect(ctx: FExitContext) -> i32 {
    ended(&ctx)
}

/// `tcp_v6_connect(sk, uaddr, addr_len)`.
#[fexit(function = "tcp_v6_connect")]
pub fn tcp_v6_connect(ctx: FExitContext) -> i32 {
    ended(&ctx)
}

/// A dial has reached SYN-SENT within the running call.
#[inline(always)]
pub fn reached(socket: &Socket) {
    if SEES_CALLS.get(0).is_some_and(|sees| *sees != 0) {
        let _ = DIALLING.insert(bpf_get_current_pid_tgid(), socket.address, 0);
    }
}

#[inline(always)]
fn ended(ctx: &FExitContext) -> i32 {
    let (address, asked) = (ctx.arg::<*const u8>(0) as u64, ctx.arg::<*const u8>(1) as u64);
    let Some(socket) = Socket::refused(address, asked) else { return 0 };
    let thread = bpf_get_current_pid_tgid();
    if let Some(reached) = DIALLING.get_ptr(thread) {
        // SAFETY: a live map value that only this thread writes.
        let same = unsafe { *reached } == socket.address;
        let _ = DIALLING.remove(thread);
        if same {
            return 0;
        }
    }
    let returned = ctx.arg::<i32>(RETURNED);
    // The IPv6 function hands a mapped address to the IPv4 one, which has told it already.
    if returned >= 0 || socket.is_handed_on() || !socket.is_tcp() {
        return 0;
    }
    if current_is_agent() {
        tally(total::FILTERED, kind::FAILED);
        return 0;
    }
    // SAFETY: no arguments, no effect.
    let now = unsafe { bpf_ktime_get_ns() };
    let evidence = bits::BEGIN_SEEN
        | bits::IN_PROCESS
        | at_most(255, returned.unsigned_abs().into()) << bits::ERROR_SHIFT
        | u64::from(CLOSE) << bits::FROM_SHIFT;
    record(&socket, &Happening { kind: kind::FAILED, state: CLOSE, evidence, track: Track::begin(&socket, now) }, now);
    0
}
