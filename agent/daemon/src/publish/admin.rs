//! The admin side: everything that the agent knows, for this machine only.
//!
//! All but the connection table is read from the [`Publication`]; for that one the engine is asked.
//!
//! Two listeners serve it: a Unix socket, guarded by its mode, and a loopback port. A web page that somebody opens in a
//! browser on this machine can reach the port under a name that its owner points at 127.0.0.1, so the port answers only to
//! the names of loopback itself.

use super::{
    Publication,
    dto::{
        Clocks,
        detail::PodDetailDto,
        pod::PodDto,
        snapshot::SnapshotDto,
        source::SourceDto,
        store::{PdDto, stores},
    },
    problem::{self, Problem, json, quote},
    query::{self, Pairs},
    readiness, recording,
};
use crate::{ask::Asker, clock::ClockPair};
use axum::{
    Router,
    extract::{FromRef, Path, Request, State, rejection::PathRejection},
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use http::{StatusCode, header};
use serde::Serialize;

mod connections;
mod events;
#[cfg(test)]
mod tests;

/// Rows of an answer that are turned into JSON where the request is; for more it takes milliseconds, and the thread has
/// other things to do.
const ROWS_IN_PLACE: usize = 200;

/// What the handlers work with.
#[derive(Clone)]
struct Admin {
    publication: Publication,
    asker: Asker,
}

impl FromRef<Admin> for Publication {
    fn from_ref(admin: &Admin) -> Self {
        admin.publication.clone()
    }
}

impl FromRef<Admin> for Asker {
    fn from_ref(admin: &Admin) -> Self {
        admin.asker.clone()
    }
}

/// The router for the Unix socket.
pub fn router(publication: Publication, asker: Asker) -> Router {
    Router::new()
        .route("/v1/snapshot", get(snapshot))
        .route("/v1/pods", get(pods))
        .route("/v1/pods/{namespace}/{pod}", get(pod))
        .route("/v1/stores", get(all_stores))
        .route("/v1/pd", get(pd))
        .route("/v1/sources", get(sources))
        .route("/v1/connections", get(connections::connections))
        .route("/v1/events", get(events::events))
        .route("/v1/events/stream", get(events::follow))
        .route("/v1/recording", get(recording::stream))
        .method_not_allowed_fallback(problem::unknown_method)
        .fallback(problem::unknown_path)
        .with_state(Admin { publication, asker })
}

/// The router for the loopback port: the same for requests that name loopback as their host.
pub fn loopback_router(publication: Publication, asker: Asker) -> Router {
    router(publication, asker).layer(middleware::from_fn(require_loopback_host))
}

async fn require_loopback_host(request: Request, next: Next) -> Result<Response, Problem> {
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => match request.headers().get_all(header::HOST).iter().collect::<Vec<_>>().as_slice() {
            [only] => only.to_str().ok(),
            _ => None,
        },
    };
    match host {
        Some(host) if is_loopback(host) => Ok(next.run(request).await),
        _ => Err(Problem::new(
            StatusCode::FORBIDDEN,
            format!(
                "the host {} is not this listener's; use http://localhost or a loopback address",
                quote(host.unwrap_or_default())
            ),
        )),
    }
}

/// `host[:port]` with a host that can only mean this machine.
fn is_loopback(authority: &str) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    match host.strip_prefix('[') {
        Some(v6) => v6
            .strip_suffix(']')
            .and_then(|v6| v6.parse::<std::net::Ipv6Addr>().ok())
            .is_some_and(|ip| std::net::IpAddr::V6(ip).to_canonical().is_loopback()),
        None => {
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

async fn snapshot(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    let snapshot = publication.snapshot();
    let node = readiness::node(&snapshot);
    Ok(ok(&SnapshotDto::new(&snapshot, &node, &clocks(&publication))))
}

async fn pods(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    let (snapshot, clocks) = (publication.snapshot(), clocks(&publication));
    Ok(ok(&snapshot.pods.iter().map(|pod| PodDto::new(&snapshot, pod, &clocks)).collect::<Vec<_>>()))
}

async fn pod(
    State(publication): State<Publication>,
    path: Result<Path<(String, String)>, PathRejection>,
    pairs: Pairs,
) -> Result<Response, Problem> {
    query::none(pairs)?;
    let Path((namespace, name)) =
        path.map_err(|error| Problem::bad_request(format!("the path cannot be read: {}", error.body_text())))?;
    let snapshot = publication.snapshot();
    let found =
        snapshot.pods.iter().find(|pod| *pod.record.pod.namespace == *namespace && *pod.record.pod.name == *name);
    let pod = found.ok_or_else(|| {
        let doubt = if snapshot.pods_fresh { "" } else { ", but the pod inventory is not up to date" };
        Problem::not_found(format!("no pod {} is watched on this node{doubt}", quote(&format!("{namespace}/{name}"))))
    })?;
    let cluster = snapshot.clusters.iter().find(|cluster| cluster.id == pod.record.cluster);
    let node = cluster.and_then(|cluster| readiness::cluster(&snapshot, &cluster.name));
    Ok(ok(&PodDetailDto::new(&snapshot, pod, node.as_ref(), &clocks(&publication))))
}

async fn all_stores(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    Ok(ok(&stores(&publication.snapshot(), &clocks(&publication))))
}

async fn pd(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    Ok(ok(&PdDto::new(&publication.snapshot(), &clocks(&publication))))
}

async fn sources(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    query::none(pairs)?;
    let (snapshot, clocks) = (publication.snapshot(), clocks(&publication));
    Ok(ok(&snapshot.sources.iter().map(|source| SourceDto::new(source, &clocks)).collect::<Vec<_>>()))
}

fn clocks(publication: &Publication) -> Clocks {
    Clocks { now: publication.now(), dates: ClockPair::read() }
}

fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, "application/json", value)
}

/// An answer of that many rows, made where it holds up nobody.
async fn large(rows: usize, make: impl FnOnce() -> Response + Send + 'static) -> Result<Response, Problem> {
    if rows <= ROWS_IN_PLACE {
        return Ok(make());
    }
    let made = tokio::task::spawn_blocking(make).await;
    made.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made"))
}
