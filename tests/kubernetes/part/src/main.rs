//! One process of a HugeGraph-shaped cluster in Kubernetes. What it is stands in its first argument, the rest in the
//! environment: `STORES` (the Stores' `host:port`, with commas in between, in the order of their ids), `ADVERTISED` (a
//! Store's own `host:port`), `KEEPS` (the name of the Server that keeps the addresses that it had first), `POD_NAME`.
//!
//! As in HugeGraph, a Server's own REST interface answers whatever becomes of its Stores.

use anyhow::{Context, Result, bail};
use axum::{Router, routing::get};
use std::{env, net::TcpListener, sync::Arc};
use storewatch_core::id::HostPort;
use storewatch_hugegraph::{
    resolve::Resolver,
    testkit::{
        client::{ClientPod, ClientStats, Resolving},
        pd::{Listed, PdState, UP, serve_pd},
        store::{StoreFault, serve_store},
    },
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// As large as PD's own, so that nobody reads them through a double.
const FIRST_ID: u64 = 1_844_095_761_336_398_711;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // Nothing said: what holds a pod's namespaces open.
    let part = env::args().nth(1).unwrap_or_else(|| "pause".to_owned());
    // The first process of a container is not killed by a signal that it does not handle.
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = run(&part) => ended,
        _ = terminated.recv() => Ok(()),
    }
}

async fn run(part: &str) -> Result<()> {
    match part {
        "pd" => {
            let listed = stores()?.into_iter().zip(FIRST_ID..);
            let listed = listed.map(|(store, id)| Listed { id, address: store.to_string(), state: UP });
            let state = PdState { stores: listed.collect(), ..PdState::default() };
            let (_state, receiver) = watch::channel(state);
            Ok(serve_pd(bind(8686)?, receiver).await?)
        }
        "store" => {
            let advertised = env::var("ADVERTISED").context("ADVERTISED is this Store's own host:port")?;
            let (_fault, receiver) = watch::channel(StoreFault::None);
            Ok(serve_store(bind(8500)?, advertised, receiver).await?)
        }
        "server" => {
            let keeps = env::var("KEEPS").is_ok_and(|name| env::var("POD_NAME").is_ok_and(|own| own == name));
            let resolving = if keeps { Resolving::Once } else { Resolving::Again };
            let pod = ClientPod { resolving, ..ClientPod::new(stores()?) };
            let rest = tokio::net::TcpListener::bind(("0.0.0.0", 8080)).await?;
            let routes = Router::new().route("/versions", get(|| async { r#"{"versions":{"version":"v1"}}"# }));
            tokio::select! {
                () = pod.run(Arc::new(Resolver::default()), Arc::new(ClientStats::default())) => Ok(()),
                served = axum::serve(rest, routes) => Ok(served?),
            }
        }
        "pause" => std::future::pending().await,
        other => bail!("`{other}` is no part: pd, store, server, pause"),
    }
}

fn stores() -> Result<Vec<HostPort>> {
    let text = env::var("STORES").context("STORES is the list of the Stores' host:port")?;
    let one = |text: &str| {
        let (host, port) = text.rsplit_once(':').with_context(|| format!("`{text}` is no host:port"))?;
        Ok(HostPort { host: host.into(), port: port.parse().with_context(|| format!("`{text}` has no port"))? })
    };
    text.split(',').map(one).collect()
}

fn bind(port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind(("0.0.0.0", port)).with_context(|| format!("cannot listen on port {port}"))?;
    Ok(listener)
}
