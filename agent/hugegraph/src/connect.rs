//! One plaintext HTTP/2 connection (prior knowledge), timed phase by phase under the caller's deadline.
//!
//! hyper returns from its handshake before the server has said anything, so the first bytes from the server are looked at
//! on their way: a SETTINGS frame ends the `http2` phase, and what is not one is told by name (HTTP/1, TLS).
//! No TCP keep-alive and no HTTP/2 PING is ever sent: HugeGraph's servers answer frequent ones with GOAWAY.

use crate::fault::{Fault, Phase};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{client::conn::http2, rt::Executor};
use hyper_util::rt::TokioIo;
use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use storewatch_core::{id::HostPort, ping::Phases};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpSocket, TcpStream},
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{Instant, timeout_at},
};

/// Flow-control window of a stream. A ping needs none of it; PD's list with its statistics may be megabytes.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow-control window of the connection.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Longest header list that is taken, trailers included.
const LONGEST_HEADERS: u32 = 16 * 1024;

/// An open connection. Dropping it closes the socket and ends its tasks.
#[derive(Debug)]
pub struct Connection {
    pub(crate) sender: http2::SendRequest<Full<Bytes>>,
    pub(crate) authority: String,
    remote: SocketAddr,
    closed: Arc<AtomicBool>,
    tasks: Tasks,
}

impl Connection {
    /// Opens a connection to `remote`, calling it `authority` in requests. The time of each phase goes into `phases` as
    /// far as it was reached. `on_close` is notified when the peer ends the connection later.
    ///
    /// # Errors
    /// The [`Fault`] with the phase in which it happened.
    pub async fn open(
        remote: SocketAddr,
        authority: &HostPort,
        deadline: Instant,
        on_close: Option<Arc<Notify>>,
        phases: &mut Phases,
    ) -> Result<Self, Fault> {
        let begin = Instant::now();
        let connected = timeout_at(deadline, dial(remote)).await;
        phases.connect = Some(begin.elapsed());
        let stream = connected
            .map_err(|_| Fault::Deadline(Phase::Connect))?
            .map_err(|error| Fault::from_io(&error, Phase::Connect))?;

        let begin = Instant::now();
        let opened = timeout_at(deadline, Self::greet(stream, remote, authority, on_close)).await;
        phases.http2 = Some(begin.elapsed());
        opened.map_err(|_| Fault::Deadline(Phase::Http2))?
    }

    async fn greet(
        stream: TcpStream,
        remote: SocketAddr,
        authority: &HostPort,
        on_close: Option<Arc<Notify>>,
    ) -> Result<Self, Fault> {
        let (stream, first) = FirstBytes::watch(stream);
        let tasks = Tasks::default();
        let (sender, connection) = http2::Builder::new(tasks.clone())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(LONGEST_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Fault::from_hyper(&error, Phase::Http2))?;
        let closed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&closed);
        let (ended, end) = oneshot::channel();
        tasks.spawn(async move {
            let result = connection.await;
            flag.store(true, Ordering::Release);
            if let Some(notify) = on_close {
                notify.notify_one();
            }
            // Nobody listens once the handshake is over.
            let _ = ended.send(result);
        });
        // Made before waiting, so that a handshake that is given up ends its tasks too.
        let this = Self { sender, authority: authority.to_string(), remote, closed, tasks };
        match first.await {
            Ok(Greeting::Settings) => Ok(this),
            Ok(Greeting::Foreign(what)) => Err(Fault::protocol(what)),
            Ok(Greeting::Closed) => Err(Fault::Closed(Phase::Http2)),
            Ok(Greeting::Failed(error)) => Err(Fault::from_io(&error, Phase::Http2)),
            // The stream was dropped before its first byte: the connection's own end says why.
            Err(_) => match end.await {
                Ok(Err(error)) => Err(Fault::from_hyper(&error, Phase::Http2)),
                _ => Err(Fault::Closed(Phase::Http2)),
            },
        }
    }

    /// The peer has ended this connection, or is about to.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.sender.is_closed()
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

async fn dial(remote: SocketAddr) -> io::Result<TcpStream> {
    let socket = if remote.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    let stream = socket.connect(remote).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The tasks of one connection, which end with it.
#[derive(Clone, Debug, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn abort(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// What a server says first.
#[derive(Debug)]
enum Greeting {
    Settings,
    Foreign(&'static str),
    Closed,
    Failed(io::Error),
}

/// A stream that reports what its peer says first.
struct FirstBytes {
    stream: TcpStream,
    seen: Vec<u8>,
    report: Option<oneshot::Sender<Greeting>>,
}

impl FirstBytes {
    fn watch(stream: TcpStream) -> (Self, oneshot::Receiver<Greeting>) {
        let (report, greeting) = oneshot::channel();
        (Self { stream, seen: Vec::new(), report: Some(report) }, greeting)
    }

    fn tell(&mut self, greeting: Greeting) {
        if let Some(report) = self.report.take() {
            // The connector may have given up.
            let _ = report.send(greeting);
        }
    }
}

/// Judges the first bytes; `None` while more are needed.
fn judge(seen: &[u8]) -> Option<Greeting> {
    // Length (3 bytes), type, flags, stream id (4 bytes).
    const HEADER: usize = 9;
    const SETTINGS: u8 = 4;
    const ACK: u8 = 1;
    match seen {
        [b'H', b'T', b'T', b'P', b'/', ..] => Some(Greeting::Foreign("an HTTP/1 server, not a gRPC server")),
        // Records of TLS: an alert or a handshake, version 3.x. As the length of a first frame this would be illegal.
        [0x15 | 0x16, 3, ..] => Some(Greeting::Foreign("a TLS server; plaintext HTTP/2 is expected")),
        [_, _, _, SETTINGS, flags, 0, 0, 0, 0, ..] if flags & ACK == 0 => Some(Greeting::Settings),
        _ if seen.len() >= HEADER => Some(Greeting::Foreign("its first bytes are not HTTP/2")),
        _ => None,
    }
}

impl AsyncRead for FirstBytes {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if self.report.is_some() {
            match &result {
                Poll::Pending => {}
                Poll::Ready(Err(error)) => {
                    let error = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                    self.tell(Greeting::Failed(error));
                }
                Poll::Ready(Ok(())) => {
                    let read = &buf.filled()[before..];
                    if read.is_empty() {
                        let nothing = self.seen.is_empty();
                        self.tell(if nothing {
                            Greeting::Closed
                        } else {
                            Greeting::Foreign("its first bytes are not HTTP/2")
                        });
                    } else {
                        self.seen.extend(read.iter().take(16));
                        if let Some(greeting) = judge(&self.seen) {
                            self.tell(greeting);
                        }
                    }
                }
            }
        }
        result
    }
}

impl AsyncWrite for FirstBytes {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_are_judged_as_soon_as_they_tell() {
        let settings = [0, 0, 18, 4, 0, 0, 0, 0, 0];
        for length in 0..9 {
            assert!(judge(&settings[..length]).is_none(), "{length} bytes of a frame header say nothing yet");
        }
        assert!(matches!(judge(&settings), Some(Greeting::Settings)));
        assert!(matches!(judge(b"HTTP/1.1 400 Bad Request\r\n"), Some(Greeting::Foreign(_))));
        assert!(matches!(judge(&[0x15, 3, 3, 0, 2, 2, 80]), Some(Greeting::Foreign(_))));
        // An acknowledgement before any SETTINGS, a SETTINGS frame on a stream, another protocol.
        assert!(matches!(judge(&[0, 0, 0, 4, 1, 0, 0, 0, 0]), Some(Greeting::Foreign(_))));
        assert!(matches!(judge(&[0, 0, 0, 4, 0, 0, 0, 0, 1]), Some(Greeting::Foreign(_))));
        assert!(matches!(judge(b"SSH-2.0-x"), Some(Greeting::Foreign(_))));
    }
}
