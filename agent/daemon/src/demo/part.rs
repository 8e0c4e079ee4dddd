//! One process of the demo's cluster, which `storewatch demo` starts for itself.

use super::cluster::{STORES, store_name};
use anyhow::{Context, Result};
use std::{fmt, net::TcpListener, str::FromStr, sync::Arc, time::Duration};
use storewatch_core::id::HostPort;
use storewatch_hugegraph::{
    resolve::Resolver,
    testkit::{
        client::{ClientPod, ClientStats, Resolving},
        pd::{Listed, PdState, UP, serve_pd},
        store::{StoreFault, serve_store},
    },
};
use tokio::sync::watch;

/// The Stores' port.
const STORE_PORT: u16 = 8500;

/// PD's port.
const PD_PORT: u16 = 8686;

/// How long a client keeps an address: short, as everything in the demo that one waits for.
const RESOLVE_GATE: Duration = Duration::from_secs(5);

/// What a process of the demo is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The placement driver.
    Pd,
    /// A Store, by its number.
    Store(u8),
    /// A pod with channels to every Store.
    Client(Resolving),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pd => f.write_str("pd"),
            Self::Store(index) => write!(f, "store-{index}"),
            Self::Client(Resolving::Again) => f.write_str("client"),
            Self::Client(Resolving::Once) => f.write_str("client-that-asks-once"),
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pd" => Ok(Self::Pd),
            "client" => Ok(Self::Client(Resolving::Again)),
            "client-that-asks-once" => Ok(Self::Client(Resolving::Once)),
            other => other
                .strip_prefix("store-")
                .and_then(|index| index.parse().ok())
                .filter(|index| *index < STORES)
                .map(Self::Store)
                .ok_or_else(|| {
                    format!("`{other}` is no part of the demo (pd, store-N, client, client-that-asks-once)")
                }),
        }
    }
}

impl Part {
    /// Runs it until the process is killed.
    ///
    /// # Errors
    /// When its port cannot be bound.
    pub async fn run(self) -> Result<()> {
        match self {
            Self::Pd => {
                let stores =
                    (0..STORES).map(|index| Listed { id: store_id(index), address: advertised(index), state: UP });
                let state = PdState { stores: stores.collect(), ..PdState::default() };
                let (_state, receiver) = watch::channel(state);
                Ok(serve_pd(bind(PD_PORT)?, receiver).await?)
            }
            Self::Store(index) => {
                let (_fault, receiver) = watch::channel(StoreFault::None);
                Ok(serve_store(bind(STORE_PORT)?, advertised(index), receiver).await?)
            }
            Self::Client(resolving) => {
                let stores = (0..STORES).map(|index| HostPort { host: store_name(index).into(), port: STORE_PORT });
                let pod = ClientPod { resolving, resolve_gate: RESOLVE_GATE, ..ClientPod::new(stores.collect()) };
                pod.run(Arc::new(Resolver::default()), Arc::new(ClientStats::default())).await;
                Ok(())
            }
        }
    }
}

/// Ids as large as PD's own, so that nobody reads them through a double.
fn store_id(index: u8) -> u64 {
    1_844_095_761_336_398_711 + u64::from(index)
}

fn advertised(index: u8) -> String {
    format!("{}:{STORE_PORT}", store_name(index))
}

fn bind(port: u16) -> Result<TcpListener> {
    TcpListener::bind(("0.0.0.0", port)).with_context(|| format!("cannot listen on port {port} in the demo's pod"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_reads_its_own_name() {
        for part in
            [Part::Pd, Part::Store(0), Part::Store(2), Part::Client(Resolving::Once), Part::Client(Resolving::Again)]
        {
            assert_eq!(part.to_string().parse(), Ok(part));
        }
        assert!("store-3".parse::<Part>().is_err());
        assert!("store-".parse::<Part>().is_err());
    }
}
