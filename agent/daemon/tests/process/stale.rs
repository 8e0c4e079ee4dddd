//! A stale transport on the real kernel: found, explained with what is on the process's command line, and gone with the
//! process although its container stays.

use crate::daemon::{Daemon, FIRST_STORE, Storage, free_port};
use serde_json::Value;
use std::{
    io::Write as _,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use storewatch::netns::cgroup::Cgroup;
use storewatch_hugegraph::testkit::{LocalStore, store::StoreFault};

const READINESS: &str = "/readiness/pods/graph/server-0";

/// A process that dials what it is told, in a cgroup, with a command line of its own.
struct Dialer(Child);

impl Dialer {
    fn start(cgroup: &Cgroup, arguments: &[&str]) -> Self {
        let mut command = Command::new("bash");
        command.arg0("/opt/java/bin/java").args(["-s", "--"]).args(arguments);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Before it makes its first socket, which belongs to the cgroup of that moment.
        write!(cgroup.open_procs().unwrap(), "{}", child.id()).unwrap();
        Self(child)
    }

    fn dial(&mut self, to: SocketAddr) {
        let line = format!("exec 3<>/dev/tcp/{}/{}; exec 3>&-\n", to.ip(), to.port());
        self.0.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn hold(&mut self, to: SocketAddr) {
        let line = format!("exec 4<>/dev/tcp/{}/{}\n", to.ip(), to.port());
        self.0.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Dials again and again until the pod's answer is as wanted.
fn until(daemon: &Daemon, dialer: &mut Dialer, to: SocketAddr, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        dialer.dial(to);
        let next = Instant::now() + Duration::from_millis(200);
        let (_, body) = daemon.get(READINESS).unwrap();
        if wanted(&body) {
            return body;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not as wanted: {body}\n{}", daemon.log());
        while Instant::now() < next {
            std::thread::yield_now();
        }
    }
}

#[test]
#[ignore = "needs root: eBPF programs and a cgroup"]
fn found_explained_and_gone_with_its_process() {
    let storage = Storage::start();
    let port = free_port();
    let at = |last: u8| SocketAddr::from(([127, 0, 7, last], port));
    let _inside = storage.enter();
    let (former, present) = (at(1), at(2));
    let first = LocalStore::start_at(former, None).unwrap();
    storage.pd.state.send_modify(|state| state.stores[0].address = former.to_string());
    let uid = "6d0f0c3e-7b0e-4c86-9a55-0d5d3c0a4a11";
    let cgroup = Cgroup::container(uid, &"a5".repeat(32)).unwrap();
    let pods = format!(
        "- {{namespace: graph, name: server-0, uid: {uid}, workload: StatefulSet/server, host_network: true, cgroup: '{}'}}\n",
        cgroup.path().display()
    );
    let sets = [
        "kernel.mode=required",
        "kernel.inventory_interval=1s",
        "verdict.window=60s",
        "verdict.stale_suspect_after=1s",
        "verdict.stale_confirm_after=3s",
        "verdict.min_other_ready=0",
    ];
    let daemon = Daemon::start_with(&storage, &pods, &sets);
    daemon.until("/readiness", |code, body| {
        code == 200 && body["active_stores"] == 3 && body["unanswered_stores"] == serde_json::json!([])
    });

    let mut java = Dialer::start(&cgroup, &["-Xmx1g", "-Dsecret=hunter2", "org.Main"]);
    java.dial(former);
    let _second = LocalStore::start_at(present, None).unwrap();
    storage.pd.state.send_modify(|state| state.stores[0].address = present.to_string());
    first.fault.send_replace(StoreFault::Down);
    until(&daemon, &mut java, former, |body| body["reason"] == "StaleTransport");

    // Its command line may be read a moment later than its dials.
    let begun = Instant::now();
    let text = loop {
        let ended = daemon.command(&["explain", "graph/server-0"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        if ended.out.contains("on its command line") {
            break ended.out;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", ended.out);
    };
    let name = format!("store {FIRST_STORE}");
    for words in [
        "graph/server-0    NotReady    StaleTransport (dialing)    since ".to_owned(),
        format!(" went to {former}, which stopped being {name} "),
        ", 0 answers, the last ".to_owned(),
        format!("{name} answers this node at its present address {present} in "),
        "the guard is off (verdict.min_other_ready: 0)".to_owned(),
        "  Now       kubectl delete pod -n graph server-0\n".to_owned(),
        "  Prevent   -Dsun.net.inetaddr.ttl=30 is not on its command line; under a security manager Java 11 caches"
            .to_owned(),
    ] {
        assert!(text.contains(&words), "{words:?} is not in\n{text}");
    }
    let json = daemon.command(&["explain", "graph/server-0", "-o", "json"]).out;
    assert!(!json.contains("hunter2") && !json.contains("org.Main"), "a command line has left its place: {json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let finding =
        json["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == "StaleTransport").unwrap();
    assert_eq!(finding["target"], FIRST_STORE.to_string());
    assert_eq!(finding["facts"]["present_address"], present.to_string());
    assert_eq!(json["processes"][0]["command"]["java"], true);

    // The same container, another process: what the first did is not held against it. The window is a minute.
    java.end();
    let begun = Instant::now();
    daemon.until(READINESS, |code, body| code == 200 && body["findings"] == serde_json::json!([]));
    assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
    let mut java = Dialer::start(&cgroup, &["-Dsun.net.inetaddr.ttl=30", "org.Main"]);
    java.hold(present);
    let begun = Instant::now();
    let json = loop {
        let json: Value =
            serde_json::from_str(&daemon.command(&["explain", "graph/server-0", "-o", "json"]).out).unwrap();
        if json["processes"][0]["command"]["dns_ttl"] == 30 {
            break json;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{json}");
    };
    assert_eq!((&json["status"], &json["processes"].as_array().unwrap().len()), (&"Ready".into(), &1), "{json}");
    java.end();
}
