//! The two calls that no library offers: switching the measurement on for the life of a descriptor, and a program that does
//! nothing.

use anyhow::{Context as _, Result};
use std::{
    ffi::CString,
    io, mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};
use storewatch::source::kernel::stats::{self, ProgramStats};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_ENABLE_STATS: libc::c_int = 32;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_STATS_RUN_TIME: u32 = 0;

/// An argument block of `bpf(2)`: large enough for the calls made here, zero where nothing is said.
#[repr(C, align(8))]
struct Attributes([u32; 32]);

impl Attributes {
    fn call(&mut self, command: libc::c_int) -> io::Result<OwnedFd> {
        // SAFETY: the block is live and of the length given; pointers in it outlive the call.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), mem::size_of::<Self>()) };
        let descriptor = i32::try_from(result).unwrap_or(-1);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn pointer(&mut self, word: usize, to: u64) {
        self.0[word] = to as u32;
        self.0[word + 1] = (to >> 32) as u32;
    }
}

/// The kernel measures all programs until this is dropped.
pub(crate) fn enable_stats() -> Result<OwnedFd> {
    let mut attributes = Attributes([0; 32]);
    attributes.0[0] = BPF_STATS_RUN_TIME;
    attributes.call(BPF_ENABLE_STATS).context("the kernel cannot measure its programs")
}

/// A program that returns 0, attached.
pub(crate) struct Empty {
    program: OwnedFd,
    _link: OwnedFd,
}

impl Empty {
    /// Attaches it to a tracepoint.
    pub(crate) fn attach(tracepoint: &str) -> Result<Self> {
        let instructions: [u64; 2] = [0xb7, 0x95]; // r0 = 0; exit
        let licence = c"GPL";
        let mut attributes = Attributes([0; 32]);
        attributes.0[0] = BPF_PROG_TYPE_RAW_TRACEPOINT;
        attributes.0[1] = instructions.len() as u32;
        attributes.pointer(2, instructions.as_ptr() as u64);
        attributes.pointer(4, licence.as_ptr() as u64);
        let program = attributes.call(BPF_PROG_LOAD).context("the empty program cannot be loaded")?;
        let name = CString::new(tracepoint)?;
        let mut attributes = Attributes([0; 32]);
        attributes.pointer(0, name.as_ptr() as u64);
        attributes.0[2] = program.as_raw_fd() as u32;
        let link = attributes.call(BPF_RAW_TRACEPOINT_OPEN).context("the empty program cannot be attached")?;
        Ok(Self { program, _link: link })
    }

    /// Its cost so far.
    pub(crate) fn stats(&self) -> Result<ProgramStats> {
        Ok(stats::of("(empty program)", &self.program))
    }
}
