//! What the kernel says of a process.

use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_gettime};
use std::{fs, io, path::Path, time::Duration};

/// What the figures depend on, in one line.
pub(crate) fn machine(program: &Path) -> Result<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let cpus = std::thread::available_parallelism()?;
    let (kernel, load) = (kernel.trim(), load.split(' ').next().unwrap_or_default());
    Ok(format!("{}, kernel {kernel}, {cpus} CPUs, load before {load}", program.display()))
}

/// A size of `/proc/PID/status` in KiB, for example `VmRSS`.
pub(crate) fn memory(pid: u32, key: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).with_context(|| format!("{path} does not tell {key}"))
}

/// Time that its threads have spent on CPUs, exact to the nanosecond. Threads that have ended are not in it.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} has ended"))? {
        let path = thread?.path().join("schedstat");
        // A thread may end between the two looks.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let spent: Option<u64> = text.split(' ').next().and_then(|spent| spent.parse().ok());
        sum += spent.with_context(|| format!("{} tells no time", path.display()))?;
    }
    Ok(Duration::from_nanos(sum))
}

/// How often its threads went to sleep of their own accord, and so were woken up.
pub(crate) fn wakes(pid: u32) -> Result<u64> {
    const KEY: &str = "voluntary_ctxt_switches:";
    let mut sum = 0_u64;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} has ended"))? {
        // A thread may end between the two looks.
        let Ok(text) = fs::read_to_string(thread?.path().join("status")) else { continue };
        let count = text.lines().find_map(|line| line.strip_prefix(KEY)?.trim().parse::<u64>().ok());
        sum += count.with_context(|| format!("process {pid} does not tell how often it slept"))?;
    }
    Ok(sum)
}

/// Time that the calling thread has spent on CPUs.
pub(crate) fn thread_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Lets this process, and all that it starts, have as many files open as the machine allows.
pub(crate) fn raise_open_files() -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure, and reads it again below.
    let mut done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if done == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: as above.
        done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot raise the limit of open files") }
}

/// Time on CPUs of all children that have ended and were waited for.
pub(crate) fn children_time() -> Result<Duration> {
    // SAFETY: all zero is a valid value, which the kernel fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a writable structure.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error()).context("getrusage");
    }
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}
