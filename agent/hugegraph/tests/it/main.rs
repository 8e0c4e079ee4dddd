//! The wire mapping, row by row, against the test kit on loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod client;
mod connection;
mod pd;
mod resolver;
mod store;

use std::{net::SocketAddr, time::Duration};
use storewatch_core::id::HostPort;

/// The budget of the contract's default configuration.
const BUDGET: Duration = Duration::from_secs(1);

fn host_port(address: SocketAddr) -> HostPort {
    HostPort { host: address.ip().to_string().into(), port: address.port() }
}
