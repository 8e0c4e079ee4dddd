//! `pods` and `stores`.

use super::{
    Exit, Failure, Output,
    address::AgentAddress,
    client,
    exit::print,
    table::{Cell, Style, Tone, human, human_ms, table},
    wire::{Finding, Pod, Store},
};
use jiff::Timestamp;
use std::{collections::HashSet, process::ExitCode, time::Duration};

/// Prints the judged pods.
pub(super) async fn pods(agent: Option<&str>, output: Output, budget: Duration) -> Result<ExitCode, Failure> {
    let agent = AgentAddress::choose(agent, AgentAddress::admin())?;
    let (pods, text) = client::get_json::<Vec<Pod>>(&agent, "/v1/pods", budget).await?;
    let text = match output {
        Output::Json => text,
        Output::Table if pods.is_empty() => "No pod is watched on this node.\n".to_owned(),
        Output::Table => pod_table(&pods, Timestamp::now(), Style::of_stdout()),
    };
    print(&text, &mut std::io::stdout())?;
    Ok(Exit::Done.into())
}

/// Prints the Stores.
pub(super) async fn stores(agent: Option<&str>, output: Output, budget: Duration) -> Result<ExitCode, Failure> {
    let agent = AgentAddress::choose(agent, AgentAddress::admin())?;
    let (stores, text) = client::get_json::<Vec<Store>>(&agent, "/v1/stores", budget).await?;
    let text = match output {
        Output::Json => text,
        Output::Table if stores.is_empty() => "No Store is known.\n".to_owned(),
        Output::Table => store_table(&stores, Style::of_stdout()),
    };
    print(&text, &mut std::io::stdout())?;
    Ok(Exit::Done.into())
}

pub(super) fn pod_table(pods: &[Pod], now: Timestamp, style: Style) -> String {
    let several = several(pods.iter().map(|pod| pod.cluster.as_deref()));
    let mut headings = vec!["NAMESPACE", "POD", "STATUS", "REASON", "SINCE", "FINDINGS", "WORKLOAD"];
    if several {
        headings.push("CLUSTER");
    }
    let rows = pods.iter().map(|pod| {
        let mut row = vec![
            Cell::from(pod.namespace.as_str()),
            Cell::from(pod.name.as_str()),
            Cell::new(pod.status.as_str(), tone(&pod.status)),
            Cell::from(pod.reason.as_str()),
            Cell::from(since(pod.since.as_deref(), now)),
            Cell::from(findings(&pod.findings)),
            Cell::from(pod.workload.as_deref().unwrap_or_default()),
        ];
        if several {
            row.push(Cell::from(pod.cluster.as_deref().unwrap_or_default()));
        }
        row
    });
    table(&headings, rows.collect(), style)
}

pub(super) fn store_table(stores: &[Store], style: Style) -> String {
    let several = several(stores.iter().map(|store| store.cluster.as_deref()));
    let mut headings = vec!["STORE", "ADDRESS", "PD SAYS", "ANSWERS", "LAST PING", "TOOK", "AGO", "FINDINGS"];
    if several {
        headings.push("CLUSTER");
    }
    let rows = stores.iter().map(|store| {
        let (answers, tone) = match store.answering {
            Some(true) => ("yes", Tone::Good),
            Some(false) => ("no", Tone::Bad),
            None => ("", Tone::Plain),
        };
        let ping = store.last_ping.as_ref();
        let mut row = vec![
            Cell::from(store.label.as_str()),
            Cell::from(store.address.as_str()),
            Cell::from(store.reported_state.as_deref().unwrap_or_default()),
            Cell::new(answers, tone),
            Cell::from(ping.map(|ping| ping.outcome.as_str()).unwrap_or_default()),
            Cell::from(ping.and_then(super::wire::Ping::total).map(took).unwrap_or_default()),
            Cell::from(ping.map(|ping| human_ms(ping.age_ms)).unwrap_or_default()),
            Cell::from(findings(&store.findings)),
        ];
        if several {
            row.push(Cell::from(store.cluster.as_deref().unwrap_or_default()));
        }
        row
    });
    table(&headings, rows.collect(), style)
}

/// The colour of a verdict.
pub(super) fn tone(status: &str) -> Tone {
    match status {
        "Ready" => Tone::Good,
        "NotReady" => Tone::Bad,
        _ => Tone::Doubtful,
    }
}

/// More than one cluster: then it is worth a column.
pub(super) fn several<'a>(clusters: impl Iterator<Item = Option<&'a str>>) -> bool {
    clusters.flatten().collect::<HashSet<_>>().len() > 1
}

/// How long ago a date is.
pub(super) fn since(since: Option<&str>, now: Timestamp) -> String {
    let age = since.and_then(|since| since.parse::<Timestamp>().ok()).map(|since| now.duration_since(since));
    age.map(|age| human(Duration::try_from(age).unwrap_or_default())).unwrap_or_default()
}

/// Their codes, each once.
pub(super) fn findings(list: &[Finding]) -> String {
    let mut codes: Vec<_> = list.iter().map(Finding::show).collect();
    codes.sort_unstable();
    codes.dedup();
    codes.join(",")
}

/// A ping takes less than a millisecond on one node.
fn took(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    if millis < 100.0 { format!("{millis:.1}ms") } else { human(duration) }
}
