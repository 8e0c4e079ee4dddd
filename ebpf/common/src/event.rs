//! The detailed side: one record per thing that happened, rate-limited, in the ring buffer.

/// One record of the ring buffer `EVENTS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub at: u64,
    /// When the dial was begun, 0 unknown.
    pub begun: u64,
    /// The kernel's address of the socket: an identity while it lives, nothing else.
    pub socket: u64,
    /// Cgroup of the socket, 0 unknown.
    pub cgroup: u64,
    /// See [`crate::evidence`].
    pub evidence: u64,
    /// `bytes_received`; a FIN counts as one, see [`crate::evidence::FIN_RECEIVED`].
    pub bytes_received: u64,
    /// `bytes_acked`; the SYN counts as one.
    pub bytes_acked: u64,
    /// Own address, IPv4 as IPv4-mapped.
    pub local: [u8; 16],
    /// The address dialled, likewise.
    pub remote: [u8; 16],
    /// Network namespace of the socket, 0 unknown.
    pub netns: u32,
    /// Process that began the dial, in the initial pid namespace, 0 unknown.
    pub tgid: u32,
    /// Smoothed round trip, microseconds, 0 unknown.
    pub srtt_us: u32,
    /// Segments sent again over the life of the connection.
    pub total_retrans: u32,
    /// Own port, host order, 0 none.
    pub local_port: u16,
    /// The port dialled, host order.
    pub remote_port: u16,
    /// [`crate::ABI_VERSION`].
    pub abi: u16,
    /// See [`crate::counters::kind`].
    pub kind: u8,
    /// State before (for changes) or at the time (for the rest).
    pub state: u8,
    /// Retransmissions in a row.
    pub retransmits: u8,
    /// Always 0.
    pub zero: [u8; 7],
}

const _: () = assert!(
    size_of::<RawEvent>() == 120
        && core::mem::offset_of!(RawEvent, local) == 56
        && core::mem::offset_of!(RawEvent, netns) == 88
        && core::mem::offset_of!(RawEvent, abi) == 108
        && core::mem::offset_of!(RawEvent, zero) == 113
);
