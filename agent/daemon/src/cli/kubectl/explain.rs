//! Verdicts in sentences, from whichever node judges the pod, with what the other nodes say of the same.

use super::{
    ask::Cluster,
    lines,
    merge::{Fleet, Told, nodes},
    show::with_silent,
};
use crate::{
    cli::{
        Exit, Failure, Output,
        explain::{Detail, Note, show},
        probe::name_of_pod,
        table::{Style, clean},
        wire::{Pod, wired},
    },
    wiring,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// Pods that are explained when none is named.
const MOST: usize = 20;

/// How long an agent may take to explain one of its pods.
const ANSWER: Duration = Duration::from_secs(10);

/// Explains one pod, or all that are not well.
pub(super) async fn run(
    cluster: &Cluster,
    fleet: &Fleet,
    pod: Option<&str>,
    output: Output,
    style: Style,
) -> Result<(String, Exit), Failure> {
    let mut chosen = choose(fleet, pod)?;
    let more = chosen.len().saturating_sub(MOST);
    chosen.truncate(MOST);
    let questions = chosen.iter().filter_map(|(node, pod)| {
        let agent = cluster.agents().iter().find(|agent| agent.node == *node)?;
        Some((agent, vec!["explain".to_owned(), format!("{}/{}", pod.namespace, pod.name)]))
    });
    let read = |text: &[u8]| serde_json::from_slice::<Value>(text);
    let told = cluster.ask_each(ANSWER, questions.collect(), read).await;
    let text = match output {
        Output::Json => lines(&json!(told.iter().map(value).collect::<Vec<_>>())),
        Output::Table if told.is_empty() => with_silent(all_well(fleet), fleet),
        Output::Table => {
            let now = Timestamp::now();
            let notes: Vec<_> = told.iter().map(|told| note(told, fleet, now, style)).collect();
            let mut text = notes.join("\n");
            if more > 0 {
                text.push_str(&format!("\n{more} more pods are not well: kubectl storewatch pods\n"));
            }
            with_silent(text, fleet)
        }
    };
    // Nobody left to explain the one that was asked for.
    let failed = !told.is_empty() && told.iter().all(|told| told.said.is_err());
    Ok((text, if failed { Exit::Wrong } else { Exit::Done }))
}

/// The pod that is named, or those that are not well, the worst first.
fn choose<'a>(fleet: &'a Fleet, pod: Option<&str>) -> Result<Vec<(&'a str, &'a Pod)>, Failure> {
    let Some(wanted) = pod else {
        let mut unwell: Vec<_> = fleet.pods().filter(|(_, pod)| !pod.is_well()).collect();
        unwell.sort_by_key(|(_, pod)| (pod.ready, pod.status != "Unknown"));
        return Ok(unwell);
    };
    let (namespace, name) = name_of_pod(wanted)?;
    let found: Vec<_> = fleet.pods().filter(|(_, pod)| pod.namespace == namespace && pod.name == name).collect();
    if found.is_empty() {
        let silent = fleet.silent_words().map(|words| format!("; {words}")).unwrap_or_default();
        let count = nodes(fleet.answers().count());
        let words = format!("no agent of {count} watches {wanted} (kubectl storewatch pods lists them){silent}");
        return Err(Failure::wrong(clean(&words)));
    }
    Ok(found)
}

fn value(told: &Told<Value>) -> Value {
    match &told.said {
        Ok(detail) => {
            let mut detail = detail.clone();
            if let Some(fields) = detail.as_object_mut() {
                fields.insert("node".to_owned(), json!(told.node));
            }
            detail
        }
        Err(words) => json!({ "node": told.node, "agent": told.agent, "error": words }),
    }
}

/// The agent's own note, and what is known beyond its node.
fn note(told: &Told<Value>, fleet: &Fleet, now: Timestamp, style: Style) -> String {
    let read = told.map(|value| serde_json::from_value::<Detail>(value.clone()).map_err(|error| error.to_string()));
    let detail = match read.said {
        Ok(detail) => detail,
        Err(words) => return clean(&format!("a pod on {}: no explanation: {words}", told.node)) + "\n",
    };
    let mut text = show(&detail, now, style);
    text.push('\n');
    let elsewhere = detail.workload.as_deref();
    let elsewhere = elsewhere.and_then(|workload| fleet.elsewhere(&told.node, &detail.namespace, workload));
    let mut note = Note { text: &mut text, style };
    note.lines("Node", &[format!("{}, asked by way of {}", told.node, told.agent)]);
    note.lines("Nodes", &fleet.store_words());
    note.lines("Others", &elsewhere.into_iter().collect::<Vec<_>>());
    text
}

/// Nothing to explain is an answer, too.
fn all_well(fleet: &Fleet) -> String {
    let total = fleet.pods().count();
    let count = nodes(fleet.answers().count());
    let mut text = if total == 0 {
        format!("No pod is watched on {count}: does pods.selector select the Servers, in the namespaces of pd_peers?\n")
    } else {
        format!("All is well: {total} of {total} pods on {count} are Ready, and nothing stands out.\n")
    };
    let remarks = wiring::words(&wired(fleet.pods().map(|(_, pod)| pod))).remarks;
    for words in fleet.store_words().into_iter().chain(remarks) {
        text.push_str(&format!("  {}\n", clean(&words)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{
        super::merge::tests::{dead, node},
        *,
    };

    #[test]
    fn those_that_are_not_well_are_chosen_and_the_worst_comes_first() {
        let fleet = Fleet::of(vec![
            node("a", &["server-0 Ready", "server-1 Unknown"], &[]),
            node("b", &["server-2 NotReady"], &[]),
            dead("c"),
        ]);
        let names =
            |pod| choose(&fleet, pod).map(|all| all.iter().map(|(_, pod)| pod.name.clone()).collect::<Vec<_>>());
        assert_eq!(names(None).unwrap(), ["server-2", "server-1"]);
        assert_eq!(names(Some("graph/server-0")).unwrap(), ["server-0"]);
        let failure = names(Some("graph/server-9")).unwrap_err();
        let words = "storewatch: no agent of 2 nodes watches graph/server-9 (kubectl storewatch pods lists them); no answer from 1 \
                     of 3 nodes: c (no answer within 10s)";
        assert_eq!(failure.lines().collect::<Vec<_>>(), [words]);
        assert!(names(Some("server-0")).is_err(), "a namespace is needed");
    }

    #[test]
    fn that_all_is_well_is_said() {
        let fleet = Fleet::of(vec![node("a", &["server-0 Ready"], &["1 serving"])]);
        assert_eq!(
            all_well(&fleet),
            "All is well: 1 of 1 pods on 1 node are Ready, and nothing stands out.\n  the node reaches the one Store\n"
        );
        assert!(all_well(&Fleet::of(vec![node("a", &[], &[])])).starts_with("No pod is watched on 1 node: "));
    }

    #[test]
    fn a_note_tells_what_other_nodes_say() {
        let fleet = Fleet::of(vec![
            node("a", &["server-0 NotReady"], &["1 refused"]),
            node("b", &["server-1 Ready"], &["1 serving"]),
        ]);
        let detail = json!({"namespace": "graph", "name": "server-0", "workload": "StatefulSet/server", "ready": false,
            "status": "NotReady", "reason": "NoStoreAnswers"});
        let told = Told { node: "a".to_owned(), agent: "storewatch/x".to_owned(), said: Ok(detail) };
        let text = note(&told, &fleet, Timestamp::now(), Style { colours: false });
        assert!(text.starts_with("graph/server-0    NotReady    NoStoreAnswers"), "{text}");
        for line in [
            "  Node      a, asked by way of storewatch/x\n",
            "  Nodes     1 of 2 nodes cannot reach store-1: a (refused)\n",
            "  Others    the 1 pods of StatefulSet/server on other nodes are ready\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let failed = Told { said: Err("no answer within 10s".to_owned()), ..told };
        assert_eq!(
            note(&failed, &fleet, Timestamp::now(), Style { colours: false }),
            "a pod on a: no explanation: no answer within 10s\n"
        );
    }
}
