//! The agents of a cluster, and a command in the container of each: many at once, each with its time.

use super::{Options, merge::Told};
use crate::{
    cli::{Failure, table::clean},
    config::show_duration,
    kubernetes::{
        client::{self, call},
        failure::{Failure as Refused, Why},
        objects::Pod,
    },
};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::{
    Api, Client, Config,
    api::{AttachParams, ListParams, ObjectList},
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{collections::BTreeMap, fmt, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};

/// Where the chart's own examples install, and where to look for agents that may not be looked for everywhere.
const USUAL: &str = "storewatch";

/// How long a node may take to answer from memory.
const ANSWER: Duration = Duration::from_secs(10);

/// The longest answer of one node.
const MAX_ANSWER: usize = 32 << 20;

/// The longest complaint of one node.
const MAX_WORDS: usize = 4 << 10;

/// Says which container is meant where a pod has several.
const CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The agents of one cluster, and the way to them.
pub(super) struct Cluster {
    pub(super) client: Client,
    agents: Vec<Agent>,
    at_once: usize,
    timeout: Option<Duration>,
}

/// An agent's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) node: String,
    namespace: String,
    pod: String,
    container: Option<String>,
    /// Why there is no use in asking it.
    trouble: Option<String>,
}

/// What a command in a container came to.
struct Ended {
    out: Vec<u8>,
    err: String,
    status: Option<Status>,
}

impl Cluster {
    /// Connects and looks for the agents.
    ///
    /// # Errors
    /// When there is no API server, or no agent.
    pub(super) async fn find(options: &Options) -> Result<Self, Failure> {
        let config = configuration(options).await?;
        let client = client::from(config).map_err(Failure::wrong)?;
        let (pods, place) = pods(&client, options).await?;
        let agents = agents(pods.items);
        if agents.is_empty() {
            return Err(Failure::wrong(format!(
                "no agent is found: no pod has the labels {} in {place}; -n and -l say where they are, helm install brings them",
                options.selector
            )));
        }
        Ok(Self { client, agents, at_once: options.at_once.into(), timeout: options.timeout })
    }

    /// Where the agents are.
    pub(super) fn agents(&self) -> &[Agent] {
        &self.agents
    }

    /// Runs `storewatch -o json` with these arguments in each agent's container and reads what it writes.
    ///
    /// # Errors
    /// When nobody answers.
    pub(super) async fn ask<T, E: fmt::Display>(
        &self,
        arguments: &[&str],
        read: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<Vec<Told<T>>, Failure> {
        self.ask_within(ANSWER, arguments, read).await
    }

    /// The same with another usual time.
    pub(super) async fn ask_within<T, E: fmt::Display>(
        &self,
        usual: Duration,
        arguments: &[&str],
        read: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<Vec<Told<T>>, Failure> {
        let questions = self.agents.iter().map(|agent| (agent, arguments.iter().map(ToString::to_string).collect()));
        let told = self.ask_each(usual, questions.collect(), read).await;
        if told.iter().all(|told| told.said.is_err()) {
            let lines =
                told.iter().take(5).filter_map(|told| Some(format!("{}: {}", told.node, told.said.as_ref().err()?)));
            let mut lines: Vec<_> = lines.map(|line| format!("storewatch: {}", clean(&line))).collect();
            lines.insert(0, format!("storewatch: none of {} agents answers", told.len()));
            return Err(Failure::mistakes(lines));
        }
        Ok(told)
    }

    /// Asks some agents, each its own question; in the order of the nodes' names.
    pub(super) async fn ask_each<T, E: fmt::Display>(
        &self,
        usual: Duration,
        questions: Vec<(&Agent, Vec<String>)>,
        read: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Vec<Told<T>> {
        let budget = self.timeout.unwrap_or(usual);
        let read = &read;
        let asked = questions.into_iter().map(|(agent, arguments)| async move {
            let said = match &agent.trouble {
                Some(trouble) => Err(trouble.clone()),
                None => match timeout(budget, self.run(agent, arguments)).await {
                    Ok(Ok(ended)) => understand(&ended, read),
                    Ok(Err(words)) => Err(words),
                    Err(_) => Err(format!("no answer within {}", show_duration(budget))),
                },
            };
            Told { node: agent.node.clone(), agent: agent.name(), said }
        });
        let mut told: Vec<_> = stream::iter(asked).buffer_unordered(self.at_once).collect().await;
        told.sort_by(|one, other| one.node.cmp(&other.node));
        told
    }

    async fn run(&self, agent: &Agent, arguments: Vec<String>) -> Result<Ended, String> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &agent.namespace);
        let mut params = AttachParams::default().stdin(false).stdout(true).stderr(true);
        params.container.clone_from(&agent.container);
        let front = ["storewatch", "-o", "json"].map(str::to_owned);
        let command: Vec<_> = front.into_iter().chain(arguments).collect();
        let mut process = api.exec(&agent.pod, command, &params).await.map_err(|error| Refused::of(&error).words)?;
        let (out, err) = (process.stdout(), process.stderr());
        let status = process.take_status();
        let (out, err) = tokio::join!(whole(out, MAX_ANSWER), whole(err, MAX_WORDS));
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        let Some(out) = out else { return Err(format!("its answer is longer than {} MiB", MAX_ANSWER >> 20)) };
        let err = String::from_utf8_lossy(&err.unwrap_or_default()).into_owned();
        Ok(Ended { out, err, status })
    }
}

impl Agent {
    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }
}

/// As kubectl finds it.
async fn configuration(options: &Options) -> Result<Config, Failure> {
    let chosen = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let config = match (&options.kubeconfig, &options.context) {
        (Some(file), _) => match Kubeconfig::read_from(file) {
            Ok(read) => Config::from_custom_kubeconfig(read, &chosen).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        },
        (None, Some(_)) => Config::from_kubeconfig(&chosen).await.map_err(|error| error.to_string()),
        (None, None) => Config::infer().await.map_err(|_| "neither KUBECONFIG nor ~/.kube/config names one".to_owned()),
    };
    config.map_err(|words| Failure::wrong(format!("there is no API server to ask: {}", clean(&words))))
}

/// All agents' pods, and where they were looked for.
async fn pods(client: &Client, options: &Options) -> Result<(ObjectList<Pod>, String), Failure> {
    let params = ListParams::default().labels(&options.selector);
    let of = async |namespace: &str| call(Api::<Pod>::namespaced(client.clone(), namespace).list(&params)).await;
    let (result, place) = match &options.namespace {
        Some(namespace) => (of(namespace).await, format!("namespace {namespace}")),
        None => match call(Api::<Pod>::all(client.clone()).list(&params)).await {
            Err(failure) if failure.why == Why::Forbidden => (of(USUAL).await, format!("namespace {USUAL}")),
            result => (result, "any namespace".to_owned()),
        },
    };
    let pods = result.map_err(|failure| {
        let words = format!("the agents' pods in {place} cannot be listed: {}", failure.words);
        Failure::wrong(clean(&words))
    })?;
    Ok((pods, place))
}

/// One agent for each node: while a DaemonSet is rolled there are two of some.
fn agents(pods: Vec<Pod>) -> Vec<Agent> {
    let mut best: BTreeMap<String, (u8, Agent)> = BTreeMap::new();
    for pod in pods {
        let (Some(namespace), Some(name)) = (pod.metadata.namespace, pod.metadata.name) else { continue };
        let phase = pod.status.phase.as_deref().unwrap_or("Unknown");
        let leaves = pod.metadata.deletion_timestamp.is_some();
        let rank = u8::from(phase == "Running") * 2 + u8::from(!leaves);
        let trouble = (phase != "Running").then(|| format!("its agent's pod is {phase}"));
        let node = pod.spec.node_name.unwrap_or_else(|| format!("(none: {name})"));
        let container = pod.metadata.annotations.and_then(|mut all| all.remove(CONTAINER));
        let agent = Agent { node: node.clone(), namespace, pod: name, container, trouble };
        if best.get(&node).is_none_or(|(other, _)| *other < rank) {
            best.insert(node, (rank, agent));
        }
    }
    best.into_values().map(|(_, agent)| agent).collect()
}

/// The answer, if there is one; `doctor` gives one also when it says no by its exit code.
fn understand<T, E: fmt::Display>(ended: &Ended, read: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, String> {
    let wrong = match read(&ended.out) {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let first = ended.err.lines().map(|line| line.trim_start_matches("storewatch: ")).find(|line| !line.is_empty());
    let status = ended.status.as_ref().filter(|status| status.status.as_deref() == Some("Failure"));
    let status = status.and_then(|status| status.message.as_deref());
    Err(match (first, status) {
        (Some(line), _) => line.to_owned(),
        (None, Some(message)) => message.to_owned(),
        (None, None) if ended.out.is_empty() => "it says nothing".to_owned(),
        (None, None) => format!("its answer cannot be read: {wrong}"),
    })
}

/// Reads to the end; `None` when there is more than that.
async fn whole(reader: Option<impl AsyncRead + Unpin>, most: usize) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    let mut reader = reader?;
    let mut piece = vec![0; 16 << 10];
    let mut beyond = false;
    // Also what is not kept has to be read, or the other stream would never end.
    while let Ok(count @ 1..) = reader.read(&mut piece).await {
        if kept.len() + count > most {
            beyond = true;
        } else if let Some(read) = piece.get(..count) {
            kept.extend_from_slice(read);
        }
    }
    (!beyond).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, phase: &str, more: &str) -> Pod {
        let text = format!(
            r#"{{"metadata":{{"namespace":"storewatch","name":"{name}"{more}}},"spec":{{"nodeName":"{node}"}},"status":{{"phase":"{phase}"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn one_agent_for_each_node() {
        let leaves = r#","deletionTimestamp":"2026-11-30T12:00:00Z""#;
        let container = r#","annotations":{"kubectl.kubernetes.io/default-container":"agent"}"#;
        let found = agents(vec![
            pod("old", "b", "Running", leaves),
            pod("new", "b", "Running", container),
            pod("starts", "c", "Pending", ""),
            pod("a", "a", "Running", ""),
            serde_json::from_str(
                r#"{"metadata":{"namespace":"storewatch","name":"nowhere"},"status":{"phase":"Pending"}}"#,
            )
            .unwrap(),
            Pod::default(),
        ]);
        let rows: Vec<_> = found.iter().map(|agent| (&*agent.node, &*agent.pod, agent.trouble.as_deref())).collect();
        assert_eq!(
            rows,
            [
                ("(none: nowhere)", "nowhere", Some("its agent's pod is Pending")),
                ("a", "a", None),
                ("b", "new", None),
                ("c", "starts", Some("its agent's pod is Pending")),
            ]
        );
        assert_eq!(found[2].container.as_deref(), Some("agent"));
    }

    #[test]
    fn what_a_command_came_to() {
        let status = |text: &str| Some(serde_json::from_str::<Status>(text).unwrap());
        let said = |out: &str, err: &str, status: Option<Status>| {
            let ended = Ended { out: out.into(), err: err.into(), status };
            understand(&ended, |text| serde_json::from_slice::<u32>(text))
        };
        let failed =
            r#"{"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode"}"#;
        assert_eq!(said("7", "", status(r#"{"status":"Success"}"#)), Ok(7));
        assert_eq!(said("7", "", status(failed)), Ok(7), "doctor says no and answers all the same");
        let no_agent = "storewatch: the agent cannot be reached at unix:/x: nobody listens there\nmore\n";
        let words = said("", no_agent, status(failed)).unwrap_err();
        assert_eq!(words, "the agent cannot be reached at unix:/x: nobody listens there");
        assert_eq!(said("", "", status(failed)).unwrap_err(), "command terminated with non-zero exit code");
        assert_eq!(said("", "", None).unwrap_err(), "it says nothing");
        assert!(said("<html>", "", None).unwrap_err().starts_with("its answer cannot be read: "));
    }

    #[tokio::test]
    async fn what_is_too_long_is_read_and_not_kept() {
        assert_eq!(whole(Some(&b"1234"[..]), 4).await, Some(b"1234".to_vec()));
        assert_eq!(whole(Some(&b"12345"[..]), 4).await, None);
        assert_eq!(whole(None::<&[u8]>, 4).await, None);
    }
}
