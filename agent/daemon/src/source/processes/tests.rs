use super::*;
use crate::{
    observe::{self, ObservationReceiver},
    requests,
};
use std::{
    io::Write as _,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};
use storewatch_core::{process::FlagValue, request::Request};
use tokio::{task::JoinSet, time::timeout};

const LIMIT: Duration = Duration::from_secs(20);

/// A process that lives until its standard input is closed, under another name and with further arguments.
fn process(name: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("bash");
    command.arg0(name).args(["-s", "--"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

struct Stage {
    requests: requests::RequestSender,
    observations: ObservationReceiver,
    /// All that was told and not asked for yet.
    told: Vec<ProcessReport>,
    _task: JoinSet<anyhow::Result<()>>,
}

impl Stage {
    fn open() -> Self {
        let (requests, _, _) = requests::channel(0);
        let (sender, observations) = observe::channel();
        let mut task = JoinSet::new();
        task.spawn(Processes::new(requests.process_requests()).run(sender));
        Self { requests, observations, told: Vec::new(), _task: task }
    }

    async fn until(&mut self, wanted: impl Fn(&ProcessReport) -> bool) -> ProcessReport {
        let report = async {
            loop {
                if let Some(at) = self.told.iter().position(&wanted) {
                    return self.told.remove(at);
                }
                let Some(Observation::Processes(reports)) = self.observations.recv().await else { panic!("it ended") };
                self.told.extend(reports);
            }
        };
        timeout(LIMIT, report).await.unwrap()
    }

    async fn command(&mut self, pid: u32, wanted: impl Fn(&CommandLine) -> bool) -> CommandLine {
        let line = |report: &ProcessReport| match report.state {
            ProcessState::Alive { command, .. } if report.pid == pid => command,
            _ => None,
        };
        let report = self.until(|report| line(report).is_some_and(|command| wanted(&command))).await;
        line(&report).unwrap()
    }
}

#[tokio::test]
async fn a_real_process_carries_the_flag_or_does_not_and_ends() {
    let mut stage = Stage::open();
    let mut with = process("/opt/java/bin/java", &["-Dsun.net.inetaddr.ttl=30", "-Dpassword=secret", "org.Main"]);
    let mut without = process("java", &["-Xmx1g", "org.Main", "-Dsun.net.inetaddr.ttl=30"]);
    let mut other = process("python3", &["-Dsun.net.inetaddr.ttl=30"]);
    let pids = [with.id(), without.id(), other.id()];
    stage.requests.route(Request::Processes(pids.to_vec()));

    let line = stage.command(pids[0], |_| true).await;
    assert_eq!(
        line,
        CommandLine { java: true, whole: true, dns_ttl: Some(FlagValue::Number(30)), ..CommandLine::default() }
    );
    let line = stage.command(pids[1], |_| true).await;
    assert_eq!((line.java, line.dns_ttl), (true, None), "what follows the main class sets nothing");
    let line = stage.command(pids[2], |_| true).await;
    assert!(!line.java);

    let before = clock::now();
    drop(with.stdin.take());
    let ended = stage.until(|report| report.pid == pids[0] && report.state == ProcessState::Ended).await;
    assert!(ended.at >= before);
    with.wait().unwrap();
    for child in [&mut without, &mut other] {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

#[tokio::test]
async fn a_script_that_becomes_java_is_read_again() {
    let mut stage = Stage::open();
    let mut child = process("server.sh", &[]);
    let pid = child.id();
    stage.requests.route(Request::Processes(vec![pid]));
    assert!(!stage.command(pid, |_| true).await.java);
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(b"exec -a java bash -s -- -Dnetworkaddress.cache.ttl=5 org.Main\n").unwrap();
    let line = stage.command(pid, |line| line.java).await;
    assert_eq!((line.dns_ttl, line.cache_ttl), (None, Some(FlagValue::Number(5))));
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[tokio::test]
async fn what_is_no_longer_asked_for_is_not_told() {
    let mut stage = Stage::open();
    let mut child = process("java", &[]);
    stage.requests.route(Request::Processes(vec![child.id()]));
    stage.command(child.id(), |_| true).await;
    stage.told.clear();
    let pid = u32::MAX;
    stage.requests.route(Request::Processes(vec![pid]));
    drop(child.stdin.take());
    child.wait().unwrap();
    // Three looks later there is still no word about it.
    for _ in 0..3 {
        let report = stage.until(|_| true).await;
        assert_eq!((report.pid, report.state), (pid, ProcessState::Ended));
    }
}
