//! The listeners: free, held by an agent that runs, or held by somebody else.

use super::{Check, host};
use crate::{config::Config, publish::serve::bind};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::FileTypeExt as _,
    path::Path,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// How long who holds a port may take to say who it is.
const BUDGET: Duration = Duration::from_secs(1);

/// Far above any answer that is recognised.
const MAX_BODY: usize = 8 << 20;

/// What is lost without any of them, since `run` insists on each.
const LOST: &str = "the agent: it does not start without";

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let listen = &config.listen;
    let mut checks = vec![tcp("listen.probe", listen.probe, "/livez", "tick_age_ms").await];
    match listen.metrics {
        Some(address) => checks.push(tcp("listen.metrics", address, "/metrics", "storewatch_build_info").await),
        None => checks.push(off("listen.metrics", "metrics")),
    }
    match listen.admin {
        Some(address) => checks.push(tcp("listen.admin", address, "/v1/sources", "\"state\"").await),
        None => checks.push(off("listen.admin", "the admin API on loopback")),
    }
    match &listen.admin_socket {
        Some(path) => checks.push(unix(path).await),
        None => checks.push(off("listen.admin_socket", "the client commands, which ask it by default")),
    }
    checks
}

fn off(key: &'static str, lost: &str) -> Check {
    Check::degraded(key, "switched off by configuration", lost, format!("{key}: ADDRESS"))
}

async fn tcp(key: &'static str, address: SocketAddr, path: &str, mark: &str) -> Check {
    let error = match bind::try_tcp(key, address) {
        Ok(()) => return Check::ok(key, format!("{address} is free")),
        Err(error) => error,
    };
    if !error.in_use() {
        return Check::missing(key, error.to_string(), LOST, "see the reason").fatal();
    }
    // An unspecified address is no place to connect to.
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let mut places = vec![SocketAddr::new(ip, address.port())];
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        places.push(SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())));
    }
    for place in places {
        let answer = timeout(BUDGET, async { ask(TcpStream::connect(place).await?, path).await }).await;
        if matches!(answer, Ok(Ok(body)) if body.contains(mark)) {
            return Check::ok(key, format!("{address} is held by a running storewatch"));
        }
    }
    Check::missing(key, error.to_string(), LOST, "see the reason").fatal()
}

async fn unix(path: &Path) -> Check {
    const KEY: &str = "listen.admin_socket";
    let place = path.display();
    let how = "another path (key listen.admin_socket), or \"off\"";
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match host::can_make(path) {
            Ok(()) => Check::ok(KEY, format!("{place} can be made")),
            Err(reason) => Check::missing(KEY, reason, LOST, format!("run as root, or {how}")).fatal(),
        },
        Err(error) => Check::missing(KEY, format!("{place}: {error}"), LOST, how).fatal(),
        Ok(data) if !data.file_type().is_socket() => {
            Check::missing(KEY, format!("{place} is something else than a socket"), LOST, how).fatal()
        }
        Ok(_) => match timeout(BUDGET, UnixStream::connect(path)).await {
            Ok(Ok(stream)) => match timeout(BUDGET, ask(stream, "/v1/sources")).await {
                Ok(Ok(body)) if body.contains("\"state\"") => {
                    Check::ok(KEY, format!("{place} is held by a running storewatch{}", troubles(&body)))
                }
                _ => Check::missing(KEY, format!("{place} is held by another process"), LOST, how).fatal(),
            },
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => match host::can_make(path) {
                Ok(()) => Check::ok(KEY, format!("{place} was left behind, and is replaced at start")),
                Err(reason) => Check::missing(KEY, reason, LOST, format!("run as root, or {how}")).fatal(),
            },
            // Mode 0600: an agent of another user may well live behind it.
            Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => Check::degraded(
                KEY,
                format!("{place} is there, and is another user's"),
                "to know whether an agent runs, and to replace it",
                "storewatch doctor as that user, or as root",
            ),
            _ => Check::missing(KEY, format!("{place} is held by a process that does not answer"), LOST, how).fatal(),
        },
    }
}

/// Which sources of a running agent are not well.
fn troubles(sources: &str) -> String {
    let sources: Vec<serde_json::Value> = serde_json::from_str(sources).unwrap_or_default();
    let word = |source: &serde_json::Value, key: &str| source[key].as_str().unwrap_or_default().to_owned();
    let troubled: Vec<_> = sources
        .iter()
        .filter(|source| source["state"] != "active")
        .map(|source| format!("{} {}", word(source, "name"), word(source, "state")))
        .collect();
    if troubled.is_empty() { ", whose sources are all active".into() } else { format!(" ({})", troubled.join(", ")) }
}

/// One request; the body of its answer, whatever its status.
async fn ask(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, path: &str) -> io::Result<String> {
    let request = Request::get(path)
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(io::Error::other)?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    };
    // The connection has to be driven beside the request.
    let drive = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answer => answer,
        () = drive => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
