use super::*;
use crate::publish::{
    probe,
    testing::{pod, published_with, snapshot},
};
use axum::routing::get;
use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
};
use storewatch_core::{policy::OnUnknown, verdict::Reason};
use storewatch_proto::health::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};

const LIMIT: Duration = Duration::from_secs(20);

/// A server that runs, and what ends it.
struct Running {
    port: u16,
    shutdown: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(router: Router, shutdown: CancellationToken) -> Self {
        let bound = Bound::tcp("listen.probe", (Ipv6Addr::UNSPECIFIED, 0).into()).unwrap();
        let port = bound.address().unwrap().port();
        Self { port, task: tokio::spawn(serve(bound, router, shutdown.clone())), shutdown }
    }

    fn v4(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    async fn end(self) {
        self.shutdown.cancel();
        timeout(LIMIT, self.task).await.expect("it ends").unwrap().unwrap();
    }
}

/// The probe router, with a pod that owns the loopback addresses.
fn probes() -> Running {
    let mut snapshot = snapshot();
    let mut own = pod("own", Ipv4Addr::LOCALHOST.into(), Reason::StoreAnswering);
    Arc::make_mut(&mut own.record).ips.push(Ipv6Addr::LOCALHOST.into());
    snapshot.pods.push(own);
    let shutdown = CancellationToken::new();
    let (publisher, publication) = published_with(snapshot, OnUnknown::Ready, shutdown.clone());
    // The test ends with the process; until then the engine is there.
    std::mem::forget(publisher);
    Running::start(probe::router(publication), shutdown)
}

/// Sends bytes, and gives all that comes until the other side closes.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that has answered already may have closed.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("the server closes");
    String::from_utf8_lossy(&answer).into_owned()
}

fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn one_port_serves_both_families_and_both_protocols() {
    let server = probes();
    for address in [server.v4(), (Ipv6Addr::LOCALHOST, server.port).into()] {
        let answer = exchange(address, &request("/readiness/self")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{address}: {answer}");
    }
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", server.v4())).unwrap().connect().await;
    let mut client = HealthClient::new(channel.unwrap());
    let answer = client.check(HealthCheckRequest { service: "pod/graph/own".into() }).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
    let mut watch = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    // An open stream does not hold up the end.
    server.end().await;
    assert!(watch.message().await.is_err());
}

#[tokio::test]
async fn garbage_ends_its_own_connection_only() {
    let server = probes();
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "x".repeat(12 << 10));
    let huge = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(64 << 10));
    let cases: [(&[u8], &[&str]); 8] = [
        (b"\0\xff\xfe\r\n\r\n", &["HTTP/1.1 400"]),
        (b"GET / HTTP/9.9\r\n\r\n", &["HTTP/1.1 400"]),
        (b"GET\r\n\r\n", &["HTTP/1.1 400"]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense", &[""]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", &["HTTP/1.1 400"]),
        (b"GET /readiness/uid/\xff HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", &["HTTP/1.1 400"]),
        (long.as_bytes(), &["HTTP/1.1 404", "HTTP/1.1 431", "HTTP/1.1 414"]),
        (huge.as_bytes(), &["HTTP/1.1 431", ""]),
    ];
    for (bytes, expected) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(30)]).into_owned();
        let answer = exchange(server.v4(), bytes).await;
        assert!(expected.iter().any(|start| answer.starts_with(start)), "{shown:?}: {answer:?}");
    }
    assert!(exchange(server.v4(), &request("/livez")).await.starts_with("HTTP/1.1 "));
    server.end().await;
}

#[tokio::test]
async fn a_request_in_flight_is_answered_and_newcomers_are_not() {
    let (begun, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let router = {
        let (begun, release) = (Arc::clone(&begun), Arc::clone(&release));
        let handler = || async move {
            begun.notify_one();
            release.notified().await;
            "done"
        };
        Router::new().route("/", get(handler))
    };
    let server = Running::start(router, CancellationToken::new());
    let address = server.v4();
    // Kept alive and idle: closed at once.
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /missing HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 512]).await.unwrap() > 0);
    let in_flight = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    });
    begun.notified().await;
    server.shutdown.cancel();
    assert_eq!(timeout(LIMIT, idle.read(&mut [0; 16])).await.unwrap().unwrap(), 0);
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, refused).await.expect("the listener closes before the last request ends");
    release.notify_one();
    let answer = in_flight.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("done"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn who_never_ends_is_cut_when_the_drain_period_is_over() {
    let begun = Arc::new(Notify::new());
    let router = {
        let begun = Arc::clone(&begun);
        let handler = || async move {
            begun.notify_one();
            std::future::pending::<()>().await;
        };
        Router::new().route("/", get(handler))
    };
    let server = Running::start(router, CancellationToken::new());
    let mut stream = TcpStream::connect(server.v4()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    begun.notified().await;
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    server.end().await;
    assert!(started.elapsed() >= DRAIN, "not before");
    assert!(matches!(stream.read(&mut [0; 16]).await, Ok(0) | Err(_)));
}

#[tokio::test]
async fn who_says_nothing_or_half_of_it_is_closed() {
    let server = probes();
    let mut halves = Vec::new();
    for bytes in [b"".as_slice(), b"PRI * HT", b"GET /readiness HTTP/1.1\r\nhost:"] {
        let mut stream = TcpStream::connect(server.v4()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        halves.push(stream);
    }
    // All three are accepted once a later connection was answered.
    exchange(server.v4(), &request("/livez")).await;
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    for stream in &mut halves {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
    }
    let took = started.elapsed();
    assert!(took >= REQUEST_TIMEOUT / 2 && took <= REQUEST_TIMEOUT * 2, "{took:?}");
    server.end().await;
}

#[tokio::test]
async fn a_port_in_use_is_told_in_one_line() {
    let first = Bound::tcp("listen.probe", (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = first.address().unwrap();
    let error = Bound::tcp("listen.metrics", address).unwrap_err().to_string();
    assert!(error.starts_with(&format!("listen.metrics: cannot listen on {address}: the port is in use")), "{error}");
    assert!(error.contains("ss -ltnp") && !error.contains('\n'), "{error}");
    let error = Bound::tcp("listen.admin", "192.0.2.1:9467".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("no such address"), "{error}");
}

#[tokio::test]
async fn an_ipv6_address_that_is_not_any_stays_ipv6() {
    let bound = Bound::tcp("listen.probe", (Ipv6Addr::LOCALHOST, 0).into()).unwrap();
    let port = bound.address().unwrap().port();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err());
    // The same port is free for IPv4.
    Bound::tcp("listen.metrics", (Ipv4Addr::LOCALHOST, port).into()).unwrap();
}

async fn unix(path: &Path) -> Result<Bound, BindError> {
    Bound::unix("listen.admin_socket", path.to_owned()).await
}

#[tokio::test]
async fn the_unix_socket_is_private_serves_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let bound = unix(&path).await.unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
    let shutdown = CancellationToken::new();
    let router = Router::new().route("/", get(|| async { "here" }));
    let task = tokio::spawn(serve(bound, router, shutdown.clone()));
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream.write_all(&request("/")).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("here"), "{answer}");
    shutdown.cancel();
    task.await.unwrap().unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn an_orphaned_socket_is_replaced_and_a_living_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "an orphan, as after a crash");
    let first = unix(&path).await.unwrap();
    let error = unix(&path).await.unwrap_err().to_string();
    assert!(error.starts_with("listen.admin_socket: cannot listen on "), "{error}");
    assert!(error.contains("another agent answers there") && !error.contains('\n'), "{error}");
    assert!(UnixStream::connect(&path).await.is_ok(), "the first one still has it");
    drop(first);
    assert!(!path.exists());
}

#[tokio::test]
async fn of_two_that_start_at_once_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (a, b) = tokio::join!(unix(&path), unix(&path));
    assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
    assert!(UnixStream::connect(&path).await.is_ok());
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_never_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    fs::write(&path, "kept").unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for place in [path.as_path(), &link, directory.path()] {
        let error = unix(place).await.unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    // Nor one that took the socket's place while the agent ran.
    let socket = directory.path().join("admin.sock");
    let bound = unix(&socket).await.unwrap();
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "kept").unwrap();
    drop(bound);
    assert_eq!(fs::read_to_string(&socket).unwrap(), "kept");
}

#[tokio::test]
async fn a_path_that_cannot_hold_a_socket_is_told_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, advice) in [
        (directory.path().join("missing/admin.sock"), "does not exist; create it"),
        (file.join("admin.sock"), "is no directory"),
        (directory.path().join("x".repeat(108)), "longer than the 107 bytes"),
    ] {
        let error = unix(&path).await.unwrap_err().to_string();
        assert!(error.contains(advice) && !error.contains('\n'), "{error}");
    }
}
