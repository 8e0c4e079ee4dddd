//! `doctor`: what this machine, this process and this configuration offer to an agent, looked at before it runs.
//!
//! Each check tries the real thing with the agent's own code and undoes it: programs are attached and detached, ports are
//! bound and left, PD, every Store, the API server and the container runtime are asked once. Nothing of a running agent is touched; where one holds a port, it is
//! asked who it is.

mod cluster;
mod host;
mod kernel;
mod kubernetes;
mod listeners;
mod pods;
#[cfg(test)]
mod tests;

use crate::config::Config;
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
    let (of_api_server, listed) = kubernetes::checks(config, given).await;
    checks.extend(pods::checks(config, given, listed).await?);
    checks.extend(if given { cluster::checks(config).await } else { vec![cluster::unknown()] });
    checks.extend(of_api_server);
    let can_run = !checks.iter().any(|check| check.fatal);
    Ok(Report { checks, can_run })
}
