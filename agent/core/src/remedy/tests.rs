use super::*;
use crate::{
    id::{ClusterId, HostPort, PodUid, TargetKey},
    pod::Workload,
};

fn record(manager: Manager) -> PodRecord {
    PodRecord {
        cluster: ClusterId(0),
        pod: PodRef { namespace: "graph".into(), name: "server-0".into() },
        uid: PodUid("u".into()),
        workload: Some(Workload { kind: "StatefulSet".into(), name: "server".into() }),
        ips: Vec::new(),
        host_network: false,
        cgroups: Vec::new(),
        netns: None,
        pids: Vec::new(),
        wiring: None,
        manager,
    }
}

fn store() -> Named {
    let address = HostPort::parse("store-1.store.graph.svc:8500").unwrap();
    Named::new(TargetKey::Store(1), &address, [&address])
}

fn known(line: CommandLine) -> Client {
    Client { pid: Some(4242), command: Some(line) }
}

fn java() -> CommandLine {
    CommandLine { java: true, whole: true, ..CommandLine::default() }
}

#[test]
fn every_finding_has_both_with_and_without_a_pod_and_a_target() {
    let (record, named, facts) = (record(Manager::Kubernetes), store(), Facts::default());
    for code in FindingCode::ALL {
        for pod in [None, Some((&record, Client::default())), Some((&record, known(java())))] {
            for target in [None, Some(&named)] {
                for mode in [None, Some(StaleMode::Dialing), Some(StaleMode::Holding)] {
                    let Remedy { now, prevent } =
                        remedy(code, &Case { pod, target, mode, severity: Severity::Critical, facts: &facts });
                    for text in [now, prevent] {
                        let whole = text.len() > 8 && !text.ends_with(['.', ' ', ';']) && !text.contains("  ");
                        assert!(whole, "{code:?}: {text:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_restarts_a_pod_is_decided_by_what_runs_it() {
    let with_pid = |manager| PodRecord { pids: vec![42], ..record(manager) };
    let rows = [
        (record(Manager::Kubernetes), "kubectl delete pod -n graph server-0"),
        (
            PodRecord { workload: None, ..record(Manager::Kubernetes) },
            "kubectl delete pod -n graph server-0 (no workload is known for it: see that something makes it anew)",
        ),
        (record(Manager::Unit("server.service".into())), "systemctl restart server.service"),
        (record(Manager::Docker("0123456789ab".into())), "docker restart 0123456789ab"),
        (with_pid(Manager::Unknown), "restart the server process (pid 42)"),
        (
            record(Manager::Unknown),
            "kubectl delete pod -n graph server-0, or on a plain host restart the server process",
        ),
    ];
    for (record, text) in rows {
        assert_eq!(restart(&record, Client::default()), text);
    }
}

#[test]
fn a_process_that_was_seen_is_named_where_nothing_else_is_known() {
    let seen = known(java());
    assert_eq!(
        restart(&record(Manager::Unknown), seen),
        "kubectl delete pod -n graph server-0, or on a plain host restart the server process (pid 4242)"
    );
    let listed = PodRecord { pids: vec![42], ..record(Manager::Unknown) };
    assert_eq!(restart(&listed, seen), "restart the server process (pid 42)");
    assert_eq!(restart(&record(Manager::Kubernetes), seen), "kubectl delete pod -n graph server-0");
}

#[test]
fn of_a_command_line_only_what_is_on_it_is_said() {
    let flag = |ttl| known(CommandLine { dns_ttl: Some(ttl), ..java() });
    let rows = [
        (
            Client::default(),
            "-Dsun.net.inetaddr.ttl=30 in JAVA_OPTS (networkaddress.cache.ttl as a system property does nothing",
        ),
        (known(java()), "-Dsun.net.inetaddr.ttl=30 is not on its command line; under a security manager Java 11"),
        (
            known(CommandLine { cache_ttl: Some(FlagValue::Number(10)), ..java() }),
            "-Dsun.net.inetaddr.ttl=30 is not on its command line (-Dnetworkaddress.cache.ttl=10 is, and does nothing",
        ),
        (
            known(CommandLine { security_manager: true, ..java() }),
            "-Dsun.net.inetaddr.ttl=30 is not on its command line; -Djava.security.manager is, and under it Java 11",
        ),
        (
            known(CommandLine { whole: false, ..java() }),
            "-Dsun.net.inetaddr.ttl=30 is not in the part of its command line that was read",
        ),
        (flag(FlagValue::Number(-1)), "-Dsun.net.inetaddr.ttl=-1 on its command line keeps DNS answers for ever"),
        (flag(FlagValue::Number(30)), "-Dsun.net.inetaddr.ttl=30 is on its command line, so look further"),
        (flag(FlagValue::Number(3600)), "-Dsun.net.inetaddr.ttl=3600 on its command line keeps DNS answers that many"),
        (flag(FlagValue::Other), "-Dsun.net.inetaddr.ttl on its command line has no number as its value"),
        (known(CommandLine { whole: true, ..CommandLine::default() }), "a client that resolves the name again"),
    ];
    for (client, begin) in rows {
        assert!(dns(client).starts_with(begin), "{client:?}: {}", dns(client));
    }
    // What is not seen is said wherever something is called absent, and nowhere is more claimed.
    for client in [known(java()), known(CommandLine { whole: false, ..java() })] {
        assert!(dns(client).contains("JAVA_TOOL_OPTIONS") && dns(client).contains("not seen"), "{}", dns(client));
    }
    assert!(!dns(Client::default()).contains("not on its command line"));
}

#[test]
fn a_half_open_connection_is_not_cured_by_dns() {
    let (record, named, facts) = (record(Manager::Kubernetes), store(), Facts::default());
    let pod = Some((&record, known(java())));
    let case =
        Case { pod, target: Some(&named), mode: Some(StaleMode::Holding), severity: Severity::Critical, facts: &facts };
    let Remedy { prevent, .. } = remedy(FindingCode::StaleTransport, &case);
    assert!(
        prevent.contains("keep-alive") && prevent.contains("no DNS setting helps") && !prevent.contains("-D"),
        "{prevent}"
    );
}

#[test]
fn a_store_is_looked_at_where_its_name_says() {
    let (record, named, facts) = (record(Manager::Kubernetes), store(), Facts::default());
    let case = Case {
        pod: Some((&record, Client::default())),
        target: Some(&named),
        mode: None,
        severity: Severity::Critical,
        facts: &facts,
    };
    let now = |code| remedy(code, &case).now;
    assert!(
        now(FindingCode::StoreDown)
            .starts_with("kubectl describe pod -n graph store-1: its process or its node is down")
    );
    assert!(now(FindingCode::StoreHung).ends_with("If it stays: kubectl delete pod -n graph store-1"));
    assert!(now(FindingCode::PathBlackhole).starts_with("kubectl get networkpolicy -n graph: does everything"));
    assert!(now(FindingCode::ConnectionResets).starts_with("kubectl logs -n graph store-1 --tail=100"));
}

#[test]
fn every_verdict_that_is_not_well_says_what_to_do() {
    let record = record(Manager::Kubernetes);
    for reason in Reason::ALL {
        let said = advice(reason, (&record, Client::default()), || vec![store().into()], || None);
        let well = matches!(reason, Reason::StoreAnswering | Reason::PassiveOnly);
        assert_eq!(said.is_none(), well, "{reason:?}");
    }
    let said =
        advice(Reason::NoStoreAnswers, (&record, Client::default()), || vec![store().into(), store().into()], || None)
            .unwrap();
    assert_eq!(
        said.now,
        "bring a store back: kubectl get pod -n graph store-1 store-1 -o wide. Restarting this pod does not help"
    );
}
