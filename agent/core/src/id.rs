//! Names of things, each a type of its own.

use std::{fmt, sync::Arc};

/// A configured cluster: its position in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u16);

/// What a target is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Holds the data; one that answers is enough.
    Store,
    /// Knows the Stores; its word is a hint.
    Pd,
}

/// A target within its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKey {
    /// A Store by the id that PD gave it.
    Store(u64),
    /// A configured Store that no PD has listed: its position in the configuration.
    Static(u16),
    /// A PD peer: its position in the configuration.
    Pd(u16),
}

impl TargetKey {
    /// The role that a target of this kind has.
    pub const fn role(self) -> Role {
        match self {
            Self::Store(_) | Self::Static(_) => Role::Store,
            Self::Pd(_) => Role::Pd,
        }
    }
}

/// The metric label: a Store's id, `static-N`, or `pd` (all peers share it).
impl fmt::Display for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(id) => write!(f, "{id}"),
            Self::Static(n) => write!(f, "static-{n}"),
            Self::Pd(_) => f.write_str("pd"),
        }
    }
}

/// A target: what is pinged, and what pods connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId {
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// Which one of it.
    pub key: TargetKey,
}

/// Host name or literal address, and port, as configured or as PD lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// A DNS name or an address without brackets.
    pub host: Arc<str>,
    /// TCP port, never 0.
    pub port: u16,
}

impl HostPort {
    /// The same for all spellings of one name: lower case, without a trailing dot and without the cluster's own suffix
    /// (what follows `.svc`).
    pub fn normal(&self) -> (String, u16) {
        let mut host = self.host.to_ascii_lowercase();
        if host.ends_with('.') {
            host.pop();
        }
        if let Some(at) = host.find(".svc.") {
            host.truncate(at + ".svc".len());
        }
        (host, self.port)
    }

    /// Reads `host:port`, `address:port` or `[address]:port`; `None` for anything else and for port 0.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if host.is_empty() || (bare.is_none() && host.contains(':')) {
            return None;
        }
        Some(Self { host: bare.unwrap_or(host).into(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name within the namespace.
    pub name: Arc<str>,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod's UID; a name reused has another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(pub Arc<str>);

/// Inode of a cgroup v2 directory, which is the id that a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

/// Inode number of a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsId(pub u32);

/// What evidence belongs to: a container, so that one that restarted starts clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerKey {
    /// A container with a cgroup of its own.
    Cgroup(CgroupId),
    /// A pod that is known only by its network namespace.
    Netns(NetnsId),
    /// One that is known only by a process: it shares the node's network, and its cgroup is of the old kind.
    Process(u32),
}
