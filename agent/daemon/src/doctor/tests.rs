use super::*;
use crate::config::{self, Surroundings};

/// A configuration that names nobody to ask; `extra` is YAML for further keys.
pub(super) fn config(extra: &str) -> Config {
    let text = format!("hugegraph: {{stores: ['127.0.0.1:1']}}\npods: {{source: none}}\n{extra}");
    config::parse(&text, "test", &Surroundings::default()).unwrap()
}

fn check(report: &Report, name: &str) -> Check {
    report.checks.iter().find(|check| check.name == name).cloned().unwrap_or_else(|| panic!("{name}: {report:?}"))
}

fn with_sockets(folder: &std::path::Path) -> Config {
    config(&format!(
        "listen: {{probe: '127.0.0.1:1', metrics: 'off', admin: 'off', admin_socket: '{}'}}\nkernel: {{mode: 'off'}}\n\
         state_file: '{}'\n",
        folder.join("admin.sock").display(),
        folder.join("state.json").display(),
    ))
}

#[tokio::test]
async fn whatever_is_not_well_says_what_is_lost_and_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    for given in [false, true] {
        let report = examine(&with_sockets(folder.path()), given).await.unwrap();
        for check in &report.checks {
            assert_eq!(check.state == State::Ok, check.lost.is_empty(), "{check:?}");
            assert_eq!(check.lost.is_empty(), check.how.is_empty(), "{check:?}");
            assert!(!check.found.is_empty() && !check.found.contains('\n'), "{check:?}");
        }
        // With a configuration it is known that nobody is to be asked.
        assert_eq!(check(&report, "kubernetes").state, if given { State::Ok } else { State::Degraded });
        assert_eq!(check(&report, "hooks").found, "switched off by configuration (kernel.mode: off)");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing");
}

#[tokio::test]
async fn listeners_are_free_or_held_by_somebody_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = with_sockets(folder.path());
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    config.listen.probe = taken.local_addr().unwrap();
    let report = examine(&config, false).await.unwrap();
    let probe = check(&report, "listen.probe");
    assert!(probe.state == State::Missing && probe.fatal && probe.found.contains("the port is in use"), "{probe:?}");
    assert!(!report.can_run);
    assert_eq!(check(&report, "listen.metrics").state, State::Degraded, "switched off");
    assert!(check(&report, "listen.admin_socket").found.ends_with("can be made"));

    drop(taken);
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("admin.sock")).unwrap());
    let report = examine(&config, false).await.unwrap();
    assert!(check(&report, "listen.probe").found.ends_with("is free"), "{report:?}");
    assert!(check(&report, "listen.admin_socket").found.contains("was left behind"));
    assert!(report.can_run, "{report:?}");

    std::fs::remove_file(folder.path().join("admin.sock")).unwrap();
    std::fs::write(folder.path().join("admin.sock"), "x").unwrap();
    let report = examine(&config, false).await.unwrap();
    assert!(check(&report, "listen.admin_socket").fatal);
}

#[tokio::test]
async fn nobody_to_reach_is_told_with_the_phase_and_does_not_stop_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = with_sockets(folder.path());
    config.listen.probe = "127.0.0.1:0".parse().unwrap();
    config.clusters[0].pd_peers = vec![
        storewatch_core::id::HostPort::parse("127.0.0.1:1").unwrap(),
        storewatch_core::id::HostPort::parse("no-such-host.invalid:8686").unwrap(),
    ];
    let report = examine(&config, true).await.unwrap();
    assert_eq!(check(&report, "PD 127.0.0.1:1").found, "connection refused");
    assert!(check(&report, "PD no-such-host.invalid:8686").found.starts_with("does not resolve: "));
    assert_eq!(check(&report, "PD list").state, State::Degraded);
    let store = check(&report, "store 127.0.0.1:1");
    assert!(store.state == State::Degraded && store.found.contains("connection refused"), "{store:?}");
    assert!(report.can_run, "{report:?}");
}
