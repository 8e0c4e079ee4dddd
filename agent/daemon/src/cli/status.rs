//! `status`: the node's answer, and how the agent came to it.

use super::{
    Exit, Failure, Output,
    address::AgentAddress,
    client,
    exit::print,
    list::tone,
    table::{Cell, Style, Tone, clean, human_ms, table},
    wire::{Pd, Snapshot, wired},
};
use crate::wiring;
use std::{process::ExitCode, time::Duration};

/// Pods that are not well and are named.
const NAMED: usize = 5;

/// Prints the node's state.
pub(super) async fn run(agent: Option<&str>, output: Output, budget: Duration) -> Result<ExitCode, Failure> {
    let agent = AgentAddress::choose(agent, AgentAddress::admin())?;
    let (snapshot, text) = client::get_json::<Snapshot>(&agent, "/v1/snapshot", budget).await?;
    let text = match output {
        Output::Json => text,
        Output::Table => show(&snapshot, Style::of_stdout()),
    };
    print(&text, &mut std::io::stdout())?;
    Ok(Exit::Done.into())
}

pub(super) fn show(snapshot: &Snapshot, style: Style) -> String {
    let readiness = &snapshot.readiness;
    let mut text = format!(
        "{}   {}   {}",
        style.paint(&clean(&snapshot.node), Tone::Heading),
        style.paint(&clean(&readiness.status), tone(&readiness.status)),
        clean(&readiness.reason),
    );
    if let Some(since) = readiness.since_ms {
        text.push_str(&format!("   for {}", human_ms(since)));
    }
    text.push('\n');
    if !readiness.message.is_empty() {
        text.push_str(&format!("  {}\n", clean(&readiness.message)));
    }
    // With Unknown the status and what it means for a probe differ.
    if readiness.status == "Unknown" {
        let meaning = if readiness.ready { "ready" } else { "not ready" };
        text.push_str(&format!("  Unknown counts as {meaning} (verdict.on_unknown)\n"));
    }
    for cluster in readiness.clusters.iter().filter(|_| readiness.clusters.len() > 1) {
        let status = style.paint(&clean(&cluster.status), tone(&cluster.status));
        text.push_str(&format!("  {}: {status}, {}\n", clean(&cluster.cluster), clean(&cluster.reason)));
    }
    let ready = snapshot.pods.iter().filter(|pod| pod.ready).count();
    let answering = snapshot.stores.iter().filter(|store| store.answering == Some(true)).count();
    text.push('\n');
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<10} {value}\n"));
    let unknown = snapshot.pods.iter().filter(|pod| pod.status == "Unknown").count();
    let doubt = if unknown > 0 { format!(", {unknown} Unknown") } else { String::new() };
    line("Pods", format!("{ready} of {} ready{doubt}", snapshot.pods.len()));
    let mut unwell: Vec<_> = snapshot.pods.iter().filter(|pod| !pod.is_well()).collect();
    unwell.sort_by_key(|pod| pod.severity());
    for pod in unwell.iter().take(NAMED) {
        line("", clean(&pod.trouble()));
    }
    if let Some(first) = unwell.first() {
        let more = unwell.len().saturating_sub(NAMED);
        let more = if more > 0 { format!("and {more} more; ") } else { String::new() };
        line("", clean(&format!("{more}why, and what to do: storewatch explain {}/{}", first.namespace, first.name)));
    }
    line("Stores", format!("{answering} of {} answer", snapshot.stores.len()));
    line("PD", pd(&snapshot.pd));
    let wired = wiring::words(&wired(snapshot.pods.iter()));
    if let Some(sum) = wired.sum {
        line("Wiring", sum);
        for remark in wired.remarks {
            line("", clean(&remark));
        }
    }
    if !readiness.findings.is_empty() {
        line("Findings", clean(&readiness.findings.join(", ")));
    }
    let age = readiness.age_ms.map_or_else(|| "no evidence yet".to_owned(), |age| format!("{} old", human_ms(age)));
    line("Evidence", format!("{age}, generation {}", snapshot.generation));
    text.push('\n');
    let rows = snapshot.sources.iter().map(|source| {
        let tone = match source.state.as_str() {
            "active" => Tone::Good,
            "degraded" => Tone::Doubtful,
            _ => Tone::Plain,
        };
        vec![
            Cell::from(source.name.as_str()),
            Cell::new(source.state.as_str(), tone),
            Cell::from(source.age_ms.map(human_ms).unwrap_or_default()),
            Cell::from(source.lost.to_string()),
            Cell::from(source.detail.as_str()),
        ]
    });
    text.push_str(&table(&["SOURCE", "STATE", "AGE", "LOST", "DETAIL"], rows.collect(), style));
    text
}

fn pd(pd: &Pd) -> String {
    let mut text = match (pd.reachable, pd.has_leader) {
        (Some(false), _) => "not reachable".to_owned(),
        (Some(true), Some(true)) => "reachable, gives the list".to_owned(),
        (Some(true), Some(false)) => "reachable, gives no list".to_owned(),
        (Some(true), None) => "reachable".to_owned(),
        (None, _) if pd.peers.is_empty() => "none is configured".to_owned(),
        (None, _) => "not asked yet".to_owned(),
    };
    for peer in pd.peers.iter().filter(|peer| peer.reachable == Some(false)) {
        let error = peer.last_error.as_deref().unwrap_or("no answer");
        text.push_str(&format!("; {} away ({})", clean(&peer.address), clean(error)));
    }
    text
}
