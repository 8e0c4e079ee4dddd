//! `kubectl storewatch`: this binary under the name `kubectl-storewatch`, which kubectl finds on PATH. It asks the agents of
//! all nodes and puts their answers together.
//!
//! Each agent is asked by a command in its own container (`storewatch -o json ...`, as `kubectl exec` does it), and not
//! through a forwarded port: `doctor` has to run there anyway, the command knows the agent's own socket, which is there
//! also where `listen.admin` is off, and a forwarded port of a pod in the node's network would open the node's whole
//! loopback interface. Whoever asks needs the rights to list pods and to create `pods/exec` in the agents' namespace (before
//! Kubernetes 1.35 also to get it, since a WebSocket begins as a GET), and nothing else.

mod ask;
mod doctor;
mod explain;
mod merge;
mod show;

use super::{
    Exit, Failure, Output,
    exit::{print, remark},
    parse_duration,
    table::{Style, clean},
    wire::Snapshot,
};
use ask::Cluster;
use clap::{Args, Parser, Subcommand};
use merge::{Fleet, Told};
use serde_json::{Value, json};
use std::{ffi::OsStr, path::Path, path::PathBuf, process::ExitCode, time::Duration};

/// What the binary is called as a plug-in of kubectl.
const NAME: &str = "kubectl-storewatch";

/// Which HugeGraph Server still reaches its storage: the answer of all nodes of a Kubernetes cluster.
///
/// Each node's storewatch agent is asked through the API server, with your kubeconfig: list pods and create pods/exec in
/// the agents' namespace is all that it takes.
#[derive(Debug, Parser)]
#[command(name = NAME, bin_name = "kubectl storewatch", version, disable_help_subcommand = true, max_term_width = 120)]
#[command(
    after_help = "Exit codes: 0 done; 1 doctor: an agent cannot run; 2 wrong usage, or no agent answers. A node that \
                        does not answer costs its row, not the answer."
)]
pub struct Plugin {
    /// How to ask.
    #[command(flatten)]
    options: Options,

    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// Whom to ask, and how.
#[derive(Args, Clone, Debug)]
struct Options {
    /// Where the agents run; without it all namespaces are searched, or `storewatch` where that is not allowed.
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// The agents' labels.
    #[arg(
        short = 'l',
        long,
        global = true,
        value_name = "SELECTOR",
        default_value = "app.kubernetes.io/name=storewatch"
    )]
    selector: String,

    /// The context of the kubeconfig to use.
    #[arg(long, global = true, value_name = "CONTEXT")]
    context: Option<String>,

    /// The kubeconfig file; otherwise the variable KUBECONFIG, or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// How long each node may take; 10s, for doctor 60s.
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// Nodes that are asked at once.
    #[arg(long, global = true, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    at_once: u16,

    /// How to print the answer.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// The commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Show each node's readiness, and what the nodes together say about Stores and wiring.
    #[command(after_help = "Example:\n  kubectl storewatch status")]
    Status,

    /// List the judged pods of all nodes with their verdicts.
    #[command(after_help = "Example:\n  kubectl storewatch pods -o json | jq '.[] | select(.ready | not)'")]
    Pods,

    /// List the Stores, and which nodes reach them.
    #[command(after_help = "Example:\n  kubectl storewatch stores")]
    Stores,

    /// Explain verdicts in sentences: of one pod, or of every pod that is not well.
    #[command(
        after_help = "Examples:\n  kubectl storewatch explain\n  kubectl storewatch explain graph/hugegraph-server-0"
    )]
    Explain {
        /// The pod; without it every pod that is not Ready or has more than an info finding.
        #[arg(value_name = "NAMESPACE/POD")]
        pod: Option<String>,
    },

    /// Look at what each node offers to its agent, and tell the nodes apart by what they lack.
    #[command(
        after_help = "Example:\n  kubectl storewatch doctor\n\nIt runs `storewatch doctor` in each agent's container, which \
                            takes some seconds and disturbs no agent."
    )]
    Doctor {
        /// The agent's configuration in its container.
        #[arg(long, value_name = "FILE", default_value = "/etc/storewatch/storewatch.yaml")]
        config: String,
    },
}

/// The binary was called by the plug-in's name.
pub fn is_called(name: Option<&OsStr>) -> bool {
    name.and_then(|name| Path::new(name).file_name()).is_some_and(|name| name == NAME)
}

/// Asks all agents and prints what they say together.
///
/// # Errors
/// When no agent answers.
pub fn run(plugin: Plugin) -> Result<ExitCode, Failure> {
    super::asking(act(plugin))
}

async fn act(Plugin { options, command }: Plugin) -> Result<ExitCode, Failure> {
    let cluster = Cluster::find(&options).await?;
    let style = Style::of_stdout();
    if let Command::Doctor { config } = command {
        return doctor::run(&cluster, options.output, &config, style).await;
    }
    let told = cluster.ask(&["status"], |text| serde_json::from_slice::<Value>(text)).await?;
    let values: Vec<&Told<Value>> = told.iter().collect();
    let fleet = Fleet::of(told.iter().map(read).collect());
    complain(&fleet, options.output);
    let text = match (&command, options.output) {
        (Command::Explain { pod }, output) => {
            let (text, exit) = explain::run(&cluster, &fleet, pod.as_deref(), output, style).await?;
            print(&text, &mut std::io::stdout())?;
            return Ok(exit.into());
        }
        (Command::Status, Output::Table) => show::status(&fleet, style),
        (Command::Pods, Output::Table) => show::pods(&fleet, style),
        (Command::Stores, Output::Table) => show::stores(&fleet, style),
        (Command::Status | Command::Doctor { .. }, Output::Json) => lines(&json!(statuses(&values))),
        (Command::Pods, Output::Json) => lines(&json!(pods(&values))),
        (Command::Stores, Output::Json) => lines(&json!(fleet.stores())),
        (Command::Doctor { .. }, Output::Table) => String::new(),
    };
    print(&text, &mut std::io::stdout())?;
    Ok(Exit::Done.into())
}

/// Beside an answer for scripts, the nodes that are missing in it.
fn complain(fleet: &Fleet, output: Output) {
    if output == Output::Json
        && let Some(words) = fleet.silent_words()
    {
        remark(&clean(&words));
    }
}

/// What is needed of a node's answer.
fn read(told: &Told<Value>) -> Told<Snapshot> {
    told.map(|value| {
        serde_json::from_value(value.clone()).map_err(|error| format!("its agent's answer cannot be read: {error}"))
    })
}

fn statuses(told: &[&Told<Value>]) -> Vec<Value> {
    let of = |told: &&Told<Value>| {
        let (snapshot, error) = match &told.said {
            Ok(snapshot) => (Some(snapshot), None),
            Err(words) => (None, Some(words)),
        };
        json!({ "node": told.node, "agent": told.agent, "error": error, "snapshot": snapshot })
    };
    told.iter().map(of).collect()
}

/// Each pod as its agent gives it, and its node.
fn pods(told: &[&Told<Value>]) -> Vec<Value> {
    let mut all = Vec::new();
    for told in told {
        let Ok(snapshot) = &told.said else { continue };
        for pod in snapshot["pods"].as_array().into_iter().flatten() {
            let mut pod = pod.clone();
            if let Some(fields) = pod.as_object_mut() {
                fields.insert("node".to_owned(), json!(told.node));
            }
            all.push(pod);
        }
    }
    all
}

fn lines(value: &Value) -> String {
    // A value of JSON can always be written.
    format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_plug_in_is_told_by_its_name() {
        for (name, called) in [
            (Some("/usr/local/bin/kubectl-storewatch"), true),
            (Some("kubectl-storewatch"), true),
            (Some("/storewatch"), false),
            (Some("/kubectl-storewatch/storewatch"), false),
            (None, false),
        ] {
            assert_eq!(is_called(name.map(OsStr::new)), called, "{name:?}");
        }
        Plugin::command().debug_assert();
    }

    #[test]
    fn options_stand_before_or_after_the_command() {
        let parsed = Plugin::try_parse_from([NAME, "-n", "agents", "pods", "-o", "json", "--timeout", "3s"]).unwrap();
        assert_eq!(parsed.options.namespace.as_deref(), Some("agents"));
        assert_eq!((parsed.options.output, parsed.options.timeout), (Output::Json, Some(Duration::from_secs(3))));
        assert_eq!((parsed.options.at_once, &*parsed.options.selector), (16, "app.kubernetes.io/name=storewatch"));
        for wrong in
            [&[NAME][..], &[NAME, "status", "--at-once", "0"], &[NAME, "status", "--timeout", "0s"], &[NAME, "run"]]
        {
            assert!(Plugin::try_parse_from(wrong).is_err(), "{wrong:?}");
        }
    }
}
