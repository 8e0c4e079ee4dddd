//! The Prometheus listener. Families are made from the snapshot when they are asked for; nothing is counted twice.

mod collector;
mod exposition;
mod family;

use super::{
    Publication,
    problem::{self, Problem},
    query::{self, Pairs},
    serve::Counters,
};
use axum::{Router, extract::State, response::Response, routing::get};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use prometheus_client::{encoding::text, registry::Registry};
use std::sync::Arc;

pub use collector::ProgramSeconds;

#[cfg(test)]
mod tests;

/// The router of the metrics listener. `listeners` are those whose connections are counted, by their key in the
/// configuration; `programs` is asked at each scrape.
pub fn router(
    publication: Publication,
    listeners: Vec<(&'static str, Arc<Counters>)>,
    programs: Box<ProgramSeconds>,
) -> Router {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector::SnapshotCollector::new(publication)));
    registry.register_collector(Box::new(collector::ListenerCollector::new(listeners)));
    registry.register_collector(Box::new(collector::ProgramCollector(programs)));
    Router::new()
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(problem::unknown_method)
        .fallback(problem::unknown_path)
        .with_state(Arc::new(registry))
}

async fn metrics(State(registry): State<Arc<Registry>>, headers: HeaderMap, pairs: Pairs) -> Result<Response, Problem> {
    // `?name[]=` and the like would be answered with all families, which is not what was asked for.
    query::none(pairs)?;
    let mut body = String::new();
    text::encode(&mut body, &registry)
        .map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be encoded"))?;
    let format = exposition::negotiate(&headers);
    let mut response = Response::new(format.render(body).into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
