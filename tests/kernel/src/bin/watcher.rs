//! The kernel source in a process of its own, with the rights and the view of the machine that a test wants to try.
//!
//! `watcher MODE PORT`; MODE is `root` (uid 0 with BPF and PERFMON alone), `nobody` (uid 65534 with these two), `bare`
//! (uid 65534 with nothing), `no-btf` (root, the kernel's types hidden), `no-tracefs` (root, tracefs and debugfs unmounted).
//! Says `ready` and then answers each line on standard input by one line: `hooks`, `reports`, `tally NETNS`, `sockets NETNS`.

use anyhow::{Context as _, Result, bail};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
};
use std::{
    io::{BufRead as _, Write as _},
    time::Duration,
};
use storewatch::source::kernel::Settings;
use storewatch_core::{id::NetnsId, request::Request};
use storewatch_tests_kernel::{Watch, tally::Tally};

const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;
const NOBODY: u32 = 65_534;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, port] = arguments.as_slice() else { bail!("usage: watcher MODE PORT") };
    // Before any thread exists: all of this is the calling thread's alone.
    match mode.as_str() {
        "root" => keep_capabilities(None, &[CAP_PERFMON, CAP_BPF])?,
        "nobody" => keep_capabilities(Some(NOBODY), &[CAP_PERFMON, CAP_BPF])?,
        "bare" => keep_capabilities(Some(NOBODY), &[])?,
        "no-btf" => hide("/sys/kernel/btf", true)?,
        "no-tracefs" => ["/sys/kernel/tracing", "/sys/kernel/debug"].iter().try_for_each(|path| hide(path, false))?,
        other => bail!("no mode {other}"),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve(port.parse()?))
}

async fn serve(port: u16) -> Result<()> {
    let settings = Settings { ports: vec![port], counter_interval: Duration::from_millis(100), ..Settings::default() };
    let mut watch = Watch::start(settings);
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = match line.split_once(' ').unwrap_or((&line, "")) {
            ("hooks", _) => {
                let hook = |hook: &storewatch::source::kernel::loader::Hook| match &hook.missing {
                    None => format!("{}=active", hook.name),
                    Some(reason) => format!("{}={:?}: {reason}", hook.name, hook.tier),
                };
                watch.handle.hooks().iter().map(hook).collect::<Vec<_>>().join("; ")
            }
            ("reports", _) => {
                watch.settle().await?;
                let last = |name: &str| {
                    let report = watch.reports.iter().rev().find(|report| report.source.as_str() == name);
                    report.map_or_else(String::new, |r| format!("{name} {}: {}", r.state.as_str(), r.detail))
                };
                [last("kernel"), last("inventory")].join(" | ")
            }
            ("tally", netns) => {
                watch.settle().await?;
                Tally::of(&watch, netns.parse()?).to_string()
            }
            ("sockets", netns) => {
                for _ in 0..2 {
                    let seen = watch.inventories.len();
                    watch.request(Request::Inventory);
                    // The fallback pauses after a reading that was slow.
                    watch.until_in(Duration::from_secs(60), "an inventory", |w| w.inventories.len() > seen).await?;
                }
                let netns = Some(NetnsId(netns.parse()?));
                let sample = watch.inventories.last().context("no inventory")?;
                let sockets = sample.sockets.iter().filter(|socket| socket.owner.netns == netns);
                sockets.map(|s| format!("{} {:?}", s.remote, s.bytes_received)).collect::<Vec<_>>().join("; ")
            }
            other => bail!("no command {other:?}"),
        };
        say(&answer)?;
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Takes a place out of this process's view: covers it, or unmounts it where something is mounted there.
fn hide(path: &str, cover: bool) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .or_else(|error| if error == nix::errno::Errno::EINVAL { Ok(()) } else { Err(error) })?;
    if cover {
        mount(Some("none"), path, Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
    } else {
        while umount2(path, MntFlags::MNT_DETACH).is_ok() {}
    }
    Ok(())
}

/// Keeps exactly these capabilities, as `uid` if one is given.
fn keep_capabilities(uid: Option<u32>, capabilities: &[u32]) -> Result<()> {
    /// The kernel's version 3 of the interface: two words for 64 capabilities.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION: u32 = 0x2008_0522;
    nix::sys::prctl::set_keepcaps(true)?;
    if let Some(uid) = uid {
        let groups: [nix::unistd::Gid; 0] = [];
        nix::unistd::setgroups(&groups)?;
        nix::unistd::setresgid(uid.into(), uid.into(), uid.into())?;
        nix::unistd::setresuid(uid.into(), uid.into(), uid.into())?;
    }
    let mut data = [Data::default(); 2];
    for capability in capabilities {
        let word = &mut data[(capability / 32) as usize];
        word.effective |= 1 << (capability % 32);
        word.permitted |= 1 << (capability % 32);
    }
    let header = Header { version: VERSION, pid: 0 };
    // SAFETY: both structures are laid out as the kernel's and live through the call.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if set != 0 {
        return Err(std::io::Error::last_os_error()).context("capset");
    }
    // Changing the user hides a process from itself; one that was started as that user is not hidden.
    nix::sys::prctl::set_dumpable(true)?;
    Ok(())
}
