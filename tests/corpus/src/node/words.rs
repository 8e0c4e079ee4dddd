//! The words of a script that stand for values.

use crate::script::Script;
use storewatch_core::{
    connection::SocketOwner,
    id::{CgroupId, ClusterId, HostPort, NetnsId, PodRef, PodUid},
    pod::{Manager, PodRecord, Wiring, Workload},
    policy::{ClusterSettings, OnUnknown, Settings, StaleTransportAction, VerdictPolicy},
    topology::{ListedStore, ReportedState},
};

/// The network namespace of the container with that cgroup; the node's own is 1.
fn netns(cgroup: u64) -> NetnsId {
    NetnsId(u32::try_from(1000 + cgroup).unwrap())
}

/// Whose a socket is; `None` for what the kernel has summed.
pub(super) fn owner(who: &str) -> Option<SocketOwner> {
    let none = SocketOwner { cgroup: None, netns: None, pid: None };
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("no owner: {who}"));
    let small = |text: &str| u32::try_from(number(text)).unwrap();
    Some(match who.split_once(':') {
        None if who == "summed" => return None,
        None if who == "nobody" => none,
        None => SocketOwner { cgroup: Some(CgroupId(number(who))), netns: Some(netns(number(who))), pid: None },
        // In the node's own network namespace, and seen by the kernel as such.
        Some(("cg", id)) => SocketOwner { cgroup: Some(CgroupId(number(id))), netns: Some(NetnsId(1)), pid: None },
        Some(("net", id)) => SocketOwner { netns: Some(NetnsId(small(id))), ..none },
        Some(("pid", id)) => SocketOwner { netns: Some(NetnsId(1)), pid: Some(small(id)), ..none },
        Some(_) => panic!("no owner: {who}"),
    })
}

/// `NAME[%UID]@CGROUP[+CGROUP][:WORKLOAD][,FLAG]`; without a workload it is `server`, `:-` is none. Flags: `host`, `pid=N`,
/// `nocgroup` (the list does not know its cgroups), `maintenance`.
pub(super) fn pod(text: &str) -> PodRecord {
    let mut parts = text.split(',');
    let (name, place) =
        parts.next().and_then(|text| text.split_once('@')).unwrap_or_else(|| panic!("no cgroup: {text}"));
    let (cgroups, workload) = place.split_once(':').unwrap_or((place, "server"));
    let cgroups: Vec<u64> = cgroups.split('+').map(|number| number.parse().unwrap()).collect();
    let (name, uid) = name.split_once('%').unwrap_or((name, name));
    let mut pod = PodRecord {
        cluster: ClusterId(0),
        pod: PodRef { namespace: "graph".into(), name: name.into() },
        uid: PodUid(uid.into()),
        workload: (workload != "-").then(|| Workload { kind: "StatefulSet".into(), name: workload.into() }),
        ips: Vec::new(),
        host_network: false,
        netns: Some(netns(cgroups[0])),
        cgroups: cgroups.into_iter().map(CgroupId).collect(),
        pids: Vec::new(),
        manager: Manager::Kubernetes,
        wiring: None,
    };
    for flag in parts {
        match flag.split_once('=') {
            None if flag == "host" => (pod.host_network, pod.netns) = (true, None),
            None if flag == "nocgroup" => pod.cgroups.clear(),
            None if flag == "maintenance" => {
                pod.wiring = Some(Wiring { maintenance: true, ..Wiring::default() });
            }
            Some(("pid", pid)) => pod.pids.push(pid.parse().unwrap()),
            _ => panic!("no such flag: {flag}"),
        }
    }
    pod
}

/// `ID=HOST[:PORT][/STATE]`.
pub(super) fn listed(text: &str) -> ListedStore {
    let (id, rest) = text.split_once('=').unwrap_or_else(|| panic!("no id: {text}"));
    let (host, state) = rest.split_once('/').unwrap_or((rest, "Up"));
    let state = [
        ReportedState::Unknown,
        ReportedState::Up,
        ReportedState::Offline,
        ReportedState::Tombstone,
        ReportedState::Pending,
        ReportedState::Exiting,
    ]
    .into_iter()
    .find(|known| known.as_str() == state)
    .unwrap();
    let address = HostPort::parse(host).unwrap_or_else(|| HostPort { host: host.into(), port: 8500 });
    ListedStore { id: id.parse().unwrap(), address, state }
}

/// The usual settings, and what a script changes of them.
pub fn settings(script: &Script) -> Settings {
    let stores = script.settings.get("stores").map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
    Settings {
        node: "node-a".into(),
        clusters: vec![ClusterSettings {
            name: "default".into(),
            pd_peers: vec![HostPort { host: "pd-0".into(), port: 8686 }],
            stores: stores.unwrap_or_default().iter().map(|text| HostPort::parse(text).unwrap()).collect(),
            store_port: 8500,
            pd_port: 8686,
        }],
        policy: VerdictPolicy {
            failure_threshold: script.count("failure_threshold", 2),
            success_threshold: script.count("success_threshold", 1),
            window: script.setting("window", 150.0),
            stale_suspect_after: script.setting("stale_suspect_after", 60.0),
            stale_confirm_after: script.setting("stale_confirm_after", 240.0),
            stale_transport: match script.settings.get("stale_transport").map(String::as_str) {
                Some("degraded") => StaleTransportAction::Degraded,
                _ => StaleTransportAction::NotReady,
            },
            min_other_ready: script.count("min_other_ready", 1),
            on_unknown: OnUnknown::Ready,
            ping_interval: script.setting("ping_interval", 2.0),
            inventory_interval: script.setting("inventory_interval", 15.0),
        },
        kernel_off: false,
    }
}
