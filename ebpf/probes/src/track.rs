//! What is remembered of a socket between its events.

use storewatch_ebpf_common::evidence;

use crate::{
    maps::{CONNECTING, ESTABLISHED, IGNORED},
    socket::{Socket, current_tgid},
};

/// One client socket. Flags are bits of [`evidence`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Track {
    /// When the dial was begun, 0 unknown.
    pub begun: u64,
    /// What was seen on the way, as evidence bits: reports, resets.
    pub seen: u64,
    /// Cgroup of the socket.
    pub cgroup: u64,
    /// Its network namespace.
    pub netns: u32,
    /// The process that began the dial.
    pub tgid: u32,
}

impl Track {
    /// A dial that begins now, in the call of the process that makes it.
    #[inline(always)]
    pub fn begin(socket: &Socket, now: u64) -> Self {
        Self {
            begun: now,
            seen: evidence::BEGIN_SEEN,
            cgroup: socket.cgroup(),
            netns: socket.netns(),
            tgid: current_tgid(),
        }
    }

    /// A socket that was opened before the programs, or whose entry was evicted. `None` when it is to be ignored.
    #[inline(always)]
    pub fn late(socket: &Socket) -> Option<Self> {
        if IGNORED.get_ptr(socket.address).is_some() || socket.ambiguous() {
            return None;
        }
        Some(Self { begun: 0, seen: 0, cgroup: socket.cgroup(), netns: socket.netns(), tgid: 0 })
    }

    /// Where this socket's entry lies.
    #[inline(always)]
    pub fn find(socket: &Socket) -> Option<*mut Self> {
        match CONNECTING.get_ptr_mut(socket.address) {
            Some(track) => Some(track),
            None => ESTABLISHED.get_ptr_mut(socket.address),
        }
    }
}

/// Forgets a socket that has reached CLOSE. One that is ignored stays so until it is destroyed: a RST may follow.
#[inline(always)]
pub fn forget(socket: &Socket) {
    let _ = CONNECTING.remove(socket.address);
    let _ = ESTABLISHED.remove(socket.address);
}
