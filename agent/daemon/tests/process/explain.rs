//! `explain` asks a real agent.

use crate::daemon::{Daemon, Ended, ONE_POD, Storage, run};
use std::process::Command;
use storewatch_hugegraph::testkit::{pd::PdFault, store::StoreFault};

const POD: &str = "graph/server-0";
const READINESS: &str = "/readiness/pods/graph/server-0";

/// Waits until the last ping of each Store was answered, or was not.
fn answering(daemon: &Daemon, wanted: bool) {
    daemon.until_admin("/v1/stores", |stores| {
        let stores = stores.as_array().unwrap();
        stores.len() == 3 && stores.iter().all(|store| store["answering"] == wanted)
    });
}

fn assert_lines(ended: &Ended, wanted: &[&str]) {
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    for line in wanted {
        assert!(ended.out.lines().any(|other| other.contains(line)), "{line:?} is not in\n{}", ended.out);
    }
}

#[test]
fn a_pod_that_is_well_then_one_without_a_store_then_without_pd() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    answering(&daemon, true);
    let ended = daemon.command(&["explain", POD]);
    assert!(ended.out.starts_with("graph/server-0    Ready    StoreAnswering    since "), "{ended:?}");
    // The kernel part is off in this test, which is why nothing is seen of the pod itself.
    let unseen = "this pod's own connections are not seen: switched off by configuration (kernel.mode: off)";
    assert_lines(
        &ended,
        &["3 of 3 stores answer this node: the store at 127.0.0.1:", unseen, "nothing speaks against this pod"],
    );
    assert!(!ended.out.contains('\u{1b}'), "a pipe gets no colours");
    let all = daemon.command(&["explain"]);
    let expected = "\
the only pod is well: storewatch explain NAMESPACE/POD says why
but not all is seen: switched off by configuration (kernel.mode: off)
but not all is seen: graph/server-0: its cgroup and network namespace are shared with others; give it a cgroup of its own
";
    assert_eq!(all.out, expected);
    for command in ["connections", "events"] {
        let ended = daemon.command(&[command, "--pod", "graph/server-9"]);
        assert!(
            ended.code == Some(2) && ended.err.contains("watches no pod graph/server-9; it watches graph/server-0"),
            "{ended:?}"
        );
    }

    storage.all_stores(&StoreFault::Down);
    answering(&daemon, false);
    daemon.until(READINESS, |code, _| code == 503);
    let ended = daemon.command(&["explain", POD]);
    assert!(ended.out.starts_with("graph/server-0    NotReady    NoStoreAnswers    since "), "{ended:?}");
    let lines = [
        "  Why       no store answers this node, so this pod cannot work",
        "0 of 3 stores answer this node: the store at 127.0.0.1:",
        " refused (",
        "  Until     a store answers this node",
        "  Now       bring a store back: look at the processes behind 127.0.0.1:",
        "Restarting this pod does not help",
        "  Prevent   stores on different nodes",
    ];
    assert_lines(&ended, &lines);
    let all = daemon.command(&["explain"]);
    assert!(all.out.starts_with("graph/server-0    NotReady    NoStoreAnswers    since "), "{all:?}");

    storage.all_stores(&StoreFault::None);
    storage.pd.state.send_modify(|state| state.fault = PdFault::Down);
    let body = |body: &serde_json::Value| body["findings"].as_array().unwrap().iter().any(|code| code == "PdDown");
    daemon.until(READINESS, |code, answer| code == 200 && answer["pd_reachable"] == false && body(answer));
    let ended = daemon.command(&["explain", POD]);
    let lines = [
        "what follows has not taken this pod out",
        "  PdDown at PD    warning    since ",
        "  Why       no PD peer's process answers: ",
        "connection refused",
    ];
    assert_lines(&ended, &lines);
}

#[test]
fn a_name_that_does_not_resolve_is_not_called_a_dead_pd() {
    let storage = Storage::start();
    let stores = format!("hugegraph.stores=['{}']", storage.stores[0].address);
    let sets = ["hugegraph.pd_peers=['no-such-host.invalid:8686']", &stores];
    let daemon = Daemon::start_with(&storage, ONE_POD, &sets);
    let told = |body: &serde_json::Value| body["findings"].as_array().unwrap().iter().any(|code| code == "PdDown");
    daemon.until(READINESS, |code, body| code == 200 && body["status"] == "Ready" && told(body));
    let ended = daemon.command(&["explain", POD]);
    let lines = [
        "  Why       no PD peer could be asked: DNS gives no address for their names; whether PD runs is not known: ",
        "no-such-host.invalid:8686: ",
        "  Now       getent hosts no-such-host.invalid on this node. If DNS itself is well, the name in pd_peers is wrong",
    ];
    assert_lines(&ended, &lines);
}

#[test]
fn json_is_the_agents_own_and_an_unknown_pod_names_those_that_exist() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until(READINESS, |code, body| code == 200 && body["status"] == "Ready");
    let ended = daemon.command(&["explain", POD, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&json["reason"], &json["others"]), (&"StoreAnswering".into(), &serde_json::json!([])));
    assert_eq!(json["stores"].as_array().unwrap().len(), 3);
    assert_eq!(json["node"]["active_stores"], 3);

    for wrong in ["graph/server-9", "other/server-0"] {
        let ended = daemon.command(&["explain", wrong]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.err.contains(&format!("watches no pod {wrong}; it watches graph/server-0")), "{ended:?}");
    }
    let ended = daemon.command(&["explain", "server-0"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("write NAMESPACE/POD"), "{ended:?}");
    let probe = format!("http://127.0.0.1:{}", daemon.probe);
    let ended =
        run(Command::new(env!("CARGO_BIN_EXE_storewatch")).env_clear().args(["explain", POD, "--agent", &probe]));
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("is that its probe port, and not the admin port?"), "{ended:?}");
}

#[test]
fn colours_come_with_a_terminal_and_go_with_no_color() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until(READINESS, |code, body| code == 200 && body["status"] == "Ready");
    let binary = env!("CARGO_BIN_EXE_storewatch");
    let line = format!("'{binary}' explain {POD} --agent 'unix:{}'", daemon.socket().display());
    let on_a_terminal = |variables: &[(&str, &str)]| {
        let mut script = Command::new("script");
        script.env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied());
        run(script.args(["-qec", &line, "/dev/null"]))
    };
    let coloured = on_a_terminal(&[]);
    assert!(coloured.code == Some(0) && coloured.out.contains("\u{1b}[32mReady\u{1b}[0m"), "{coloured:?}");
    for variables in [[("NO_COLOR", "1")], [("TERM", "dumb")]] {
        let plain = on_a_terminal(&variables);
        assert!(plain.code == Some(0) && !plain.out.contains('\u{1b}') && plain.out.contains("Ready"), "{plain:?}");
    }
}
