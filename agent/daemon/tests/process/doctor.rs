//! `doctor` as a process: beside a running agent, with what is in the way of one, and as a user without rights.

use crate::daemon::{Daemon, Ended, Storage, configure, free_port, run};
use std::{net::TcpListener, os::unix::fs::PermissionsExt, path::Path, process::Command};
use storewatch_hugegraph::testkit::{pd::PdFault, store::StoreFault};

fn doctor(config: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storewatch"));
    run(command.env_clear().args(["doctor", "--config"]).arg(config).args(arguments))
}

/// The line about one check, without its padding.
fn line(ended: &Ended, check: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let all: Vec<_> = ended.out.lines().map(words).collect();
    let found = all.iter().find(|line| line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(check)));
    found.unwrap_or_else(|| panic!("no line about {check}:\n{}{}", ended.out, ended.err)).clone()
}

#[test]
fn beside_a_running_agent_it_says_who_holds_the_ports_and_disturbs_nobody() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until("/readiness", |code, body| {
        code == 200 && body["active_stores"] == 3 && body["unanswered_stores"] == serde_json::json!([])
    });
    let before = daemon.until("/readiness/pods/graph/server-0", |code, body| code == 200 && body["status"] == "Ready");
    let ended = doctor(&daemon.config(), &[]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    for listener in ["listen.probe", "listen.metrics", "listen.admin", "listen.admin_socket"] {
        let line = line(&ended, &format!("{listener} "));
        assert!(line.starts_with("ok ") && line.contains("is held by a running storewatch"), "{line}");
    }
    let pd = format!("PD {}", storage.pd.address);
    for (check, words) in
        [(pd.as_str(), "speaks HTTP/2 in "), ("PD list", "3 stores in "), ("state file", "state.json can be kept")]
    {
        let line = line(&ended, check);
        assert!(line.starts_with("ok ") && line.contains(words), "{line}");
    }
    for store in &storage.stores {
        let line = line(&ended, &format!("store {}", store.address));
        assert!(line.starts_with("ok ") && line.contains("answers in "), "{line}");
    }
    let line = line(&ended, "kubernetes");
    assert_eq!(line, "ok kubernetes not asked: pods.source is another");
    let after = daemon.get("/readiness/pods/graph/server-0").unwrap().1;
    assert!(after["since_ms"].as_u64() >= before["since_ms"].as_u64() && after["status"] == "Ready", "{after}");
    assert!(!daemon.log().contains("ERROR") && !daemon.log().contains("panicked"), "{}", daemon.log());
}

#[test]
fn pd_and_stores_that_do_not_answer_are_told_with_what_is_lost_and_exit_code_0() {
    let storage = Storage::start();
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), &storage, free_port(), "");
    storage.pd.state.send_modify(|state| state.fault = PdFault::NoLeader);
    let ended = doctor(&config, &["--set", &format!("hugegraph.stores=['{}']", storage.stores[0].address)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(line(&ended, "PD 127").starts_with("ok "), "its process answers: {ended:?}");
    assert!(line(&ended, "PD list").starts_with("degraded PD list none: "), "{ended:?}");
    assert!(line(&ended, "store 127").starts_with("ok "), "{ended:?}");
    assert!(line(&ended, "pods").contains("pods.yaml"), "there is no such file: {ended:?}");

    storage.all_stores(&StoreFault::Frozen);
    storage.pd.state.send_modify(|state| state.fault = PdFault::Down);
    let ended = doctor(&config, &["--set", &format!("hugegraph.stores=['{}']", storage.stores[0].address)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(line(&ended, "PD 127").contains("connection refused | lost: "), "{ended:?}");
    let store = line(&ended, "store 127");
    assert!(store.contains("no answer within the budget") && store.contains("ping.timeout (300ms)"), "{store}");
    // Nothing was left behind where the agent will live.
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["storewatch.yaml"]);
}

#[test]
fn a_port_of_somebody_else_is_exit_code_1_and_a_wrong_configuration_2() {
    let storage = Storage::start();
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let config = configure(folder.path(), &storage, taken.local_addr().unwrap().port(), "");
    let ended = doctor(&config, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let probe = line(&ended, "listen.probe");
    assert!(probe.starts_with("missing ") && probe.ends_with("| the agent does not run like this"), "{probe}");
    assert!(ended.out.ends_with("the agent cannot run here\n"), "{ended:?}");

    let ended = doctor(&config, &["-o", "json"]);
    assert_eq!(ended.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(json["can_run"], false);
    let fatal: Vec<_> = json["checks"].as_array().unwrap().iter().filter(|check| check["fatal"] == true).collect();
    assert_eq!(fatal.len(), 1);
    assert_eq!((&fatal[0]["check"], &fatal[0]["state"]), (&"listen.probe".into(), &"missing".into()));

    let wrong = doctor(&config, &["--set", "ping.interval=1"]);
    let checked = run(Command::new(env!("CARGO_BIN_EXE_storewatch"))
        .env_clear()
        .args(["check-config", "--set", "ping.interval=1", "--config"])
        .arg(&config));
    assert_eq!((wrong.code, wrong.out.as_str(), &wrong.err), (Some(2), "", &checked.err));
    assert_eq!(doctor(&folder.path().join("absent.yaml"), &[]).code, Some(2));
}

#[test]
fn required_hooks_decide_whether_an_agent_can_run() {
    let storage = Storage::start();
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), &storage, free_port(), "");
    let ended = doctor(&config, &["--set", "kernel.mode=required"]);
    let attached = line(&ended, "hook inet_sock_set_state").starts_with("ok ");
    assert_eq!(ended.code, Some(if attached { 0 } else { 1 }), "{ended:?}");
    let ended = doctor(&config, &["--set", "kernel.mode=auto"]);
    assert_eq!(ended.code, Some(0), "without it the agent runs on: {ended:?}");
}

#[test]
#[ignore = "needs root: it becomes another user, and root attaches every hook"]
fn root_has_every_hook_and_nobody_is_told_what_is_missing() {
    let storage = Storage::start();
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), &storage, free_port(), "");
    let ended = doctor(&config, &["--set", "kernel.mode=auto"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for check in [
        "BTF",
        "CAP_BPF",
        "CAP_PERFMON",
        "hook inet_sock_set_state",
        "hook tcp_send_reset",
        "iterator",
        "cgroup",
        "/proc",
        "owners of sockets",
    ] {
        let line = line(&ended, check);
        assert!(line.starts_with("ok "), "{line}");
    }
    // Not every kernel lets its functions be traced, and each says so.
    for call in ["call tcp_v4_connect", "call tcp_v6_connect"] {
        let line = line(&ended, call);
        let told = line.contains("AttemptsNotObservable") && line.contains(" | to get it: ");
        assert!(line.starts_with("ok ") || (line.starts_with("degraded ") && told), "{line}");
    }

    // Where this build lies, another user may not look.
    let binary = folder.path().join("storewatch");
    std::fs::copy(env!("CARGO_BIN_EXE_storewatch"), &binary).unwrap();
    for (path, mode) in [(folder.path(), 0o755), (&binary, 0o755), (&config, 0o644)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut nobody = Command::new("setpriv");
    nobody.env_clear().env("PATH", "/usr/bin:/bin").args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let ended = run(nobody.arg(&binary).args(["doctor", "--set", "kernel.mode=auto", "--config"]).arg(&config));
    for (check, words) in [
        ("CAP_BPF", "missing CAP_BPF not held | lost: "),
        (
            "hook inet_sock_set_state",
            "missing hook inet_sock_set_state not tried | lost: every connection outcome | to get it: ",
        ),
        ("iterator", "degraded iterator not tried"),
        ("owners of sockets", "degraded owners of sockets"),
        ("state file", "missing state file"),
        ("PD list", "ok PD list 3 stores in "),
        ("store 127", "ok store 127"),
    ] {
        let line = line(&ended, check);
        assert!(line.starts_with(words), "{line}");
    }
    // The folder of the socket is root's: as this user the agent would not start.
    assert_eq!((ended.code, ended.err.as_str()), (Some(1), ""), "{ended:?}");
    let mut nobody = Command::new("setpriv");
    nobody.env_clear().env("PATH", "/usr/bin:/bin").args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let sets = ["--set", "listen.admin_socket=off", "--set", "state_file="];
    let ended = run(nobody.arg(&binary).arg("doctor").args(sets).arg("--config").arg(&config));
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
