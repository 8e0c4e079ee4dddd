use super::*;

const REACH: Reason = Reason::PodCannotReachStores;

fn member(uid: &str, leaves: Option<Reason>) -> Member {
    Member {
        uid: PodUid(uid.into()),
        cluster: ClusterId(0),
        namespace: "graph".into(),
        workload: Some(Workload { kind: "StatefulSet".into(), name: "server".into() }),
        ready: true,
        leaves: leaves.map(|reason| (reason, MonoTime::from_millis(0))),
        out: false,
        suspicions: leaves.into_iter().collect(),
    }
}

fn out(members: &[Member], min: u32) -> Vec<String> {
    leaving(members, min).into_iter().map(|uid| uid.0.to_string()).collect()
}

#[test]
fn one_of_two_leaves_while_the_other_is_well() {
    assert_eq!(out(&[member("a", Some(REACH)), member("b", None)], 1), ["a"]);
}

#[test]
fn of_two_that_fail_together_none_leaves() {
    assert!(out(&[member("a", Some(REACH)), member("b", Some(REACH))], 1).is_empty());
}

#[test]
fn a_suspicion_that_is_not_confirmed_holds_the_other() {
    let b = Member { suspicions: [REACH].into(), ..member("b", None) };
    assert!(out(&[member("a", Some(REACH)), b], 1).is_empty());
}

#[test]
fn another_suspicion_does_not_but_both_never_leave() {
    assert_eq!(out(&[member("a", Some(REACH)), member("b", Some(Reason::StaleTransport))], 1), ["a"]);
}

#[test]
fn who_is_out_already_stays_out_first() {
    let b = Member { out: true, ..member("b", Some(Reason::StaleTransport)) };
    assert_eq!(out(&[member("a", Some(REACH)), b], 1), ["b"]);
}

#[test]
fn a_pod_without_a_workload_or_alone_stays() {
    let loner = Member { workload: None, ..member("a", Some(REACH)) };
    assert!(out(&[loner.clone(), member("b", None)], 1).is_empty());
    assert!(out(&[member("a", Some(REACH))], 1).is_empty());
    assert_eq!(out(&[loner], 0), ["a"]);
}

#[test]
fn another_namespace_cluster_or_workload_is_no_help() {
    let far = Member { namespace: "other".into(), ..member("b", None) };
    let foreign = Member { cluster: ClusterId(1), ..member("c", None) };
    let kind =
        Member { workload: Some(Workload { kind: "Deployment".into(), name: "server".into() }), ..member("d", None) };
    assert!(out(&[member("a", Some(REACH)), far, foreign, kind], 1).is_empty());
}
