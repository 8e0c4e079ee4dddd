//! Processes that hold established connections and do nothing else: what an inventory has to go through.

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sched::{CloneFlags, setns, unshare},
    sys::signal::Signal,
};
use std::{
    env, fs,
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    process::{Child, Command, Stdio},
};

/// As first argument, it makes the benchmark's binary such a process.
pub(crate) const COMMAND: &str = "hold";
/// Sockets of one listener: its queue of connections that nobody accepts holds the servers' ends, without a file each.
const QUEUE: i32 = 65_535;

/// `hold PORT COUNT [PID]`: in a network of its own, or in that of process PID. Says `ready`, holds until its input ends.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let port: u16 = arguments.next().context("no port")?.parse()?;
    let count: u32 = arguments.next().context("no count")?.parse()?;
    crate::process::raise_open_files()?;
    let listener = match arguments.next() {
        Some(pid) => {
            setns(File::open(format!("/proc/{pid}/ns/net"))?, CloneFlags::CLONE_NEWNET)?;
            None
        }
        None => {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let set = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("cannot run ip")?;
            ensure!(set.success(), "ip link set lo up: {set}");
            fs::write("/proc/sys/net/core/somaxconn", QUEUE.to_string())?;
            fs::write("/proc/sys/net/ipv4/ip_local_port_range", "2000 65000")?;
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).context("cannot listen")?;
            // SAFETY: a live descriptor. Listening again changes the length of the queue.
            ensure!(unsafe { libc::listen(listener.as_raw_fd(), QUEUE) } == 0, "cannot listen with a long queue");
            Some(listener)
        }
    };
    let mut held = Vec::new();
    for number in 0..count {
        // Some addresses, so that finding a free port stays cheap.
        let near = Ipv4Addr::new(127, 3, 0, number.to_le_bytes()[0] % 8 + 1);
        held.push(TcpStream::connect(SocketAddr::from((near, port))).context("cannot connect over loopback")?);
    }
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop((held, listener));
    Ok(())
}

/// Such a process, ended on drop.
#[derive(Debug)]
pub(crate) struct Holder(Child);

impl Holder {
    /// Starts it; it is not ready yet.
    pub(crate) fn start(port: u16, count: usize, network_of: Option<u32>) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(env::current_exe()?);
        command.arg(COMMAND).arg(port.to_string()).arg(count.to_string());
        command.args(network_of.map(|pid| pid.to_string())).stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: between fork and exec only the system call prctl is made.
        unsafe {
            command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
        }
        Ok(Self(command.spawn().context("cannot start a holder")?))
    }

    /// Waits until it has all its connections.
    pub(crate) fn ready(&mut self) -> Result<()> {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().context("no output")?).read_line(&mut line)?;
        if line.trim() == "ready" { Ok(()) } else { bail!("a holder has ended: {}", self.0.wait()?) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
