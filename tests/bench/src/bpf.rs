//! BPF programs and what the kernel measured of them.

use anyhow::{Context as _, Result, bail};
use std::{
    fs, io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
};

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const PROG_LOAD: i32 = 5;
const RAW_TRACEPOINT_OPEN: i32 = 17;
const TYPE_RAW_TRACEPOINT: u32 = 17;

/// The kernel measures programs while this lives.
#[derive(Debug)]
pub(crate) struct Stats {
    before: String,
}

impl Stats {
    pub(crate) fn enable() -> Result<Self> {
        let before =
            fs::read_to_string(STATS).with_context(|| format!("{STATS}: the kernel cannot measure programs"))?;
        fs::write(STATS, "1").with_context(|| format!("cannot write {STATS}"))?;
        Ok(Self { before })
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        // It was writable before.
        drop(fs::write(STATS, self.before.trim()));
    }
}

/// Runs of a program, and the time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    pub(crate) count: u64,
    pub(crate) nanoseconds: u64,
}

impl Runs {
    /// What has been added since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { count: self.count - earlier.count, nanoseconds: self.nanoseconds - earlier.nanoseconds }
    }

    /// Mean of one run.
    pub(crate) fn each(self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        (self.count > 0).then(|| self.nanoseconds as f64 / self.count as f64)
    }
}

/// Runs of the program that a process has attached to this raw tracepoint.
pub(crate) fn runs_at(pid: u32, tracepoint: &str) -> Result<Runs> {
    let descriptors = descriptors(pid)?;
    let link = descriptors.iter().find(|text| field(text, "tp_name") == Some(tracepoint));
    let program = link.and_then(|link| field(link, "prog_id"));
    let program = program.with_context(|| format!("process {pid} has no program at {tracepoint}"))?;
    let text =
        descriptors.iter().find(|text| field(text, "prog_id") == Some(program) && field(text, "run_cnt").is_some());
    runs(text.with_context(|| format!("process {pid} does not hold its program at {tracepoint}"))?)
}

/// Runs of all programs that a process holds open.
pub(crate) fn runs_of(pid: u32) -> Result<Runs> {
    let mut sum = Runs::default();
    let mut seen = Vec::new();
    for text in descriptors(pid)? {
        if let (Some(id), Some(_)) = (field(&text, "prog_id"), field(&text, "run_cnt"))
            && !seen.iter().any(|known| known == id)
        {
            let one = runs(&text)?;
            sum.count += one.count;
            sum.nanoseconds += one.nanoseconds;
            seen.push(id.to_owned());
        }
    }
    if seen.is_empty() {
        bail!("process {pid} holds no program");
    }
    Ok(sum)
}

fn descriptors(pid: u32) -> Result<Vec<String>> {
    let directory = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&directory).with_context(|| format!("process {pid} has ended"))?;
    // A descriptor may be closed between the two looks.
    Ok(entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect())
}

fn runs(text: &str) -> Result<Runs> {
    let number = |key| field(text, key).and_then(|value| value.parse().ok()).with_context(|| format!("no {key}"));
    Ok(Runs { count: number("run_cnt")?, nanoseconds: number("run_time_ns")? })
}

fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// A program that does nothing, at a raw tracepoint: the least that anybody can cost there. Detached on drop.
#[derive(Debug)]
pub(crate) struct Empty {
    program: OwnedFd,
    _link: OwnedFd,
}

impl Empty {
    pub(crate) fn attach(tracepoint: &str) -> Result<Self> {
        /// The kernel's attributes of `BPF_PROG_LOAD`, as far as they are used.
        #[repr(C)]
        struct Load {
            kind: u32,
            instructions: u32,
            code: *const u64,
            license: *const libc::c_char,
            log_level: u32,
            log_size: u32,
            log: u64,
            kernel_version: u32,
            flags: u32,
        }
        /// Those of `BPF_RAW_TRACEPOINT_OPEN`.
        #[repr(C)]
        struct Open {
            name: *const libc::c_char,
            program: RawFd,
            padding: u32,
        }
        // r0 = 0; exit
        let code = [0xb7_u64, 0x95];
        let load = Load {
            kind: TYPE_RAW_TRACEPOINT,
            instructions: 2,
            code: code.as_ptr(),
            license: c"GPL".as_ptr(),
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
        };
        // SAFETY: the attributes are laid out as the kernel's, and what they point to lives through the call.
        let program = unsafe { call(PROG_LOAD, &load) }.context("the empty program does not load")?;
        let name = std::ffi::CString::new(tracepoint)?;
        let open = Open { name: name.as_ptr(), program: program.as_raw_fd(), padding: 0 };
        // SAFETY: as above.
        let link = unsafe { call(RAW_TRACEPOINT_OPEN, &open) }
            .with_context(|| format!("the empty program cannot be attached to {tracepoint}"))?;
        Ok(Self { program, _link: link })
    }

    pub(crate) fn runs(&self) -> Result<Runs> {
        runs(&fs::read_to_string(format!("/proc/self/fdinfo/{}", self.program.as_raw_fd()))?)
    }
}

/// # Safety
/// `attributes` must be what the kernel expects of this command, and what they point to must be alive.
unsafe fn call<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise; the size is that of the attributes.
    let descriptor = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    let descriptor = RawFd::try_from(descriptor).map_err(io::Error::other)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands give a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_description_is_read() -> Result<()> {
        let text = "pos:\t0\nprog_type:\t17\nprog_id:\t9\nrun_time_ns:\t1200\nrun_cnt:\t3\n";
        assert_eq!(runs(text)?, Runs { count: 3, nanoseconds: 1200 });
        assert_eq!(runs(text)?.each(), Some(400.0));
        assert_eq!(Runs::default().each(), None);
        assert!(runs("run_cnt:\t3\n").is_err());
        Ok(())
    }
}
