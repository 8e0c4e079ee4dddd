//! The shapes of the core's values in files: the state file and recordings.
//!
//! The core knows no serialization, and what a file says must not change when a field of the core is renamed; so each
//! type has a mirror here. Each is taken apart field by field, so that one added to the core does not compile until it is
//! added here, which is also when the version of each kind of file that holds it goes up
//! ([`crate::state`], [`crate::recording::VERSION`]).

use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{id, pod, time::MonoTime, topology, verdict};

/// A value of the core that has a shape in the file.
pub(crate) trait Stored {
    /// That shape.
    type Shape;
    /// To the file.
    fn put(&self) -> Self::Shape;
    /// From the file.
    fn take(shape: Self::Shape) -> Self;
}

/// Types whose shape is what serde makes of them.
macro_rules! plain {
    ($($kind:ty),* $(,)?) => {$(
        impl Stored for $kind {
            type Shape = Self;
            fn put(&self) -> Self {
                self.clone()
            }
            fn take(shape: Self) -> Self {
                shape
            }
        }
    )*};
}

plain!((), bool, u8, u16, u32, u64, i32, i64, String, Arc<str>, IpAddr, SocketAddr, Duration);

impl<T: Stored> Stored for Option<T> {
    type Shape = Option<T::Shape>;
    fn put(&self) -> Self::Shape {
        self.as_ref().map(T::put)
    }
    fn take(shape: Self::Shape) -> Self {
        shape.map(T::take)
    }
}

impl<T: Stored> Stored for Vec<T> {
    type Shape = Vec<T::Shape>;
    fn put(&self) -> Self::Shape {
        self.iter().map(T::put).collect()
    }
    fn take(shape: Self::Shape) -> Self {
        shape.into_iter().map(T::take).collect()
    }
}

impl<T: Stored> Stored for VecDeque<T> {
    type Shape = Vec<T::Shape>;
    fn put(&self) -> Self::Shape {
        self.iter().map(T::put).collect()
    }
    fn take(shape: Self::Shape) -> Self {
        shape.into_iter().map(T::take).collect()
    }
}

impl<T: Stored + Ord> Stored for BTreeSet<T> {
    type Shape = Vec<T::Shape>;
    fn put(&self) -> Self::Shape {
        self.iter().map(T::put).collect()
    }
    fn take(shape: Self::Shape) -> Self {
        shape.into_iter().map(T::take).collect()
    }
}

impl<K: Stored + Ord, V: Stored> Stored for BTreeMap<K, V> {
    type Shape = Vec<(K::Shape, V::Shape)>;
    fn put(&self) -> Self::Shape {
        self.iter().map(|(key, value)| (key.put(), value.put())).collect()
    }
    fn take(shape: Self::Shape) -> Self {
        shape.into_iter().map(|(key, value)| (K::take(key), V::take(value))).collect()
    }
}

impl<T: Stored, E: Stored> Stored for Result<T, E> {
    type Shape = Result<T::Shape, E::Shape>;
    fn put(&self) -> Self::Shape {
        self.as_ref().map(T::put).map_err(E::put)
    }
    fn take(shape: Self::Shape) -> Self {
        shape.map(T::take).map_err(E::take)
    }
}

macro_rules! tuple {
    ($($name:ident $position:tt),*) => {
        impl<$($name: Stored),*> Stored for ($($name,)*) {
            type Shape = ($($name::Shape,)*);
            fn put(&self) -> Self::Shape {
                ($(self.$position.put(),)*)
            }
            fn take(shape: Self::Shape) -> Self {
                ($($name::take(shape.$position),)*)
            }
        }
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);

/// A struct with a mirror that has the same fields.
macro_rules! record {
    ($($mirror:ident of $core:path { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $mirror {
            $($field: <$kind as Stored>::Shape,)*
        }

        impl Stored for $core {
            type Shape = $mirror;
            fn put(&self) -> $mirror {
                let Self { $($field),* } = self;
                $mirror { $($field: $field.put()),* }
            }
            fn take(shape: $mirror) -> Self {
                let $mirror { $($field),* } = shape;
                Self { $($field: <$kind as Stored>::take($field)),* }
            }
        }
    )*};
}

/// A struct that stands as the row of its fields' values, because there are thousands of it.
macro_rules! row {
    ($($mirror:ident of $core:path { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        #[derive(Debug, Serialize, Deserialize)]
        pub(crate) struct $mirror($(<$kind as Stored>::Shape,)*);

        impl Stored for $core {
            type Shape = $mirror;
            fn put(&self) -> $mirror {
                let Self { $($field),* } = self;
                $mirror($($field.put()),*)
            }
            fn take(shape: $mirror) -> Self {
                let $mirror($($field),*) = shape;
                Self { $($field: <$kind as Stored>::take($field)),* }
            }
        }
    )*};
}

/// A type around one value, which stands bare in the file.
macro_rules! bare {
    ($($core:path: $inner:ty),* $(,)?) => {$(
        impl Stored for $core {
            type Shape = <$inner as Stored>::Shape;
            fn put(&self) -> Self::Shape {
                let Self(inner) = self;
                inner.put()
            }
            fn take(shape: Self::Shape) -> Self {
                Self(<$inner as Stored>::take(shape))
            }
        }
    )*};
}

/// An enum whose variants have the same names in the file.
macro_rules! names {
    ($($mirror:ident of $core:path { $($variant:ident),* $(,)? })*) => {$(
        #[derive(Debug, Serialize, Deserialize)]
        pub(crate) enum $mirror {
            $($variant,)*
        }

        impl Stored for $core {
            type Shape = $mirror;
            fn put(&self) -> $mirror {
                match self {
                    $(Self::$variant => $mirror::$variant,)*
                }
            }
            fn take(shape: $mirror) -> Self {
                match shape {
                    $($mirror::$variant => Self::$variant,)*
                }
            }
        }
    )*};
}

/// An enum whose variants hold one value each.
macro_rules! choice {
    ($($mirror:ident of $core:path { $($variant:ident($kind:ty)),* $(,)? })*) => {$(
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum $mirror {
            $($variant(<$kind as Stored>::Shape),)*
        }

        impl Stored for $core {
            type Shape = $mirror;
            fn put(&self) -> $mirror {
                match self {
                    $(Self::$variant(value) => $mirror::$variant(value.put()),)*
                }
            }
            fn take(shape: $mirror) -> Self {
                match shape {
                    $($mirror::$variant(value) => Self::$variant(<$kind as Stored>::take(value)),)*
                }
            }
        }
    )*};
}

/// An enum of which some variants hold nothing, some one value and some named fields.
macro_rules! variants {
    ($($mirror:ident of $core:path {
        bare { $($bare:ident),* $(,)? }
        one { $($one:ident($kind:ty)),* $(,)? }
        fields { $($many:ident { $($field:ident: $of:ty),* $(,)? }),* $(,)? }
    })*) => {$(
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        pub(crate) enum $mirror {
            $($bare,)*
            $($one(<$kind as Stored>::Shape),)*
            $($many { $($field: <$of as Stored>::Shape,)* },)*
        }

        impl Stored for $core {
            type Shape = $mirror;
            fn put(&self) -> $mirror {
                match self {
                    $(Self::$bare => $mirror::$bare,)*
                    $(Self::$one(value) => $mirror::$one(value.put()),)*
                    $(Self::$many { $($field),* } => $mirror::$many { $($field: $field.put()),* },)*
                }
            }
            fn take(shape: $mirror) -> Self {
                match shape {
                    $($mirror::$bare => Self::$bare,)*
                    $($mirror::$one(value) => Self::$one(<$kind as Stored>::take(value)),)*
                    $($mirror::$many { $($field),* } => Self::$many { $($field: <$of as Stored>::take($field)),* },)*
                }
            }
        }
    )*};
}

pub(crate) mod memory;
pub(crate) mod observation;
pub(crate) mod recording;
pub(crate) mod settings;

/// Nanoseconds of the monotonic clock.
impl Stored for MonoTime {
    type Shape = i64;
    fn put(&self) -> i64 {
        self.as_nanos()
    }
    fn take(shape: i64) -> Self {
        Self::from_nanos(shape)
    }
}

bare! {
    id::ClusterId: u16,
    id::PodUid: Arc<str>,
    id::CgroupId: u64,
    id::NetnsId: u32,
}

names! {
    ReasonName of verdict::Reason {
        StoreAnswering, PassiveOnly, NoStoreAnswers, NoStoreRegistered, StoreListUnknown, PodCannotReachStores,
        StaleTransport, NoEvidenceYet, EvidenceExpired, PodSourceAbsent, Maintenance,
    }
    FindingName of verdict::FindingCode {
        StaleTransportSuspected, StaleTransport, StoreDown, StoreHung, PathBlackhole, IpReused, ConnectionResets,
        IdleDrop, PoolCollapsed, Overloaded, LocalRoute, LocalPortsExhausted, KeepaliveDead, PdDown, PdNoLeader,
        PdAuthRefused, KernelEventsLost, AttemptsNotObservable, GuardHeld, AgentCannotReachStores, UnknownStoreAddress,
    }
    ModeName of verdict::StaleMode { Dialing, Holding }
    SeverityName of verdict::Severity { Info, Warning, Critical }
}

choice! {
    Target of id::TargetKey { Store(u64), Static(u16), Pd(u16) }
    ContainerId of id::ContainerKey { Cgroup(id::CgroupId), Netns(id::NetnsId), Process(u32) }
}

/// PD's word on a Store.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StateName {
    Unknown,
    Up,
    Offline,
    Tombstone,
    Pending,
    Exiting,
    Other(i32),
}

impl Stored for topology::ReportedState {
    type Shape = StateName;
    fn put(&self) -> StateName {
        match *self {
            Self::Unknown => StateName::Unknown,
            Self::Up => StateName::Up,
            Self::Offline => StateName::Offline,
            Self::Tombstone => StateName::Tombstone,
            Self::Pending => StateName::Pending,
            Self::Exiting => StateName::Exiting,
            Self::Other(number) => StateName::Other(number),
        }
    }
    fn take(shape: StateName) -> Self {
        match shape {
            StateName::Unknown => Self::Unknown,
            StateName::Up => Self::Up,
            StateName::Offline => Self::Offline,
            StateName::Tombstone => Self::Tombstone,
            StateName::Pending => Self::Pending,
            StateName::Exiting => Self::Exiting,
            StateName::Other(number) => Self::Other(number),
        }
    }
}

/// What runs a pod.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ManagerName {
    Kubernetes,
    Unit(Arc<str>),
    Docker(Arc<str>),
    Unknown,
}

impl Stored for pod::Manager {
    type Shape = ManagerName;
    fn put(&self) -> ManagerName {
        match self {
            Self::Kubernetes => ManagerName::Kubernetes,
            Self::Unit(unit) => ManagerName::Unit(Arc::clone(unit)),
            Self::Docker(id) => ManagerName::Docker(Arc::clone(id)),
            Self::Unknown => ManagerName::Unknown,
        }
    }
    fn take(shape: ManagerName) -> Self {
        match shape {
            ManagerName::Kubernetes => Self::Kubernetes,
            ManagerName::Unit(unit) => Self::Unit(unit),
            ManagerName::Docker(id) => Self::Docker(id),
            ManagerName::Unknown => Self::Unknown,
        }
    }
}

record! {
    Finding of verdict::Finding {
        code: verdict::FindingCode,
        mode: Option<verdict::StaleMode>,
        target: String,
        since: MonoTime,
        confirms_at: Option<MonoTime>,
        message: String,
        evidence: String,
        facts: verdict::Facts,
        remedy: verdict::Remedy,
        severity: verdict::Severity,
        carried: bool,
    }
    Facts of verdict::Facts {
        address: Option<SocketAddr>,
        left_at: Option<MonoTime>,
        present: Option<SocketAddr>,
        ping: Option<Duration>,
        answering: Option<Duration>,
        attempts: Option<u64>,
        answers: Option<u64>,
        first_attempt: Option<MonoTime>,
        last_attempt: Option<MonoTime>,
        every_attempt: bool,
        connections: Option<u64>,
        suspected_at: Option<MonoTime>,
        confirmed_at: Option<MonoTime>,
    }
    Remedy of verdict::Remedy { now: String, prevent: String }
    HostPort of id::HostPort { host: Arc<str>, port: u16 }
    ListedStore of topology::ListedStore { id: u64, address: id::HostPort, state: topology::ReportedState }
    PodRecord of pod::PodRecord {
        cluster: id::ClusterId,
        pod: id::PodRef,
        uid: id::PodUid,
        workload: Option<pod::Workload>,
        ips: Vec<IpAddr>,
        host_network: bool,
        cgroups: Vec<id::CgroupId>,
        netns: Option<id::NetnsId>,
        pids: Vec<u32>,
        wiring: Option<pod::Wiring>,
        manager: pod::Manager,
    }
    Wiring of pod::Wiring {
        probe: bool,
        liveness: bool,
        gate: bool,
        condition: Option<pod::GateCondition>,
        maintenance: bool,
        terminating: bool,
    }
    GateCondition of pod::GateCondition { open: bool, reason: Arc<str>, message: Arc<str> }
    PodRef of id::PodRef { namespace: Arc<str>, name: Arc<str> }
    Workload of pod::Workload { kind: Arc<str>, name: Arc<str> }
}
