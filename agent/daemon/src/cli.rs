//! The command line. Commands that ask the agent know its HTTP interface only, as any script would.

mod address;
mod check_config;
mod client;
mod connections;
mod doctor;
mod events;
mod exit;
mod explain;
pub mod kubectl;
mod lines;
mod list;
mod open_gates;
mod probe;
mod query;
mod record;
mod replay;
mod status;
mod table;
mod wire;

pub use exit::{Exit, Failure};

use crate::runtime::threads;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{future::Future, io::Write, path::PathBuf, process::ExitCode, time::Duration};

/// Which HugeGraph Server still reaches its storage.
#[derive(Debug, Parser)]
#[command(name = "storewatch", version, about, disable_help_subcommand = true, max_term_width = 120)]
#[command(after_help = "Exit codes: 0 done; 1 the answer is no, or it failed while running; 2 wrong usage, \
                        configuration or file, or nobody answers.")]
pub struct Cli {
    /// The agent to ask: unix:PATH or http://HOST:PORT.
    ///
    /// Without it the admin socket /run/storewatch/admin.sock is asked; `probe` asks http://127.0.0.1:9465.
    #[arg(long, global = true, env = "STOREWATCH_AGENT", value_name = "ADDRESS", hide_env_values = true)]
    pub agent: Option<String>,

    /// How to print the answer.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// As the agent gave it.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent in the foreground; SIGTERM drains, a second signal aborts.
    #[command(
        after_help = "Example:\n  storewatch run --config /etc/storewatch/storewatch.yaml --set ping.interval=1s"
    )]
    Run(ConfigArgs),

    /// Print every mistake of a configuration, or the effective configuration if there is none.
    #[command(after_help = "Example:\n  storewatch check-config --config storewatch.yaml\n\n\
                            Mistakes go to standard error, one a line: place, key, value and rule.")]
    CheckConfig(ConfigArgs),

    /// Look at what this machine offers to an agent: kernel, rights, hooks, ports, PD and Stores.
    #[command(after_help = "Example:\n  sudo storewatch doctor --config /etc/storewatch/storewatch.yaml\n\n\
                            One line each: ok, degraded or missing, with what is lost and how to get it. Exit code 0 \
                            unless the agent cannot run at all. A running agent is not disturbed.")]
    Doctor(DoctorArgs),

    /// Show the node's readiness and the agent's own state.
    #[command(after_help = "Example:\n  storewatch status\n  storewatch -o json status --agent http://127.0.0.1:9467")]
    Status(AskArgs),

    /// List the judged pods with their verdicts.
    #[command(after_help = "Example:\n  storewatch pods\n  storewatch pods -o json | jq '.[] | select(.ready | not)'")]
    Pods(AskArgs),

    /// List the Stores and what the last ping of each showed.
    #[command(after_help = "Example:\n  storewatch stores")]
    Stores(AskArgs),

    /// List the pods' connections to Stores and PD: to whom, whose the address is, how it goes and how it ended.
    #[command(after_help = "Examples:\n  storewatch connections\n  storewatch connections --owner previous\n  \
                      storewatch connections --pod graph/hugegraph-server-0 --state established\n\n\
                      An age after `>` is of a connection that is older than the agent.")]
    Connections(ConnectionsArgs),

    /// List what happened lately, or follow it.
    #[command(after_help = "Examples:\n  storewatch events --kind transition,finding\n  \
                            storewatch events --follow --pod graph/hugegraph-server-0\n  \
                            storewatch -o json events --since 412 | jq -r '.[].message'\n\n\
                            With --follow and -o json each line is one event. It ends with exit code 0 on Ctrl-C, and \
                            with 1 when the agent goes.")]
    Events(EventsArgs),
    /// Explain a pod's verdict in sentences: why, since when, what to do now, and what prevents it.
    #[command(
        after_help = "Examples:\n  storewatch explain graph/hugegraph-server-0\n  storewatch explain    every pod that \
                            is not well"
    )]
    Explain(ExplainArgs),

    /// Answer by exit code whether a pod is ready: 0 ready, 1 not ready, 2 no agent or no such pod.
    #[command(after_help = "Examples:\n  storewatch probe graph/hugegraph-server-0\n  \
                            POD_UID=6f2c... STOREWATCH_AGENT=http://10.0.0.7:9465 storewatch probe --on-error ready")]
    Probe(ProbeArgs),

    /// Open the readiness gates of all selected pods, on all nodes: to be run before the agents are taken away.
    ///
    /// It needs a kubeconfig or a service account that may list these pods and patch their status. An agent that still
    /// runs may shut a gate again.
    #[command(after_help = "Example:\n  storewatch open-gates --config /etc/storewatch/storewatch.yaml")]
    OpenGates(ConfigArgs),
    /// Write to a file what the agent knows and, from now on, observes.
    #[command(after_help = "Examples:\n  storewatch record --out trouble.rec --for 5m\n  \
                            storewatch record --out trouble.rec --anonymize    # until Ctrl-C\n\n\
                            A recording holds addresses, names of hosts and pods, and no payload. It begins with the \
                            minutes before it as far as the agent remembers them.")]
    Record(RecordArgs),

    /// Tell the verdicts and findings that follow from a recording, on any machine.
    #[command(after_help = "Examples:\n  storewatch replay trouble.rec\n  \
                            zstd -dc trouble.rec.zst | storewatch replay - -o json")]
    Replay(ReplayArgs),

    /// Run the whole product on this machine, with a cluster and pods of its own in network namespaces (needs root).
    #[command(after_help = "Example:\n  sudo storewatch demo --keep")]
    Demo(DemoArgs),
}

/// Where the configuration comes from.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// The YAML file.
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,

    /// Override a key; may be repeated. Stronger than STOREWATCH_* variables.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

/// What `doctor` looks at.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The YAML file; without it the defaults are looked at, and no PD and no Store is asked.
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Override a key; may be repeated. Stronger than STOREWATCH_* variables.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
}

/// How to ask.
#[derive(Args, Clone, Debug)]
pub struct AskArgs {
    /// How long to wait for the whole answer (of one that goes on: for its beginning).
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// Which connections.
#[derive(Args, Clone, Debug)]
pub struct ConnectionsArgs {
    /// Of pods in this namespace.
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Of this pod: NAME or NAMESPACE/NAME.
    #[arg(long, value_name = "POD")]
    pub pod: Option<String>,

    /// Of pods of this cluster.
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,

    /// To this target: a Store's id, static-N, pd or other.
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,

    /// Whose the remote address is: the target's now (current), once (previous), or unknown.
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<String>,

    /// How it went: established, refused, reset, no_answer_kernel, ...
    #[arg(long, value_name = "OUTCOME")]
    pub outcome: Option<String>,

    /// Its TCP state: syn_sent, established, close_wait, closed (lately ended), ...
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,

    /// Instead those that belong to no judged pod, with the reason why.
    #[arg(long, conflicts_with_all = ["namespace", "pod"])]
    pub unattributed: bool,

    /// How many at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,

    /// How to ask.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Which events.
#[derive(Args, Clone, Debug)]
pub struct EventsArgs {
    /// Only those after this generation.
    #[arg(long, value_name = "GENERATION")]
    pub since: Option<u64>,

    /// Go on with what happens from now on.
    #[arg(long, short)]
    pub follow: bool,

    /// Only these kinds: transition, connection, reset, ping, owner, finding, source, loss; with commas in between.
    #[arg(long, value_name = "KINDS")]
    pub kind: Option<String>,

    /// Only those of pods in this namespace.
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Only those of this pod: NAME or NAMESPACE/NAME.
    #[arg(long, value_name = "POD")]
    pub pod: Option<String>,

    /// How to ask.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Whom `explain` is about.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// The pod, by name; without it every pod that is not well.
    #[arg(value_name = "NAMESPACE/POD")]
    pub pod: Option<String>,

    /// How to ask.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Whom `probe` is about.
#[derive(Args, Clone, Debug)]
pub struct ProbeArgs {
    /// The pod, by name.
    #[arg(value_name = "NAMESPACE/POD", conflicts_with_all = ["uid", "own"])]
    pub pod: Option<String>,

    /// The pod, by UID; without any of the three the variable POD_UID is taken.
    #[arg(long, value_name = "UID", conflicts_with = "own")]
    pub uid: Option<String>,

    /// The pod that owns this client's source address.
    #[arg(long = "self")]
    pub own: bool,

    /// What it means when the agent cannot be reached or does not know the pod.
    #[arg(long, value_enum, default_value_t = OnError::Error, value_name = "WHAT")]
    pub on_error: OnError,

    /// How long to wait; below the second that Kubernetes gives a probe by default.
    #[arg(long, value_name = "DURATION", default_value = "800ms", value_parser = parse_duration)]
    pub timeout: Duration,
}

impl ProbeArgs {
    /// Not left to clap, for which a variable would conflict with what is said on the command line.
    fn or_pod_uid(mut self, variable: Option<String>) -> Self {
        if self.pod.is_none() && self.uid.is_none() && !self.own {
            self.uid = variable;
        }
        self
    }
}

/// See [`ProbeArgs::on_error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// Exit code 2.
    Error,
    /// Exit code 0: an agent that is away takes no pod out.
    Ready,
}

/// What to record.
#[derive(Args, Clone, Debug)]
pub struct RecordArgs {
    /// The file to write; one that exists is replaced once the agent has answered.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// End after this time; without it SIGINT (Ctrl-C) or SIGTERM ends the recording.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Replace addresses and the names of hosts, pods, namespaces, workloads and clusters, each by the same throughout
    /// the file, and leave out what is said in words. Loopback addresses stay.
    #[arg(long)]
    pub anonymize: bool,
}

/// What to replay.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// A file of `storewatch record`; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// How the demo ends.
#[derive(Args, Clone, Copy, Debug)]
pub struct DemoArgs {
    /// Leave the cluster and the agent running after the story, until Ctrl-C.
    #[arg(long)]
    pub keep: bool,

    /// Be one process of the demo's cluster: how the demo starts itself.
    #[arg(long, hide = true, value_name = "PART")]
    pub part: Option<crate::demo::part::Part>,
}

/// Runs a command to its end.
///
/// # Errors
/// [`Failure`], with the exit code that stands for it.
pub fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { agent, output, command } = cli;
    let agent = agent.as_deref();
    match command {
        Command::Run(args) => {
            let config = check_config::load(&args)?;
            let ended = threads::run(|listeners| crate::app::run(config, listeners));
            let ended = ended.map_err(|error| Failure::running(format!("cannot start threads: {error}")))?;
            ended.map_err(|error| Failure::running(format!("{error:#}")))
        }
        Command::CheckConfig(args) => check_config::run(&args, output, &mut std::io::stdout()),
        Command::Doctor(args) => asking(doctor::run(output, &args)),
        Command::Status(args) => asking(status::run(agent, output, args.timeout)),
        Command::Pods(args) => asking(list::pods(agent, output, args.timeout)),
        Command::Stores(args) => asking(list::stores(agent, output, args.timeout)),
        Command::Connections(args) => asking(connections::run(agent, output, &args)),
        Command::Events(args) => asking(events::run(agent, output, &args)),
        Command::Explain(ExplainArgs { pod, ask }) => asking(explain::run(agent, output, pod.as_deref(), ask.timeout)),
        Command::Probe(args) => asking(probe::run(agent, output, &args.or_pod_uid(std::env::var("POD_UID").ok()))),
        Command::OpenGates(args) => asking(open_gates::run(&args, &mut std::io::stdout())),
        Command::Record(args) => asking(record::run(agent, &args)),
        Command::Replay(ReplayArgs { file }) => replay::run(&file, output),
        Command::Demo(DemoArgs { keep, part }) => match part {
            Some(part) => crate::demo::run_part(part),
            None => crate::demo::run(keep),
        }
        .map_err(|error| Failure::running(format!("{error:#}"))),
    }
}

/// Tells a failure on standard error, one line each.
pub fn complain(failure: &Failure) {
    let mut stderr = std::io::stderr().lock();
    for line in failure.lines() {
        // Nobody is left to tell when this fails.
        let _ = writeln!(stderr, "{line}");
    }
}

/// Clients need one thread, and no more than a connection.
fn asking(answer: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::running(format!("cannot start: {error}")))?;
    runtime.block_on(answer)
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    match crate::config::value::parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err("must be longer than nothing".to_owned()),
        other => other,
    }
}
