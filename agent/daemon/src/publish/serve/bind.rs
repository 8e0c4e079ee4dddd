//! Opening listeners: ports are taken before any work begins, and a failure is one line that says what to do.

use super::{Counters, Peer, unix};
use nix::sys::socket::{setsockopt, sockopt};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream, UnixStream},
};

/// Connections that the kernel keeps until they are accepted.
pub(super) const BACKLOG: u32 = 1024;

/// A listener that is open.
#[derive(Debug)]
pub struct Bound {
    key: &'static str,
    counters: Arc<Counters>,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(unix::Listening),
}

/// Why a listener cannot be opened: which, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{key}: cannot listen on {place}: {reason}")]
pub struct BindError {
    key: &'static str,
    place: String,
    reason: String,
    in_use: bool,
}

impl BindError {
    pub(super) fn new(key: &'static str, path: &Path, reason: impl Into<String>) -> Self {
        Self { key, place: path.display().to_string(), reason: reason.into(), in_use: false }
    }

    fn tcp(key: &'static str, address: SocketAddr, error: &io::Error) -> Self {
        let in_use = error.kind() == io::ErrorKind::AddrInUse;
        Self { key, place: address.to_string(), reason: advice(error, address), in_use }
    }

    /// Somebody else listens there.
    pub(crate) fn in_use(&self) -> bool {
        self.in_use
    }
}

/// Whether a TCP listener could be opened: takes the address and leaves it, without ever listening.
///
/// # Errors
/// When the address cannot be taken.
pub(crate) fn try_tcp(key: &'static str, address: SocketAddr) -> Result<(), BindError> {
    let both_families = address.is_ipv6() && address.ip().is_unspecified();
    let bound = match bind(address, both_families) {
        Err(error) if both_families && lacks_ipv6(&error) => {
            bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())), false)
        }
        other => other,
    };
    bound.map(drop).map_err(|error| BindError::tcp(key, address, &error))
}

impl Bound {
    /// Opens a TCP listener. `key` is its place in the configuration. `[::]` takes IPv4, too, and stands for `0.0.0.0` where
    /// IPv6 is switched off.
    ///
    /// # Errors
    /// When the address cannot be taken.
    pub fn tcp(key: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let both_families = address.is_ipv6() && address.ip().is_unspecified();
        let listener = match listen(address, both_families) {
            Err(error) if both_families && lacks_ipv6(&error) => {
                let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
                tracing::info!(listener = key, %address, "IPv6 is off on this machine, listening on IPv4 only");
                listen(address, false)
            }
            other => other,
        };
        match listener {
            Ok(listener) => Ok(Self { key, counters: Arc::default(), listener: Listener::Tcp(listener) }),
            Err(error) => Err(BindError::tcp(key, address, &error)),
        }
    }

    /// Opens a Unix socket of mode 0600. A socket file on which nobody answers is replaced.
    ///
    /// # Errors
    /// When another process answers there, when the path holds something else than a socket, or when it cannot be used.
    pub async fn unix(key: &'static str, path: PathBuf) -> Result<Self, BindError> {
        let listening = unix::listen(key, path).await?;
        Ok(Self { key, counters: Arc::default(), listener: Listener::Unix(listening) })
    }

    /// Its place in the configuration.
    pub fn key(&self) -> &'static str {
        self.key
    }

    /// What it counts.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Where it listens; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }

    pub(super) async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match &self.listener {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are single small writes; waiting to fill a segment would only delay them. A socket whose peer is
                // gone already refuses the option, and the connection ends by itself.
                drop(stream.set_nodelay(true));
                Ok((Stream::Tcp(stream), Peer::new(peer.ip())))
            }
            Listener::Unix(listening) => Ok((Stream::Unix(listening.accept().await?), Peer::local())),
        }
    }
}

fn listen(address: SocketAddr, both_families: bool) -> io::Result<TcpListener> {
    bind(address, both_families)?.listen(BACKLOG)
}

fn bind(address: SocketAddr, both_families: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    // A restarted agent must not wait for connections of the former one in TIME-WAIT.
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &!both_families)?;
    }
    socket.bind(address)?;
    Ok(socket)
}

fn lacks_ipv6(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

fn advice(error: &io::Error, address: SocketAddr) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "the port is in use; end the process that `ss -ltnp 'sport = :{}'` names, or configure another port",
            address.port()
        ),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; configure one of its own".to_owned(),
        io::ErrorKind::PermissionDenied => {
            format!("not permitted; run as root, grant CAP_NET_BIND_SERVICE, or configure a port above {}", 1023)
        }
        _ => error.to_string(),
    }
}

/// A connection of either kind.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
