//! One request to the agent, with one budget for connecting, sending and reading.

use super::{Failure, address::AgentAddress};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::{io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// A node's whole snapshot is far below this.
const MAX_BODY: usize = 32 << 20;

/// What the agent said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Asks the agent for `path`. Any HTTP status is an answer.
pub(super) async fn get(agent: &AgentAddress, path: &str, budget: Duration) -> Result<Answer, Failure> {
    let result = timeout(budget, exchange(agent, path)).await;
    result.unwrap_or_else(|_| {
        let waited = crate::config::show_duration(budget);
        Err(Failure::wrong(format!("no answer from the agent at {agent} within {waited}")))
    })
}

/// Asks the agent for `path` and reads the JSON of a good answer; gives its text too.
pub(super) async fn get_json<T: DeserializeOwned>(
    agent: &AgentAddress,
    path: &str,
    budget: Duration,
) -> Result<(T, String), Failure> {
    let Answer { status, body } = get(agent, path, budget).await?;
    if status != StatusCode::OK {
        let hint = match (status, agent) {
            (StatusCode::NOT_FOUND, AgentAddress::Http { .. }) => "; is that its probe port, and not the admin port?",
            _ => "",
        };
        return Err(Failure::wrong(format!("the agent at {agent} answers {status} to {path}{hint}")));
    }
    let value = serde_json::from_slice(&body)
        .map_err(|error| Failure::wrong(format!("what answers at {agent} is no storewatch agent: {error}")))?;
    let mut text = String::from_utf8_lossy(&body).into_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok((value, text))
}

async fn exchange(agent: &AgentAddress, path: &str) -> Result<Answer, Failure> {
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
    match agent {
        AgentAddress::Unix(socket) => {
            let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
            talk(agent, stream, path).await
        }
        AgentAddress::Http { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
            talk(agent, stream, path).await
        }
    }
}

async fn talk<S>(agent: &AgentAddress, stream: S, path: &str) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken =
        |error: hyper::Error| Failure::wrong(format!("what answers at {agent} is no storewatch agent: {error}"));
    let request = Request::get(path)
        .header(header::HOST, agent.authority())
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, concat!("storewatch/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::wrong(format!("{path} cannot be asked for: {error}")))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| {
            let reason = match error.downcast_ref::<LengthLimitError>() {
                Some(_) => format!("is longer than {} MiB", MAX_BODY >> 20),
                None => format!("broke off: {error}"),
            };
            Failure::wrong(format!("the answer of {agent} {reason}"))
        })?;
        Ok(Answer { status, body: body.to_bytes() })
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
