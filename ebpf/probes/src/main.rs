//! The eBPF programs: what happens to client connections towards watched ports, seen from the kernel's tracepoints.
//!
//! Each program first reads 8 bytes of the socket and one bit of a bitmap; whatever is not TCP towards a watched port
//! ends there. Who a socket belongs to is read from the socket, never from the task that happens to run.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod call;
mod connect;
mod emit;
mod inventory;
mod maps;
mod reset;
mod retransmit;
mod socket;
mod track;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses a program that can come here.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
