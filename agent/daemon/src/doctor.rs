//! `doctor`: what this machine, this process and this configuration offer to an agent, looked at before it runs.
//!
//! Each check tries the real thing with the agent's own code and undoes it: programs are attached and detached, ports are
//! bound and left, PD and every Store are asked once. Nothing of a running agent is touched; where one holds a port, it is
//! asked who it is.

mod cluster;
mod host;
mod kernel;
mod listeners;
#[cfg(test)]
mod tests;

use crate::config::{Config, PodSource};
use serde::Serialize;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In full.
    Ok,
    /// In part.
    Degraded,
    /// Not at all.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    #[serde(rename = "check")]
    pub name: String,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What is lost; empty when nothing is.
    pub lost: String,
    /// How to get it; empty when nothing is lost.
    pub how: String,
    /// With this the agent does not run at all.
    pub fatal: bool,
}

impl Check {
    fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state: State::Ok,
            found: found.into(),
            lost: String::new(),
            how: String::new(),
            fatal: false,
        }
    }

    fn degraded(name: impl Into<String>, found: impl Into<String>, lost: &str, how: impl Into<String>) -> Self {
        Self { state: State::Degraded, lost: lost.into(), how: how.into(), ..Self::ok(name, found) }
    }

    fn missing(name: impl Into<String>, found: impl Into<String>, lost: &str, how: impl Into<String>) -> Self {
        Self { state: State::Missing, lost: lost.into(), how: how.into(), ..Self::ok(name, found) }
    }

    fn fatal(self) -> Self {
        Self { fatal: true, ..self }
    }

    fn fatal_if(self, fatal: bool) -> Self {
        Self { fatal: self.fatal || fatal, ..self }
    }
}

/// Everything that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The checks, from the machine outwards.
    pub checks: Vec<Check>,
    /// An agent runs with this.
    pub can_run: bool,
}

/// Looks at everything. `given`: the configuration is the user's; otherwise it only holds the defaults, and names no
/// cluster that could be asked.
///
/// # Errors
/// When a thread that looks at the kernel panicked.
pub async fn examine(config: &Config, given: bool) -> anyhow::Result<Report> {
    let mode = config.kernel.mode;
    let mut checks = tokio::task::spawn_blocking(move || kernel::checks(mode)).await?;
    checks.extend(host::checks());
    checks.push(host::state_file(config));
    checks.extend(listeners::checks(config).await);
    checks.push(pods(config, given));
    checks.extend(if given { cluster::checks(config).await } else { vec![cluster::unknown()] });
    checks.push(Check::missing(
        "kubernetes",
        "this build does not talk to Kubernetes",
        "pods from the API server, readiness gates, Events and eviction",
        "list the pods in a file (pods.source: file) until a later version does",
    ));
    let can_run = !checks.iter().any(|check| check.fatal);
    Ok(Report { checks, can_run })
}

/// Where the pods come from.
fn pods(config: &Config, given: bool) -> Check {
    const LOST: &str = "verdicts on single pods: only the node is judged";
    let file = config.pods.file.display();
    match config.pods.source {
        _ if !given => Check::degraded("pods", "no configuration is given", LOST, "storewatch doctor --config FILE"),
        PodSource::None => Check::degraded("pods", "switched off by pods.source: none", LOST, "pods.source: file"),
        PodSource::Kubernetes | PodSource::Cri => Check::missing(
            "pods",
            "this build does not offer the configured pods.source",
            LOST,
            "list the pods in a file (pods.source: file)",
        ),
        PodSource::File => match crate::source::pods::survey(config) {
            Ok((pods, problems)) if problems.is_empty() => Check::ok("pods", format!("{pods} in {file}, all found")),
            Ok((pods, problems)) => Check::degraded(
                "pods",
                format!("{pods} in {file}: {}", problems.join("; ")),
                "the kernel's evidence about those pods: they are judged by the node's pings alone",
                "correct the place of each in the file; the agent looks again every second",
            ),
            Err(reason) => {
                Check::missing("pods", reason, LOST, "write the list; the agent takes it as soon as it is there")
            }
        },
    }
}
