//! What the node's own pings showed at one address: the contrast to what a pod saw there.

use crate::{ping::Ping, time::MonoTime};
use std::{collections::BTreeMap, net::SocketAddr};

/// Addresses whose pings are remembered, per cluster.
pub(crate) const MAX_ADDRESSES: usize = 2048;

/// Pings to one address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressPings {
    /// End of the first fresh ping of the present unbroken run of answers; `None` while it is broken.
    pub run_since: Option<MonoTime>,
    /// Begin of the latest fresh ping that was answered.
    pub fresh_started: Option<MonoTime>,
    /// End of the last ping of any kind.
    pub last: Option<MonoTime>,
    /// The last time that a contrast was asked for.
    pub asked: Option<MonoTime>,
}

/// Files a ping under its address.
pub(crate) fn file(all: &mut BTreeMap<SocketAddr, AddressPings>, ping: &Ping) {
    let Some(remote) = ping.remote else { return };
    let Some(pings) = entry(all, remote) else { return };
    pings.last = pings.last.max(Some(ping.ended));
    if !ping.outcome.answers() {
        pings.run_since = None;
    } else if ping.fresh {
        pings.run_since.get_or_insert(ping.ended);
        pings.fresh_started = pings.fresh_started.max(Some(ping.started));
    }
}

/// The entry of an address, made if there is room; what was pinged longest ago makes it.
pub(crate) fn entry(all: &mut BTreeMap<SocketAddr, AddressPings>, remote: SocketAddr) -> Option<&mut AddressPings> {
    if !all.contains_key(&remote) && all.len() >= MAX_ADDRESSES {
        let oldest = all.iter().min_by_key(|(_, pings)| pings.last).map(|(address, _)| *address)?;
        all.remove(&oldest);
    }
    Some(all.entry(remote).or_default())
}
