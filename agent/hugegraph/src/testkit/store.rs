//! A Store: `HgStoreState` and the health service.

use super::{
    raw::Protocol,
    serve::{Body, Faulty, Transport, serve},
};
use crate::store::GET_SCAN_STATE;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use prost::Message;
use std::{convert::Infallible, io};
use storewatch_proto::{
    health::{
        HealthCheckRequest, HealthCheckResponse,
        health_check_response::ServingStatus,
        health_server::{Health, HealthServer},
    },
    store::{
        ScanState, SubStateReq,
        hg_store_state_server::{HgStoreState, HgStoreStateServer},
    },
};
use tokio::sync::watch;
use tonic::{Status, service::Routes};
use tower::{Service, ServiceExt};

/// What is wrong with a Store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreFault {
    /// Nothing.
    #[default]
    None,
    /// The process is gone: listener and connections closed.
    Down,
    /// Stopped as by SIGSTOP: the kernel accepts and acknowledges, nothing answers.
    Frozen,
    /// HTTP/2 works, the call is never answered.
    Hangs,
    /// The call answers with this status.
    Answers(tonic::Code),
    /// It says that this is its address.
    Names(String),
    /// GOAWAY at the first request.
    GoAway,
    /// An HTTP/1 server on the port.
    Http1,
    /// A TLS server on the port.
    Tls,
    /// Accepts and closes at once.
    Closes,
    /// A message of this many bytes.
    Huge(usize),
    /// A message that is no `ScanState`.
    WrongMessage,
    /// Trailers without end.
    EndlessTrailers,
    /// Data without end.
    EndlessMessage,
    /// A proxy refuses: this HTTP status, with a `server` header.
    ProxyRefuses(u16),
    /// A proxy stands before it and puts its name into a good answer.
    ProxyAnswers,
    /// HTTP 200 of another content type.
    Html,
    /// A good answer without a status.
    NoStatus,
}

impl Faulty for StoreFault {
    fn transport(&self) -> Transport {
        match self {
            Self::Down => Transport::Down,
            Self::Frozen => Transport::Frozen,
            Self::GoAway => Transport::Raw(Protocol::GoAway),
            Self::Http1 => Transport::Raw(Protocol::Http1),
            Self::Tls => Transport::Raw(Protocol::Tls),
            Self::Closes => Transport::Raw(Protocol::Closes),
            Self::EndlessTrailers => Transport::Raw(Protocol::EndlessTrailers),
            Self::EndlessMessage => Transport::Raw(Protocol::EndlessMessage),
            _ => Transport::Http2,
        }
    }
}

/// Runs a Store on this listener until the future is dropped. `identity` is the `host:port` that it advertises.
///
/// # Errors
/// The listener cannot be used, or its address cannot be bound again after [`StoreFault::Down`].
pub async fn serve_store(
    listener: std::net::TcpListener,
    identity: String,
    faults: watch::Receiver<StoreFault>,
) -> io::Result<()> {
    let routes = Routes::new(HealthServer::new(AlwaysServing))
        .add_service(HgStoreStateServer::new(State { identity, faults: faults.clone() }))
        .prepare();
    let seen = faults.clone();
    serve(listener, faults, move |request| answer(request, seen.borrow().clone(), routes.clone())).await
}

async fn answer(request: Request<Incoming>, fault: StoreFault, routes: Routes) -> Response<Body> {
    if request.uri().path() != GET_SCAN_STATE {
        return forward(request, routes).await;
    }
    match fault {
        StoreFault::Hangs => std::future::pending().await,
        StoreFault::ProxyRefuses(status) => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
            named(&mut response, "envoy");
            response
        }
        StoreFault::ProxyAnswers => {
            let mut response = forward(request, routes).await;
            named(&mut response, "istio-envoy");
            response
        }
        StoreFault::Html => {
            let mut response = Response::new(empty());
            response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            response
        }
        StoreFault::NoStatus => grpc(framed(&ScanState { address: String::new() }.encode_to_vec()), None),
        // Field 1, a string of 100 bytes, of which one follows.
        StoreFault::WrongMessage => grpc(framed(&[0x0a, 100, b'x']), Some(0)),
        _ => forward(request, routes).await,
    }
}

/// Hands a request to the generated services.
pub(super) async fn forward(request: Request<Incoming>, routes: Routes) -> Response<Body> {
    let mut routes = routes;
    let ready = ServiceExt::<Request<Incoming>>::ready(&mut routes).await;
    match ready {
        Ok(routes) => match routes.call(request).await {
            Ok(response) => response.map(|body| body.boxed_unsync()),
            Err(never) => match never {},
        },
        Err(never) => match never {},
    }
}

fn named(response: &mut Response<Body>, server: &'static str) {
    response.headers_mut().insert(http::header::SERVER, HeaderValue::from_static(server));
}

fn empty() -> Body {
    Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(message);
    frame.freeze()
}

/// An answer written by hand: data, then trailers with this status.
fn grpc(data: Bytes, status: Option<u16>) -> Response<Body> {
    let trailers = status.map(|status| {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(status));
        Ok::<_, Status>(Frame::trailers(trailers))
    });
    let frames = [Ok(Frame::data(data))].into_iter().chain(trailers);
    let mut response = Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync());
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

#[derive(Debug)]
struct State {
    identity: String,
    faults: watch::Receiver<StoreFault>,
}

#[tonic::async_trait]
impl HgStoreState for State {
    async fn get_scan_state(&self, _: tonic::Request<SubStateReq>) -> Result<tonic::Response<ScanState>, Status> {
        let address = match &*self.faults.borrow() {
            StoreFault::Answers(code) if *code != tonic::Code::Ok => return Err(Status::new(*code, "switched fault")),
            StoreFault::Names(other) => other.clone(),
            StoreFault::Huge(bytes) => "x".repeat(*bytes),
            _ => self.identity.clone(),
        };
        Ok(tonic::Response::new(ScanState { address }))
    }
}

/// The health service as HugeGraph's servers have it: a flag that is set once at start.
#[derive(Clone, Copy, Debug)]
pub(super) struct AlwaysServing;

#[tonic::async_trait]
impl Health for AlwaysServing {
    type WatchStream = tokio_stream::Once<Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        _: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        Ok(tonic::Response::new(HealthCheckResponse { status: ServingStatus::Serving as i32 }))
    }

    async fn watch(&self, _: tonic::Request<HealthCheckRequest>) -> Result<tonic::Response<Self::WatchStream>, Status> {
        let serving = HealthCheckResponse { status: ServingStatus::Serving as i32 };
        Ok(tonic::Response::new(tokio_stream::once(Ok(serving))))
    }
}
