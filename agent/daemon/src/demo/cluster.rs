//! The embedded cluster: PD, three Stores and two client pods, each a process of its own in a pod of its own.

use super::{
    agent::{ADMIN, PROBE},
    part::Part,
    world::{self, DIRECTORY, Pod},
};
use anyhow::{Context, Result, ensure};
use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use storewatch_hugegraph::testkit::client::Resolving;

/// The pods that are judged.
pub const PODS: [&str; 2] = ["server-0", "server-1"];

/// Their namespace.
pub const NAMESPACE: &str = "demo";

/// How many Stores there are.
pub const STORES: u8 = 3;

/// What the agent is configured with. Its waits are short, since nobody wants to watch a demo for minutes; everything else
/// is the default or only about places.
pub(super) fn agent_config() -> String {
    format!(
        "node: demo
listen:
  probe: 127.0.0.1:{PROBE}
  metrics: 127.0.0.1:9466
  admin: 127.0.0.1:{ADMIN}
  admin_socket: {DIRECTORY}/admin.sock
hugegraph:
  pd_peers: [\"{}:8686\"]
pods:
  source: file
  file: {DIRECTORY}/pods.yaml
kernel:
  inventory_interval: 1s
verdict:
  window: 8s
  stale_suspect_after: 3s
  stale_confirm_after: 6s
state_file: \"\"
",
        pd_name()
    )
}

/// The name of a Store, as a chart's headless Service gives it.
pub fn store_name(index: u8) -> String {
    format!("hugegraph-store-{index}.hugegraph-store.{NAMESPACE}.svc")
}

/// The name of PD's only peer.
pub fn pd_name() -> String {
    format!("hugegraph-pd-0.hugegraph-pd.{NAMESPACE}.svc")
}

/// The running parts.
#[derive(Debug)]
pub struct Cluster {
    program: PathBuf,
    clients: Vec<String>,
    /// What DNS says.
    names: BTreeMap<String, Ipv4Addr>,
    pods: BTreeMap<String, Pod>,
    parts: BTreeMap<String, Child>,
}

impl Cluster {
    /// Makes PD's, the Stores' and these client pods, and starts `program` (a `storewatch` binary) in each. The agent is
    /// started apart.
    ///
    /// # Errors
    /// When the machine refuses a namespace, a link or a process.
    pub fn start(program: &Path, clients: &[&str]) -> Result<Self> {
        let (pods, parts) = (BTreeMap::new(), BTreeMap::new());
        let mut names = BTreeMap::from([(pd_name(), Ipv4Addr::new(10, 244, 7, 5))]);
        names.extend((0..STORES).map(|index| (store_name(index), store_address(index))));
        world::write_hosts(&names)?;
        let mut cluster = Self { program: program.to_owned(), clients: Vec::new(), names, pods, parts };
        cluster.add_pod("pd", Ipv4Addr::new(10, 244, 7, 5))?;
        for index in 0..STORES {
            cluster.add_pod(&format!("store-{index}"), store_address(index))?;
        }
        for (name, last) in clients.iter().zip(200..) {
            cluster.add_client(name, Ipv4Addr::new(10, 244, 7, last))?;
        }
        cluster.start_part("pd", &Part::Pd)?;
        for index in 0..STORES {
            cluster.start_store(index)?;
        }
        for name in clients {
            cluster.start_client(name)?;
        }
        Ok(cluster)
    }

    /// Starts the agent on the node with this configuration, told of every client pod that there is.
    ///
    /// # Errors
    /// When a file cannot be written, or the process not started.
    pub fn start_agent(&mut self, config: &str) -> Result<()> {
        let mut pods = String::new();
        for (name, number) in self.clients.iter().zip(1..) {
            let pod = self.pod(name)?;
            pods.push_str(&format!(
                "- {{namespace: {NAMESPACE}, name: {name}, uid: demo-{number}, ips: [{}], workload: StatefulSet/server, netns: {}}}\n",
                pod.address,
                pod.netns().display()
            ));
        }
        write("pods.yaml", &pods)?;
        write("storewatch.yaml", config)?;
        let config = format!("{DIRECTORY}/storewatch.yaml");
        let child = world::start(&self.program, None, &["run", "--config", &config], &log("agent"))?;
        self.parts.insert("agent".to_owned(), child);
        Ok(())
    }

    /// Kills the agent, if it runs.
    ///
    /// # Errors
    /// When it cannot be killed or waited for.
    pub fn stop_agent(&mut self) -> Result<()> {
        match self.parts.remove("agent") {
            Some(child) => end("agent", child),
            None => Ok(()),
        }
    }

    /// The pod of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn pod(&self, name: &str) -> Result<&Pod> {
        self.pods.get(name).with_context(|| format!("the demo has no pod {name}"))
    }

    /// Kills a Store's process; its pod, and so its address, stays.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_store(&mut self, index: u8) -> Result<()> {
        let name = format!("store-{index}");
        end(&name, self.parts.remove(&name).with_context(|| format!("{name} does not run"))?)
    }

    /// Starts a Store in its pod.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start_store(&mut self, index: u8) -> Result<()> {
        self.start_part(&format!("store-{index}"), &Part::Store(index))
    }

    /// Replaces a Store's pod, as a StatefulSet does: the same name at another address, and nothing at the old one.
    ///
    /// # Errors
    /// When the machine refuses the new pod, or the old one does not run.
    pub fn move_store(&mut self, index: u8) -> Result<()> {
        let (name, address) = (format!("store-{index}"), Ipv4Addr::new(10, 244, 7, 100 + index));
        let successor = world::add_pod(&format!("{name}-moved"), address)?;
        let child = self.spawn(&name, &successor, &Part::Store(index))?;
        self.names.insert(store_name(index), address);
        world::write_hosts(&self.names)?;
        // Its connections end before its pod does, so that whoever asks DNS again does so now.
        end(&name, self.parts.insert(name.clone(), child).with_context(|| format!("{name} does not run"))?)?;
        self.pods.insert(name, successor).map_or(Ok(()), |predecessor| world::remove_pod(&predecessor))
    }

    /// Starts a client in its pod, or again if it runs. The first of [`PODS`] asks DNS once in its life.
    ///
    /// # Errors
    /// When the process cannot be ended or started.
    pub fn start_client(&mut self, name: &str) -> Result<()> {
        if let Some(child) = self.parts.remove(name) {
            end(name, child)?;
        }
        let resolving = if name == PODS[0] { Resolving::Once } else { Resolving::Again };
        self.start_part(name, &Part::Client(resolving))
    }

    /// A part that has ended without being told to, with the end of what it printed. Each is told once, and is none of the
    /// cluster's any more.
    pub fn fallen(&mut self) -> Option<String> {
        let (name, status) =
            self.parts.iter_mut().find_map(|(name, child)| Some((name.clone(), child.try_wait().ok()??)))?;
        self.parts.remove(&name);
        let printed = fs::read_to_string(log(&name)).unwrap_or_default();
        let tail: Vec<_> = printed.lines().rev().take(5).collect();
        let colon = if tail.is_empty() { "" } else { ": " };
        Some(format!("{name} ended ({status}){colon}{}", tail.into_iter().rev().collect::<Vec<_>>().join(" | ")))
    }

    /// The process of a part, for whoever wants to enter its namespaces.
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.parts.get(name).map(Child::id)
    }

    /// Makes one more client pod, in which nothing runs yet. An agent that runs already does not hear of it.
    ///
    /// # Errors
    /// When the machine refuses the namespace or its link.
    pub fn add_client(&mut self, name: &str, address: Ipv4Addr) -> Result<()> {
        self.add_pod(name, address)?;
        self.clients.push(name.to_owned());
        Ok(())
    }

    fn add_pod(&mut self, name: &str, address: Ipv4Addr) -> Result<()> {
        let pod = world::add_pod(name, address)?;
        self.pods.insert(name.to_owned(), pod);
        Ok(())
    }

    fn start_part(&mut self, name: &str, part: &Part) -> Result<()> {
        let child = self.spawn(name, self.pod(name)?, part)?;
        self.parts.insert(name.to_owned(), child);
        Ok(())
    }

    fn spawn(&self, name: &str, pod: &Pod, part: &Part) -> Result<Child> {
        world::start(&self.program, Some(pod), &["demo", "--part", &part.to_string()], &log(name))
    }
}

/// Every process of the demo ends with it.
impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.parts.values_mut() {
            // A child that has ended already is what is wanted.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn end(name: &str, mut child: Child) -> Result<()> {
    child.kill().with_context(|| format!("cannot kill {name}"))?;
    child.wait().with_context(|| format!("cannot wait for {name}"))?;
    Ok(())
}

/// What `storewatch explain` says of a pod.
pub(super) fn explain(pod: &str) -> Result<String> {
    let output = Command::new("/proc/self/exe")
        .args(["--agent", &format!("unix:{DIRECTORY}/admin.sock"), "explain", &format!("{NAMESPACE}/{pod}")])
        .stdin(Stdio::null())
        .output()
        .context("cannot run explain")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "explain: {}", complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The address of a Store's pod.
pub fn store_address(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, 7, 10 + index)
}

fn log(name: &str) -> std::path::PathBuf {
    Path::new(DIRECTORY).join(format!("{name}.log"))
}

fn write(name: &str, text: &str) -> Result<()> {
    let path = Path::new(DIRECTORY).join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
