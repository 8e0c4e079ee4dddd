//! What the kernel knew when something ended, packed into 64 bits so that it can be part of a counter's key.

/// Bits 0-7: `sk_err` (errno), values above 255 as 255.
pub const ERROR_SHIFT: u32 = 0;
/// Bits 8-15: `sk_err_soft`, likewise.
pub const SOFT_SHIFT: u32 = 8;
/// Bits 16-23: errno of the last error report, likewise.
pub const REPORTED_SHIFT: u32 = 16;
/// Bits 24-31: the kernel's reason for the RST that was sent.
pub const RESET_REASON_SHIFT: u32 = 24;
/// Bits 32-35: the state that ended.
pub const FROM_SHIFT: u32 = 32;
/// Bits 36-37: retransmissions in a row, 3 stands for more.
pub const RETRANSMITS_SHIFT: u32 = 36;
/// An error report was seen.
pub const REPORTED: u64 = 1 << 40;
/// A RST was received.
pub const RESET_RECEIVED: u64 = 1 << 41;
/// A RST was sent.
pub const RESET_SENT: u64 = 1 << 42;
/// No source port was chosen.
pub const NO_SOURCE_PORT: u64 = 1 << 43;
/// In a call of the process that began the dial.
pub const IN_PROCESS: u64 = 1 << 44;
/// Data was unacknowledged.
pub const UNANSWERED: u64 = 1 << 45;
/// The peer's FIN had arrived.
pub const FIN_RECEIVED: u64 = 1 << 46;
/// The begin of this socket's dial was seen.
pub const BEGIN_SEEN: u64 = 1 << 47;
/// Every bit that has a meaning.
pub const KNOWN: u64 = 0x0000_ff3f_ffff_ffff;
