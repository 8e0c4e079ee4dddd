//! The pods' list, the kernel source and the judge, joined as the agent joins them; no pings, no names.

use anyhow::{Result, bail, ensure};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use storewatch::{
    clock, config,
    kubernetes::{client::Access, health::Health},
    observe,
    observe::ObservationReceiver,
    requests::{self, RequestSender},
    source::{
        kernel::{KernelHandle, KernelSource, Settings},
        pods::PodsTask,
    },
};
use storewatch_core::{
    judge::Judge,
    snapshot::{PodView, Snapshot},
    table::{ConnectionView, Table, TableQuery},
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::{SOON, patience};

/// How often the rules are applied, whatever is observed.
const TICK: Duration = Duration::from_millis(50);

/// The agent without its pings.
pub struct Joined {
    /// For questions to the kernel source.
    pub handle: KernelHandle,
    judge: Judge,
    receiver: ObservationReceiver,
    requests: RequestSender,
    tasks: Vec<JoinHandle<Result<()>>>,
    folder: TempDir,
}

impl Joined {
    /// Starts it: one Store at 10.251.2.2 on `port`, the pods as listed.
    ///
    /// # Errors
    /// When the configuration cannot be written, or is refused.
    pub fn start(port: u16, pods: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let list = folder.path().join("pods.yaml");
        std::fs::write(&list, pods)?;
        let file = folder.path().join("storewatch.yaml");
        let text = format!(
            "node: node-a
hugegraph: {{pd_peers: [], stores: ['10.251.2.2:{port}'], store_port: {port}, pd_port: {}}}
kernel: {{inventory_interval: 1s}}
pods: {{source: file, file: '{}'}}
state_file: ''
",
            port - 1000,
            list.display()
        );
        std::fs::write(&file, text)?;
        let config = config::load(&file, &config::Surroundings::default())
            .map_err(|mistakes| anyhow::anyhow!("{}", mistakes.iter().map(ToString::to_string).collect::<String>()))?;
        let source = KernelSource::open(Settings {
            ports: vec![port],
            counter_interval: Duration::from_millis(100),
            inventory_interval: Duration::from_secs(1),
            ..Settings::default()
        });
        let handle = source.handle();
        let (sender, receiver) = observe::channel();
        let (requests, _, kernel_requests) = requests::channel(1);
        // The pods come from a file: nobody asks an API server.
        let access = Arc::new(Access::new(Arc::new(Health::default())));
        // The test owns these two tasks and looks at their end.
        let tasks = vec![
            tokio::task::spawn_local(source.run(sender.clone(), kernel_requests)),
            tokio::task::spawn_local(PodsTask::new(&config, access).run(sender)),
        ];
        let judge = Judge::new(config.settings(), clock::now());
        Ok(Self { handle, judge, receiver, requests, tasks, folder })
    }

    /// Writes the list of pods anew.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn list(&self, pods: &str) -> Result<()> {
        Ok(std::fs::write(self.folder.path().join("pods.yaml"), pods)?)
    }

    /// What would be published now.
    pub fn snapshot(&self) -> Snapshot {
        self.judge.snapshot(clock::now())
    }

    /// The pod of that name.
    pub fn pod(&self, name: &str) -> Option<PodView> {
        self.snapshot().pods.into_iter().find(|pod| &*pod.record.pod.name == name)
    }

    /// All connections of judged pods, and the sockets of nobody.
    pub fn table(&self) -> Table {
        self.judge.table(&TableQuery::default())
    }

    /// The connections of the pod of that name.
    pub fn connections(&self, name: &str) -> Vec<ConnectionView> {
        self.table().connections.into_iter().filter(|connection| &*connection.pod.name == name).collect()
    }

    /// Those of them that live.
    pub fn live(&self, name: &str) -> Vec<ConnectionView> {
        self.connections(name).into_iter().filter(|connection| connection.ended.is_none()).collect()
    }

    /// Takes in what the sources tell and applies the rules, until `enough`.
    ///
    /// # Errors
    /// When [`SOON`] passes, or a source ends.
    pub async fn until(&mut self, what: &str, enough: impl Fn(&Self) -> bool) -> Result<()> {
        self.until_in(SOON, what, enough).await
    }

    /// The same with another limit.
    ///
    /// # Errors
    /// When the limit passes, or a source ends.
    pub async fn until_in(&mut self, limit: Duration, what: &str, enough: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + patience(limit);
        while !enough(self) {
            ensure!(!self.tasks.iter().any(JoinHandle::is_finished), "a source has ended while waiting for {what}");
            if Instant::now() > deadline {
                let snapshot = self.snapshot();
                bail!(
                    "no {what} in time; connections {:#?}; sources {:?}; pods {:#?}; unattributed {:?}",
                    self.table().connections,
                    snapshot.sources,
                    snapshot.pods,
                    snapshot.unattributed
                );
            }
            self.step().await?;
        }
        Ok(())
    }

    /// Lets two whole readings of the inventory pass, with all that was told before them.
    ///
    /// # Errors
    /// When a source ends.
    pub async fn settle(&mut self) -> Result<()> {
        let inventory = |joined: &Self| {
            let sources = joined.snapshot().sources;
            sources.iter().find(|view| view.name == storewatch_core::source::SourceName::Inventory).and_then(|v| v.last)
        };
        for _ in 0..2 {
            let before = inventory(self);
            self.until("a reading of the inventory", |joined| inventory(joined) > before).await?;
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<()> {
        match tokio::time::timeout(TICK, self.receiver.recv()).await {
            Ok(Some(observation)) => self.judge.observe(observation),
            Ok(None) => bail!("the sources have ended"),
            Err(_) => {}
        }
        while let Some(observation) = self.receiver.try_recv() {
            self.judge.observe(observation);
        }
        for request in self.judge.advance(clock::now()).requests {
            self.requests.route(request);
        }
        Ok(())
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
