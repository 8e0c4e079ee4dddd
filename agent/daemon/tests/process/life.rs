//! Start, signals, restart, and what is in the way of a start.

use crate::daemon::{Daemon, ONE_POD, Storage, configure, exchange, free_port, spawn, spawn_with};
use nix::sys::signal::Signal;
use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream,
    },
};

#[test]
fn it_starts_answers_everywhere_drains_and_leaves_nothing() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    daemon.until("/readyz", |code, _| code == 200);
    daemon.until("/readiness", |code, body| code == 200 && body["status"] == "Ready" && body["active_stores"] == 3);
    assert_eq!(daemon.get("/livez").unwrap().0, 200);

    let mode = std::fs::metadata(daemon.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the admin socket is for root alone");
    let (code, body) = exchange(UnixStream::connect(daemon.socket()).unwrap(), "/v1/snapshot").unwrap();
    assert_eq!(code, 200);
    let snapshot: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(snapshot["node"], "node-a");
    assert_eq!(snapshot["stores"].as_array().unwrap().len(), 3);
    assert_eq!(snapshot["pods"][0]["name"], "server-0");

    daemon.signal(Signal::SIGTERM);
    daemon.until("/readyz", |code, body| code == 503 && body["reason"] == "Draining");
    assert_eq!(daemon.get("/readiness").unwrap().0, 200, "a verdict holds to the end");
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    assert!(!daemon.socket().exists(), "its socket file outlived it");
    for bad in ["panicked", "not everything ended in time", "\u{1b}["] {
        assert!(!daemon.log().contains(bad), "{bad:?} in the log:\n{}", daemon.log());
    }
}

#[test]
fn a_second_signal_aborts() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    daemon.until("/livez", |code, _| code == 200);
    // A request that never ends keeps the draining open.
    let mut stuck = TcpStream::connect(("127.0.0.1", daemon.probe)).unwrap();
    stuck.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nX-Half").unwrap();
    daemon.signal(Signal::SIGTERM);
    daemon.until("/readyz", |code, body| code == 503 && body["reason"] == "Draining");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().code(), Some(1), "{}", daemon.log());
    assert!(daemon.log().contains("second signal"), "{}", daemon.log());
}

#[test]
fn a_port_in_use_is_one_line_and_exit_code_1() {
    let storage = Storage::start();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = configure(folder.path(), &storage, taken.local_addr().unwrap().port(), "");
    let status = spawn(&config).wait().unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("listen.probe") && log.contains("in use"), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[test]
fn a_second_agent_on_the_same_socket_is_refused_and_a_dead_socket_is_replaced() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    daemon.until("/livez", |code, _| code == 200);

    let second = tempfile::tempdir().unwrap();
    let config = configure(second.path(), &storage, free_port(), "");
    let text = std::fs::read_to_string(&config).unwrap();
    let own = second.path().join("admin.sock").display().to_string();
    std::fs::write(&config, text.replace(&own, &daemon.socket().display().to_string())).unwrap();
    let status = spawn(&config).wait().unwrap();
    let log = std::fs::read_to_string(second.path().join("log")).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("listen.admin_socket"), "{log}");
    assert_eq!(daemon.get("/livez").unwrap().0, 200, "the first one goes on");

    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    assert!(daemon.socket().exists());
    daemon.start_again();
    daemon.until("/readiness", |code, body| code == 200 && body["status"] == "Ready");
    let (code, _) = exchange(UnixStream::connect(daemon.socket()).unwrap(), "/v1/pods").unwrap();
    assert_eq!(code, 200);
}

#[test]
fn a_second_agent_on_the_same_state_file_is_refused_until_the_first_has_ended() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    daemon.until("/livez", |code, _| code == 200);

    let second = tempfile::tempdir().unwrap();
    let config = configure(second.path(), &storage, free_port(), "");
    let own = daemon.folder.path().join("state.json");
    let set = format!("state_file={}", own.display());
    let status = spawn_with(&config, &[&set]).wait().unwrap();
    let log = std::fs::read_to_string(second.path().join("log")).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains(&own.display().to_string()) && log.contains("another storewatch"), "{log}");
    assert_eq!(daemon.get("/livez").unwrap().0, 200, "the first one goes on");

    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    daemon.start_again();
    daemon.until("/livez", |code, _| code == 200);
}

#[test]
fn what_is_no_file_is_neither_replaced_nor_waited_for() {
    let storage = Storage::start();
    for suffix in ["", ".lock"] {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("pipe");
        let pipe = folder.path().join(format!("pipe{suffix}"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut daemon = Daemon::start_with(&storage, ONE_POD, &[&format!("state_file={}", state.display())]);
        daemon.until("/readiness/pods/graph/server-0", |code, body| code == 200 && body["status"] == "Ready");
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
        assert!(daemon.log().contains("state_file"), "nothing is said of it:\n{}", daemon.log());
        let kind = std::fs::symlink_metadata(&pipe).unwrap().file_type();
        assert!(kind.is_fifo(), "the pipe was replaced: {kind:?}");
    }
}

#[test]
fn a_restart_is_no_evidence() {
    let storage = Storage::start();
    let mut daemon = Daemon::start(&storage);
    daemon.until("/readiness/pods/graph/server-0", |code, body| code == 200 && body["status"] == "Ready");
    for _ in 0..3 {
        daemon.signal(Signal::SIGKILL);
        daemon.ended();
        daemon.start_again();
        // From the first answer on, at no time does the pod leave.
        daemon.until("/readiness/pods/graph/server-0", |code, body| {
            assert_eq!(code, 200, "a restart took the pod out: {body}");
            body["status"] == "Ready"
        });
    }
}

#[test]
fn the_limit_of_open_files_is_raised_as_far_as_it_goes_and_one_that_is_low_is_told() {
    let storage = Storage::start();
    let daemon = Daemon::start_after(&storage, "ulimit -Sn 64");
    daemon.until("/readiness", |code, body| code == 200 && body["status"] == "Ready");
    let held: Vec<_> = (0..100).map(|_| TcpStream::connect(("127.0.0.1", daemon.probe)).unwrap()).collect();
    assert_eq!(daemon.get("/readiness").map(|(code, _)| code), Some(200), "{} connections are held", held.len());
    assert!(!daemon.log().contains("files may be open"), "{}", daemon.log());

    let daemon = Daemon::start_after(&storage, "ulimit -n 384");
    daemon.until("/readiness", |code, body| code == 200 && body["status"] == "Ready");
    let held: Vec<_> = (0..400).map(|_| TcpStream::connect(("127.0.0.1", daemon.probe)).unwrap()).collect();
    assert_eq!(daemon.get("/readiness").map(|(code, _)| code), Some(200), "{} connections are held", held.len());
    assert!(!daemon.log().contains("cannot accept"), "{}", daemon.log());
    assert!(daemon.log().contains("few files may be open"), "{}", daemon.log());
}
