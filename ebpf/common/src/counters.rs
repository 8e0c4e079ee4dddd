//! The exact side: what happened, how often, to whom.

/// What a record or counter is about. Plain numbers; 0 is none.
pub mod kind {
    /// A dial was begun: CLOSE to SYN-SENT.
    pub const BEGUN: u8 = 1;
    /// A dial succeeded.
    pub const ESTABLISHED: u8 = 2;
    /// A dial ended without success.
    pub const FAILED: u8 = 3;
    /// An established connection reached CLOSE.
    pub const ENDED: u8 = 4;
    /// A RST arrived.
    pub const RESET_RECEIVED: u8 = 5;
    /// A RST was sent.
    pub const RESET_SENT: u8 = 6;
    /// A segment was sent again.
    pub const RETRANSMIT: u8 = 7;
    /// The kernel reported an error to the socket's owner.
    pub const ERROR: u8 = 8;
    /// One more than the largest.
    pub const COUNT: u8 = 9;
}

/// What is counted apart. In map `SELECTED_COUNTS` and `OTHER_COUNTS` in full; in `SUMS` only kind, port and evidence.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CountKey {
    /// Cgroup of the socket, 0 unknown.
    pub cgroup: u64,
    /// See [`crate::evidence`]; 0 for kinds without.
    pub evidence: u64,
    /// The address dialled, IPv4 as IPv4-mapped.
    pub remote: [u8; 16],
    /// Network namespace of the socket, 0 unknown.
    pub netns: u32,
    /// The port dialled, host order.
    pub port: u16,
    /// See [`kind`].
    pub kind: u8,
    /// Always 0.
    pub zero: u8,
}

const _: () = assert!(size_of::<CountKey>() == 40 && core::mem::offset_of!(CountKey, netns) == 32);

/// What one CPU counted. Times are `CLOCK_MONOTONIC` nanoseconds, 0 never.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub count: u64,
    /// When the first ended.
    pub first: u64,
    /// The latest begin of a counted attempt.
    pub last_begun: u64,
    /// The latest end.
    pub last_ended: u64,
    /// Kernel side only: start of the second in which details are let through.
    pub window: u64,
    /// Kernel side only: details let through in it.
    pub sent: u32,
    /// Always 0.
    pub zero: u32,
}

impl Count {
    /// Nothing counted.
    pub const ZERO: Self = Self { count: 0, first: 0, last_begun: 0, last_ended: 0, window: 0, sent: 0, zero: 0 };
}

const _: () = assert!(size_of::<Count>() == 48);

/// Rows of [`Totals`].
pub mod total {
    /// Seen on a watched port.
    pub const SEEN: u32 = 0;
    /// Handed to the ring buffer.
    pub const EMITTED: u32 = 1;
    /// Not handed over because the ring buffer was full.
    pub const LOST: u32 = 2;
    /// Not handed over because of the rate limit.
    pub const LIMITED: u32 = 3;
    /// On a watched port but not a client's: the agent's own, a server's end, another protocol.
    pub const FILTERED: u32 = 4;
    /// Neither cgroup nor network namespace could be read.
    pub const UNATTRIBUTED: u32 = 5;
    /// Of sockets that are not selected, counted in a sum because the map for their exact keys was full.
    pub const SUMMED: u32 = 6;
    /// Not counted at all: the map of sums was full too.
    pub const UNCOUNTED: u32 = 7;
    /// A socket whose state could not be kept: later events of it lack their begin.
    pub const UNTRACKED: u32 = 8;
    /// Of selected sockets, counted in a sum only because the map reserved for them was full.
    pub const OVERFLOWED: u32 = 9;
    /// Ends that were not seen when they happened, told when the socket was destroyed.
    pub const RECOVERED: u32 = 10;
    /// One more than the largest.
    pub const COUNT: u32 = 11;
}

/// Entries of the one value of the per-CPU array `TOTALS`.
pub const TOTALS: usize = total::COUNT as usize * kind::COUNT as usize;

/// What one CPU saw, by [`total`] and [`kind`], see [`total_index`].
pub type Totals = [u64; TOTALS];

/// Index of one total.
pub const fn total_index(total: u32, kind: u8) -> usize {
    total as usize * kind::COUNT as usize + kind as usize
}
