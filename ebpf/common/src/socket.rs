//! The inventory: one record per client socket towards a watched port, written by the iterator.

/// The socket belongs to the agent itself.
pub const OWN: u8 = 1;
/// The peer's FIN has arrived.
pub const FIN_RECEIVED: u8 = 2;

/// One record of the iterator `sockets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSocket {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub at: u64,
    /// The kernel's tick counter at that time.
    pub jiffies: u64,
    /// The kernel's address of the socket.
    pub socket: u64,
    /// Cgroup of the socket, 0 unknown.
    pub cgroup: u64,
    /// As in [`crate::event::RawEvent`].
    pub bytes_received: u64,
    /// As in [`crate::event::RawEvent`].
    pub bytes_acked: u64,
    /// Own address, IPv4 as IPv4-mapped.
    pub local: [u8; 16],
    /// The peer's address, likewise.
    pub remote: [u8; 16],
    /// Network namespace of the socket, 0 unknown.
    pub netns: u32,
    /// A process that holds it, in the initial pid namespace.
    pub tgid: u32,
    /// Smoothed round trip, microseconds, 0 unknown.
    pub srtt_us: u32,
    /// Bytes written and not acknowledged.
    pub unanswered: u32,
    /// Low half of the tick counter when data last arrived.
    pub last_received: u32,
    /// The same for data sent.
    pub last_sent: u32,
    /// Segments sent again over the life of the connection.
    pub total_retrans: u32,
    /// Own port, host order.
    pub local_port: u16,
    /// The peer's port, host order.
    pub remote_port: u16,
    /// [`crate::ABI_VERSION`].
    pub abi: u16,
    /// TCP state.
    pub state: u8,
    /// Retransmissions in a row.
    pub retransmits: u8,
    /// `icsk_pending`: 1 the retransmit timer runs.
    pub pending: u8,
    /// [`OWN`], [`FIN_RECEIVED`].
    pub flags: u8,
    /// Always 0.
    pub zero: [u8; 2],
}

const _: () = assert!(
    size_of::<RawSocket>() == 120
        && core::mem::offset_of!(RawSocket, local) == 48
        && core::mem::offset_of!(RawSocket, netns) == 80
        && core::mem::offset_of!(RawSocket, abi) == 112
        && core::mem::offset_of!(RawSocket, zero) == 118
);
