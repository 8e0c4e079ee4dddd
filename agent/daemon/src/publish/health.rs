//! `grpc.health.v1.Health` on the probe listener: `""` is this node, `pod/NAMESPACE/NAME` a pod, `workload/NAMESPACE/NAME`
//! a workload of which any pod is enough. SERVING is what the HTTP side answers 200 to.

use super::{
    Publication,
    problem::quote,
    readiness::{self, Require, Subject},
};
use axum::Router;
use futures_util::{Stream, stream};
use std::{pin::Pin, sync::Arc};
use storewatch_core::snapshot::Snapshot;
use storewatch_proto::health::{
    HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::{Request, Response, Status};

#[cfg(test)]
mod tests;

/// Watch streams that may be open at once: far more than a node has pods, at a few hundred bytes each.
const MAX_WATCHERS: usize = 512;

/// A request is a name of two parts of at most 253 bytes each.
const MAX_REQUEST: usize = 1024;

/// The service's routes.
pub(super) fn router(publication: Publication) -> Router {
    let service = Service { publication, watchers: Arc::new(Semaphore::new(MAX_WATCHERS)) };
    let server = HealthServer::new(service).max_decoding_message_size(MAX_REQUEST);
    Router::new().route_service("/grpc.health.v1.Health/{method}", server)
}

struct Service {
    publication: Publication,
    watchers: Arc<Semaphore>,
}

type Updates = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Health for Service {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let name = request.into_inner().service;
        match status(&self.publication, &self.publication.snapshot(), &name) {
            ServingStatus::ServiceUnknown => Err(Status::not_found(format!("{} is not known here", quote(&name)))),
            status => Ok(Response::new(response(status))),
        }
    }

    type WatchStream = Updates;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Updates>, Status> {
        let permit = Arc::clone(&self.watchers)
            .try_acquire_owned()
            .map_err(|_| Status::resource_exhausted("too many watchers, use Check or try again later"))?;
        let watcher = Watcher {
            snapshots: self.publication.subscribe(),
            publication: self.publication.clone(),
            name: request.into_inner().service,
            told: None,
            _permit: permit,
        };
        Ok(Response::new(Box::pin(stream::unfold(Some(watcher), |watcher| async {
            let mut watcher = watcher?;
            match watcher.next().await {
                Ok(status) => Some((Ok(response(status)), Some(watcher))),
                Err(end) => Some((Err(end), None)),
            }
        }))))
    }
}

/// One open Watch. It holds a receiver, never a queue: a slow reader skips to the latest status.
struct Watcher {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    publication: Publication,
    name: String,
    told: Option<ServingStatus>,
    _permit: OwnedSemaphorePermit,
}

impl Watcher {
    /// The next status that differs from the last one told; an error ends the stream.
    async fn next(&mut self) -> Result<ServingStatus, Status> {
        let ended = || Status::unavailable("the agent is ending");
        loop {
            tokio::select! {
                biased;
                () = self.publication.draining().cancelled() => return Err(ended()),
                changed = self.snapshots.changed() => changed.map_err(|_| ended())?,
            }
            let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
            let status = status(&self.publication, &snapshot, &self.name);
            if self.told.replace(status) != Some(status) {
                return Ok(status);
            }
        }
    }
}

fn status(publication: &Publication, snapshot: &Snapshot, name: &str) -> ServingStatus {
    if snapshot.generation == 0 {
        return ServingStatus::NotServing;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let answer = match parts.as_slice() {
        [""] => Some(readiness::node(snapshot)),
        ["pod", namespace, name] => {
            readiness::find(snapshot, Subject::Pod { namespace, name }, publication.on_unknown()).ok()
        }
        ["workload", namespace, name] => {
            let subject = Subject::Workload { namespace, name, kind: None, require: Require::Any };
            readiness::find(snapshot, subject, publication.on_unknown()).ok()
        }
        _ => None,
    };
    match answer {
        None => ServingStatus::ServiceUnknown,
        Some(answer) if answer.ready => ServingStatus::Serving,
        Some(_) => ServingStatus::NotServing,
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
