//! The demo's only source of truth: what the agent answers.

use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The agent's probe port inside the demo.
pub(super) const PROBE: u16 = 9465;

/// The agent's admin port inside the demo.
pub(super) const ADMIN: u16 = 9467;

/// How often the story looks; small against what it measures.
const POLL: Duration = Duration::from_millis(10);

/// One answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) code: u16,
    /// The body.
    pub(super) body: Value,
}

impl Answer {
    /// A string of the body, or a dash.
    pub(super) fn text(&self, key: &str) -> &str {
        self.body.get(key).and_then(Value::as_str).unwrap_or("-")
    }

    /// The codes of its findings.
    pub(super) fn findings(&self) -> Vec<&str> {
        let list = self.body.get("findings").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// Asks the agent.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Agent {
    pub(super) fn new() -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// One GET on the probe listener.
    pub(super) async fn probe(&self, path: &str) -> Result<Answer> {
        self.get(PROBE, path).await
    }

    /// One GET on the admin listener.
    pub(super) async fn admin(&self, path: &str) -> Result<Answer> {
        self.get(ADMIN, path).await
    }

    async fn get(&self, port: u16, path: &str) -> Result<Answer> {
        let uri = format!("http://127.0.0.1:{port}{path}").parse().context("a path of the demo is no URI")?;
        let response = self.client.get(uri).await.with_context(|| format!("the agent does not answer on {port}"))?;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        let body = serde_json::from_slice(&body).with_context(|| format!("{path}: the answer is not JSON"))?;
        Ok(Answer { code, body })
    }

    /// Asks until the answer satisfies `wanted`, and gives it with the time it took.
    pub(super) async fn until(
        &self,
        path: &str,
        limit: Duration,
        wanted: impl Fn(&Answer) -> bool,
    ) -> Result<(Answer, Duration)> {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < limit {
            match self.probe(path).await {
                Ok(answer) if wanted(&answer) => return Ok((answer, begun.elapsed())),
                Ok(answer) => {
                    let [status, reason, message] =
                        ["status", "reason", "message"].map(|key| answer.text(key).to_owned());
                    last = Some(format!("{} {status} {reason}: {message}", answer.code));
                }
                Err(error) => last = Some(format!("{error:#}")),
            }
            tokio::time::sleep(POLL).await;
        }
        bail!(
            "the story stops: {path} did not get there within {limit:?} (a very busy machine can be the cause); the last answer: \
             {}",
            last.unwrap_or_default()
        )
    }
}
