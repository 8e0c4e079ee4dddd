//! The eBPF programs of storewatch.
#![no_std]
#![no_main]

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};

/// Sees every change of a TCP socket's state.
#[raw_tracepoint(tracepoint = "inet_sock_set_state")]
pub fn inet_sock_set_state(_ctx: RawTracePointContext) -> i32 {
    0
}

/// The verifier accepts no program that could panic, so this is never reached.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Helpers of the kernel that are marked GPL need this licence string; it is the programs' licence towards the kernel.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
