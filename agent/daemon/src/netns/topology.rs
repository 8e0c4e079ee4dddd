//! Client, router, server: the smallest network in which a packet can get lost on the way.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use super::{Namespace, NetnsError};

/// Three namespaces in a row. The client reaches the server only through the router.
#[derive(Debug)]
pub struct Topology {
    /// Where the pods' processes run.
    pub client: Namespace,
    /// Where packets can be dropped, rejected or sent nowhere.
    pub router: Namespace,
    /// Where the servers run.
    pub server: Namespace,
}

impl Topology {
    /// The client's address.
    pub const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(10, 251, 1, 2);
    /// The server's address.
    pub const SERVER_V4: Ipv4Addr = Ipv4Addr::new(10, 251, 2, 2);
    /// The client's address.
    pub const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd51, 1, 0, 0, 0, 0, 0, 2);
    /// The server's address.
    pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd51, 2, 0, 0, 0, 0, 0, 2);

    /// Makes it. Timeouts of TCP are short, so that giving up takes seconds.
    ///
    /// # Errors
    /// When the kernel or iproute2 refuses.
    pub fn create(prefix: &str) -> Result<Self, NetnsError> {
        let topology = Self {
            client: Namespace::create(prefix, "c")?,
            router: Namespace::create(prefix, "r")?,
            server: Namespace::create(prefix, "s")?,
        };
        let Self { client, router, server } = &topology;
        join(client, router, "rt0", 1)?;
        join(server, router, "rt1", 2)?;
        router.sysctl("ipv4.ip_forward", "1")?;
        router.sysctl("ipv6.conf.all.forwarding", "1")?;
        router.sysctl("ipv4.icmp_ratelimit", "0")?;
        router.sysctl("ipv6.icmp.ratelimit", "0")?;
        client.sysctl("ipv4.tcp_syn_retries", "2")?;
        client.sysctl("ipv4.tcp_retries2", "4")?;
        client.sysctl("ipv4.tcp_syn_linear_timeouts", "0")?;
        client.enter(wait_for_refusals)??;
        Ok(topology)
    }

    /// The server's addresses: IPv4, IPv6, IPv4 through an IPv6 socket.
    pub fn server_addresses() -> [IpAddr; 3] {
        [Self::SERVER_V4.into(), Self::SERVER_V6.into(), Self::SERVER_V4.to_ipv6_mapped().into()]
    }

    /// Drops on the router whatever goes to the server's addresses, silently and for both families.
    ///
    /// # Errors
    /// When the routes cannot be set.
    pub fn blackhole(&self) -> Result<(), NetnsError> {
        self.router.ip(&["route", "add", "blackhole", &format!("{}/32", Self::SERVER_V4)])?;
        self.router.ip(&["-6", "route", "add", "blackhole", &format!("{}/128", Self::SERVER_V6)])?;
        Ok(())
    }

    /// Takes [`Self::blackhole`] back.
    ///
    /// # Errors
    /// When the routes are not there.
    pub fn lift_blackhole(&self) -> Result<(), NetnsError> {
        self.router.ip(&["route", "del", "blackhole", &format!("{}/32", Self::SERVER_V4)])?;
        self.router.ip(&["-6", "route", "del", "blackhole", &format!("{}/128", Self::SERVER_V6)])?;
        Ok(())
    }
}

/// A fresh link drops the first packets of IPv6: waits until the server's kernel itself answers on both families.
fn wait_for_refusals() -> Result<(), NetnsError> {
    const DISCARD: u16 = 9;
    let deadline = Instant::now() + Duration::from_secs(10);
    for ip in [IpAddr::V4(Topology::SERVER_V4), IpAddr::V6(Topology::SERVER_V6)] {
        let refused = || {
            let dialled = TcpStream::connect_timeout(&SocketAddr::new(ip, DISCARD), Duration::from_millis(100));
            dialled.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        while !refused() {
            if Instant::now() > deadline {
                return Err(NetnsError::Missing("no packet passes between the namespaces"));
            }
        }
    }
    Ok(())
}

/// Connects `leaf` (address .2) with `router` (address .1) in net `number`, with a default route.
fn join(leaf: &Namespace, router: &Namespace, router_end: &str, number: u8) -> Result<(), NetnsError> {
    leaf.ip(&["link", "add", "eth0", "type", "veth", "peer", "name", router_end, "netns", router.name()])?;
    for (namespace, device, host) in [(leaf, "eth0", 2), (router, router_end, 1)] {
        namespace.ip(&["addr", "add", &format!("10.251.{number}.{host}/24"), "dev", device])?;
        let v6 = format!("fd51:{number}::{host}/64");
        namespace.ip(&["-6", "addr", "add", &v6, "dev", device, "nodad"])?;
        namespace.ip(&["link", "set", device, "up"])?;
    }
    leaf.ip(&["route", "add", "default", "via", &format!("10.251.{number}.1")])?;
    leaf.ip(&["-6", "route", "add", "default", "via", &format!("fd51:{number}::1")])?;
    Ok(())
}
