//! A PD peer: the list of Stores and the health service.

use super::{
    serve::{Body, Faulty, Transport, serve},
    store::{AlwaysServing, forward},
};
use crate::pd::GET_ALL_STORES;
use http::{Request, Response};
use hyper::body::Incoming;
use std::io;
use storewatch_proto::{
    health::health_server::HealthServer,
    metapb::{self, StoreState},
    pdpb::{
        Error, GetAllStoresRequest, GetAllStoresResponse, ResponseHeader,
        pd_server::{Pd, PdServer},
    },
};
use tokio::sync::watch;
use tonic::{Code, Status, service::Routes};

/// A Store as this PD lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: u64,
    /// Its `host:port`.
    pub address: String,
    /// The number of its state; [`UP`] for a healthy one.
    pub state: i32,
}

/// The state of a healthy Store.
pub const UP: i32 = StoreState::Up as i32;

/// What is wrong with a PD peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PdFault {
    /// Nothing.
    #[default]
    None,
    /// The process is gone.
    Down,
    /// Stopped as by SIGSTOP.
    Frozen,
    /// The process lives and its health service says so; the list call is never answered. So is a follower of 1.7.0, and
    /// every peer without a leader.
    NoLeader,
    /// The list call answers with this status; UNAVAILABLE is what a follower relays from a leader that is gone.
    Answers(Code),
    /// The list call answers OK with an error of this number in its header.
    HeaderError(i32),
}

/// What this peer knows and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PdState {
    /// The list; empty as after a change of leader.
    pub stores: Vec<Listed>,
    /// The fault.
    pub fault: PdFault,
}

impl Faulty for PdState {
    fn transport(&self) -> Transport {
        match self.fault {
            PdFault::Down => Transport::Down,
            PdFault::Frozen => Transport::Frozen,
            PdFault::None | PdFault::NoLeader | PdFault::Answers(_) | PdFault::HeaderError(_) => Transport::Http2,
        }
    }
}

/// Runs a PD peer on this listener until the future is dropped.
///
/// # Errors
/// The listener cannot be used, or its address cannot be bound again after [`PdFault::Down`].
pub async fn serve_pd(listener: std::net::TcpListener, state: watch::Receiver<PdState>) -> io::Result<()> {
    let routes = Routes::new(HealthServer::new(AlwaysServing))
        .add_service(PdServer::new(Peer { state: state.clone() }))
        .prepare();
    let seen = state.clone();
    serve(listener, state, move |request| answer(request, seen.borrow().fault, routes.clone())).await
}

async fn answer(request: Request<Incoming>, fault: PdFault, routes: Routes) -> Response<Body> {
    if request.uri().path() == GET_ALL_STORES && fault == PdFault::NoLeader {
        std::future::pending::<()>().await;
    }
    forward(request, routes).await
}

#[derive(Debug)]
struct Peer {
    state: watch::Receiver<PdState>,
}

#[tonic::async_trait]
impl Pd for Peer {
    async fn get_all_stores(
        &self,
        request: tonic::Request<GetAllStoresRequest>,
    ) -> Result<tonic::Response<GetAllStoresResponse>, Status> {
        let PdState { stores, fault } = self.state.borrow().clone();
        let error = match fault {
            PdFault::Answers(code) if code != Code::Ok => return Err(Status::new(code, "switched fault")),
            PdFault::HeaderError(number) => Error { r#type: number, message: "switched fault".to_owned() },
            _ => Error::default(),
        };
        let only_active = request.get_ref().exclude_offline_stores;
        let stores = stores
            .into_iter()
            .filter(|store| !only_active || store.state == UP)
            .map(|Listed { id, address, state }| metapb::Store { id, address, state })
            .collect();
        // PD sends an explicit OK header.
        let header = Some(ResponseHeader { cluster_id: 0, error: Some(error) });
        Ok(tonic::Response::new(GetAllStoresResponse { header, stores }))
    }
}
