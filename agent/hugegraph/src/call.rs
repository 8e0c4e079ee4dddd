//! A unary gRPC call, seen whole: HTTP status, content type, `server` header, messages and the explicit `grpc-status`.
//!
//! A generated client hides what decides here. It makes up a status where a proxy gave none, and does not say whether an
//! UNAVAILABLE was sent by the server or made up locally. The call itself is short.

use crate::{
    connect::Connection,
    fault::{Fault, Phase, bounded},
};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::Code;

/// Largest message that is read. PD's list stays far below it; what is larger ends as a named fault.
pub const LARGEST_MESSAGE: usize = 16 * 1024 * 1024;

/// Flag and length before each message.
const PREFIX: usize = 5;
/// Added to the deadline told to the server, so that this side's own ends first and is seen as what it is.
const DEADLINE_SLACK_MS: u128 = 200;

/// Names that proxies put into the `server` header. gRPC servers in Java send none.
const PROXIES: [&str; 16] = [
    "apisix",
    "apache",
    "awselb",
    "caddy",
    "cloudflare",
    "contour",
    "envoy",
    "gws",
    "haproxy",
    "kong",
    "linkerd",
    "nginx",
    "openresty",
    "squid",
    "traefik",
    "varnish",
];

/// What the server answered, by its own explicit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// Status OK and one message.
    Message(T),
    /// Another status.
    Status {
        /// Its code.
        code: Code,
        /// Its text, bounded.
        message: String,
        /// It came in the response's head, without a body; false: in trailers after it.
        trailers_only: bool,
    },
}

impl Connection {
    /// Calls `path` and waits for the end of the answer.
    ///
    /// # Errors
    /// A [`Fault`] when no explicit gRPC status of a server arrived in time.
    pub async fn unary<Q: Message, A: Message + Default>(
        &self,
        path: &'static str,
        question: &Q,
        deadline: Instant,
    ) -> Result<Answer<A>, Fault> {
        let mut body = BytesMut::with_capacity(PREFIX + question.encoded_len());
        body.put_u8(0);
        body.put_u32(u32::try_from(question.encoded_len()).map_err(|_| Fault::protocol("question too large"))?);
        question.encode(&mut body).map_err(|error| Fault::protocol(error.to_string()))?;

        let budget = deadline.saturating_duration_since(Instant::now()).as_millis().saturating_add(DEADLINE_SLACK_MS);
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("http://{}{path}", self.authority))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, concat!("storewatch/", env!("CARGO_PKG_VERSION")))
            // At most eight digits are allowed.
            .header("grpc-timeout", format!("{}m", budget.min(99_999_999)))
            .body(Full::new(body.freeze()))
            .map_err(|error| Fault::protocol(error.to_string()))?;

        let mut sender = self.sender.clone();
        timeout_at(deadline, async move {
            let response = sender.send_request(request).await.map_err(|error| Fault::from_hyper(&error, Phase::Rpc))?;
            read(response).await
        })
        .await
        .unwrap_or(Err(Fault::Deadline(Phase::Rpc)))
    }
}

async fn read<A: Message + Default>(response: Response<Incoming>) -> Result<Answer<A>, Fault> {
    let (head, mut body) = response.into_parts();
    if let Some(proxy) = proxy(&head.headers) {
        return Err(Fault::protocol(format!("a proxy answered ({proxy}), HTTP status {}", head.status.as_u16())));
    }
    if head.status != StatusCode::OK {
        return Err(Fault::protocol(format!("HTTP status {}, not a gRPC answer", head.status.as_u16())));
    }
    let content_type = head.headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    if !content_type.as_deref().is_some_and(is_grpc) {
        let found = content_type.as_deref().unwrap_or("none");
        return Err(Fault::protocol(format!("content-type {found}, not application/grpc")));
    }
    if let Some((code, message)) = status(&head.headers)? {
        // A status in the head ends the answer; a body after it is not waited for.
        return match code {
            Code::Ok => Err(Fault::protocol("grpc-status 0 without a message")),
            _ => Ok(Answer::Status { code, message, trailers_only: true }),
        };
    }

    let mut data = BytesMut::new();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Fault::from_hyper(&error, Phase::Rpc))?;
        match frame.into_data() {
            Ok(part) => {
                if data.len() + part.len() > LARGEST_MESSAGE + PREFIX {
                    return Err(Fault::protocol(format!("a message above {LARGEST_MESSAGE} bytes")));
                }
                data.extend_from_slice(&part);
                announced(&data)?;
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    let (code, message) =
        trailers.as_ref().map(status).transpose()?.flatten().ok_or_else(|| Fault::protocol("no grpc-status"))?;
    if code != Code::Ok {
        return Ok(Answer::Status { code, message, trailers_only: false });
    }
    message_in(data.freeze()).map(Answer::Message)
}

/// Refuses a message by its announced length, before its bytes are collected.
fn announced(data: &[u8]) -> Result<(), Fault> {
    match data {
        [_, a, b, c, d, ..] if u32::from_be_bytes([*a, *b, *c, *d]) as usize > LARGEST_MESSAGE => {
            Err(Fault::protocol(format!("a message above {LARGEST_MESSAGE} bytes")))
        }
        _ => Ok(()),
    }
}

fn message_in<A: Message + Default>(mut data: Bytes) -> Result<A, Fault> {
    match data.first_chunk::<PREFIX>() {
        None => Err(Fault::protocol("grpc-status 0 without a message")),
        Some([1, ..]) => Err(Fault::protocol("a compressed message, which was not asked for")),
        Some([0, length @ ..]) if data.len() - PREFIX == u32::from_be_bytes(*length) as usize => {
            let message = data.split_off(PREFIX);
            A::decode(message).map_err(|error| Fault::protocol(format!("malformed message: {error}")))
        }
        Some(_) => Err(Fault::protocol("the answer is not exactly one gRPC message")),
    }
}

fn is_grpc(content_type: &str) -> bool {
    content_type
        .trim()
        .to_ascii_lowercase()
        .strip_prefix("application/grpc")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';', ' ']))
}

fn proxy(headers: &HeaderMap) -> Option<&'static str> {
    headers.get_all(header::SERVER).iter().find_map(|value| {
        let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        PROXIES.into_iter().find(|name| value.contains(name))
    })
}

/// The explicit status; `None` when there is none.
fn status(headers: &HeaderMap) -> Result<Option<(Code, String)>, Fault> {
    let Some(value) = headers.get("grpc-status") else {
        return Ok(None);
    };
    let code = value.to_str().ok().and_then(|text| text.parse::<i32>().ok()).filter(|code| (0..=16).contains(code));
    let code = code.ok_or_else(|| {
        Fault::protocol(format!("grpc-status {:?} is not a status", String::from_utf8_lossy(value.as_bytes())))
    })?;
    let message = headers.get("grpc-message").map(|value| percent_decoded(value.as_bytes())).unwrap_or_default();
    Ok(Some((Code::from_i32(code), message)))
}

/// Status texts are sent with `%XX` for what is not printable ASCII; a broken escape stands for itself.
fn percent_decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| tail.first_chunk::<2>())
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bounded(&String::from_utf8_lossy(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;
    use storewatch_proto::store::ScanState;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_status_must_be_explicit_and_known() {
        assert_eq!(status(&headers(&[])), Ok(None));
        let given = status(&headers(&[("grpc-status", "14"), ("grpc-message", "io%20exception%2")]));
        assert_eq!(given, Ok(Some((Code::Unavailable, "io exception%2".to_owned()))));
        for wrong in ["", "x", "17", "-1", "1.0"] {
            assert!(status(&headers(&[("grpc-status", wrong)])).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn content_types_of_grpc() {
        for yes in ["application/grpc", "application/grpc+proto", "Application/gRPC; charset=utf-8"] {
            assert!(is_grpc(yes), "{yes}");
        }
        for no in ["text/html", "application/grpc-web", "application/grpcx", ""] {
            assert!(!is_grpc(no), "{no}");
        }
    }

    #[test]
    fn proxies_are_known_by_name() {
        for (value, name) in
            [("envoy", Some("envoy")), ("istio-envoy", Some("envoy")), ("nginx/1.25", Some("nginx")), ("Jetty", None)]
        {
            assert_eq!(proxy(&headers(&[("server", value)])), name, "{value}");
        }
    }

    #[test]
    fn exactly_one_message_is_read() {
        let good = Bytes::from_static(b"\0\0\0\0\x06\x0a\x04s:85");
        assert_eq!(message_in::<ScanState>(good.clone()).unwrap().address, "s:85");
        let twice: Bytes = [good.clone(), good.clone()].concat().into();
        let compressed: Bytes = [&b"\x01"[..], &good[1..]].concat().into();
        let malformed = Bytes::from_static(b"\0\0\0\0\x02\x0a\x04");
        for wrong in [Bytes::new(), good.slice(..7), twice, compressed, malformed, Bytes::from_static(b"\x02\0\0\0\0")]
        {
            assert!(message_in::<ScanState>(wrong.clone()).is_err(), "{wrong:?}");
        }
        assert!(announced(&[0, 1, 0, 0, 1]).is_err());
        assert!(announced(&[0, 1, 0, 0, 0]).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_a_fault(data in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = message_in::<ScanState>(data.into());
        }

        #[test]
        fn any_text_is_decoded_within_bounds(text in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(percent_decoded(&text).chars().count() <= 200);
        }
    }
}
