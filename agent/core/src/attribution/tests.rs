use super::*;
use crate::{
    id::{ClusterId, PodRef},
    pod::Manager,
};

fn pod(uid: &str) -> PodRecord {
    PodRecord {
        cluster: ClusterId(0),
        pod: PodRef { namespace: "graph".into(), name: uid.into() },
        uid: PodUid(uid.into()),
        workload: None,
        ips: Vec::new(),
        host_network: false,
        cgroups: Vec::new(),
        netns: None,
        pids: Vec::new(),
        wiring: None,
        manager: Manager::Unknown,
    }
}

fn owner(cgroup: Option<u64>, netns: Option<u32>, pid: Option<u32>) -> SocketOwner {
    SocketOwner { cgroup: cgroup.map(CgroupId), netns: netns.map(NetnsId), pid }
}

fn attribution(pods: Vec<PodRecord>) -> Attribution {
    Attribution::new(&pods.into_iter().map(Arc::new).collect::<Vec<_>>())
}

#[test]
fn the_cgroup_comes_before_the_namespace_and_that_before_the_process() {
    let a = PodRecord { cgroups: vec![CgroupId(1)], netns: Some(NetnsId(10)), ..pod("a") };
    let b = PodRecord { cgroups: vec![CgroupId(2)], netns: Some(NetnsId(20)), pids: vec![7], ..pod("b") };
    let all = attribution(vec![a, b]);
    let uid = |owner| all.place(Some(&owner)).map(|place| place.pod.0.to_string());
    assert_eq!(uid(owner(Some(1), Some(20), Some(7))), Ok("a".into()));
    assert_eq!(uid(owner(None, Some(20), None)), Ok("b".into()));
    assert_eq!(uid(owner(None, None, Some(7))), Ok("b".into()));
    assert_eq!(uid(owner(Some(9), Some(99), Some(8))), Err(Unattributed::Stranger));
    assert_eq!(uid(owner(None, None, None)), Err(Unattributed::NoOwner));
    assert_eq!(all.place(None), Err(Unattributed::Summed));
}

#[test]
fn the_nodes_namespace_is_nobodys() {
    let host = PodRecord { host_network: true, cgroups: vec![CgroupId(1)], netns: Some(NetnsId(10)), ..pod("host") };
    let all = attribution(vec![host]);
    assert!(all.place(Some(&owner(Some(1), Some(10), None))).is_ok());
    assert_eq!(all.place(Some(&owner(Some(2), Some(10), None))), Err(Unattributed::Stranger));
    assert_eq!(all.selected(), (vec![CgroupId(1)], vec![]));
}

#[test]
fn a_namespace_that_two_judged_pods_share_tells_nothing() {
    let a = PodRecord { cgroups: vec![CgroupId(1)], netns: Some(NetnsId(10)), ..pod("a") };
    let b = PodRecord { cgroups: vec![CgroupId(2)], netns: Some(NetnsId(10)), ..pod("b") };
    let all = attribution(vec![a, b]);
    assert_eq!(all.place(Some(&owner(Some(3), Some(10), None))), Err(Unattributed::SharedNetns));
    assert_eq!(all.place(Some(&owner(Some(2), Some(10), None))).map(|place| place.pod.0.to_string()), Ok("b".into()));
}

#[test]
fn an_unlisted_cgroup_in_the_pods_namespace_is_kept_apart() {
    let a = PodRecord { cgroups: vec![CgroupId(1)], netns: Some(NetnsId(10)), ..pod("a") };
    let b = PodRecord { netns: Some(NetnsId(20)), ..pod("b") };
    let all = attribution(vec![a, b]);
    let place = all.place(Some(&owner(Some(5), Some(10), None))).unwrap();
    assert_eq!((place.container, place.foreign), (ContainerKey::Cgroup(CgroupId(5)), true));
    // A pod that is known only by its namespace has one container: the namespace.
    let place = all.place(Some(&owner(Some(5), Some(20), None))).unwrap();
    assert_eq!((place.container, place.foreign), (ContainerKey::Netns(NetnsId(20)), false));
}

#[test]
fn a_pod_that_is_known_only_by_its_processes_has_these_as_containers() {
    let host = PodRecord { host_network: true, pids: vec![7, 8], ..pod("host") };
    assert_eq!(host.containers(), [ContainerKey::Process(7), ContainerKey::Process(8)]);
    let all = attribution(vec![host]);
    let container = |pid| all.place(Some(&owner(Some(1), Some(1), Some(pid)))).map(|place| place.container);
    assert_eq!(container(8), Ok(ContainerKey::Process(8)));
    assert_eq!(container(9), Err(Unattributed::Stranger));
}
