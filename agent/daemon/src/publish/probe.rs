//! The probe listener: readiness of the node, of clusters, pods and workloads, and the agent's own health.
//!
//! Whoever reaches the node may ask, so no answer names an address, a host, or a pod that the caller did not name. The
//! gRPC health service of [`super::health`] is served by the same router, for the same reasons.

use super::{
    Publication,
    dto::{StoreId, readiness::Body, whole_ms},
    health, problem,
    problem::{Problem, quote},
    query::{self, Pairs},
    readiness::{self, NoAnswer, Readiness, Require, Subject},
    serve::Peer,
};
use axum::{
    Extension, Router,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
    routing::get,
};
use http::StatusCode;
use serde::Serialize;
use std::time::Duration;
use storewatch_core::snapshot::Snapshot;

#[cfg(test)]
mod tests;

/// Longest name that Kubernetes gives anything, in bytes.
const NAME_MAX: usize = 253;

/// An engine whose loop has not ticked for this long is dead; a tick is due several times a second.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// The router of the probe listener. [`serve`](super::serve::serve) adds the caller's address, without which
/// `/readiness/self` knows nobody.
pub fn router(publication: Publication) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/readiness", get(node))
        .route("/readiness/clusters/{name}", get(cluster))
        .route("/readiness/pods/{namespace}/{pod}", get(pod))
        .route("/readiness/uid/{uid}", get(uid))
        .route("/readiness/self", get(caller))
        .route("/readiness/workloads/{namespace}/{name}", get(workload))
        .method_not_allowed_fallback(problem::unknown_method)
        .with_state(publication.clone())
        .merge(health::router(publication))
        .fallback(problem::unknown_path)
}

#[derive(Serialize)]
struct Live {
    live: bool,
    tick_age_ms: u64,
}

async fn livez(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    let age = publication.now().since(publication.last_beat());
    let live = age < DEAD_AFTER;
    Ok(problem::json(code(live), JSON, &Live { live, tick_age_ms: whole_ms(age) }))
}

#[derive(Serialize)]
struct Started {
    ready: bool,
    reason: &'static str,
    generation: u64,
    /// Sources without an answer so far.
    waiting_for: Vec<&'static str>,
}

async fn readyz(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    let snapshot = publication.snapshot();
    let (ready, reason) = match (publication.draining().is_cancelled(), snapshot.synced) {
        (true, _) => (false, "Draining"),
        (false, false) => (false, "Starting"),
        (false, true) => (true, "Synced"),
    };
    let silent = |source: &&storewatch_core::snapshot::SourceView| {
        source.last.is_none() && source.state != storewatch_core::source::SourceState::Absent
    };
    let waiting_for = snapshot.sources.iter().filter(silent).map(|source| source.name.as_str()).collect();
    let body = Started { ready, reason, generation: snapshot.generation, waiting_for };
    Ok(problem::json(code(ready), JSON, &body))
}

async fn node(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    let snapshot = publication.snapshot();
    Ok(answer(&publication, &snapshot, &readiness::node(&snapshot)))
}

async fn cluster(
    State(publication): State<Publication>,
    path: Result<Path<String>, PathRejection>,
    pairs: Pairs,
) -> Result<Response, Problem> {
    query::none(pairs)?;
    let name = segment(path)?;
    let snapshot = publication.snapshot();
    let answered = readiness::cluster(&snapshot, &name)
        .ok_or_else(|| Problem::not_found(format!("no cluster {} is configured", quote(&name))))?;
    Ok(answer(&publication, &snapshot, &answered))
}

async fn pod(
    State(publication): State<Publication>,
    path: Result<Path<(String, String)>, PathRejection>,
    pairs: Pairs,
) -> Result<Response, Problem> {
    query::none(pairs)?;
    let (namespace, name) = segments(path)?;
    find(&publication, Subject::Pod { namespace: &namespace, name: &name })
}

async fn uid(
    State(publication): State<Publication>,
    path: Result<Path<String>, PathRejection>,
    pairs: Pairs,
) -> Result<Response, Problem> {
    query::none(pairs)?;
    let uid = segment(path)?;
    find(&publication, Subject::Uid(&uid))
}

/// The caller is who the connection says it is; headers such as `Forwarded` prove nothing and are not read.
async fn caller(
    State(publication): State<Publication>,
    peer: Option<Extension<Peer>>,
    pairs: Pairs,
) -> Result<Response, Problem> {
    query::none(pairs)?;
    let address = peer.and_then(|Extension(peer)| peer.ip());
    let address = address.ok_or_else(|| Problem::not_found("this connection has no source address"))?;
    find(&publication, Subject::Address(address))
}

async fn workload(
    State(publication): State<Publication>,
    path: Result<Path<(String, String)>, PathRejection>,
    pairs: Pairs,
) -> Result<Response, Problem> {
    let values = query::parse(pairs, &["require", "kind"])?;
    let require = match values.get("require").map(String::as_str) {
        None | Some("any") => Require::Any,
        Some("all") => Require::All,
        Some(other) => {
            return Err(Problem::bad_request(format!("require={} is neither `all` nor `any`", quote(other))));
        }
    };
    let kind = values.get("kind").map(String::as_str);
    if kind == Some("") {
        return Err(Problem::bad_request("kind is empty, give one such as `StatefulSet` or leave the key out"));
    }
    let (namespace, name) = segments(path)?;
    find(&publication, Subject::Workload { namespace: &namespace, name: &name, kind, require })
}

const JSON: &str = "application/json";

fn code(ready: bool) -> StatusCode {
    if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn find(publication: &Publication, subject: Subject<'_>) -> Result<Response, Problem> {
    let snapshot = publication.snapshot();
    match readiness::find(&snapshot, subject, publication.on_unknown()) {
        Ok(found) => Ok(answer(publication, &snapshot, &found)),
        Err(NoAnswer::Shared) => Err(Problem::not_found(
            "several pods share the caller's address, ask by uid or by name (`/readiness/uid/{uid}`)",
        )),
        Err(NoAnswer::NotFound) => Err(Problem::not_found(match subject {
            Subject::Pod { namespace, name } => {
                format!("no pod {} is watched on this node", quote(&format!("{namespace}/{name}")))
            }
            Subject::Uid(uid) => format!("no pod with uid {} is watched on this node", quote(uid)),
            Subject::Address(_) => "the caller's address belongs to no pod watched on this node".to_owned(),
            Subject::Workload { namespace, name, .. } => {
                format!("no pod of workload {} is watched on this node", quote(&format!("{namespace}/{name}")))
            }
        })),
    }
}

fn answer(publication: &Publication, snapshot: &Snapshot, readiness: &Readiness<'_>) -> Response {
    let body = Body::new(readiness, snapshot.generation, publication.now(), StoreId::Number);
    problem::json(code(readiness.ready), JSON, &body)
}

fn segment(path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let Path(name) = path.map_err(unreadable)?;
    bounded(&name)?;
    Ok(name)
}

fn segments(path: Result<Path<(String, String)>, PathRejection>) -> Result<(String, String), Problem> {
    let Path((namespace, name)) = path.map_err(unreadable)?;
    bounded(&namespace)?;
    bounded(&name)?;
    Ok((namespace, name))
}

fn unreadable(error: PathRejection) -> Problem {
    Problem::bad_request(format!("the path cannot be read: {}", error.body_text()))
}

fn bounded(name: &str) -> Result<(), Problem> {
    if name.len() > NAME_MAX {
        return Err(Problem::bad_request(format!(
            "{} is {} bytes long, names have at most {NAME_MAX}",
            quote(name),
            name.len()
        )));
    }
    Ok(())
}
