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
    everyone()
        .into_iter()
        .filter(|pid| {
            std::fs::metadata(format!("/proc/{pid}/exe"))
                .is_ok_and(|exe| (exe.dev(), exe.ino()) == (binary.dev(), binary.ino()))
        })
        .collect()
}

/// Every process of the machine.
fn everyone() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Mounts of the demo's own folder. All its files lie in that one; others on this machine may use the same path, but as a
/// part of another file system.
fn mounts() -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_the_demo = |line: &&str| line.split(' ').skip(3).take(2).eq(["/", "/run/netns"]);
    table.lines().filter(of_the_demo).count()
}

struct Before {
    processes: BTreeSet<u32>,
    mounts: usize,
}

impl Before {
    fn look() -> Self {
        Self { processes: processes(), mounts: mounts() }
    }

    /// A namespace lives only through a process in it or a mount of it, so these two say it all.
    fn assert_nothing_is_left(&self) {
        // Ended by the kernel: their ends may still be on the way when the demo's own end is seen.
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_secs(10) && !processes().is_subset(&self.processes) {
            std::thread::yield_now();
        }
        let left: Vec<_> = processes().difference(&self.processes).copied().collect();
        assert!(left.is_empty(), "processes of the demo are left: {left:?}");
        assert!(mounts() <= self.mounts, "a mount of the demo is left");
    }
}

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storewatch"));
    command.env("RUST_BACKTRACE", "0").arg("demo").stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// What the story must say, in this order: chapter, path, code, reason.
const STORY: [(&str, &str, &str); 25] = [
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
    ("── A Store moves", "", ""),
    ("GET /readiness/pods/demo/server-0 ", " 503 ", "StaleTransport"),
    ("GET /readiness/pods/demo/server-1 ", " 200 ", "StoreAnswering"),
    ("storewatch explain demo/server-0", "", ""),
    ("Now", "", ""),
    ("── server-0 restarted", "", ""),
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

#[test]
#[ignore = "needs root: namespaces and eBPF programs"]
fn what_is_killed_in_a_demo_that_is_kept_does_not_end_it() {
    let before = Before::look();
    let mut child = demo().arg("--keep").spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pids: Vec<i32> = ["# store-0", "# pd"]
        .into_iter()
        .map(|part| {
            let line = lines.find(|line| line.contains("kill -KILL") && line.ends_with(part)).unwrap();
            line.split_whitespace().nth(2).unwrap().parse().unwrap()
        })
        .collect();
    for (pid, name) in pids.into_iter().zip(["store-0", "pd"]) {
        kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        assert!(lines.any(|line| line.trim_start().starts_with(&format!("{name} ended (signal: 9"))), "{name}");
    }
    kill(nix::unistd::Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert!(lines.any(|line| line.starts_with("The end")), "the demo fell with what was killed");
    assert!(child.wait().unwrap().success());
    before.assert_nothing_is_left();
}
