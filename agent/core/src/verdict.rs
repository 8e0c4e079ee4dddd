//! The vocabulary of answers.

use crate::time::MonoTime;
use std::{net::SocketAddr, time::Duration};

/// The answer, in Kubernetes' condition vocabulary.
#[expect(missing_docs, reason = "defined by their names in the public contract")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    Ready,
    NotReady,
    Unknown,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Ready, Self::NotReady, Self::Unknown];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::NotReady => "NotReady",
            Self::Unknown => "Unknown",
        }
    }
}

/// Why (stable names).
#[expect(missing_docs, reason = "defined by their names in the public contract")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    StoreAnswering,
    PassiveOnly,
    NoStoreAnswers,
    NoStoreRegistered,
    StoreListUnknown,
    PodCannotReachStores,
    StaleTransport,
    #[default]
    NoEvidenceYet,
    EvidenceExpired,
    PodSourceAbsent,
    Maintenance,
}

impl Reason {
    /// Every reason, in the order of the contract.
    pub const ALL: [Self; 10] = [
        Self::StoreAnswering,
        Self::PassiveOnly,
        Self::NoStoreAnswers,
        Self::NoStoreRegistered,
        Self::StoreListUnknown,
        Self::PodCannotReachStores,
        Self::StaleTransport,
        Self::NoEvidenceYet,
        Self::EvidenceExpired,
        Self::PodSourceAbsent,
    ];

    /// The status that this reason gives.
    pub const fn status(self) -> Status {
        match self {
            Self::StoreAnswering | Self::PassiveOnly => Status::Ready,
            Self::NoStoreAnswers
            | Self::NoStoreRegistered
            | Self::StoreListUnknown
            | Self::PodCannotReachStores
            | Self::StaleTransport => Status::NotReady,
            Self::NoEvidenceYet | Self::EvidenceExpired | Self::PodSourceAbsent | Self::Maintenance => Status::Unknown,
        }
    }

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StoreAnswering => "StoreAnswering",
            Self::PassiveOnly => "PassiveOnly",
            Self::NoStoreAnswers => "NoStoreAnswers",
            Self::NoStoreRegistered => "NoStoreRegistered",
            Self::StoreListUnknown => "StoreListUnknown",
            Self::PodCannotReachStores => "PodCannotReachStores",
            Self::StaleTransport => "StaleTransport",
            Self::NoEvidenceYet => "NoEvidenceYet",
            Self::EvidenceExpired => "EvidenceExpired",
            Self::PodSourceAbsent => "PodSourceAbsent",
            Self::Maintenance => "Maintenance",
        }
    }
}

/// How much a finding matters.
#[expect(missing_docs, reason = "defined by their names in the public contract")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

impl Severity {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// What stands out (stable codes).
#[expect(missing_docs, reason = "defined by their names in the public contract")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingCode {
    StaleTransportSuspected,
    StaleTransport,
    StoreDown,
    StoreHung,
    PathBlackhole,
    IpReused,
    ConnectionResets,
    IdleDrop,
    PoolCollapsed,
    Overloaded,
    LocalRoute,
    LocalPortsExhausted,
    KeepaliveDead,
    PdDown,
    PdNoLeader,
    PdAuthRefused,
    KernelEventsLost,
    AttemptsNotObservable,
    GuardHeld,
    AgentCannotReachStores,
    UnknownStoreAddress,
}

impl FindingCode {
    /// Every code, in the order of the contract.
    pub const ALL: [Self; 21] = [
        Self::StaleTransportSuspected,
        Self::StaleTransport,
        Self::StoreDown,
        Self::StoreHung,
        Self::PathBlackhole,
        Self::IpReused,
        Self::ConnectionResets,
        Self::IdleDrop,
        Self::PoolCollapsed,
        Self::Overloaded,
        Self::LocalRoute,
        Self::LocalPortsExhausted,
        Self::KeepaliveDead,
        Self::PdDown,
        Self::PdNoLeader,
        Self::PdAuthRefused,
        Self::KernelEventsLost,
        Self::AttemptsNotObservable,
        Self::GuardHeld,
        Self::AgentCannotReachStores,
        Self::UnknownStoreAddress,
    ];

    /// The stable code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StaleTransportSuspected => "StaleTransportSuspected",
            Self::StaleTransport => "StaleTransport",
            Self::StoreDown => "StoreDown",
            Self::StoreHung => "StoreHung",
            Self::PathBlackhole => "PathBlackhole",
            Self::IpReused => "IpReused",
            Self::ConnectionResets => "ConnectionResets",
            Self::IdleDrop => "IdleDrop",
            Self::PoolCollapsed => "PoolCollapsed",
            Self::Overloaded => "Overloaded",
            Self::LocalRoute => "LocalRoute",
            Self::LocalPortsExhausted => "LocalPortsExhausted",
            Self::KeepaliveDead => "KeepaliveDead",
            Self::PdDown => "PdDown",
            Self::PdNoLeader => "PdNoLeader",
            Self::PdAuthRefused => "PdAuthRefused",
            Self::KernelEventsLost => "KernelEventsLost",
            Self::AttemptsNotObservable => "AttemptsNotObservable",
            Self::GuardHeld => "GuardHeld",
            Self::AgentCannotReachStores => "AgentCannotReachStores",
            Self::UnknownStoreAddress => "UnknownStoreAddress",
        }
    }
}

/// How a pod shows a stale transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StaleMode {
    /// It begins dials to the former address.
    Dialing,
    /// It holds a connection to it.
    Holding,
}

impl StaleMode {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dialing => "dialing",
            Self::Holding => "holding",
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What to do now.
    pub now: String,
    /// What prevents it.
    pub prevent: String,
}

/// The numbers behind a finding, as far as it has them: what `message` and `evidence` say in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The address concerned.
    pub address: Option<SocketAddr>,
    /// When the target left it.
    pub left_at: Option<MonoTime>,
    /// Where the target answers this node at present.
    pub present: Option<SocketAddr>,
    /// How long its last answer there took.
    pub ping: Option<Duration>,
    /// How long it has answered there.
    pub answering: Option<Duration>,
    /// Attempts to connect.
    pub attempts: Option<u64>,
    /// How many of them were answered.
    pub answers: Option<u64>,
    /// The first attempt.
    pub first_attempt: Option<MonoTime>,
    /// The last attempt.
    pub last_attempt: Option<MonoTime>,
    /// No attempt since the first went to where the target is at present.
    pub every_attempt: bool,
    /// Connections concerned, held now.
    pub connections: Option<u64>,
    /// When it became a suspicion.
    pub suspected_at: Option<MonoTime>,
    /// When it was confirmed.
    pub confirmed_at: Option<MonoTime>,
}

/// One finding about a pod or a target. `message` and `evidence` may name addresses: they are for the admin side only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub code: FindingCode,
    /// How it shows, for stale transports.
    pub mode: Option<StaleMode>,
    /// Label of the target concerned; empty when it concerns none.
    pub target: String,
    /// Since when.
    pub since: MonoTime,
    /// When it will be confirmed, if it can be.
    pub confirms_at: Option<MonoTime>,
    /// One sentence.
    pub message: String,
    /// The numbers compared, in words.
    pub evidence: String,
    /// The same as numbers.
    pub facts: Facts,
    /// What to do.
    pub remedy: Remedy,
    /// How much it matters.
    pub severity: Severity,
    /// Kept from before a restart of the agent and not confirmed since.
    pub carried: bool,
}

/// The verdict on a pod or on the node. `message` names no address and no host: it is served without authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What the HTTP status says.
    pub ready: bool,
    /// The answer.
    pub status: Status,
    /// Why.
    pub reason: Reason,
    /// The same in words.
    pub message: String,
    /// Since when this reason has held.
    pub since: MonoTime,
    /// Kept from before a restart of the agent and not confirmed since.
    pub carried: bool,
}
