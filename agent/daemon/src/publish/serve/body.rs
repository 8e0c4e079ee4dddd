//! Answers that take time: a request is in progress until the last byte of a stream was taken.

use super::connections::Open;
use axum::body::{Body, Bytes};
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// Keeps `open` as long as the answer's body, if that is a stream. A body of known size is complete already.
pub(super) fn hold(response: Response<Body>, open: Open) -> Response<Body> {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| Body::new(Held { body, _open: open }))
}

struct Held {
    body: Body,
    _open: Open,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
