//! `probe`: one question, answered by the exit code.

use super::{
    Exit, Failure, OnError, Output, ProbeArgs,
    address::AgentAddress,
    client::{self, Answer, segment},
    exit::print,
    table::clean,
    wire::{Pod, Readiness},
};
use http::StatusCode;
use std::{process::ExitCode, time::Duration};
use tokio::time::Instant;

/// Whom the question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Pod { namespace: String, name: String },
    Uid(String),
    Own,
}

/// What is said and with which code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) exit: Exit,
    pub(super) text: String,
}

/// Asks and prints.
pub(super) async fn run(agent: Option<&str>, output: Output, args: &ProbeArgs) -> Result<ExitCode, Failure> {
    let verdict = ask(agent, output, args).await?;
    print(&verdict.text, &mut std::io::stdout())?;
    Ok(verdict.exit.into())
}

/// The answer; what `--on-error ready` covers is an answer too.
pub(super) async fn ask(agent: Option<&str>, output: Output, args: &ProbeArgs) -> Result<Verdict, Failure> {
    let subject = subject(args)?;
    let agent = AgentAddress::choose(agent, AgentAddress::probe())?;
    if subject == Subject::Own && matches!(agent, AgentAddress::Unix(_)) {
        return Err(Failure::wrong("--self needs an address of the network (http://HOST:PORT): a socket has none"));
    }
    match verdict(&agent, &subject, output, args.timeout).await {
        Err(failure) if args.on_error == OnError::Ready => {
            let reason: Vec<_> = failure.lines().map(|line| line.trim_start_matches("storewatch: ")).collect();
            let text = match output {
                Output::Table => format!("Ready because of --on-error ready: {}\n", reason.join("; ")),
                Output::Json => format!("{}\n", serde_json::json!({"ready": true, "error": reason.join("; ")})),
            };
            Ok(Verdict { exit: Exit::Done, text })
        }
        other => other,
    }
}

/// Namespace and name in `NAMESPACE/POD`.
pub(super) fn name_of_pod(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(Failure::wrong(format!("{text:?} is no pod; write NAMESPACE/POD"))),
    }
}

fn subject(args: &ProbeArgs) -> Result<Subject, Failure> {
    if let Some(pod) = &args.pod {
        return name_of_pod(pod).map(|(namespace, name)| Subject::Pod { namespace, name });
    }
    if args.own {
        return Ok(Subject::Own);
    }
    match args.uid.as_deref() {
        Some(uid) if !uid.is_empty() => Ok(Subject::Uid(uid.to_owned())),
        _ => Err(Failure::wrong("say which pod: NAMESPACE/POD, --uid UID or --self, or set POD_UID")),
    }
}

async fn verdict(
    agent: &AgentAddress,
    subject: &Subject,
    output: Output,
    budget: Duration,
) -> Result<Verdict, Failure> {
    // The admin socket has no probe paths, its list of pods has the answer.
    if let AgentAddress::Unix(_) = agent {
        return from_list(agent, subject, output, budget).await;
    }
    let path = match subject {
        Subject::Pod { namespace, name } => format!("/readiness/pods/{}/{}", segment(namespace), segment(name)),
        Subject::Uid(uid) => format!("/readiness/uid/{}", segment(uid)),
        Subject::Own => "/readiness/self".to_owned(),
    };
    let started = Instant::now();
    let Answer { status, headers: _, body } = client::get(agent, &path, budget).await?;
    if status == StatusCode::NOT_FOUND && *subject != Subject::Own {
        // Unknown to the probe port; or this is the admin port, which knows it by another path.
        let rest = budget.saturating_sub(started.elapsed());
        if let Ok(verdict) = from_list(agent, subject, output, rest).await {
            return Ok(verdict);
        }
    }
    let exit = match status {
        StatusCode::OK => Exit::Done,
        StatusCode::SERVICE_UNAVAILABLE => Exit::No,
        StatusCode::NOT_FOUND => {
            return Err(Failure::wrong(format!("the agent at {agent} does not know {}", subject.show())));
        }
        other => return Err(Failure::wrong(format!("the agent at {agent} answers {other}"))),
    };
    // A proxy on the way has codes of its own: only the agent's body makes them an answer.
    let readiness: Readiness = serde_json::from_slice(&body)
        .map_err(|error| Failure::wrong(format!("what answers {status} at {agent} is no storewatch agent: {error}")))?;
    let text = match output {
        Output::Json => format!("{}\n", String::from_utf8_lossy(&body).trim_end()),
        Output::Table => {
            let Readiness { status, reason, message, .. } = readiness;
            sentence(&status, &reason, &message)
        }
    };
    Ok(Verdict { exit, text })
}

async fn from_list(
    agent: &AgentAddress,
    subject: &Subject,
    output: Output,
    budget: Duration,
) -> Result<Verdict, Failure> {
    let (pods, text) = client::get_json::<Vec<Pod>>(agent, "/v1/pods", budget).await?;
    let at = pods.iter().position(|pod| match subject {
        Subject::Pod { namespace, name } => pod.namespace == *namespace && pod.name == *name,
        Subject::Uid(uid) => pod.uid == *uid,
        Subject::Own => false,
    });
    let Some(at) = at else {
        return Err(Failure::wrong(format!("the agent at {agent} does not know {}", subject.show())));
    };
    let pod = &pods[at];
    let text = match output {
        Output::Json => {
            let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
            format!("{}\n", list.get(at).unwrap_or(&serde_json::Value::Null))
        }
        Output::Table => sentence(&pod.status, &pod.reason, &pod.message),
    };
    Ok(Verdict { exit: if pod.ready { Exit::Done } else { Exit::No }, text })
}

fn sentence(status: &str, reason: &str, message: &str) -> String {
    clean(&format!("{status} {reason}: {message}")) + "\n"
}

impl Subject {
    fn show(&self) -> String {
        match self {
            Self::Pod { namespace, name } => format!("pod {namespace}/{name}"),
            Self::Uid(uid) => format!("a pod with uid {uid}"),
            Self::Own => "the pod of this address".to_owned(),
        }
    }
}
