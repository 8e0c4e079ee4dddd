//! The demo's story on the real kernel, and that nothing outlives it.

use nix::sys::signal::{Signal, kill};
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    process::{Command, Stdio},
};

/// Processes of the demo: the binary of this build with an argument that only the demo uses, or below `/run/netns`.
fn processes() -> BTreeSet<u32> {
    let binary = std::fs::metadata(env!("CARGO_BIN_EXE_storewatch")).unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            std::fs::metadata(format!("/proc/{pid}/exe"))
                .is_ok_and(|exe| (exe.dev(), exe.ino()) == (binary.dev(), binary.ino()))
        })
        .collect()
}

/// Network namespaces with a process in them, and named ones.
fn namespaces() -> BTreeSet<String> {
    let of_processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some(std::fs::read_link(entry.path().join("ns/net")).ok()?.display().to_string())
    });
    let named = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    of_processes.chain(named.map(|entry| entry.path().display().to_string())).collect()
}

/// Where something is mounted.
fn mounts() -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(str::to_owned).collect()
}

struct Before {
    processes: BTreeSet<u32>,
    namespaces: BTreeSet<String>,
    mounts: BTreeSet<String>,
}

impl Before {
    fn look() -> Self {
        Self { processes: processes(), namespaces: namespaces(), mounts: mounts() }
    }

    fn assert_nothing_is_left(&self) {
        // Ended by the kernel: their ends may still be on the way when the demo's own end is seen.
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_secs(10) && !processes().is_subset(&self.processes) {
            std::thread::yield_now();
        }
        let left: Vec<_> = processes().difference(&self.processes).copied().collect();
        assert!(left.is_empty(), "processes of the demo are left: {left:?}");
        let left: Vec<_> = namespaces().difference(&self.namespaces).cloned().collect();
        assert!(left.is_empty(), "namespaces of the demo are left: {left:?}");
        let left: Vec<_> = mounts().difference(&self.mounts).cloned().collect();
        assert!(left.is_empty(), "mounts of the demo are left: {left:?}");
    }
}

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storewatch"));
    command.env("RUST_BACKTRACE", "0").arg("demo").stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// What the story must say, in this order: chapter, path, code, reason.
const STORY: [(&str, &str, &str); 18] = [
    ("── All well", "", ""),
    ("GET /readiness ", " 200 ", "StoreAnswering: 3 of 3"),
    ("GET /readiness/pods/demo/server-0 ", " 200 ", "StoreAnswering"),
    ("GET /readiness/pods/demo/server-1 ", " 200 ", "StoreAnswering"),
    ("── One Store killed", "", ""),
    ("GET /readiness ", " 200 ", "StoreAnswering: 2 of 3"),
    ("── All Stores killed", "", ""),
    ("GET /readiness ", " 503 ", "NoStoreAnswers: 0 of 3"),
    ("GET /readiness/pods/demo/server-0 ", " 503 ", "NoStoreAnswers"),
    ("GET /readiness/pods/demo/server-1 ", " 503 ", "NoStoreAnswers"),
    ("── Stores back", "", ""),
    ("GET /readiness ", " 200 ", "StoreAnswering"),
    ("── One pod cut off", "", ""),
    ("GET /readiness/pods/demo/server-0 ", " 503 ", "PodCannotReachStores"),
    ("GET /readiness/pods/demo/server-1 ", " 200 ", "StoreAnswering"),
    ("── The drop lifted", "", ""),
    ("GET /readiness/pods/demo/server-0 ", " 200 ", "StoreAnswering"),
    ("The end", "", ""),
];

#[test]
#[ignore = "needs root: namespaces and eBPF programs"]
fn the_story_goes_as_told_and_leaves_nothing() {
    let before = Before::look();
    let output = demo().output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut lines = told.lines();
    for (start, code, reason) in STORY {
        assert!(
            lines.any(|line| line.contains(start) && line.contains(code) && line.contains(reason)),
            "the story lacks {start}{code}{reason}, or has it in another place:\n{told}"
        );
    }
    before.assert_nothing_is_left();
}

#[test]
#[ignore = "needs root: namespaces and eBPF programs"]
fn a_signal_in_the_middle_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let before = Before::look();
        let mut child = demo().spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("One Store killed")));
        kill(nix::unistd::Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        before.assert_nothing_is_left();
    }
}
