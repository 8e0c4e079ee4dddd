//! Servers on loopback, in this process, for tests.

use super::{
    pd::{PdState, serve_pd},
    store::{StoreFault, serve_store},
};
use std::{
    io,
    net::{SocketAddr, TcpListener},
};
use tokio::{sync::watch, task::JoinSet};

/// A Store on a loopback port. Dropping it ends it.
#[derive(Debug)]
pub struct LocalStore {
    /// Where it listens.
    pub address: SocketAddr,
    /// Switches its fault.
    pub fault: watch::Sender<StoreFault>,
    _task: JoinSet<io::Result<()>>,
}

impl LocalStore {
    /// Starts one on a free port of 127.0.0.1. It advertises `identity`, or its own address.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(identity: Option<&str>) -> io::Result<Self> {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), identity)
    }

    /// The same at a certain address.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn start_at(address: SocketAddr, identity: Option<&str>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (fault, faults) = watch::channel(StoreFault::None);
        let mut task = JoinSet::new();
        task.spawn(serve_store(listener, identity.map_or_else(|| address.to_string(), str::to_owned), faults));
        Ok(Self { address, fault, _task: task })
    }
}

/// A PD peer on a loopback port. Dropping it ends it.
#[derive(Debug)]
pub struct LocalPd {
    /// Where it listens.
    pub address: SocketAddr,
    /// Changes its list and its fault.
    pub state: watch::Sender<PdState>,
    _task: JoinSet<io::Result<()>>,
}

impl LocalPd {
    /// Starts one on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(state: PdState) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let (sender, receiver) = watch::channel(state);
        let mut task = JoinSet::new();
        task.spawn(serve_pd(listener, receiver));
        Ok(Self { address, state: sender, _task: task })
    }
}
