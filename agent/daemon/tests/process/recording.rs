//! A running agent is recorded while faults happen, and the replay tells what it told.

use crate::daemon::{Daemon, Storage, exchange};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::{
    os::unix::{net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};
use storewatch_hugegraph::testkit::{pd::PdFault, store::StoreFault};

const LIMIT: Duration = Duration::from_secs(30);
const POD: &str = "/readiness/pods/graph/server-0";

/// `storewatch record` beside an agent.
struct Recorder {
    child: Option<Child>,
    file: PathBuf,
}

impl Recorder {
    /// Starts one and waits until it has begun.
    fn start(agent: &str, file: &Path, more: &[&str]) -> Self {
        let recorder = Self::spawn(agent, file, more, |_| {});
        let begun = Instant::now();
        while std::fs::read_to_string(file).unwrap_or_default().lines().count() < 2 {
            assert!(begun.elapsed() < LIMIT, "the recording has not begun");
            std::thread::yield_now();
        }
        recorder
    }

    fn spawn(agent: &str, file: &Path, more: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_storewatch"));
        command.env_clear().args(["record", "--agent", agent, "--out"]).arg(file).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        prepare(&mut command);
        Self { child: Some(command.spawn().unwrap()), file: file.to_owned() }
    }

    fn signal(&self, signal: Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.as_ref().unwrap().id().try_into().unwrap());
        kill(pid, signal).unwrap();
    }

    /// How it ended: exit code and what it said.
    fn ended(mut self) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = self.child.take().unwrap().wait_with_output().unwrap();
        assert!(stdout.is_empty(), "standard output is for answers");
        (status.code(), String::from_utf8(stderr).unwrap())
    }

    fn size(&self) -> u64 {
        std::fs::metadata(&self.file).unwrap().len()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn replay(file: &Path) -> (Option<i32>, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storewatch"));
    let output = command.env_clear().args(["replay", "-o", "json"]).arg(file).output().unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), document, String::from_utf8(output.stderr).unwrap())
}

/// Whom, from what and to what, of every transition in a replay.
fn transitions(document: &Value) -> Vec<(String, String, String)> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let events = document["events"].as_array().unwrap().iter();
    events
        .filter(|event| event["kind"] == "transition")
        .map(|event| {
            let pod = match text(event, "pod") {
                pod if pod.is_empty() => "node".to_owned(),
                pod => format!("{}/{pod}", text(event, "namespace")),
            };
            (pod, text(event, "from"), text(event, "to"))
        })
        .collect()
}

/// The same of what an agent has logged, from byte `from` on.
fn logged(log: &str) -> Vec<(String, String, String)> {
    let field = |line: &str, name: &str| {
        let rest = line.split_once(&format!(" {name}=\""))?.1;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let lines = log.lines().filter(|line| line.contains("kind=\"transition\""));
    lines
        .map(|line| {
            let pod = field(line, "pod").unwrap_or_else(|| "node".to_owned());
            (pod, field(line, "from").unwrap(), field(line, "to").unwrap())
        })
        .collect()
}

fn agent(daemon: &Daemon) -> String {
    format!("unix:{}", daemon.socket().display())
}

#[test]
fn a_replay_tells_what_the_agent_told() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready");
    let file = daemon.folder.path().join("trouble.rec");
    let before = daemon.log().len();
    let recorder = Recorder::start(&agent(&daemon), &file, &[]);

    storage.all_stores(&StoreFault::Down);
    daemon.until(POD, |code, _| code == 503);
    storage.pd.state.send_modify(|state| state.fault = PdFault::Down);
    daemon.until("/readiness", |_, body| body["findings"].as_array().unwrap().iter().any(|code| code == "PdDown"));
    storage.stores[1].fault.send_replace(StoreFault::None);
    daemon.until(POD, |code, _| code == 200);
    storage.all_stores(&StoreFault::Frozen);
    daemon.until(POD, |code, _| code == 503);
    storage.all_stores(&StoreFault::None);
    daemon.until(POD, |code, body| code == 200 && body["reason"] == "StoreAnswering");
    let told = logged(daemon.log().split_at(before).1);
    // What the agent tells is on its way to the file for a moment.
    let begun = Instant::now();
    let back = "{\"from\":\"NoStoreAnswers\",\"to\":\"StoreAnswering\"}";
    while std::fs::read_to_string(&file).unwrap().matches(back).count() < 4 {
        assert!(begun.elapsed() < LIMIT, "node and pod came back twice, and the file does not say so");
        std::thread::yield_now();
    }

    recorder.signal(Signal::SIGINT);
    let (code, said) = recorder.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("observations") && said.contains("trouble.rec") && !said.contains("lost"), "{said}");

    let (code, document, complaint) = replay(&file);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    assert_eq!((&document["complete"], &document["ended_by"]), (&true.into(), &"SIGINT".into()));
    assert_eq!(document["differences"], Value::Array(Vec::new()));
    assert_eq!(document["missing"], Value::Array(Vec::new()));
    let replayed = transitions(&document);
    assert_eq!(replayed.iter().filter(|(pod, ..)| pod == "graph/server-0").count(), 4, "{replayed:?}");
    let of = |list: &[(String, String, String)], whom: &str| -> Vec<_> {
        list.iter().filter(|(pod, ..)| pod == whom).cloned().collect()
    };
    for whom in ["node", "graph/server-0"] {
        assert_eq!(of(&replayed, whom), of(&told, whom));
    }
    let findings: Vec<_> =
        document["events"].as_array().unwrap().iter().filter_map(|event| event["outcome"].as_str()).collect();
    for code in ["StoreDown", "StoreHung", "PdDown"] {
        assert!(findings.contains(&code), "{code}: {findings:?}");
    }
    assert_eq!(document["end"][0]["reason"], "StoreAnswering");
}

#[test]
fn a_recording_ends_with_its_time_and_can_be_anonymized() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready");
    let file = daemon.folder.path().join("trouble.rec");
    std::fs::write(&file, "an older file").unwrap();
    let recorder = Recorder::spawn(&agent(&daemon), &file, &["--for", "1500ms", "--anonymize"], |_| {});
    storage.all_stores(&StoreFault::Down);
    let (code, said) = recorder.ended();
    assert_eq!(code, Some(0), "{said}");
    let text = std::fs::read_to_string(&file).unwrap();
    for secret in ["older", "node-a", "server-0", "uid-0", "graph", "StatefulSet/server"] {
        assert!(!text.contains(secret), "{secret}");
    }
    let (code, document, complaint) = replay(&file);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    assert_eq!((&document["anonymized"], &document["ended_by"]), (&true.into(), &"its time was over".into()));
    assert_eq!(document["differences"], Value::Array(Vec::new()));
    assert!(transitions(&document).iter().any(|(_, _, to)| to == "NoStoreAnswers"), "{:?}", document["events"]);
    // The agent's own numbers go on as before.
    assert!(exchange(UnixStream::connect(daemon.socket()).unwrap(), "/v1/snapshot").is_some());
}

#[test]
fn an_agent_that_ends_or_is_killed_leaves_a_good_file_and_an_error() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let storage = Storage::start();
        let mut daemon = Daemon::start(&storage);
        daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready");
        let file = daemon.folder.path().join("trouble.rec");
        let recorder = Recorder::start(&agent(&daemon), &file, &[]);
        daemon.signal(signal);
        let (code, said) = recorder.ended();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("has ended; what came before is in") && said.lines().count() == 1, "{said}");
        daemon.ended();
        let (code, document, complaint) = replay(&file);
        assert_eq!((code, complaint.as_str(), &document["ended_by"]), (Some(0), "", &"the agent ended".into()));
    }
}

#[test]
fn a_full_disk_costs_what_comes_after_and_nothing_before() {
    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until(POD, |code, body| code == 200 && body["status"] == "Ready");
    let file = daemon.folder.path().join("trouble.rec");
    let probe = Recorder::start(&agent(&daemon), &file, &[]);
    let start = probe.size();
    drop(probe);
    let limit = start + 30_000;
    let recorder = Recorder::spawn(&agent(&daemon), &file, &[], |command| {
        // SAFETY: between fork and exec only setrlimit and signal are called, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                let size = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                // Without this the kernel would end the process instead of failing the write.
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                if libc::setrlimit(libc::RLIMIT_FSIZE, &size) == 0 {
                    Ok(())
                } else {
                    Err(std::io::Error::last_os_error())
                }
            });
        }
    });
    let (code, said) = recorder.ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot write") && said.contains("what came before is in"), "{said}");
    assert!(std::fs::metadata(&file).unwrap().len() <= limit);
    let (code, document, complaint) = replay(&file);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    assert!(document["observations"].as_u64() > Some(10), "{document}");

    let (code, said) = Recorder::spawn(&agent(&daemon), Path::new("/dev/full"), &[], |_| {}).ended();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("No space left on device") && said.contains("breaks off"), "{said}");
}

#[test]
fn what_cannot_begin_is_exit_code_2_and_leaves_an_older_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trouble.rec");
    std::fs::write(&file, "an older file").unwrap();
    let nobody = format!("unix:{}", folder.path().join("none.sock").display());
    let (code, said) = Recorder::spawn(&nobody, &file, &[], |_| {}).ended();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("does the agent run?"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "an older file");

    let storage = Storage::start();
    let daemon = Daemon::start(&storage);
    daemon.until("/livez", |code, _| code == 200);
    let (code, said) = Recorder::spawn(&agent(&daemon), Path::new("/nowhere/trouble.rec"), &[], |_| {}).ended();
    assert_eq!(code, Some(2), "{said}");
    let probe = format!("http://127.0.0.1:{}", daemon.probe);
    let (code, said) = Recorder::spawn(&probe, &file, &[], |_| {}).ended();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is that its probe port"), "{said}");

    let (code, _, complaint) = replay(&file);
    assert_eq!(code, Some(2));
    assert!(complaint.ends_with("trouble.rec: line 1: this is no recording of storewatch\n"), "{complaint}");
    let (code, _, complaint) = replay(&folder.path().join("none.rec"));
    assert_eq!(code, Some(2));
    assert!(complaint.contains("cannot read") && complaint.lines().count() == 1, "{complaint}");
}

/// Process of the binary under test whose first argument is `run`.
fn demo_agent() -> Option<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut running = pids.filter(|pid| {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let config: Vec<_> = line.split(|byte| *byte == 0).collect();
        exe == Path::new(env!("CARGO_BIN_EXE_storewatch")).canonicalize().unwrap()
            && config.get(1) == Some(&&b"run"[..])
            && Path::new(&format!("/proc/{pid}/root/run/netns/admin.sock")).exists()
    });
    running.next()
}

#[test]
#[ignore = "needs root: namespaces and eBPF programs"]
fn the_demo_is_recorded_and_its_replay_tells_its_story() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.rec");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_storewatch"));
    let demo = demo.arg("demo").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let pid = loop {
        if let Some(pid) = demo_agent() {
            break pid;
        }
        assert!(begun.elapsed() < LIMIT, "the demo's agent does not run");
        std::thread::yield_now();
    };
    let recorder = Recorder::start(&format!("unix:/proc/{pid}/root/run/netns/admin.sock"), &file, &[]);
    let output = demo.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (code, said) = recorder.ended();
    assert_eq!(code, Some(1), "the demo takes its agent with it: {said}");

    let (code, document, complaint) = replay(&file);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    assert_eq!(document["differences"], Value::Array(Vec::new()));
    let told = transitions(&document);
    let of = |whom: &str| -> Vec<&str> {
        told.iter().filter(|(pod, ..)| pod == whom).map(|(_, _, to)| to.as_str()).collect()
    };
    let ends = |whom: &str, story: &[&str]| assert!(of(whom).ends_with(story), "{whom}: {told:?}");
    ends(
        "demo/server-0",
        &[
            "NoStoreAnswers",
            "StoreAnswering",
            "PodCannotReachStores",
            "StoreAnswering",
            "StaleTransport",
            "StoreAnswering",
        ],
    );
    ends("demo/server-1", &["NoStoreAnswers", "StoreAnswering"]);
    ends("node", &["NoStoreAnswers", "StoreAnswering"]);
}
