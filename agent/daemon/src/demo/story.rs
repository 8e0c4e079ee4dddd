//! The story a newcomer follows. Every figure and every word about the cluster is the agent's own answer.

use super::{
    agent::{Agent, Answer},
    cluster::{Cluster, PODS},
    world,
};
use anyhow::{Result, ensure};
use std::{io::Write, time::Duration};

/// Longer than any step takes on a busy two-core machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Tells it, from "all well" to "all well again".
pub(super) async fn tell(cluster: &mut Cluster, agent: &Agent, out: &mut impl Write) -> Result<()> {
    chapter(
        out,
        "All well",
        "PD, three Stores, two pods with real gRPC channels; the agent pings and watches the kernel.",
    )?;
    let (node, _) =
        agent.until("/readiness", LIMIT, |answer| answer.text("status") == "Ready" && answered_all(answer)).await?;
    show(out, "/readiness", &node)?;
    for pod in PODS {
        let path = pod_path(pod);
        let (answer, _) = agent.until(&path, LIMIT, answered_all).await?;
        show(out, &path, &answer)?;
    }
    connections(agent, out).await?;

    chapter(out, "One Store killed", "One of three is enough: nobody leaves.")?;
    cluster.kill_store(2)?;
    let (node, took) = agent.until("/readiness", LIMIT, |answer| !unanswered(answer).is_empty()).await?;
    note(out, &format!("the agent noticed after {} ms", took.as_millis()))?;
    show(out, "/readiness", &node)?;
    ensure!(node.code == 200, "one Store of three is down and the node is not ready: {}", node.body);

    chapter(out, "All Stores killed", "Nothing answers: everyone leaves.")?;
    cluster.kill_store(0)?;
    cluster.kill_store(1)?;
    let (node, took) = agent.until("/readiness", LIMIT, |answer| answer.code == 503).await?;
    note(out, &format!("503 after {} ms", took.as_millis()))?;
    show(out, "/readiness", &node)?;
    for pod in PODS {
        let path = pod_path(pod);
        let (answer, _) = agent.until(&path, LIMIT, |answer| answer.code == 503).await?;
        show(out, &path, &answer)?;
    }

    chapter(out, "Stores back", "The first answer is enough; PD is not waited for.")?;
    for store in 0..3 {
        cluster.start_store(store)?;
    }
    let (node, took) = agent.until("/readiness", LIMIT, |answer| answer.code == 200).await?;
    note(out, &format!("200 after {} ms, the start of the Stores included", took.as_millis()))?;
    show(out, "/readiness", &node)?;
    for pod in PODS {
        let path = pod_path(pod);
        let (answer, _) = agent.until(&path, LIMIT, |answer| answer.code == 200).await?;
        show(out, &path, &answer)?;
    }

    chapter(
        out,
        "One pod cut off",
        "The node drops what server-0 sends to the Stores. They answer the node, and server-1: only server-0 leaves.",
    )?;
    world::drop_from(cluster.pod(PODS[0])?, 8500)?;
    let cut = pod_path(PODS[0]);
    let (answer, took) = agent.until(&cut, LIMIT, |answer| answer.code == 503).await?;
    note(out, &format!("503 for {} after {:.1} s", PODS[0], took.as_secs_f64()))?;
    show(out, &cut, &answer)?;
    let other = agent.probe(&pod_path(PODS[1])).await?;
    show(out, &pod_path(PODS[1]), &other)?;
    let node = agent.probe("/readiness").await?;
    show(out, "/readiness", &node)?;
    ensure!(other.code == 200 && node.code == 200, "the cut pod took others with it: {} {}", other.body, node.body);

    chapter(out, "The drop lifted", "Data flows again, and server-0 returns.")?;
    world::lift_drops()?;
    let (answer, took) = agent.until(&cut, LIMIT, |answer| answer.code == 200).await?;
    note(out, &format!("200 after {:.1} s", took.as_secs_f64()))?;
    show(out, &cut, &answer)?;
    a_store_moves(cluster, agent, out).await
}

/// What started it all: one pod goes on talking to an address that its Store has left.
async fn a_store_moves(cluster: &mut Cluster, agent: &Agent, out: &mut impl Write) -> Result<()> {
    let [stale, follows] = PODS.map(pod_path);
    chapter(
        out,
        "A Store moves",
        "store-0's pod is replaced: the same name at another address. server-1 asks DNS again; server-0 keeps the address\n   \
         that it has, as a JVM under a security manager does for ever. Once store-0 has answered at its new address\n   \
         for 3 s a dial to the former one is suspect, and after 6 s the next one proves it (verdict.stale_suspect_after,\n   \
         stale_confirm_after: by default 60 s and 240 s, for gRPC's back-off is slow).",
    )?;
    cluster.move_store(0)?;
    let suspected = |answer: &Answer| answer.findings().contains(&"StaleTransportSuspected");
    let (_, took) = agent.until(&stale, LIMIT, |answer| suspected(answer) || answer.code == 503).await?;
    note(out, &format!("suspected after {:.1} s", took.as_secs_f64()))?;
    let (answer, further) = agent.until(&stale, LIMIT, |answer| answer.code == 503).await?;
    note(out, &format!("503 for {} {:.1} s later", PODS[0], further.as_secs_f64()))?;
    show(out, &stale, &answer)?;
    let other = agent.probe(&follows).await?;
    show(out, &follows, &other)?;
    ensure!(other.code == 200, "a pod that follows DNS left with the other one: {}", other.body);
    note(out, &format!("\n   storewatch explain {}/{}", super::cluster::NAMESPACE, PODS[0]))?;
    for line in super::cluster::explain(PODS[0])?.lines() {
        note(out, &format!("  {line}"))?;
    }

    chapter(out, "server-0 restarted", "As the agent said.")?;
    cluster.start_client(PODS[0])?;
    let (answer, took) = agent.until(&stale, LIMIT, |answer| answer.code == 200).await?;
    note(out, &format!("200 after {:.1} s", took.as_secs_f64()))?;
    show(out, &stale, &answer)
}

fn pod_path(pod: &str) -> String {
    format!("/readiness/pods/{}/{pod}", super::cluster::NAMESPACE)
}

fn unanswered(answer: &Answer) -> Vec<u64> {
    let list = answer.body.get("unanswered_stores").and_then(serde_json::Value::as_array);
    list.into_iter().flatten().filter_map(serde_json::Value::as_u64).collect()
}

fn answered_all(answer: &Answer) -> bool {
    answer.text("message").starts_with("3 of 3")
}

fn chapter(out: &mut impl Write, title: &str, what: &str) -> Result<()> {
    writeln!(out, "\n── {title}\n   {what}")?;
    Ok(out.flush()?)
}

fn note(out: &mut impl Write, what: &str) -> Result<()> {
    writeln!(out, "   {what}")?;
    Ok(out.flush()?)
}

fn show(out: &mut impl Write, path: &str, answer: &Answer) -> Result<()> {
    let code = answer.code;
    let line = format!("{} {}: {}", answer.text("status"), answer.text("reason"), answer.text("message"));
    let findings = answer.findings();
    writeln!(out, "   GET {path:<36} {code}  {line}")?;
    if !findings.is_empty() {
        writeln!(out, "       {:<36}      findings: {}", "", findings.join(", "))?;
    }
    Ok(out.flush()?)
}

/// What the kernel knows of the pods' channels, as the agent tells it.
async fn connections(agent: &Agent, out: &mut impl Write) -> Result<()> {
    let pods = agent.admin("/v1/pods").await?;
    let count = pods.body.as_array().map_or(0, Vec::len);
    note(out, &format!("/v1/pods lists {count} pods; their channels are seen in the kernel, not in the pods"))
}
