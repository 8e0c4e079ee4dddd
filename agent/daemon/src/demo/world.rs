//! The demo's own little node: one network namespace for the node, one for each pod, routed as a CNI without a bridge does.
//!
//! Nothing outlives the demo, however it ends: its namespaces are named only inside a mount namespace of its own, and every
//! child is killed by the kernel when the demo's process ends. So there is no clean-up to miss.

use anyhow::{Context, Result, ensure};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::signal::Signal,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::Ipv4Addr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Where the demo's files live, in a tmpfs that only its own mount namespace sees.
pub const DIRECTORY: &str = "/run/netns";

/// The node's side of every pod's link.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// A pod's network: a namespace with one address, routed through the node.
#[derive(Debug)]
pub struct Pod {
    /// Its short name, also the name of its namespace.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
}

impl Pod {
    /// The path of its namespace, valid inside the demo only.
    pub fn netns(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    /// The node's end of its link.
    pub fn link(&self) -> String {
        format!("v-{}", self.name)
    }
}

/// Moves this process, which must have one thread only, into fresh mount and network namespaces.
///
/// # Errors
/// When the machine does not let it.
pub fn enter_node() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the demo makes network namespaces and loads eBPF programs: run it as root (sudo storewatch demo)"
    );
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .context("cannot make namespaces: the demo needs CAP_SYS_ADMIN, which a container usually lacks")?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .context("cannot make the demo's mounts private")?;
    fs::create_dir_all(DIRECTORY).with_context(|| format!("cannot create {DIRECTORY}"))?;
    mount(Some("tmpfs"), DIRECTORY, Some("tmpfs"), MsFlags::empty(), Some("mode=0755,size=16m"))
        .with_context(|| format!("cannot mount the demo's tmpfs at {DIRECTORY}"))?;
    run("ip", &["link", "set", "lo", "up"])?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot switch on forwarding in the demo's namespace")
}

/// Makes `/etc/hosts` of the demo say what `names` say; pods and agent read it anew with every look-up.
pub(super) fn write_hosts(names: &BTreeMap<String, Ipv4Addr>) -> Result<()> {
    let path = Path::new(DIRECTORY).join("hosts");
    let mounted = path.exists();
    let mut text = String::from("127.0.0.1 localhost\n");
    for (name, address) in names {
        text.push_str(&format!("{address} {name}\n"));
    }
    // Written in place: a rename would leave the old file bound to /etc/hosts.
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    if !mounted {
        mount(Some(&path), "/etc/hosts", None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .context("cannot bind the demo's hosts file over /etc/hosts")?;
    }
    Ok(())
}

/// Makes one pod's namespace, link and routes.
pub(super) fn add_pod(name: &str, address: Ipv4Addr) -> Result<Pod> {
    let pod = Pod { name: name.to_owned(), address };
    let (link, ip, gateway) = (pod.link(), address.to_string(), GATEWAY.to_string());
    run("ip", &["netns", "add", name])?;
    run("ip", &["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", name])?;
    run("ip", &["addr", "add", &format!("{gateway}/32"), "dev", &link])?;
    run("ip", &["link", "set", &link, "up"])?;
    run("ip", &["route", "add", &ip, "dev", &link])?;
    for inside in [
        &["link", "set", "lo", "up"][..],
        &["addr", "add", &ip, "dev", "eth0"],
        &["link", "set", "eth0", "up"],
        &["route", "add", &gateway, "dev", "eth0", "scope", "link"],
        &["route", "add", "default", "via", &gateway],
    ] {
        run("ip", &[&["-n", name], inside].concat())?;
    }
    Ok(pod)
}

/// Takes a pod's link, routes and namespace away: its address answers nobody from now on.
pub(super) fn remove_pod(pod: &Pod) -> Result<()> {
    run("ip", &["link", "delete", &pod.link()])?;
    run("ip", &["netns", "delete", &pod.name])
}

/// Drops what a pod sends to `port`, on the node, as a broken network policy would: the node's own pings still pass.
pub(super) fn drop_from(pod: &Pod, port: u16) -> Result<()> {
    run("nft", &["add", "table", "ip", "demo"])?;
    run("nft", &["add", "chain", "ip", "demo", "forward", "{ type filter hook forward priority 0 ; }"])?;
    let (link, port) = (pod.link(), port.to_string());
    run("nft", &["add", "rule", "ip", "demo", "forward", "iifname", &link, "tcp", "dport", &port, "drop"])
}

/// Lifts every drop.
pub(super) fn lift_drops() -> Result<()> {
    run("nft", &["delete", "table", "ip", "demo"])
}

/// Starts `program` with `arguments`, inside a pod or (without one) on the node.
pub(super) fn start(program: &Path, pod: Option<&Pod>, arguments: &[&str], log: &Path) -> Result<Child> {
    let namespace = pod.map(|pod| File::open(pod.netns())).transpose().context("a pod's namespace has gone")?;
    let output = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let parent = nix::unistd::getpid();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    // SAFETY: between fork and exec only the system calls prctl, getppid and setns are made, which are async-signal-safe,
    // and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if nix::unistd::getppid() != parent {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH)); // the demo ended in between
            }
            if let Some(namespace) = &namespace {
                setns(namespace, CloneFlags::CLONE_NEWNET)?;
            }
            Ok(())
        });
    }
    command.spawn().with_context(|| format!("cannot start {}", arguments.join(" ")))
}

/// Runs a command to its end; its complaint is the error.
fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().with_context(|| {
        format!("cannot run `{program}`: install it (Debian: iproute2 has `ip`, nftables has `nft`)")
    })?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), complaint.trim());
    Ok(())
}
