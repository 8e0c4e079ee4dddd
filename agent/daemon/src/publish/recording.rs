//! `/v1/recording`: what the engine observes from now on, line by line, until the client leaves or the agent ends.

use super::{
    Publication,
    problem::Problem,
    query::{self, Pairs},
};
use crate::recording::format::{Line, encode};
use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use http::{StatusCode, header};
use std::convert::Infallible;

/// What the last line says when the agent ends before the recording does.
pub const AGENT_ENDS: &str = "the agent ended";

pub(super) async fn stream(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    let recordings = publication.recordings().ok_or_else(|| Problem::not_found("this agent records nothing"))?;
    let recording = recordings
        .begin()
        .map_err(|busy| Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("no recording can begin: {busy}")))?;
    let draining = publication.draining().clone();
    let lines = stream::unfold(Some(recording), move |recording| {
        let draining = draining.clone();
        async move {
            let mut recording = recording?;
            match draining.run_until_cancelled(recording.next()).await.flatten() {
                Some(lines) => Some((Ok::<_, Infallible>(lines), Some(recording))),
                None => Some((Ok(encode(&Line::End { why: AGENT_ENDS.into() })), None)),
            }
        }
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(lines)).into_response())
}
