//! What the judge can learn.

use super::Stored;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{connection, endpoints, id, observation, ping, pod, process, source, time::MonoTime, topology};

#[cfg(test)]
pub(crate) mod tests;

bare! {
    connection::SocketId: u64,
}

names! {
    TcpStateName of connection::TcpState {
        Established, SynSent, SynRecv, FinWait1, FinWait2, TimeWait, Close, CloseWait, LastAck, Listen, Closing, NewSynRecv,
    }
    PingOutcomeName of ping::PingOutcome { Serving, NotAllowed, Refused, Unreachable, Deadline, Protocol, Identity }
    NameFailureName of ping::NameFailure { NoSuchName, NoAnswer }
    SourceName of source::SourceName { Kernel, Inventory, Pd, Pings, Pods, Dns, Kubernetes }
    SourceStateName of source::SourceState { Active, Degraded, Absent }
}

/// The list of pods shares its records with the judge.
impl Stored for Arc<pod::PodRecord> {
    type Shape = super::PodRecord;
    fn put(&self) -> Self::Shape {
        pod::PodRecord::put(self)
    }
    fn take(shape: Self::Shape) -> Self {
        Self::new(pod::PodRecord::take(shape))
    }
}

variants! {
    Observation of observation::Observation {
        bare {}
        one {
            Connection(connection::ConnectionEvent),
            Inventory(connection::InventorySample),
            Ping(ping::Ping),
            RoundEnded(ping::RoundEnded),
            Pd(ping::PdReport),
            Name(ping::NameReport),
            Endpoints(endpoints::EndpointsReport),
            Processes(Vec<process::ProcessReport>),
            Source(source::SourceReport),
            Loss(source::Loss),
        }
        fields {
            Attempts { at: MonoTime, counts: Vec<connection::AttemptCount> },
            Pods { at: MonoTime, pods: Vec<Arc<pod::PodRecord>> },
            Exits { at: MonoTime, pods: BTreeSet<id::PodUid> },
        }
    }
    ProcessState of process::ProcessState {
        bare { Ended }
        one {}
        fields {
            Alive { started: MonoTime, command: Option<process::CommandLine> },
        }
    }
    FlagValue of process::FlagValue {
        bare { Other }
        one { Number(i64) }
        fields {}
    }
    Change of connection::ConnectionChange {
        bare { Begun }
        one {}
        fields {
            Established { begun: Option<MonoTime> },
            Failed { begun: Option<MonoTime>, evidence: connection::KernelEvidence },
            Ended {
                begun: Option<MonoTime>,
                evidence: connection::KernelEvidence,
                bytes_received: Option<u64>,
            },
            ResetReceived { state: connection::TcpState },
            ResetSent { state: Option<connection::TcpState>, reason: Option<u8> },
            Retransmit { state: connection::TcpState, count: u8 },
            ErrorReported { errno: u16, state: connection::TcpState },
        }
    }
    Counted of connection::Counted {
        bare { Begun, Established, ResetsReceived, ResetsSent, Retransmits }
        one {
            Failed(connection::KernelEvidence),
            Ended(connection::KernelEvidence),
        }
        fields {}
    }
    Purpose of ping::Purpose {
        bare { Contrast }
        one { Round(u64) }
        fields {}
    }
}

record! {
    Endpoints of endpoints::EndpointsReport {
        cluster: id::ClusterId,
        at: MonoTime,
        services: Vec<endpoints::Service>,
    }
    Service of endpoints::Service {
        host: Arc<str>,
        addresses: Vec<IpAddr>,
        endpoints: Vec<endpoints::Endpoint>,
    }
    Endpoint of endpoints::Endpoint {
        hostname: Option<Arc<str>>,
        ip: IpAddr,
        occupant: Option<endpoints::Occupant>,
    }
    Occupant of endpoints::Occupant {
        pod: id::PodRef,
        uid: id::PodUid,
        serving: Option<bool>,
        terminating: bool,
    }
    Process of process::ProcessReport {
        pid: u32,
        at: MonoTime,
        state: process::ProcessState,
    }
    CommandLine of process::CommandLine {
        java: bool,
        whole: bool,
        dns_ttl: Option<process::FlagValue>,
        cache_ttl: Option<process::FlagValue>,
        security_manager: bool,
        more_elsewhere: bool,
    }
    ConnectionEvent of connection::ConnectionEvent {
        at: MonoTime,
        socket: connection::SocketId,
        owner: connection::SocketOwner,
        local: SocketAddr,
        remote: SocketAddr,
        rtt: Option<Duration>,
        retransmits_total: Option<u32>,
        what: connection::ConnectionChange,
    }
    Owner of connection::SocketOwner {
        cgroup: Option<id::CgroupId>,
        netns: Option<id::NetnsId>,
        pid: Option<u32>,
    }
    Evidence of connection::KernelEvidence {
        from: Option<connection::TcpState>,
        error: u16,
        soft_error: u16,
        reported: Option<u16>,
        retransmits: u8,
        no_source_port: bool,
        in_process: bool,
        reset_received: bool,
        reset_sent: Option<u8>,
        unanswered: bool,
    }
    AttemptCount of connection::AttemptCount {
        owner: Option<connection::SocketOwner>,
        remote: SocketAddr,
        what: connection::Counted,
        added: u64,
        last_begun: Option<MonoTime>,
        last_ended: MonoTime,
    }
    Inventory of connection::InventorySample {
        at: MonoTime,
        ended: MonoTime,
        complete: bool,
        sockets: Vec<connection::SocketSample>,
    }
    Socket of connection::SocketSample {
        socket: connection::SocketId,
        owner: connection::SocketOwner,
        local: SocketAddr,
        remote: SocketAddr,
        state: connection::TcpState,
        bytes_received: Option<u64>,
        bytes_acked: Option<u64>,
        unanswered: u64,
        retransmits: u8,
        retransmits_total: Option<u32>,
        retransmitting: bool,
        rtt: Option<Duration>,
        last_received: Option<MonoTime>,
        last_sent: Option<MonoTime>,
    }
    TargetId of id::TargetId { cluster: id::ClusterId, key: id::TargetKey }
    Ping of ping::Ping {
        target: id::TargetId,
        remote: Option<SocketAddr>,
        purpose: ping::Purpose,
        fresh: bool,
        started: MonoTime,
        ended: MonoTime,
        outcome: ping::PingOutcome,
        phases: ping::Phases,
        identity: Option<Arc<str>>,
        detail: Option<Arc<str>>,
    }
    Phases of ping::Phases {
        dns: Option<Duration>,
        connect: Option<Duration>,
        http2: Option<Duration>,
        rpc: Option<Duration>,
    }
    RoundEnded of ping::RoundEnded {
        cluster: id::ClusterId,
        round: u64,
        started: MonoTime,
        ended: MonoTime,
        asked: Vec<id::TargetId>,
        sweep_complete: bool,
        late: bool,
    }
    PdReport of ping::PdReport {
        cluster: id::ClusterId,
        started: MonoTime,
        ended: MonoTime,
        peers: Vec<ping::PeerReport>,
        list: Option<Vec<topology::ListedStore>>,
    }
    PeerReport of ping::PeerReport {
        peer: u16,
        alive: bool,
        health_serving: Option<bool>,
        auth_refused: bool,
        unresolved: bool,
        error: Option<Arc<str>>,
    }
    NameReport of ping::NameReport {
        target: id::TargetId,
        at: MonoTime,
        v6: bool,
        answer: Result<Vec<IpAddr>, ping::NameFailure>,
    }
    SourceReport of source::SourceReport {
        source: source::SourceName,
        at: MonoTime,
        state: source::SourceState,
        detail: Arc<str>,
    }
    Loss of source::Loss { source: source::SourceName, at: MonoTime, lost: u64, counters: bool }
}
