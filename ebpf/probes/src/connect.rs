//! Dials, their outcome and the end of connections, from the socket's state changes (never from a syscall's return: a
//! non-blocking connect returns before anything is known).

use aya_ebpf::{helpers::generated::bpf_ktime_get_ns, macros::raw_tracepoint, programs::RawTracePointContext};
use aya_log_ebpf::warn;
use storewatch_ebpf_common::{
    counters::{kind, total},
    evidence as bits,
    state::{CLOSE, ESTABLISHED as STATE_ESTABLISHED, LISTEN, NEW_SYN_RECV, SYN_RECV, SYN_SENT},
};

use crate::{
    call,
    emit::{Happening, record, tally},
    maps::{CONNECTING, ESTABLISHED, IGNORED},
    socket::{Socket, at_most, current_is_agent, current_tgid, is_set},
    track::{Track, forget},
};

/// `inet_sock_set_state(sk, old, new)`: fires before the state is written.
#[raw_tracepoint(tracepoint = "inet_sock_set_state")]
pub fn inet_sock_set_state(ctx: RawTracePointContext) -> i32 {
    let Some(socket) = Socket::watched(ctx.arg::<u64>(0)) else { return 0 };
    let (old, new) = (ctx.arg::<i32>(1) as u8, ctx.arg::<i32>(2) as u8);
    // SAFETY: no arguments, no effect.
    let now = unsafe { bpf_ktime_get_ns() };
    let happening = match (old, new) {
        (CLOSE, SYN_SENT) => begin(&ctx, &socket, now),
        (SYN_SENT | SYN_RECV, STATE_ESTABLISHED) => established(&ctx, &socket, old),
        (CLOSE | LISTEN | NEW_SYN_RECV, CLOSE) => None,
        (_, CLOSE) => closed(&socket, old),
        _ => return 0,
    };
    if let Some(happening) = happening {
        record(&socket, &happening, now);
    }
    if new == CLOSE {
        forget(&socket);
    }
    0
}

#[inline(always)]
fn begin(ctx: &RawTracePointContext, socket: &Socket, now: u64) -> Option<Happening> {
    if !socket.is_tcp() {
        tally(total::FILTERED, kind::BEGUN);
        return None;
    }
    if current_is_agent() {
        tally(total::FILTERED, kind::BEGUN);
        let _ = IGNORED.insert(socket.address, 1, 0);
        return None;
    }
    // Left by a socket at the same address that was destroyed after it had lost its ports.
    if IGNORED.get_ptr(socket.address).is_some() {
        let _ = IGNORED.remove(socket.address);
    }
    let track = Track::begin(socket, now);
    keep(ctx, &CONNECTING, socket, &track, kind::BEGUN);
    call::reached(socket);
    Some(Happening { kind: kind::BEGUN, state: CLOSE, evidence: 0, track })
}

#[inline(always)]
fn established(ctx: &RawTracePointContext, socket: &Socket, old: u8) -> Option<Happening> {
    // SAFETY: a live map value; only programs for this socket, which the kernel holds locked, write to it.
    let known = CONNECTING.get_ptr(socket.address).map(|track| unsafe { *track });
    let track = match known {
        Some(track) => track,
        // The server's end: its child begins in SYN-RECV. Its peer uses a watched port, so all its events come here.
        None if old == SYN_RECV => {
            tally(total::FILTERED, kind::ESTABLISHED);
            let _ = IGNORED.insert(socket.address, 1, 0);
            return None;
        }
        None => late(socket, kind::ESTABLISHED)?,
    };
    keep(ctx, &ESTABLISHED, socket, &track, kind::ESTABLISHED);
    let _ = CONNECTING.remove(socket.address);
    Some(Happening { kind: kind::ESTABLISHED, state: old, evidence: 0, track })
}

/// The end of an attempt or of an established connection.
#[inline(always)]
fn closed(socket: &Socket, old: u8) -> Option<Happening> {
    let attempt = old == SYN_SENT || old == SYN_RECV;
    let kind = if attempt { kind::FAILED } else { kind::ENDED };
    // SAFETY: as in `established`.
    let track = match Track::find(socket).map(|track| unsafe { *track }) {
        Some(track) => track,
        // A server's child that was never completed.
        None if old == SYN_RECV => return None,
        None => late(socket, kind)?,
    };
    Some(Happening { kind, state: old, evidence: evidence(socket, &track, old, attempt), track })
}

/// A socket without an entry: opened before the programs were, or evicted.
#[inline(always)]
pub fn late(socket: &Socket, kind: u8) -> Option<Track> {
    let track = if socket.is_tcp() { Track::late(socket) } else { None };
    if track.is_none() {
        tally(total::FILTERED, kind);
    }
    track
}

#[inline(always)]
fn keep(
    ctx: &RawTracePointContext,
    map: &aya_ebpf::maps::LruHashMap<u64, Track>,
    socket: &Socket,
    track: &Track,
    kind: u8,
) {
    if let Err(error) = map.insert(socket.address, track, 0) {
        tally(total::UNTRACKED, kind);
        warn!(ctx, "a socket's state could not be kept: error {}", error);
    }
}

/// Without a branch: each one would double what an older kernel's verifier follows to the program's end.
#[inline(always)]
fn evidence(socket: &Socket, track: &Track, old: u8, attempt: bool) -> u64 {
    let ended = u64::from(!attempt);
    let in_process = is_set(track.tgid.into()) & (is_set(u64::from(current_tgid() ^ track.tgid)) ^ 1);
    track.seen
        | at_most(255, socket.error().into()) << bits::ERROR_SHIFT
        | at_most(255, socket.soft_error().into()) << bits::SOFT_SHIFT
        | u64::from(old & 15) << bits::FROM_SHIFT
        | at_most(3, socket.retransmits().into()) << bits::RETRANSMITS_SHIFT
        | (is_set(socket.local_port().into()) ^ 1) * bits::NO_SOURCE_PORT
        | in_process * bits::IN_PROCESS
        | (ended & is_set(socket.unanswered().into())) * bits::UNANSWERED
        | (ended & socket.fin_received()) * bits::FIN_RECEIVED
}

/// `tcp_destroy_sock(sk)`: whatever is left of a socket goes with it.
///
/// A socket that is still remembered has reached CLOSE unseen: the kernel does not run a program that it interrupted on the
/// same CPU. Its end is told here, without the state that ended where that is no longer known.
#[raw_tracepoint(tracepoint = "tcp_destroy_sock")]
pub fn tcp_destroy_sock(ctx: RawTracePointContext) -> i32 {
    let Some(socket) = Socket::watched(ctx.arg::<u64>(0)) else { return 0 };
    let attempt = CONNECTING.get_ptr(socket.address).is_some();
    // SAFETY: as in `established`.
    if let Some(track) = Track::find(&socket).map(|track| unsafe { *track }) {
        // The SYN is acknowledged: that it was established was not seen either.
        let attempt = attempt && socket.bytes_acked() == 0;
        let (kind, old) = if attempt { (kind::FAILED, SYN_SENT) } else { (kind::ENDED, 0) };
        tally(total::RECOVERED, kind);
        let evidence = evidence(&socket, &track, old, attempt);
        // SAFETY: no arguments, no effect.
        let now = unsafe { bpf_ktime_get_ns() };
        record(&socket, &Happening { kind, state: old, evidence, track }, now);
        forget(&socket);
    }
    let _ = IGNORED.remove(socket.address);
    0
}
