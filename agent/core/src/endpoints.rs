//! What Services lead to: the pods behind each name, as the cluster's control plane tells.

use crate::{
    id::{ClusterId, PodRef, PodUid},
    time::MonoTime,
};
use std::{net::IpAddr, sync::Arc};

/// All Services of the Stores and of PD, and what is behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointsReport {
    /// Whose.
    pub cluster: ClusterId,
    /// When it was true.
    pub at: MonoTime,
    /// The Services.
    pub services: Vec<Service>,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// `NAME.NAMESPACE.svc`.
    pub host: Arc<str>,
    /// Its own addresses; none for a headless one.
    pub addresses: Vec<IpAddr>,
    /// What is behind it, whether or not it serves.
    pub endpoints: Vec<Endpoint>,
}

/// An address behind a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The pod's own label in the Service's domain, if it has one.
    pub hostname: Option<Arc<str>>,
    /// Its address.
    pub ip: IpAddr,
    /// The pod there, if it is a pod.
    pub occupant: Option<Occupant>,
}

/// A pod at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Its name.
    pub pod: PodRef,
    /// Its identity over time.
    pub uid: PodUid,
    /// It passes its readiness checks, whatever the Service publishes; `None` where the endpoint does not say.
    pub serving: Option<bool>,
    /// It is being deleted.
    pub terminating: bool,
}
