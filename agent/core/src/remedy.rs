//! What to do about a finding or a verdict: now, and so that it does not come back.
//!
//! Every finding has both, and they name what is known: the exact command where facts give one (what runs the pod, where
//! a target's name says that it lives), and of the process's command line only what is, or is not, on it. Where a
//! restart would not help, that is said, because it is the first thing that people try.

use crate::{
    id::PodRef,
    naming::Named,
    pod::{Manager, PodRecord},
    process::{CommandLine, FlagValue},
    verdict::{Facts, FindingCode, Reason, Remedy, Severity, StaleMode},
};
use std::sync::Arc;

/// The longest that an answer of DNS may be kept without being at fault, in seconds.
const SHORT_TTL: i64 = 60;

/// Targets that are named in one command.
const NAMED: usize = 5;

/// What is known of the process that dials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Client {
    /// Its number; `None` while no process has shown itself.
    pub(crate) pid: Option<u32>,
    /// What its command line says; `None` while that has not been read.
    pub(crate) command: Option<CommandLine>,
}

/// What a remedy is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    /// The pod and what dials there; `None` for a finding about a target alone.
    pub(crate) pod: Option<(&'a PodRecord, Client)>,
    /// The target concerned.
    pub(crate) target: Option<&'a Named>,
    /// How a stale transport shows.
    pub(crate) mode: Option<StaleMode>,
    /// How bad it is now: what is over is told for a while.
    pub(crate) severity: Severity,
    /// The numbers behind the finding.
    pub(crate) facts: &'a Facts,
}

impl Case<'_> {
    fn client(&self) -> Client {
        self.pod.map(|(_, client)| client).unwrap_or_default()
    }

    /// What restarts the pod.
    fn restart(&self) -> String {
        self.pod.map_or_else(|| "restart the client".into(), |(record, client)| restart(record, client))
    }

    fn name(&self) -> &str {
        self.target.map_or("the store", |target| &target.name)
    }

    fn look(&self) -> String {
        self.target.map_or_else(|| "look at the stores".into(), Named::look)
    }

    fn log(&self) -> String {
        self.target.map_or_else(|| "read the stores' logs".into(), Named::log)
    }

    /// What shows which rules stand between the pod and the target.
    fn policies(&self) -> String {
        let port = self.facts.address.map_or_else(|| "the store's port".into(), |at| format!("port {}", at.port()));
        let question = format!("does everything that selects this pod allow {port} to {}?", self.name());
        match self.pod {
            Some((PodRecord { manager: Manager::Kubernetes, pod, .. }, _)) => {
                format!(
                    "kubectl get networkpolicy -n {}: {question} Then this node's firewall and routes",
                    pod.namespace
                )
            }
            _ => format!("nft list ruleset, and ip route in the pod's network namespace: {question}"),
        }
    }
}

/// The remedy of a finding.
pub(crate) fn remedy(code: FindingCode, case: &Case<'_>) -> Remedy {
    let (now, prevent) = match code {
        FindingCode::StaleTransport | FindingCode::StaleTransportSuspected => stale(code, case),
        FindingCode::StoreDown => (
            format!("{}: its process or its node is down. Restarting a client does not help", case.look()),
            "at least three replicas of each partition, on different nodes".into(),
        ),
        FindingCode::StoreHung => {
            let restart = case.target.map_or_else(|| "restart it".into(), Named::restart);
            let look = case.look();
            (
                format!("{look}: a long garbage collection, a frozen process, or all threads busy. If it stays: {restart}"),
                "a liveness probe on the store's own gRPC port, and memory and CPU that suffice".into(),
            )
        }
        FindingCode::PathBlackhole if case.severity != Severity::Critical => (
            format!("nothing: it is over. If it comes back: {}", case.policies()),
            "the store's port in every network policy that selects this pod".into(),
        ),
        FindingCode::PathBlackhole => (
            format!("{} A connection that is only stuck is freed by: {}", case.policies(), case.restart()),
            "the store's port in every network policy that selects this pod; against half-open connections, keep-alive"
                .into(),
        ),
        FindingCode::IpReused => match case.pod {
            Some(_) => (case.restart(), format!("{}; and {}", dns(case.client()), keep_alive())),
            None => (
                "nothing here: a client that still dials the address for its former owner reaches the wrong one, and shows it"
                    .into(),
                "a finite DNS cache in the clients (-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS)".into(),
            ),
        },
        FindingCode::ConnectionResets => (
            format!("{}, and look at what stands between (load balancer, firewall)", case.log()),
            "no middlebox with idle time-outs between servers and stores".into(),
        ),
        FindingCode::IdleDrop => (
            "nothing: the next connection works".into(),
            "a keep-alive shorter than the idle time-out on the way (net.ipv4.tcp_keepalive_time in the pod)".into(),
        ),
        FindingCode::PoolCollapsed => (
            "nothing: known of every server up to 1.7.0".into(),
            "a release after 1.7.0, which binds each stub to a channel of its own".into(),
        ),
        FindingCode::Overloaded => (
            format!("{}, its accept queue (ss -lnt there), and packet loss on the way", case.look()),
            "more stores, or a longer accept queue (net.core.somaxconn)".into(),
        ),
        FindingCode::LocalRoute => (
            "ip route in the pod's network namespace: a blackhole, unreachable or prohibit route covers the address".into(),
            "nothing of the client: whoever manages the node's routes (CNI, policy agent) set it".into(),
        ),
        FindingCode::LocalPortsExhausted => (
            "ss -tan in the pod's network namespace shows what holds the ports".into(),
            "a wider net.ipv4.ip_local_port_range in the pod, or fewer connections that are closed and dialled anew".into(),
        ),
        FindingCode::KeepaliveDead => (
            format!("{}, and the way there: it went silent under an idle connection", case.look()),
            "nothing: keep-alive did its work".into(),
        ),
        FindingCode::PdDown => (
            format!("{}; and the network between this node and PD", case.look()),
            "three PD peers, on different nodes".into(),
        ),
        FindingCode::PdNoLeader => (
            format!("{}: a majority of the peers must reach each other", case.log()),
            "three PD peers, on different nodes".into(),
        ),
        FindingCode::PdAuthRefused => (
            "name the stores in the configuration (key stores of the cluster), or let PD answer this node".into(),
            "the stores in the configuration, beside PD".into(),
        ),
        FindingCode::KernelEventsLost => (
            "nothing, if it was a short storm".into(),
            "fewer clients on the watched ports of this node".into(),
        ),
        FindingCode::AttemptsNotObservable => (
            "nothing: the verdict rests on the node's own pings".into(),
            "the store's port excluded from the proxy's redirection".into(),
        ),
        FindingCode::GuardHeld => (
            "look at the other finding of this pod: all pods of the workload may need the same, one after the other".into(),
            "one more replica on this node, or verdict.min_other_ready: 0 for a server that is alone".into(),
        ),
        FindingCode::AgentCannotReachStores => (
            "let the agent reach the stores: a network policy or a firewall may select it".into(),
            "the agent's node address allowed on the stores' port".into(),
        ),
        FindingCode::UnknownStoreAddress => {
            (format!("if a store had this address once: {}", case.restart()), dns(case.client()))
        }
    };
    Remedy { now, prevent }
}

fn stale(code: FindingCode, case: &Case<'_>) -> (String, String) {
    let restart = case.restart();
    match (case.mode, code) {
        (Some(StaleMode::Holding), _) if case.facts.suspected_at.is_none() => {
            (format!("nothing yet: an idle connection harms at its next use. To be rid of it: {restart}"), keep_alive())
        }
        (Some(StaleMode::Holding), _) => (restart, keep_alive()),
        (_, FindingCode::StaleTransportSuspected) => (
            format!("wait: a client that resolves the name again heals by itself. If it is urgent: {restart}"),
            dns(case.client()),
        ),
        _ => (restart, dns(case.client())),
    }
}

/// What restarts a pod.
pub(crate) fn restart(record: &PodRecord, client: Client) -> String {
    let PodRef { namespace, name } = &record.pod;
    let seen = client.pid.filter(|_| record.pids.is_empty());
    let pids: Vec<_> = record.pids.iter().copied().chain(seen).map(|pid| pid.to_string()).collect();
    let process = match pids.as_slice() {
        [] => "the server process".into(),
        [pid] => format!("the server process (pid {pid})"),
        several => format!("the server processes (pids {})", several.join(", ")),
    };
    match &record.manager {
        Manager::Kubernetes if record.workload.is_none() => {
            format!(
                "kubectl delete pod -n {namespace} {name} (no workload is known for it: see that something makes it anew)"
            )
        }
        Manager::Kubernetes => format!("kubectl delete pod -n {namespace} {name}"),
        Manager::Unit(unit) => format!("systemctl restart {unit}"),
        Manager::Docker(id) => format!("docker restart {id}"),
        // A list that names processes is a plain host's.
        Manager::Unknown if record.pids.is_empty() => {
            format!("kubectl delete pod -n {namespace} {name}, or on a plain host restart {process}")
        }
        Manager::Unknown => format!("restart {process}"),
    }
}

/// What keeps a client from dialling addresses of long ago.
fn dns(client: Client) -> String {
    const FOR_EVER: &str = "under a security manager Java 11 caches DNS answers for ever";
    let Some(line) = client.command else {
        return format!(
            "-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS (networkaddress.cache.ttl as a system property does nothing; the \
             process's command line has not been read); {FOR_EVER}"
        );
    };
    if !line.java {
        return "a client that resolves the name again when a connection fails (its command line names no Java)".into();
    }
    match line.dns_ttl {
        Some(FlagValue::Number(seconds)) if seconds < 0 => {
            format!("-Dsun.net.inetaddr.ttl={seconds} on its command line keeps DNS answers for ever: make it 30")
        }
        Some(FlagValue::Number(seconds)) if seconds <= SHORT_TTL => format!(
            "-Dsun.net.inetaddr.ttl={seconds} is on its command line, so look further: a security property \
             networkaddress.cache.ttl outranks it, and a client may resolve only once"
        ),
        Some(FlagValue::Number(seconds)) => {
            format!(
                "-Dsun.net.inetaddr.ttl={seconds} on its command line keeps DNS answers that many seconds: make it 30"
            )
        }
        Some(FlagValue::Other) => {
            "-Dsun.net.inetaddr.ttl on its command line has no number as its value: make it 30".into()
        }
        None => {
            let absent = if line.whole {
                "-Dsun.net.inetaddr.ttl=30 is not on its command line"
            } else {
                "-Dsun.net.inetaddr.ttl=30 is not in the part of its command line that was read"
            };
            let useless = line.cache_ttl.map_or_else(String::new, |value| {
                format!(" (-Dnetworkaddress.cache.ttl={value} is, and does nothing as a system property)")
            });
            let manager = if line.security_manager {
                "-Djava.security.manager is, and under it Java 11 caches DNS answers for ever"
            } else {
                FOR_EVER
            };
            let elsewhere = if line.more_elsewhere {
                "its security properties or argument files, JAVA_TOOL_OPTIONS and JDK_JAVA_OPTIONS are not seen here"
            } else {
                "JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS and security properties are not seen here"
            };
            format!("{absent}{useless}; {manager}. Put it into JAVA_OPTS ({elsewhere})")
        }
    }
}

/// What ends a half-open connection.
fn keep_alive() -> String {
    "keep-alive in the client (gRPC's no more often than every 5 minutes: stores end what asks more often), \
     TCP_USER_TIMEOUT, or a smaller net.ipv4.tcp_retries2 in the pod; no DNS setting helps a connection that is half open"
        .into()
}

/// The finding that a verdict rests on, and whose remedy is its own.
pub(crate) fn behind(reason: Reason) -> Option<FindingCode> {
    match reason {
        Reason::StaleTransport => Some(FindingCode::StaleTransport),
        Reason::PodCannotReachStores => Some(FindingCode::PathBlackhole),
        _ => None,
    }
}

/// What to do about a verdict, where none of its findings says more; `None` where there is nothing to do.
pub(crate) fn advice(
    reason: Reason,
    pod: (&PodRecord, Client),
    stores: impl FnOnce() -> Vec<Arc<Named>>,
    pd: impl FnOnce() -> Option<Arc<Named>>,
) -> Option<Remedy> {
    let (record, client) = pod;
    let replicas = "stores on different nodes, and at least three replicas of each partition";
    let (now, prevent) = match reason {
        Reason::StoreAnswering | Reason::PassiveOnly => return None,
        Reason::NoStoreAnswers => {
            (format!("bring a store back: {}. Restarting this pod does not help", all(&stores())), replicas.to_owned())
        }
        Reason::NoStoreRegistered => (
            format!(
                "start a store; if one runs, it or PD says why it is not registered: {}",
                pd().map_or_else(|| "read its log".into(), |pd| pd.log())
            ),
            "PD's data on a volume that outlives its pod".to_owned(),
        ),
        Reason::StoreListUnknown => (
            format!("bring PD back: {}", pd().map_or_else(|| "look at its processes".into(), |pd| pd.look())),
            "three PD peers, or the stores in the configuration (key stores of the cluster)".to_owned(),
        ),
        Reason::PodCannotReachStores => {
            let facts = Facts::default();
            let case = Case { pod: Some(pod), target: None, mode: None, severity: Severity::Critical, facts: &facts };
            let Remedy { now, prevent } = remedy(FindingCode::PathBlackhole, &case);
            (now, prevent)
        }
        Reason::StaleTransport => (restart(record, client), dns(client)),
        Reason::NoEvidenceYet => (
            format!(
                "wait: some rounds of pings settle it. If it stays, the stores are down, or this agent is cut off from them: \
                 {}; storewatch doctor",
                all(&stores())
            ),
            "nothing: an agent whom no store has ever answered cannot tell the two apart".to_owned(),
        ),
        Reason::EvidenceExpired => (
            "see why this agent's own pings ended: storewatch status, and its log".to_owned(),
            "CPU that suffices for the agent".to_owned(),
        ),
        Reason::Maintenance => (
            format!(
                "when the work is done, take the annotation away: kubectl annotate pod -n {} {} storewatch.io/maintenance-",
                record.pod.namespace, record.pod.name
            ),
            "nothing: whoever set it wanted it".to_owned(),
        ),
        Reason::PodSourceAbsent => (
            "give the agent its list of pods: storewatch status says what is missing".to_owned(),
            "a list of pods that the agent may always read".to_owned(),
        ),
    };
    Some(Remedy { now, prevent })
}

/// What shows all Stores at once.
fn all(stores: &[Arc<Named>]) -> String {
    let pods: Vec<_> = stores.iter().filter_map(|store| store.pod()).take(NAMED).collect();
    let namespace = pods.first().map(|(namespace, _)| *namespace);
    match namespace {
        Some(namespace) if pods.iter().all(|(other, _)| *other == namespace) => {
            let names: Vec<_> = pods.iter().map(|(_, name)| *name).collect();
            format!("kubectl get pod -n {namespace} {} -o wide", names.join(" "))
        }
        _ => match stores {
            [] => "look at the stores' processes".into(),
            [store] => store.look(),
            several => {
                let more = several.len().saturating_sub(NAMED);
                let names: Vec<_> = several.iter().take(NAMED).map(|store| &*store.address).collect();
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                format!("look at the processes behind {}{more}", names.join(", "))
            }
        },
    }
}

#[cfg(test)]
mod tests;
