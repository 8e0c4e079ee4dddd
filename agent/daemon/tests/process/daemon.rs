//! An agent as a process, with ports and files of its own, and PD and Stores of the test kit on loopback.

use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};
use storewatch_hugegraph::testkit::{
    LocalPd, LocalStore,
    pd::{Listed, PdState, UP},
    store::StoreFault,
};

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// The id of the first Store of [`Storage`]; the others follow.
pub(crate) const FIRST_STORE: u64 = 1_844_095_761_336_398_711;

/// PD and three Stores in the test's own process.
pub(crate) struct Storage {
    pub(crate) pd: LocalPd,
    pub(crate) stores: Vec<LocalStore>,
    runtime: tokio::runtime::Runtime,
}

impl Storage {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let _inside = runtime.enter();
        let stores: Vec<_> = (0..3).map(|_| LocalStore::start(None).unwrap()).collect();
        let listed = stores.iter().zip(FIRST_STORE..).map(|(store, id)| {
            let address = store.address.to_string();
            Listed { id, address, state: UP }
        });
        let pd = LocalPd::start(PdState { stores: listed.collect(), ..PdState::default() }).unwrap();
        drop(_inside);
        Self { pd, stores, runtime }
    }

    /// For servers that a test starts itself.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.runtime.enter()
    }

    pub(crate) fn all_stores(&self, fault: &StoreFault) {
        for store in &self.stores {
            store.fault.send_replace(fault.clone());
        }
    }
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A running agent.
pub(crate) struct Daemon {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) probe: u16,
    child: Child,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// Writes a configuration into `folder`; `extra` is YAML for further keys.
pub(crate) fn configure(folder: &Path, storage: &Storage, probe: u16, extra: &str) -> PathBuf {
    let path = folder.join("storewatch.yaml");
    let text = format!(
        "node: node-a
listen: {{probe: '127.0.0.1:{probe}', metrics: '127.0.0.1:{}', admin: '127.0.0.1:{}', admin_socket: '{}'}}
hugegraph: {{pd_peers: ['{}']}}
ping: {{interval: 300ms, timeout: 300ms, pd_interval: 500ms}}
pods: {{source: file, file: '{}'}}
kernel: {{mode: 'off'}}
state_file: '{}'
{extra}",
        free_port(),
        free_port(),
        folder.join("admin.sock").display(),
        storage.pd.address,
        folder.join("pods.yaml").display(),
        folder.join("state.json").display(),
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// One pod, found by the namespace of the test itself.
pub(crate) const ONE_POD: &str = "- {namespace: graph, name: server-0, uid: uid-0, ips: [127.0.0.1], workload: StatefulSet/server, netns: /proc/self/ns/net}\n";

impl Daemon {
    /// Starts one that watches `storage` and [`ONE_POD`].
    pub(crate) fn start(storage: &Storage) -> Self {
        Self::start_with(storage, ONE_POD, &[])
    }

    /// Starts one that watches `storage` and these pods, with `KEY=VALUE` set.
    pub(crate) fn start_with(storage: &Storage, pods: &str, sets: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pods.yaml"), pods).unwrap();
        let probe = free_port();
        let config = configure(folder.path(), storage, probe, "");
        let child = spawn_with(&config, sets);
        Self { folder, probe, child }
    }

    /// Starts one from a shell that was told `limits` before.
    pub(crate) fn start_after(storage: &Storage, limits: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pods.yaml"), ONE_POD).unwrap();
        let probe = free_port();
        let config = configure(folder.path(), storage, probe, "");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("{limits}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_storewatch")]);
        let child = into_background(&mut shell, &config, &[]);
        Self { folder, probe, child }
    }

    /// The file of its configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("storewatch.yaml")
    }

    /// Runs a client command that asks it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Ended {
        let agent = format!("unix:{}", self.socket().display());
        run(Command::new(env!("CARGO_BIN_EXE_storewatch")).env_clear().args(arguments).args(["--agent", &agent]))
    }

    /// Starts the same agent again, after it has ended.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.folder.path().join("storewatch.yaml"));
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < LIMIT, "the agent has not ended");
            std::thread::yield_now();
        }
    }

    /// The file of its admin socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// One GET on its admin socket.
    pub(crate) fn admin(&self, path: &str) -> (u16, Value) {
        self.try_admin(path).unwrap()
    }

    /// `None` while nobody answers.
    fn try_admin(&self, path: &str) -> Option<(u16, Value)> {
        let (code, body) = exchange(UnixStream::connect(self.socket()).ok()?, path)?;
        Some((code, serde_json::from_str(&body).unwrap_or(Value::String(body))))
    }

    /// Asks its admin socket until the answer is as wanted.
    pub(crate) fn until_admin(&self, path: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let answer = self.try_admin(path);
            if let Some((200, body)) = &answer
                && wanted(body)
            {
                return body.clone();
            }
            assert!(begun.elapsed() < LIMIT, "{path}: not as wanted: {answer:#?}; the log:\n{}", self.log());
            std::thread::yield_now();
        }
    }

    /// A stream of its admin socket, with further headers.
    pub(crate) fn stream(&self, path: &str, headers: &str) -> Stream {
        let mut socket = UnixStream::connect(self.socket()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        // HTTP/1.0: the answer comes as it is, and ends with the connection.
        write!(socket, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        let mut reader = BufReader::new(socket);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "the answer has no end of its head: {head}");
        }
        Stream { head, reader }
    }

    /// `--agent` of a client.
    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// One GET on the probe listener; `None` while nobody answers.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, Value)> {
        get(self.probe, path)
    }

    /// Asks until the answer is as wanted.
    pub(crate) fn until(&self, path: &str, mut wanted: impl FnMut(u16, &Value) -> bool) -> Value {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < LIMIT {
            last = self.get(path);
            if let Some((code, body)) = &last
                && wanted(*code, body)
            {
                return body.clone();
            }
            // Polling, with the time a probe takes as its pace.
            std::thread::yield_now();
        }
        panic!("{path}: not as wanted; the last answer: {last:?}; the log:\n{}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An event stream, read as any client would.
pub(crate) struct Stream {
    pub(crate) head: String,
    reader: BufReader<UnixStream>,
}

impl Stream {
    /// The next event: its kind, its id and its data; `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<(String, u64, Value)> {
        let (mut kind, mut id, mut data) = (String::new(), 0, Value::Null);
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("event", text)) => kind = text.to_owned(),
                Some(("id", text)) => id = text.parse().unwrap(),
                Some(("data", text)) => data = serde_json::from_str(text).unwrap(),
                // An empty line ends an event; a comment is none.
                _ if data.is_object() => return Some((kind, id, data)),
                _ => {}
            }
        }
    }

    /// Reads on to the first event that is as wanted.
    pub(crate) fn until(&mut self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let mut passed = Vec::new();
        loop {
            let Some((kind, id, event)) = self.next() else { panic!("{what}: the stream has ended after {passed:#?}") };
            assert_eq!((&event["kind"], &event["generation"]), (&kind.into(), &id.into()), "{event}");
            if wanted(&event) {
                return event;
            }
            passed.push(event);
        }
    }
}

/// Starts an agent whose log goes into the folder of its configuration.
pub(crate) fn spawn(config: &Path) -> Child {
    spawn_with(config, &[])
}

pub(crate) fn spawn_with(config: &Path, sets: &[&str]) -> Child {
    into_background(&mut Command::new(env!("CARGO_BIN_EXE_storewatch")), config, sets)
}

fn into_background(command: &mut Command, config: &Path, sets: &[&str]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(config.with_file_name("log")).unwrap();
    command
        .env_clear()
        .args(["run", "--config"])
        .arg(config)
        .args(sets.iter().flat_map(|set| ["--set", set]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// One GET on a port of loopback.
pub(crate) fn get(port: u16, path: &str) -> Option<(u16, Value)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let (code, body) = exchange(stream, path)?;
    Some((code, serde_json::from_str(&body).unwrap_or(Value::String(body))))
}

/// One GET on a connection: status and body.
pub(crate) fn exchange(mut stream: impl Read + Write, path: &str) -> Option<(u16, String)> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}
