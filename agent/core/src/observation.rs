//! The closed set of inputs.

use crate::{
    connection::{AttemptCount, ConnectionEvent, InventorySample},
    endpoints::EndpointsReport,
    id::PodUid,
    ping::{NameReport, PdReport, Ping, RoundEnded},
    pod::PodRecord,
    process::ProcessReport,
    source::{Loss, SourceReport},
    time::MonoTime,
};
use std::{collections::BTreeSet, sync::Arc};

/// Everything that the judge can learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A detail from the kernel.
    Connection(ConnectionEvent),
    /// Growth of the kernel's counters: one reading, applied as a whole.
    Attempts {
        /// When they were read.
        at: MonoTime,
        /// What grew.
        counts: Vec<AttemptCount>,
    },
    /// The sockets that exist.
    Inventory(InventorySample),
    /// A Store was pinged.
    Ping(Ping),
    /// A round of pings is over.
    RoundEnded(RoundEnded),
    /// PD was asked.
    Pd(PdReport),
    /// A name was looked up.
    Name(NameReport),
    /// The pods of this node: replaces all that was known.
    Pods {
        /// When the list was true.
        at: MonoTime,
        /// All pods to judge.
        pods: Vec<Arc<PodRecord>>,
    },
    /// What Services lead to: replaces all that was known of the cluster.
    Endpoints(EndpointsReport),
    /// Pods that may leave on passive evidence although this node's guard holds them: others of their workload, on other
    /// nodes, serve. Replaces all that was granted.
    Exits {
        /// When it was granted.
        at: MonoTime,
        /// Who.
        pods: BTreeSet<PodUid>,
    },
    /// What was found of processes that the judge asked about.
    Processes(Vec<ProcessReport>),
    /// A source speaks of itself.
    Source(SourceReport),
    /// Something was dropped on the way.
    Loss(Loss),
}
