use super::*;
use crate::runtime::tasks::Tasks;
use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
};
use storewatch_core::id::{CgroupId, ClusterId, NetnsId};

/// A machine made of plain directories, and a pod list on it.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        machine.process("self", 1, "/agent", "node");
        machine.directory("cgroup/agent");
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn directory(&self, path: &str) -> u64 {
        fs::create_dir_all(self.path(path)).unwrap();
        fs::metadata(self.path(path)).unwrap().ino()
    }

    /// A process with its start time, its cgroup and its network namespace (a file below `netns`).
    fn process(&self, pid: &str, start: u64, cgroup: &str, netns: &str) {
        self.directory(&format!("proc/{pid}/ns"));
        let stat = format!("{pid} (java) S 1 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 {start} 1 1\n");
        fs::write(self.path(&format!("proc/{pid}/stat")), stat).unwrap();
        fs::write(self.path(&format!("proc/{pid}/cgroup")), format!("0::{cgroup}\n")).unwrap();
        self.netns(netns);
        let link = self.path(&format!("proc/{pid}/ns/net"));
        let _ = fs::remove_file(&link);
        symlink(self.path(&format!("netns/{netns}")), link).unwrap();
    }

    fn netns(&self, name: &str) -> NetnsId {
        self.directory("netns");
        let path = self.path(&format!("netns/{name}"));
        if !path.exists() {
            fs::write(&path, "").unwrap();
        }
        NetnsId(u32::try_from(fs::metadata(path).unwrap().ino()).unwrap())
    }

    fn list(&self, text: &str) {
        // Written beside and renamed, as careful writers do.
        fs::write(self.path("pods.new"), text.replace("ROOT", &self.root.path().display().to_string())).unwrap();
        fs::rename(self.path("pods.new"), self.path("pods.yaml")).unwrap();
    }

    fn reader(&self) -> Reader {
        let host = Host::imitated(self.root.path());
        Reader::new(self.path("pods.yaml"), vec!["default".into()], host)
    }
}

fn pods(reading: &Reading) -> &[Arc<PodRecord>] {
    reading.pods.as_deref().unwrap()
}

const ONE: &str = "- {namespace: graph, name: server-0, uid: u0, ips: [10.0.0.1], workload: StatefulSet/server, ";

#[test]
fn a_pod_is_located_by_its_cgroup_and_followed_through_restarts() {
    let machine = Machine::new();
    let first = machine.directory("cgroup/kubepods/pod1/first");
    machine.list(&format!("{ONE}cgroup: /kubepods/pod1}}\n"));
    let mut reader = machine.reader();
    let reading = reader.read();
    assert_eq!(&*reading.detail, "");
    assert_eq!(pods(&reading)[0].cgroups, [CgroupId(first)]);
    assert_eq!(pods(&reading)[0].pod.to_string(), "graph/server-0");
    assert_eq!(pods(&reading)[0].workload.as_ref().unwrap().name.as_ref(), "server");
    assert_eq!(reader.read(), reading);

    fs::create_dir(machine.path("cgroup/kubepods/pod1/second")).unwrap();
    fs::remove_dir(machine.path("cgroup/kubepods/pod1/first")).unwrap();
    let second = fs::metadata(machine.path("cgroup/kubepods/pod1/second")).unwrap().ino();
    assert_eq!(pods(&reader.read())[0].cgroups, [CgroupId(second)]);

    fs::remove_dir_all(machine.path("cgroup/kubepods/pod1")).unwrap();
    let reading = reader.read();
    assert_eq!(&*reading.detail, "graph/server-0: cgroup /kubepods/pod1 is gone");
    assert_eq!(pods(&reading)[0].cgroups, []);

    // The same by its absolute path.
    machine.directory("cgroup/kubepods/pod1/third");
    machine.list(&format!("{ONE}cgroup: ROOT/cgroup/kubepods/pod1}}\n"));
    assert_eq!(&*reader.read().detail, "");
}

#[test]
fn a_pod_is_located_by_its_network_namespace() {
    let machine = Machine::new();
    let id = machine.netns("pod");
    machine.list(&format!("{ONE}netns: ROOT/netns/pod}}\n"));
    let mut reader = machine.reader();
    let reading = reader.read();
    assert_eq!(&*reading.detail, "");
    assert_eq!(pods(&reading)[0].netns, Some(id));
    assert!(!pods(&reading)[0].host_network);

    fs::remove_file(machine.path("netns/pod")).unwrap();
    let place = machine.path("netns/pod").display().to_string();
    assert_eq!(&*reader.read().detail, format!("graph/server-0: netns {place} is gone"));

    // The node's own namespace is everybody's.
    machine.list(&format!("{ONE}netns: ROOT/netns/node}}\n"));
    let reading = reader.read();
    assert!(pods(&reading)[0].host_network);
    assert_eq!(pods(&reading)[0].netns, None);
    assert!(
        reading.detail.contains("graph/server-0: its cgroup and network namespace are shared"),
        "{}",
        reading.detail
    );
}

#[test]
fn a_pod_is_located_by_its_process_and_a_reused_pid_is_noticed() {
    let machine = Machine::new();
    let cgroup = machine.directory("cgroup/user/java");
    machine.process("77", 5000, "/user/java", "pod");
    machine.list(&format!("{ONE}pid: 77}}\n"));
    let mut reader = machine.reader();
    let reading = reader.read();
    assert_eq!(&*reading.detail, "");
    assert_eq!(pods(&reading)[0].cgroups, [CgroupId(cgroup)]);
    assert_eq!(pods(&reading)[0].netns, Some(machine.netns("pod")));
    assert_eq!(pods(&reading)[0].pids, [77]);

    machine.process("77", 9000, "/user/java", "pod");
    let reading = reader.read();
    assert_eq!(&*reading.detail, "graph/server-0: pid 77 is another process by now; write the list anew");
    assert_eq!((&pods(&reading)[0].cgroups, &pods(&reading)[0].pids), (&vec![], &vec![]));

    fs::remove_dir_all(machine.path("proc/77")).unwrap();
    assert_eq!(&*reader.read().detail, "graph/server-0: pid 77 is gone");

    // A new list says that the process is meant.
    machine.process("77", 9000, "/user/java", "pod");
    machine.list(&format!("{ONE}pid: 77, labels: {{a: b}}}}\n"));
    assert_eq!(&*reader.read().detail, "");
}

#[test]
fn what_pods_share_is_nobodys() {
    let machine = Machine::new();
    machine.directory("cgroup/session");
    machine.process("77", 1, "/session", "one");
    machine.process("78", 1, "/session", "two");
    machine.process("79", 1, "/agent", "three");
    let list = "- {namespace: a, name: x, uid: u1, pid: 77}\n- {namespace: a, name: y, uid: u2, pid: 78}\n\
                - {namespace: a, name: z, uid: u3, pid: 79}\n";
    machine.list(list);
    let mut reader = machine.reader();
    let reading = reader.read();
    assert_eq!(&*reading.detail, "");
    for (pod, netns) in pods(&reading).iter().zip(["one", "two", "three"]) {
        assert_eq!(pod.cgroups, [], "{}", pod.pod);
        assert_eq!(pod.netns, Some(machine.netns(netns)), "{}", pod.pod);
    }
    // Without namespaces of their own nothing is left.
    machine.process("78", 1, "/session", "one");
    let reading = reader.read();
    assert!(reading.detail.starts_with("a/x: its cgroup and network namespace are shared"), "{}", reading.detail);
    assert!(reading.detail.contains("a/y: its cgroup and network namespace are shared"), "{}", reading.detail);
}

#[test]
fn a_broken_list_keeps_the_last_good_one() {
    let machine = Machine::new();
    machine.netns("pod");
    let mut reader = machine.reader();
    let place = machine.path("pods.yaml").display().to_string();
    let reading = reader.read();
    assert_eq!(reading.pods, None);
    assert_eq!(&*reading.detail, format!("{place}: no such file; no list is known yet"));

    let good = format!("{ONE}netns: ROOT/netns/pod}}\n");
    machine.list(&good);
    let reading = reader.read();
    assert_eq!((pods(&reading).len(), &*reading.detail), (1, ""));

    for (text, complaint) in [
        ("", format!("{place}: the file is empty; write [] for no pods")),
        ("- [\n", format!("{place}:1: not valid YAML")),
        ("a: b\n", format!("{place}:1: must be a list of pods")),
        ("- {namespace: graph}\n", format!("{place}:1: [0].name: is required")),
    ] {
        machine.list(text);
        let broken = reader.read();
        assert_eq!(broken.pods, reading.pods, "{text}");
        assert!(broken.detail.starts_with(&complaint), "{}", broken.detail);
        assert!(broken.detail.ends_with("the last good list is kept"), "{}", broken.detail);
        let states: Vec<_> = broken.observations(MonoTime::default());
        assert!(
            matches!(&states[1], Observation::Source(report) if report.state == SourceState::Degraded),
            "{states:?}"
        );
    }
    fs::remove_file(machine.path("pods.yaml")).unwrap();
    assert_eq!(reader.read().pods, reading.pods);

    machine.list(&good);
    assert_eq!(reader.read(), reading);
    machine.list("[]\n");
    assert_eq!(pods(&reader.read()), []);
}

#[test]
fn a_change_is_seen_however_it_is_made() {
    let machine = Machine::new();
    machine.netns("a");
    let one = format!("{ONE}netns: ROOT/netns/a}}\n").replace("ROOT", &machine.root.path().display().to_string());
    let other = one.replace("u0", "u1");
    let uid = |reading: Reading| pods(&reading)[0].uid.0.to_string();

    // Written over in place, with the same size.
    let file = machine.path("pods.yaml");
    fs::write(&file, &one).unwrap();
    let mut reader = machine.reader();
    assert_eq!(uid(reader.read()), "u0");
    fs::write(&file, &other).unwrap();
    assert_eq!(uid(reader.read()), "u1");

    // As a ConfigMap is swapped: a link to a link to a directory, replaced by a rename.
    fs::remove_file(&file).unwrap();
    for (directory, text) in [("..1", &one), ("..2", &other)] {
        machine.directory(directory);
        fs::write(machine.path(&format!("{directory}/pods.yaml")), text).unwrap();
    }
    symlink("..1", machine.path("..data")).unwrap();
    symlink("..data/pods.yaml", &file).unwrap();
    assert_eq!(uid(reader.read()), "u0");
    symlink("..2", machine.path("..data_tmp")).unwrap();
    fs::rename(machine.path("..data_tmp"), machine.path("..data")).unwrap();
    assert_eq!(uid(reader.read()), "u1");
}

#[test]
fn an_old_unchanged_file_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    fs::write(&path, "one").unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    let mut watched = Watched::new(path.clone());
    assert_eq!(watched.changed(), Some(Ok("one".to_owned())));
    assert_eq!(watched.changed(), None);
    fs::write(&path, "two").unwrap();
    assert_eq!(watched.changed(), Some(Ok("two".to_owned())));
    assert_eq!(watched.changed(), None);
}

/// Each row: a list, and all complaints about it.
#[test]
fn each_rule_of_the_list_has_its_complaint() {
    let rows: [(&str, &[&str]); 19] = [
        ("- {name: x, uid: u, pid: 1}", &["p:1: [0].namespace: is required"]),
        (
            "- {namespace: a, name: x, pid: 1}",
            &["p:1: [0].uid: is required: a text that no other pod has, and another one when the pod is replaced"],
        ),
        (
            "- {namespace: a, name: x, uid: u}",
            &["p:1: [0]: needs one of netns, cgroup and pid: where the pod's sockets are"],
        ),
        ("- {namespace: a, name: x, uid: u, pids: 1, pid: 2}", &["p:1: [0].pids: unknown key; did you mean [0].pid?"]),
        ("- {namespace: a, name: x, uid: u, pid: 0}", &["p:1: [0].pid: 0: must be a whole number from 1 to 4194304"]),
        ("- {namespace: a, name: x, uid: u, netns: a}", &["p:1: [0].netns: \"a\": must be an absolute path"]),
        ("- {namespace: a, name: x, uid: u, cgroup: /a/../b}", &["p:1: [0].cgroup: \"/a/../b\": must not contain .."]),
        ("- {namespace: a, name: x, uid: 7, pid: 1}", &["p:1: [0].uid: 7: must be a text; put it in quotes"]),
        (
            "- {namespace: a, name: x, uid: a/b, pid: 1}",
            &["p:1: [0].uid: \"a/b\": must be at most 128 printable ASCII characters without / ? # %"],
        ),
        (
            "- {namespace: a, name: x, uid: u, pid: 1, ips: [10.0.0.300]}",
            &["p:1: [0].ips[0]: \"10.0.0.300\": must be an IP address"],
        ),
        (
            "- {namespace: a, name: x, uid: u, pid: 1, ips: [\"::\"]}",
            &["p:1: [0].ips[0]: \"::\": cannot be a pod's address"],
        ),
        (
            "- {namespace: a, name: x, uid: u, pid: 1, workload: server}",
            &["p:1: [0].workload: \"server\": must be Kind/name, such as StatefulSet/hugegraph-server"],
        ),
        (
            "- {namespace: a, name: x, uid: u, pid: 1, cluster: b}",
            &["p:1: [0].cluster: \"b\": must be a configured cluster: default"],
        ),
        (
            "- {namespace: a, name: x, uid: u, pid: 1, labels: [a]}",
            &["p:1: [0].labels: [\"a\"]: must be a mapping of labels to texts"],
        ),
        (
            "- {namespace: a, name: x, uid: u, pid: 1, labels: {a: 1}}",
            &["p:1: [0].labels.a: 1: must be a text; put it in quotes"],
        ),
        (
            "- {namespace: a, name: x, uid: u, netns: /n, host_network: true}",
            &["p:1: [0].netns: does not tell a host_network pod from others; give its cgroup or pid"],
        ),
        (
            "- {namespace: a, name: x, uid: u, pid: 1, host_network: yes}",
            &["p:1: [0].host_network: \"yes\": must be true or false"],
        ),
        (
            "- x",
            &[
                "p:1: [0]: \"x\": must be a mapping of keys to values",
                "p:1: [0].namespace: is required",
                "p:1: [0].name: is required",
                "p:1: [0].uid: is required: a text that no other pod has, and another one when the pod is replaced",
                "p:1: [0]: needs one of netns, cgroup and pid: where the pod's sockets are",
            ],
        ),
        (
            "- {namespace: a, name: x, uid: u, pid: 1, ips: [10.0.0.1]}\n\
             - {namespace: a, name: x, uid: u, pid: 1, ips: [\"::ffff:10.0.0.1\", 10.0.0.2, 10.0.0.2]}\n",
            &[
                "p:2: [1].uid: u is that of [0] too (a/x)",
                "p:2: [1]: a/x is that of [0] too (a/x)",
                "p:2: [1].ips: lists an address twice",
                "p:2: [1].ips: 10.0.0.1 is that of [0] too (a/x)",
                "p:2: [1].pid: 1 is that of [0] too (a/x)",
            ],
        ),
    ];
    for (text, expected) in rows {
        let mistakes = file::parse(text, "p", &["default".into()]).unwrap_err();
        assert_eq!(mistakes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{text}");
    }
    let shared = "- {namespace: a, name: x, uid: u, pid: 1, host_network: true, ips: [10.0.0.1]}\n\
                  - {namespace: a, name: y, uid: v, pid: 2, host_network: true, ips: [10.0.0.1]}\n";
    assert_eq!(file::parse(shared, "p", &["default".into()]).unwrap().len(), 2);
}

#[test]
fn with_several_clusters_each_pod_names_its_own() {
    let clusters = ["one".into(), "two".into()];
    let text = "- {namespace: a, name: x, uid: u, pid: 1, cluster: two}\n";
    assert_eq!(file::parse(text, "p", &clusters).unwrap()[0].cluster, ClusterId(1));
    let mistakes = file::parse(&text.replace(", cluster: two", ""), "p", &clusters).unwrap_err();
    assert_eq!(mistakes.to_string(), "p:1: [0].cluster: is required with several clusters; one of: one, two");
}

fn task(source: PodSource, file: &Path, root: &Path) -> PodsTask {
    let text =
        format!("hugegraph: {{stores: [\"10.0.0.1:8500\"]}}\npods: {{cri_socket: {}/cri.sock}}\n", root.display());
    let config = crate::config::parse(&text, "config", &crate::config::Surroundings::default()).unwrap();
    let access = Arc::new(Access::new(Arc::default()));
    PodsTask { source, file: file.to_owned(), host: Host::imitated(root), ..PodsTask::new(&config, access) }
}

#[tokio::test]
async fn a_pod_that_is_not_found_takes_nothing_from_the_list() {
    let machine = Machine::new();
    machine.list(&format!("{ONE}netns: ROOT/netns/none}}\n"));
    let (sender, mut receiver) = crate::observe::channel();
    let mut tasks = Tasks::default();
    tasks.spawn("pods", task(PodSource::File, &machine.path("pods.yaml"), machine.root.path()).run(sender));
    assert!(matches!(receiver.recv().await, Some(Observation::Pods { pods, .. }) if pods.len() == 1));
    let Some(Observation::Source(report)) = receiver.recv().await else { panic!("no report") };
    // A pod that is not listed does not exist, so the list must count as fresh; what is amiss is said all the same.
    assert_eq!(report.state, SourceState::Active);
    assert!(report.detail.contains("netns/none"), "{}", report.detail);
}

#[tokio::test]
async fn a_source_that_has_no_list_says_so() {
    let rows = [
        (PodSource::None, SourceState::Absent, "pods.source: none"),
        (PodSource::File, SourceState::Absent, "/none"),
        (PodSource::Cri, SourceState::Absent, "/none/cri.sock: the container runtime does not answer"),
    ];
    for (source, state, words) in rows {
        let (sender, mut receiver) = crate::observe::channel();
        let mut tasks = Tasks::default();
        tasks.spawn("pods", task(source, Path::new("/none"), Path::new("/none")).run(sender));
        let Some(Observation::Source(report)) = receiver.recv().await else { panic!("no report") };
        assert_eq!((report.source, report.state), (SourceName::Pods, state));
        assert!(report.detail.contains(words), "{}", report.detail);
    }
}

#[tokio::test]
async fn the_task_sends_the_list_and_then_its_changes() {
    let machine = Machine::new();
    machine.netns("pod");
    let list = format!("{ONE}netns: ROOT/netns/pod}}\n");
    machine.list(&list);
    let (sender, mut receiver) = crate::observe::channel();
    let mut tasks = Tasks::default();
    tasks.spawn("pods", task(PodSource::File, &machine.path("pods.yaml"), machine.root.path()).run(sender));
    for (uid, text) in [("u0", list.replace("u0", "u1")), ("u1", "[".to_owned())] {
        assert_eq!(next(&mut receiver).await, (Some(uid.to_owned()), SourceState::Active));
        machine.list(&text);
    }
    assert_eq!(next(&mut receiver).await, (Some("u1".to_owned()), SourceState::Degraded));
    drop(receiver);
    let ended = tokio::time::timeout(PATIENCE, tasks.ended()).await.unwrap().unwrap();
    assert!(ended.result.is_ok(), "{ended:?}");
}

const PATIENCE: Duration = Duration::from_secs(30);

/// A list and the report that follows it: the first pod's uid, and the state.
async fn next(receiver: &mut crate::observe::ObservationReceiver) -> (Option<String>, SourceState) {
    let mut next = async || tokio::time::timeout(PATIENCE, receiver.recv()).await.unwrap().unwrap();
    let Observation::Pods { pods, .. } = next().await else { panic!("a list comes first") };
    let Observation::Source(report) = next().await else { panic!("a report follows") };
    (pods.first().map(|pod| pod.uid.0.to_string()), report.state)
}

/// A real namespace has the kernel's inode; a file that was left behind where one was mounted has not.
#[test]
fn real_namespaces_are_told_from_files() {
    let left = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "- {{namespace: a, name: x, uid: u, netns: /proc/self/ns/net}}\n- {{namespace: a, name: y, uid: v, netns: {}}}\n",
        left.path().display()
    );
    let entries = file::parse(&text, "p", &["default".into()]).unwrap();
    let mut problems = Vec::new();
    let records = Locator::new(Host::of_machine()).locate(&entries, &mut problems);
    assert!(records[0].host_network, "it is the agent's own");
    let expected = format!("a/y: netns {} is no namespace any more; is the pod gone?", left.path().display());
    assert!(problems.contains(&expected), "{problems:?}");
}

#[test]
#[ignore = "needs root: it makes a namespace"]
fn another_namespace_has_an_id_of_its_own() {
    // The thread keeps its namespace alive until the other end of the channel is gone.
    let (path_sender, path) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        path_sender.send(format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid())).unwrap();
        let _ = wait.recv();
    });
    let path = path.recv().unwrap();
    let text = format!("- {{namespace: a, name: x, uid: u, netns: {path}}}\n");
    let entries = file::parse(&text, "p", &["default".into()]).unwrap();
    let mut problems = Vec::new();
    let records = Locator::new(Host::of_machine()).locate(&entries, &mut problems);
    let inode = fs::metadata(&path).unwrap().ino();
    assert_eq!(records[0].netns.map(|id| u64::from(id.0)), Some(inode));
    assert!(!records[0].host_network);
    assert_eq!(problems, Vec::<String>::new());
    drop(done);
    thread.join().unwrap();
}
