//! Accepting connections, and the faults of a whole process: down, frozen, or speaking something else.

use super::raw;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};

/// The body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, tonic::Status>;

/// How a process treats its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// It speaks HTTP/2.
    Http2,
    /// Its listener and connections are closed.
    Down,
    /// The kernel accepts and acknowledges; the process does nothing.
    Frozen,
    /// Another protocol, or HTTP/2 of the wrong kind.
    Raw(raw::Protocol),
}

/// A state that faults are read from.
pub(super) trait Faulty: Clone + Send + Sync + 'static {
    /// What it means for connections.
    fn transport(&self) -> Transport;
}

/// Serves until the future is dropped or the listener's address cannot be bound again.
pub(super) async fn serve<F, H, R>(
    listener: std::net::TcpListener,
    mut state: watch::Receiver<F>,
    handle: H,
) -> io::Result<()>
where
    F: Faulty,
    H: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut listener = Some(TcpListener::from_std(listener)?);
    let mut connections = JoinSet::new();
    let mut kind = Transport::Http2;
    loop {
        while connections.try_join_next().is_some() {}
        let present = state.borrow_and_update().transport();
        // What is frozen keeps its connections and goes on with them later; any other change ends them.
        if present != kind
            && present != Transport::Frozen
            && !(kind == Transport::Frozen && present == Transport::Http2)
        {
            connections.shutdown().await;
        }
        kind = present;
        if kind == Transport::Down {
            listener = None;
            changed(&mut state).await;
            continue;
        }
        let accepting = match &listener {
            Some(listener) => listener,
            None => listener.insert(bind(address).await?),
        };
        if kind == Transport::Frozen {
            // The kernel goes on accepting into the backlog.
            changed(&mut state).await;
            continue;
        }
        tokio::select! {
            accepted = accepting.accept() => {
                let Ok((stream, _)) = accepted else {
                    // Out of descriptors, or the peer was faster; neither ends the server.
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                match kind {
                    Transport::Raw(protocol) => { connections.spawn(raw::speak(stream, protocol)); }
                    _ => { connections.spawn(http2(stream, state.clone(), handle.clone())); }
                }
            }
            () = changed(&mut state) => {}
        }
    }
}

/// Waits for a change; for ever once nobody can switch any more.
async fn changed<F>(state: &mut watch::Receiver<F>) {
    if state.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    const TRIES: u32 = 250;
    let mut tries = 0;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if tries >= TRIES => return Err(error),
            Err(_) => tries += 1,
        }
        sleep(Duration::from_millis(20)).await;
    }
}

async fn http2<F, H, R>(stream: TcpStream, state: watch::Receiver<F>, handle: H)
where
    F: Faulty,
    H: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = handle(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let stream = Freezable { stream, state, thaw: None };
    // How a connection ends is the client's business.
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// A stream that does nothing while the process is frozen.
struct Freezable<F> {
    stream: TcpStream,
    state: watch::Receiver<F>,
    thaw: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<F: Faulty> Freezable<F> {
    fn poll_thawed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.thaw.is_none() {
            if self.state.borrow().transport() != Transport::Frozen {
                return Poll::Ready(());
            }
            let mut state = self.state.clone();
            self.thaw = Some(Box::pin(async move {
                if state.wait_for(|state| state.transport() != Transport::Frozen).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }));
        }
        let waited = self.thaw.as_mut().map_or(Poll::Ready(()), |thaw| thaw.as_mut().poll(cx));
        if waited.is_ready() {
            self.thaw = None;
        }
        waited
    }
}

impl<F: Faulty> AsyncRead for Freezable<F> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_thawed(cx));
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<F: Faulty> AsyncWrite for Freezable<F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_thawed(cx));
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
