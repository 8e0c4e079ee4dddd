//! One request to the agent, with one budget for connecting, sending and reading; or one whose answer goes on.

use super::{Failure, address::AgentAddress, table::clean};
use bytes::Bytes;
use futures_util::{FutureExt, future::Fuse};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use std::{io, ops::ControlFlow, pin::Pin, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// A node's whole snapshot is far below this.
const MAX_BODY: usize = 32 << 20;

/// A problem document is some hundred bytes.
const MAX_PROBLEM: usize = 64 << 10;

/// What the agent said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A good answer, read.
#[derive(Clone, Debug)]
pub(super) struct Said<T> {
    pub(super) value: T,
    /// As the agent wrote it, with a line's end.
    pub(super) text: String,
    pub(super) headers: HeaderMap,
}

impl<T> Said<T> {
    /// A header's text; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Asks the agent for `path`. Any HTTP status is an answer.
pub(super) async fn get(agent: &AgentAddress, path: &str, budget: Duration) -> Result<Answer, Failure> {
    let result = timeout(budget, exchange(agent, path)).await;
    result.unwrap_or_else(|_| Err(late(agent, budget)))
}

fn late(agent: &AgentAddress, budget: Duration) -> Failure {
    let waited = crate::config::show_duration(budget);
    Failure::wrong(format!("no answer from the agent at {agent} within {waited}"))
}

/// Asks the agent for `path` and reads the JSON of a good answer; gives its text too.
pub(super) async fn get_json<T: DeserializeOwned>(
    agent: &AgentAddress,
    path: &str,
    budget: Duration,
) -> Result<(T, String), Failure> {
    ask(agent, path, budget).await.map(|said| (said.value, said.text))
}

/// The same, with what the agent says beside the answer.
pub(super) async fn ask<T: DeserializeOwned>(
    agent: &AgentAddress,
    path: &str,
    budget: Duration,
) -> Result<Said<T>, Failure> {
    let answer = get(agent, path, budget).await?;
    read_json(agent, path, answer)
}

/// Reads the JSON of a good answer to `path`.
pub(super) fn read_json<T: DeserializeOwned>(
    agent: &AgentAddress,
    path: &str,
    answer: Answer,
) -> Result<Said<T>, Failure> {
    let Answer { status, headers, body } = answer;
    if status != StatusCode::OK {
        return Err(refused(agent, path, status, &body));
    }
    let value = serde_json::from_slice(&body)
        .map_err(|error| Failure::wrong(format!("what answers at {agent} is no storewatch agent: {error}")))?;
    let mut text = String::from_utf8_lossy(&body).into_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(Said { value, text, headers })
}

/// The agent's own reason, if it gives one; the place alone where something else answers.
fn refused(agent: &AgentAddress, path: &str, status: StatusCode, body: &[u8]) -> Failure {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let path = path.split('?').next().unwrap_or(path);
    let hint = match (status, agent, serde_json::from_slice::<Problem>(body)) {
        (StatusCode::NOT_FOUND, AgentAddress::Http { .. }, _) => {
            "; is that its probe port, and not the admin port?".to_owned()
        }
        (StatusCode::NOT_FOUND, _, _) | (_, _, Err(_)) => String::new(),
        (_, _, Ok(Problem { detail })) => format!(": {}", clean(&detail)),
    };
    Failure::wrong(format!("the agent at {agent} answers {status} to {path}{hint}"))
}

/// An answer that has begun and goes on.
pub(super) struct Begun {
    pub(super) body: Incoming,
    /// Has to be driven beside it.
    pub(super) connection: Pin<Box<Fuse<Connection>>>,
    /// Without it the connection would end.
    pub(super) _sender: http1::SendRequest<Empty<Bytes>>,
}

/// Asks for `path` and waits at most `budget` for a good answer to begin.
///
/// # Errors
/// Exit code 2 when there is none.
pub(super) async fn begin(agent: &AgentAddress, path: &str, accept: &str, budget: Duration) -> Result<Begun, Failure> {
    let begun = timeout(budget, async {
        let (mut sender, connection) = open(agent).await?;
        // Boxed, since it goes on beside whatever is read; fused, since it may end before that.
        let mut connection = Box::pin(connection.fuse());
        let response = {
            let mut answer = std::pin::pin!(sender.send_request(request(agent, path, accept)?));
            tokio::select! {
                biased;
                response = &mut answer => response,
                // An answer may have come with the connection's end.
                _ = &mut connection => answer.await,
            }
        };
        let response = response.map_err(|error| no_agent(agent, &error))?;
        Ok((sender, connection, response))
    });
    let (sender, mut connection, response) = begun.await.unwrap_or_else(|_| Err(late(agent, budget)))?;
    let status = response.status();
    let body = response.into_body();
    if status != StatusCode::OK {
        let reading = async { Limited::new(body, MAX_PROBLEM).collect().await.map(|body| body.to_bytes()) };
        // What the connection has brought before its end is read all the same.
        let drive = connection.as_mut().then(|_| std::future::pending::<()>());
        let read = tokio::select! {
            read = timeout(budget, reading) => read.ok().and_then(Result::ok).unwrap_or_default(),
            () = drive => Bytes::new(),
        };
        return Err(refused(agent, path, status, &read));
    }
    Ok(Begun { body, connection, _sender: sender })
}

/// Reads the answer to `path` for as long as it goes on, piece by piece, until `take` has enough. `budget` is for its
/// beginning, `silence` for each piece.
///
/// # Errors
/// Exit code 2 when there is no good answer, 1 when it breaks off; an end in order is none.
pub(super) async fn follow(
    agent: &AgentAddress,
    path: &str,
    budget: Duration,
    silence: Duration,
    mut take: impl FnMut(&[u8]) -> Result<ControlFlow<()>, Failure>,
) -> Result<ControlFlow<()>, Failure> {
    let Begun { mut body, mut connection, _sender } = begin(agent, path, "text/event-stream", budget).await?;
    let mut driven = false;
    loop {
        let frame = tokio::select! {
            biased;
            frame = timeout(silence, body.frame()) => frame,
            // What it has brought is read to the end.
            _ = &mut connection, if !driven => {
                driven = true;
                continue;
            }
        };
        match frame {
            Err(_) => {
                let waited = crate::config::show_duration(silence);
                return Err(Failure::running(format!("the agent at {agent} has said nothing for {waited}")));
            }
            Ok(None) => return Ok(ControlFlow::Continue(())),
            Ok(Some(Err(error))) => {
                return Err(Failure::running(format!("the answer of the agent at {agent} broke off: {error}")));
            }
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref()
                    && take(data)?.is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }
}

/// A connection of either kind.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

pub(super) type Connection = http1::Connection<TokioIo<Box<dyn Wire>>, Empty<Bytes>>;

async fn open(agent: &AgentAddress) -> Result<(http1::SendRequest<Empty<Bytes>>, Connection), Failure> {
    let unreachable = |error: io::Error| {
        let reason = match (error.kind(), agent) {
            (io::ErrorKind::NotFound, AgentAddress::Unix(_)) => {
                "there is no such socket; does the agent run?".to_owned()
            }
            (io::ErrorKind::PermissionDenied, AgentAddress::Unix(_)) => "its socket is for root only".to_owned(),
            (io::ErrorKind::ConnectionRefused, _) => "nobody listens there".to_owned(),
            _ => error.to_string(),
        };
        Failure::wrong(format!("the agent cannot be reached at {agent}: {reason}"))
    };
    let wire: Box<dyn Wire> = match agent {
        AgentAddress::Unix(socket) => Box::new(UnixStream::connect(socket).await.map_err(unreachable)?),
        AgentAddress::Http { host, port } => {
            Box::new(TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?)
        }
    };
    http1::handshake(TokioIo::new(wire)).await.map_err(|error| no_agent(agent, &error))
}

fn no_agent(agent: &AgentAddress, error: &hyper::Error) -> Failure {
    Failure::wrong(format!("what answers at {agent} is no storewatch agent: {error}"))
}

fn request(agent: &AgentAddress, path: &str, accept: &str) -> Result<Request<Empty<Bytes>>, Failure> {
    Request::get(path)
        .header(header::HOST, agent.authority())
        .header(header::ACCEPT, accept)
        .header(header::USER_AGENT, concat!("storewatch/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::wrong(format!("{path} cannot be asked for: {error}")))
}

async fn exchange(agent: &AgentAddress, path: &str) -> Result<Answer, Failure> {
    let (mut sender, connection) = open(agent).await?;
    let request = request(agent, path, "application/json")?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| no_agent(agent, &error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let body = body.map_err(|error| {
            let reason = match error.downcast_ref::<LengthLimitError>() {
                Some(_) => format!("is longer than {} MiB", MAX_BODY >> 20),
                None => format!("broke off: {error}"),
            };
            Failure::wrong(format!("the answer of {agent} {reason}"))
        })?;
        Ok(Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    };
    // The connection has to be driven beside the request, and says nothing that the request does not.
    let drive = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answer => answer,
        () = drive => Err(Failure::wrong(format!("{agent} closed the connection"))),
    }
}

/// `text` as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
