//! Pods by the container runtime: the same list without an API server. Sandboxes are polled, and the runtime's events,
//! where it serves them, make the next poll come at once.
//!
//! The runtime knows names, labels, annotations and addresses, but no owners: a pod's workload is told from its labels, and
//! how it is wired to this agent is not known.

use super::{CONFIRM, Host, Reading, few, placing::Placing};
use crate::{
    clock,
    config::{Cluster, Config},
    kubernetes::manifest::{self, Seen},
    observe::ObservationSender,
};
use hyper_util::rt::TokioIo;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use storewatch_core::{
    id::{ClusterId, PodRef, PodUid},
    judge::MAX_PODS,
    pod::Wiring,
};
use storewatch_proto::cri::{
    ContainerState, GetEventsRequest, ListContainersRequest, ListPodSandboxRequest, NamespaceMode, PodSandbox,
    PodSandboxState, PodSandboxStatus, PodSandboxStatusRequest, runtime_service_client::RuntimeServiceClient,
};
use tokio::{
    net::UnixStream,
    sync::Notify,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint, Uri},
};
use tower::service_fn;

/// How often the runtime is asked.
const POLL: Duration = Duration::from_secs(1);

/// One call.
const CALL: Duration = Duration::from_secs(5);

/// How long to wait for more after an event.
const GATHER: Duration = Duration::from_millis(20);

/// Within this time a runtime says that it serves no events.
const REFUSAL: Duration = Duration::from_millis(300);

/// The largest answer: some thousand sandboxes with their annotations.
const MAX_BYTES: usize = 16 << 20;

/// Which pods are judged, and by whose Stores.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    socket: PathBuf,
    clusters: Vec<Cluster>,
}

impl Selection {
    pub(super) fn new(config: &Config) -> Self {
        Self { socket: config.pods.cri_socket.clone(), clusters: config.clusters.clone() }
    }

    fn cluster(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Option<ClusterId> {
        let selects = |cluster: &Cluster| {
            (cluster.namespaces.is_empty() || cluster.namespaces.iter().any(|name| name == namespace))
                && cluster.selector.matches(labels)
        };
        let position = self.clusters.iter().position(selects)?;
        u16::try_from(position).ok().map(ClusterId)
    }
}

/// Runs until the engine ends.
pub(super) async fn follow(selection: &Selection, host: Host, sender: &ObservationSender) -> anyhow::Result<()> {
    let mut runtime = Runtime::new(&selection.socket)?;
    let news = Arc::new(Notify::new());
    let mut listening = JoinSet::new();
    listening.spawn(listen(runtime.client.clone(), Arc::clone(&news)));
    let mut placing = Some(Placing::new(host));
    let mut list = None;
    let mut last: Option<Reading> = None;
    let mut said = clock::now();
    loop {
        let mut problems = Vec::new();
        match timeout(CALL, runtime.list(selection)).await {
            Ok(Ok(pods)) => list = Some(pods),
            failed => {
                let words = failed.map_or_else(
                    |_| format!("no answer within {} s", CALL.as_secs()),
                    |result| result.err().map_or_else(String::new, |status| words(&status)),
                );
                let kept = if list.is_some() { "the last good list is kept" } else { "no list is known yet" };
                problems.push(format!("{}: {words}; {kept}", selection.socket.display()));
            }
        }
        let now = clock::now();
        let due = now.since(said) >= super::PERIOD * CONFIRM;
        let current = problems.is_empty();
        let reading = if let Some(list) = list.clone() {
            let (back, reading) = spawn_blocking(move || {
                let reading = placing.as_mut().map(|placing| {
                    let pods = placing.place(&list, &mut problems);
                    Reading { pods: Some(pods), current, detail: few(&problems).into() }
                });
                (placing, reading)
            })
            .await?;
            placing = back;
            let Some(reading) = reading else { return Ok(()) };
            reading
        } else {
            Reading { pods: None, current, detail: few(&problems).into() }
        };
        if last.as_ref() != Some(&reading) || due {
            for observation in reading.observations(now) {
                if sender.send(observation).await.is_err() {
                    return Ok(());
                }
            }
            last = Some(reading);
            said = now;
        }
        if timeout(POLL, news.notified()).await.is_ok() {
            // What belongs together comes together.
            sleep(GATHER).await;
        }
    }
}

/// The judged pods by one question, and whether the runtime tells of changes; `None` where it has nothing to tell yet.
pub(super) async fn survey(selection: &Selection) -> Result<(Vec<(ClusterId, Arc<Seen>)>, Option<bool>), String> {
    let mut runtime = Runtime::new(&selection.socket).map_err(|error| error.to_string())?;
    let socket = selection.socket.display();
    let pods = match timeout(CALL, runtime.list(selection)).await {
        Ok(Ok(pods)) => pods,
        Ok(Err(status)) => return Err(format!("{socket}: {}", words(&status))),
        Err(_) => return Err(format!("{socket}: no answer within {} s", CALL.as_secs())),
    };
    // One that refuses does so at once; one that serves them answers with its first event.
    let news = match timeout(REFUSAL, runtime.client.get_container_events(GetEventsRequest {})).await {
        Ok(Err(status)) if status.code() == Code::Unimplemented => Some(false),
        Ok(Err(_)) => None,
        Ok(Ok(_)) | Err(_) => Some(true),
    };
    Ok((pods, news))
}

fn words(status: &Status) -> String {
    match status.code() {
        Code::Unavailable => {
            "the container runtime does not answer; is pods.cri_socket its socket, and mounted here?".into()
        }
        _ => format!("the container runtime refuses: {}", status.message()),
    }
}

/// Wakes the poll at each of the runtime's events, as long as it serves them. A runtime answers the call itself with its
/// first event only, so it has no time-out.
async fn listen(mut client: RuntimeServiceClient<Channel>, news: Arc<Notify>) {
    loop {
        match client.get_container_events(GetEventsRequest {}).await {
            Ok(answer) => {
                let mut events = answer.into_inner();
                while let Ok(Some(_)) = events.message().await {
                    news.notify_one();
                }
            }
            Err(status) if status.code() == Code::Unimplemented => return,
            Err(_) => {}
        }
        sleep(CALL).await;
    }
}

/// The runtime.
struct Runtime {
    client: RuntimeServiceClient<Channel>,
    /// What does not change over a sandbox's life, once it has an address.
    known: HashMap<String, (Vec<IpAddr>, bool)>,
}

impl Runtime {
    fn new(socket: &Path) -> anyhow::Result<Self> {
        let path: Arc<Path> = socket.into();
        let connect = service_fn(move |_: Uri| {
            let path = Arc::clone(&path);
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The name stands in a header only.
        let channel =
            Endpoint::from_static("http://localhost").connect_timeout(CALL).connect_with_connector_lazy(connect);
        let client = RuntimeServiceClient::new(channel).max_decoding_message_size(MAX_BYTES);
        Ok(Self { client, known: HashMap::new() })
    }

    /// The judged pods.
    async fn list(&mut self, selection: &Selection) -> Result<Vec<(ClusterId, Arc<Seen>)>, Status> {
        let sandboxes = self.client.list_pod_sandbox(ListPodSandboxRequest {}).await?.into_inner().items;
        let chosen = choose(sandboxes, selection);
        self.known.retain(|id, _| chosen.iter().any(|(_, sandbox)| sandbox.id == *id));
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let containers = self.client.list_containers(ListContainersRequest {}).await?.into_inner().containers;
        let running: BTreeSet<_> = containers
            .into_iter()
            .filter(|container| container.state() == ContainerState::ContainerRunning)
            .map(|container| container.pod_sandbox_id)
            .collect();
        let mut pods = Vec::new();
        for (cluster, sandbox) in chosen {
            let (ips, host_network) = match self.known.get(&sandbox.id) {
                Some(known) => known.clone(),
                None => {
                    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.clone() };
                    let status = match self.client.pod_sandbox_status(request).await {
                        Ok(answer) => answer.into_inner().status.unwrap_or_default(),
                        // It went while it was being looked at.
                        Err(status) if status.code() == Code::NotFound => continue,
                        Err(status) => return Err(status),
                    };
                    let (ips, host_network) = network(&status);
                    if !ips.is_empty() || host_network {
                        self.known.insert(sandbox.id.clone(), (ips.clone(), host_network));
                    }
                    (ips, host_network)
                }
            };
            let runs = running.contains(&sandbox.id);
            pods.extend(seen(sandbox, ips, host_network, runs).map(|seen| (cluster, Arc::new(seen))));
        }
        Ok(pods)
    }
}

/// The selected sandboxes that are ready, the youngest of each pod.
fn choose(sandboxes: Vec<PodSandbox>, selection: &Selection) -> Vec<(ClusterId, PodSandbox)> {
    let mut chosen: BTreeMap<String, (ClusterId, PodSandbox)> = BTreeMap::new();
    for sandbox in sandboxes {
        if sandbox.state() != PodSandboxState::SandboxReady || chosen.len() >= MAX_PODS {
            continue;
        }
        let labels: BTreeMap<_, _> = sandbox.labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let Some(meta) = &sandbox.metadata else { continue };
        let Some(cluster) = selection.cluster(&meta.namespace, &labels) else { continue };
        let uid = meta.uid.clone();
        if chosen.get(&uid).is_none_or(|(_, other)| other.created_at < sandbox.created_at) {
            chosen.insert(uid, (cluster, sandbox));
        }
    }
    chosen.into_values().collect()
}

/// Addresses, and whether it lives in the node's network.
fn network(status: &PodSandboxStatus) -> (Vec<IpAddr>, bool) {
    let options = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options);
    let host_network = options.is_some_and(|options| options.network() == NamespaceMode::Node);
    let ips = status
        .network
        .iter()
        .flat_map(|network| std::iter::once(&network.ip).chain(network.additional_ips.iter().map(|ip| &ip.ip)));
    (ips.filter_map(|text| text.parse().ok()).collect(), host_network)
}

fn seen(sandbox: PodSandbox, ips: Vec<IpAddr>, host_network: bool, running: bool) -> Option<Seen> {
    let meta = sandbox.metadata.filter(|meta| !meta.uid.is_empty() && !meta.name.is_empty())?;
    let labels: BTreeMap<_, _> = sandbox.labels.into_iter().collect();
    let annotations: BTreeMap<_, _> = sandbox.annotations.into_iter().collect();
    let maintenance = manifest::in_maintenance(&annotations);
    Some(Seen {
        workload: manifest::workload(None, &labels, &meta.name),
        // The kubelet names a static pod's cgroup by the uid that it gives to the runtime.
        cgroup_uid: meta.uid.clone(),
        pod: PodRef { namespace: meta.namespace.into(), name: meta.name.into() },
        uid: PodUid(meta.uid.into()),
        ips,
        host_network,
        running,
        wiring: maintenance.then(|| Wiring { maintenance, ..Wiring::default() }),
        node: None,
        ready: false,
        version: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Selector;
    use storewatch_proto::cri::{
        LinuxPodSandboxStatus, Namespace, NamespaceOption, PodIp, PodSandboxMetadata, PodSandboxNetworkStatus,
    };

    fn sandbox(
        id: &str,
        uid: &str,
        namespace: &str,
        label: &str,
        state: PodSandboxState,
        created_at: i64,
    ) -> PodSandbox {
        PodSandbox {
            id: id.into(),
            metadata: Some(PodSandboxMetadata {
                name: format!("{uid}-0"),
                uid: uid.into(),
                namespace: namespace.into(),
            }),
            state: state.into(),
            created_at,
            labels: HashMap::from([("app".to_owned(), label.to_owned())]),
            annotations: HashMap::from([("storewatch.io/maintenance".to_owned(), "true".to_owned())]),
        }
    }

    #[test]
    fn the_youngest_ready_sandbox_of_each_selected_pod() {
        let cluster = |namespace: &str| Cluster {
            name: namespace.into(),
            pd_peers: Vec::new(),
            stores: Vec::new(),
            store_port: 8500,
            pd_port: 8686,
            namespaces: vec![namespace.to_owned()],
            selector: Selector::parse("app=server").unwrap(),
        };
        let selection = Selection { socket: PathBuf::new(), clusters: vec![cluster("graph"), cluster("other")] };
        use PodSandboxState::{SandboxNotready as Ended, SandboxReady as Ready};
        let mut broken = sandbox("f", "f", "graph", "server", Ready, 1);
        broken.metadata = None;
        let chosen = choose(
            vec![
                sandbox("a1", "a", "graph", "server", Ready, 1),
                sandbox("a2", "a", "graph", "server", Ready, 2),
                sandbox("a3", "a", "graph", "server", Ended, 3),
                sandbox("b", "b", "other", "server", Ready, 1),
                sandbox("c", "c", "graph", "store", Ready, 1),
                sandbox("d", "d", "elsewhere", "server", Ready, 1),
                sandbox("e", "e", "graph", "server", Ended, 1),
                broken,
            ],
            &selection,
        );
        let found: Vec<_> = chosen.iter().map(|(cluster, sandbox)| (cluster.0, &*sandbox.id)).collect();
        assert_eq!(found, [(0, "a2"), (1, "b")]);
        let seen = seen(chosen[0].1.clone(), Vec::new(), false, true).unwrap();
        assert!(seen.wiring.is_some_and(|wiring| wiring.maintenance));
    }

    #[test]
    fn addresses_and_the_nodes_network() {
        let options = |network: NamespaceMode| {
            let options = Some(NamespaceOption { network: network.into() });
            Some(LinuxPodSandboxStatus { namespaces: Some(Namespace { options }) })
        };
        let addresses = PodSandboxNetworkStatus {
            ip: "10.0.0.1".into(),
            additional_ips: vec![PodIp { ip: "fd00::1".into() }, PodIp { ip: "?".into() }],
        };
        let pod =
            PodSandboxStatus { network: Some(addresses), linux: options(NamespaceMode::Pod), ..Default::default() };
        assert_eq!(network(&pod), (vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()], false));
        let node = PodSandboxStatus { linux: options(NamespaceMode::Node), ..Default::default() };
        assert_eq!(network(&node), (Vec::new(), true));
        assert_eq!(network(&PodSandboxStatus::default()), (Vec::new(), false));
    }
}
