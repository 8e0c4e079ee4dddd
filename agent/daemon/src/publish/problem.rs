//! Errors as RFC 9457 problem documents.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// Longest piece of a request that an answer repeats, in bytes.
const QUOTE: usize = 80;

/// Room for a readiness answer without growing, in bytes.
const TYPICAL_BODY: usize = 768;

/// Why a request has no other answer. `detail` is one sentence; on the probe side it names nothing but what the caller
/// sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        json(self.status, "application/problem+json", &document)
    }
}

/// A response that no cache may keep. `value` is one of this crate's own types, none of which can fail to serialize.
pub(crate) fn json(status: StatusCode, content_type: &'static str, value: &impl Serialize) -> Response {
    let mut body = Vec::with_capacity(TYPICAL_BODY);
    if serde_json::to_writer(&mut body, value).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `text` as it may stand in a detail: short, and in quotes.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTE) {
        Some((end, _)) => format!("`{}...`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// For paths that no route matches.
pub(crate) async fn unknown_path(uri: http::Uri) -> Problem {
    Problem::not_found(format!("there is nothing at {}", quote(uri.path())))
}

/// For methods that no route takes. The router itself adds `Allow`.
pub(crate) async fn unknown_method(method: http::Method) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} is not allowed here, only GET and HEAD are", quote(method.as_str())),
    )
}
