//! What the eBPF programs and the agent say to each other, and nothing else.
//!
//! Every type here is plain fixed-width integers without padding, so that any bytes are a value: what a number means is
//! decided on the user side, which rejects those it does not know. Sizes and offsets are asserted at compile time; a
//! change of any of them is a change of [`ABI_VERSION`].

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod config;
pub mod counters;
pub mod event;
pub mod evidence;
pub mod socket;

/// Version of everything in this crate. Stands in every record; a reader refuses another one.
pub const ABI_VERSION: u16 = 1;

/// TCP states by their kernel numbers, as plain integers.
pub mod state {
    /// TCP_ESTABLISHED.
    pub const ESTABLISHED: u8 = 1;
    /// TCP_SYN_SENT.
    pub const SYN_SENT: u8 = 2;
    /// TCP_SYN_RECV.
    pub const SYN_RECV: u8 = 3;
    /// TCP_TIME_WAIT: a small socket without most fields.
    pub const TIME_WAIT: u8 = 6;
    /// TCP_CLOSE.
    pub const CLOSE: u8 = 7;
    /// TCP_LISTEN.
    pub const LISTEN: u8 = 10;
    /// TCP_NEW_SYN_RECV: a request, not a socket.
    pub const NEW_SYN_RECV: u8 = 12;
}

#[cfg(feature = "user")]
mod pod {
    // SAFETY: `repr(C)`, integers only, no padding (asserted beside each type), and every bit pattern is a value.
    unsafe impl aya::Pod for crate::config::Offsets {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::config::Settings {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::counters::CountKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::counters::Count {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::event::RawEvent {}
    // SAFETY: as above.
    unsafe impl aya::Pod for crate::socket::RawSocket {}
}
