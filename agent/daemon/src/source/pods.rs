//! The pods of this node: from the API server, from the container runtime, or from a file.

mod cgroup;
mod cri;
mod file;
mod kubepods;
mod kubernetes;
mod locate;
mod manager;
mod placing;
#[cfg(test)]
mod tests;
mod watch;

use self::{file::PodEntry, locate::Locator, placing::Placing, watch::Watched};
use crate::{
    clock,
    config::{Config, PodSource},
    kubernetes::{client::Access, manifest::Seen},
    observe::ObservationSender,
    source::clock::every,
};
use std::{future::pending, path::PathBuf, sync::Arc, time::Duration};
use storewatch_core::{
    id::ClusterId,
    observation::Observation,
    pod::PodRecord,
    source::{SourceName, SourceReport, SourceState},
    time::MonoTime,
};

pub use locate::Host;

/// How often the file and the pods' places in the kernel are looked at: a container that restarts is attributed again
/// within this time.
const PERIOD: Duration = Duration::from_secs(1);

/// How often an unchanged list is confirmed, in periods.
const CONFIRM: u32 = 5;

/// How many problems the source's detail lists.
const TOLD: usize = 3;

/// The source of pods, to be run as a task.
#[derive(Debug)]
pub struct PodsTask {
    source: PodSource,
    file: PathBuf,
    clusters: Vec<Arc<str>>,
    host: Host,
    of_node: kubernetes::PodsOfNode,
    selection: cri::Selection,
    access: Arc<Access>,
}

impl PodsTask {
    /// As configured.
    pub fn new(config: &Config, access: Arc<Access>) -> Self {
        Self {
            of_node: kubernetes::PodsOfNode::new(config),
            selection: cri::Selection::new(config),
            access,
            source: config.pods.source,
            file: config.pods.file.clone(),
            clusters: config.clusters.iter().map(|cluster| Arc::clone(&cluster.name)).collect(),
            host: Host::of_machine(),
        }
    }

    /// Runs until the engine ends. An absent source says so once and then stays silent.
    ///
    /// # Errors
    /// When the thread that reads files panicked.
    pub async fn run(self, sender: ObservationSender) -> anyhow::Result<()> {
        let absent = match self.source {
            PodSource::File => return self.follow(sender).await,
            PodSource::None => "switched off by pods.source: none; only the node is judged",
            PodSource::Kubernetes => {
                return kubernetes::follow(&self.of_node, &self.access, self.host, &sender).await;
            }
            PodSource::Cri => return cri::follow(&self.selection, self.host, &sender).await,
        };
        let report = report(clock::now(), SourceState::Absent, absent.into());
        if sender.send(report).await.is_err() {
            return Ok(());
        }
        pending().await
    }

    async fn follow(self, sender: ObservationSender) -> anyhow::Result<()> {
        let mut reader = Some(Reader::new(self.file, self.clusters, self.host));
        let mut timer = every(PERIOD);
        let mut last: Option<Reading> = None;
        let mut unchanged = 0;
        loop {
            timer.tick().await;
            // Reading files blocks, and a network file system can block for long.
            let (back, reading) = tokio::task::spawn_blocking(move || {
                let reading = reader.as_mut().map(Reader::read);
                (reader, reading)
            })
            .await?;
            reader = back;
            let Some(reading) = reading else { return Ok(()) };
            let same = last.as_ref() == Some(&reading);
            unchanged = if same { unchanged + 1 } else { 0 };
            if same && unchanged % CONFIRM != 0 {
                continue;
            }
            for observation in reading.observations(clock::now()) {
                if sender.send(observation).await.is_err() {
                    return Ok(());
                }
            }
            last = Some(reading);
        }
    }
}

fn report(at: MonoTime, state: SourceState, detail: Arc<str>) -> Observation {
    Observation::Source(SourceReport { source: SourceName::Pods, at, state, detail })
}

/// The mistakes of the pod list that is configured, one a line; none when there is no such file yet or another source.
pub fn mistakes(config: &Config) -> Vec<String> {
    if config.pods.source != PodSource::File || !config.pods.file.exists() {
        return Vec::new();
    }
    let clusters: Vec<_> = config.clusters.iter().map(|cluster| Arc::clone(&cluster.name)).collect();
    read_list(&mut Watched::new(config.pods.file.clone()), &clusters).and_then(Result::err).unwrap_or_default()
}

/// How many pods the configured file lists, and what is wrong with their places on this machine.
///
/// # Errors
/// What is wrong with the file itself.
pub fn survey(config: &Config) -> Result<(usize, Vec<String>), String> {
    let clusters: Vec<_> = config.clusters.iter().map(|cluster| Arc::clone(&cluster.name)).collect();
    let place = config.pods.file.display();
    let list = read_list(&mut Watched::new(config.pods.file.clone()), &clusters);
    let entries = list.unwrap_or_else(|| Err(vec![format!("{place} cannot be read")])).map_err(|all| few(&all))?;
    let mut problems = Vec::new();
    Locator::new(Host::of_machine()).locate(&entries, &mut problems);
    Ok((entries.len(), problems))
}

/// What one look at a source of pods gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Selected pods of this node.
    pub pods: usize,
    /// Those that run, and have no cgroup that is found.
    pub unplaced: Vec<String>,
    /// The source tells of changes by itself; `None` where that cannot be known.
    pub news: Option<bool>,
}

/// Looks for the places of listed pods. Reads files, which can block.
pub(crate) fn survey_listed(list: &[(ClusterId, Arc<Seen>)]) -> Survey {
    let records = Placing::new(Host::of_machine()).place(list, &mut Vec::new());
    let lost = |(_, seen): &&(ClusterId, Arc<Seen>)| {
        seen.running && records.iter().any(|record| record.uid == seen.uid && record.cgroups.is_empty())
    };
    let unplaced = list.iter().filter(lost).map(|(_, seen)| seen.pod.to_string()).collect();
    Survey { pods: list.len(), unplaced, news: None }
}

/// Asks the container runtime once.
///
/// # Errors
/// The inner one in words when it gives no list; the outer one when the thread that reads files panicked.
pub async fn survey_runtime(config: &Config) -> anyhow::Result<Result<Survey, String>> {
    let (list, news) = match cri::survey(&cri::Selection::new(config)).await {
        Ok(found) => found,
        Err(words) => return Ok(Err(words)),
    };
    let survey = tokio::task::spawn_blocking(move || survey_listed(&list)).await?;
    Ok(Ok(Survey { news, ..survey }))
}

/// The list, or its mistakes, if either changed.
fn read_list(watched: &mut Watched, clusters: &[Arc<str>]) -> Option<Result<Vec<PodEntry>, Vec<String>>> {
    let content = watched.changed()?;
    let place = watched.path().display().to_string();
    Some(content.map_err(|reason| vec![format!("{place}: {reason}")]).and_then(|text| {
        file::parse(&text, &place, clusters).map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
    }))
}

/// What one look at the file and at the kernel gave.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    /// `None` while no good list was ever read.
    pods: Option<Vec<Arc<PodRecord>>>,
    /// The list is as its source gives it now; false: the last good one is kept. That a pod cannot be found in the kernel
    /// takes nothing from the list: who is not in it does not exist.
    current: bool,
    /// What is wrong; empty when all is well.
    detail: Arc<str>,
}

impl Reading {
    /// The word about the source comes last, so that the list is there when it counts as answered.
    fn observations(&self, at: MonoTime) -> Vec<Observation> {
        let state = match &self.pods {
            // Nobody is served before the first list, however long it takes; the node is judged without it.
            None => SourceState::Absent,
            Some(_) if self.current => SourceState::Active,
            Some(_) => SourceState::Degraded,
        };
        let mut list = Vec::new();
        if let Some(pods) = &self.pods {
            list.push(Observation::Pods { at, pods: pods.clone() });
        }
        list.push(report(at, state, Arc::clone(&self.detail)));
        list
    }
}

/// Reads the file when it changed, and locates the pods each time.
#[derive(Debug)]
struct Reader {
    watched: Watched,
    clusters: Vec<Arc<str>>,
    locator: Locator,
    /// The last good list.
    entries: Option<Vec<PodEntry>>,
    /// What is wrong with the file as it is now.
    broken: Option<String>,
}

impl Reader {
    fn new(file: PathBuf, clusters: Vec<Arc<str>>, host: Host) -> Self {
        Self { watched: Watched::new(file), clusters, locator: Locator::new(host), entries: None, broken: None }
    }

    fn read(&mut self) -> Reading {
        match read_list(&mut self.watched, &self.clusters) {
            None => {}
            Some(Ok(entries)) => {
                self.locator.forget();
                self.entries = Some(entries);
                self.broken = None;
            }
            Some(Err(problems)) => {
                let kept = if self.entries.is_some() { "the last good list is kept" } else { "no list is known yet" };
                self.broken = Some(format!("{}; {kept}", few(&problems)));
            }
        }
        let current = self.broken.is_none();
        let mut problems: Vec<String> = self.broken.iter().cloned().collect();
        let pods = self.entries.as_ref().map(|entries| self.locator.locate(entries, &mut problems));
        Reading { pods, current, detail: few(&problems).into() }
    }
}

/// The first problems, and how many more.
fn few(problems: &[String]) -> String {
    let mut text = problems.iter().take(TOLD).cloned().collect::<Vec<_>>().join("; ");
    if problems.len() > TOLD {
        text.push_str(&format!("; and {} more", problems.len() - TOLD));
    }
    text
}
