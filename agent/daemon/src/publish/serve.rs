//! Gives a router a listener, and ends in order.
//!
//! HTTP/1.1 and HTTP/2 with prior knowledge (gRPC) share each listener. What a client may hold is bounded: the time until
//! its first request and between a request's first and last header, the number of connections, and of HTTP/2 streams on
//! each. At the bound a newcomer is let in and the connection that was idle longest is closed, those first that never sent a
//! request: who opens connections and says nothing cannot keep a probe out.

pub mod bind;
mod body;
pub mod connections;
mod unix;

pub use bind::{BindError, Bound};
pub use connections::Counters;

use axum::{Router, body::Body};
use bind::Stream;
use connections::{Connections, Place, Word};
use http::{Request, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use std::{io, net::IpAddr, pin::pin, sync::Arc, time::Duration};
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tower::Service as _;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test awaits its own tasks")]
mod tests;

/// How long a connection may stay without a request in progress; between one and two such periods once there was one. A
/// request is in progress from its last header on, so this bounds slow headers and slow readers of answers, too.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// How often a silent HTTP/2 peer is asked whether it still lives, and how long it may take to say so.
const HTTP2_KEEPALIVE: Duration = Duration::from_secs(30);
const HTTP2_KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2 streams per connection: a Watch for each pod of a large node.
const HTTP2_STREAMS: u32 = 256;

/// Bytes of headers per request; a probe's are a few hundred.
const HEADER_BYTES: u32 = 16 << 10;

/// How long requests in flight may take to end once the agent drains.
const DRAIN: Duration = Duration::from_secs(5);

/// How long to wait when the process has no file descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Least distance between two lines about that; the metrics count each.
const WARN_SPACING: Duration = Duration::from_secs(10);

/// Who is at the other end of a connection; an extension of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(Option<IpAddr>);

impl Peer {
    /// A peer at this address; an IPv4-mapped one counts as IPv4.
    pub fn new(address: IpAddr) -> Self {
        Self(Some(address.to_canonical()))
    }

    /// A peer on a Unix socket.
    pub const fn local() -> Self {
        Self(None)
    }

    /// Its address; `None` on a Unix socket.
    pub fn ip(self) -> Option<IpAddr> {
        self.0
    }
}

/// Serves `router` on `bound` until `shutdown`, then lets requests in flight end for a few seconds. The listener is closed
/// as soon as `shutdown` is cancelled, a Unix socket's file is removed. Whoever wants `/readyz` to be seen as draining
/// cancels the publication's token first, and this one a little later.
///
/// # Errors
/// When the listener itself breaks. What goes wrong on one connection ends that connection only.
pub async fn serve(bound: Bound, router: Router, shutdown: CancellationToken) -> anyhow::Result<()> {
    let connections = Arc::new(Connections::new(bound.counters()));
    let mut tasks = JoinSet::new();
    let mut warned = None;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = tasks.join_next() => told(bound.key(), ended),
            accepted = bound.accept() => match accepted {
                Ok((stream, peer)) => {
                    let place = connections.enter();
                    tasks.spawn(connection(stream, peer, router.clone(), place));
                }
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    bound.counters().accept_failed();
                    if warned.is_none_or(|at: Instant| at.elapsed() >= WARN_SPACING) {
                        warned = Some(Instant::now());
                        tracing::warn!(listener = bound.key(), %error, "cannot accept a connection");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    let key = bound.key();
    drop(bound);
    connections.drain();
    let ended = async {
        while let Some(ended) = tasks.join_next().await {
            told(key, ended);
        }
    };
    if tokio::time::timeout(DRAIN, ended).await.is_err() {
        tracing::warn!(listener = key, connections = tasks.len(), "connections cut at the end of the drain period");
        tasks.shutdown().await;
    }
    Ok(())
}

/// A connection has ended. A panic costs that connection and nothing else, but it must be seen.
fn told(key: &'static str, ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(listener = key, %error, "a connection's task panicked");
    }
}

/// The client was gone before it could be accepted.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn connection(stream: Stream, peer: Peer, router: Router, place: Place) {
    let service = service_fn(|request: Request<Incoming>| {
        let open = place.open(request.version() == Version::HTTP_2);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        // A router is always ready.
        let answer = router.clone().call(request);
        async move { answer.await.map(|response| body::hold(response, open)) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // No timer for HTTP/1: hyper would set one for each request, which shows in the rate of requests. `look` does its work.
    builder.http1().max_buf_size(HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_KEEPALIVE)
        .keep_alive_timeout(HTTP2_KEEPALIVE_TIMEOUT)
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(HEADER_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut look = tokio::time::interval_at(Instant::now() + REQUEST_TIMEOUT, REQUEST_TIMEOUT);
    let mut seen = 0;
    loop {
        tokio::select! {
            biased;
            result = &mut connection => {
                if let Err(error) = result {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            word = place.told() => match word {
                Word::Leave => return,
                Word::Drain => connection.as_mut().graceful_shutdown(),
            },
            _ = look.tick() => {
                if place.idle_since(&mut seen) {
                    return;
                }
            }
        }
    }
}
