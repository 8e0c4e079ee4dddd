//! `doctor` of all nodes: nodes that are alike are told together.

use super::{
    ask::Cluster,
    lines,
    merge::{Told, nodes},
};
use crate::{
    cli::{
        Exit, Failure, Output,
        exit::{print, remark},
        table::{Style, Tone, clean},
    },
    kubernetes::client::call,
    wiring::some,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{process::ExitCode, time::Duration};

/// It tries programs and waits for targets that may be silent.
const ANSWER: Duration = Duration::from_secs(60);

/// One node's report, as far as it is needed.
#[derive(Clone, Debug, Deserialize)]
struct Report {
    checks: Vec<Check>,
    can_run: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Check {
    check: String,
    state: String,
    #[serde(default)]
    found: String,
    #[serde(default)]
    lost: String,
    #[serde(default)]
    how: String,
}

/// Nodes with the same outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alike {
    check: String,
    state: String,
    nodes: Vec<String>,
    /// Of the first of them, and whether the others found the same.
    found: String,
    same: bool,
    lost: String,
    how: String,
}

/// Looks at every node and prints what they lack.
pub(super) async fn run(cluster: &Cluster, output: Output, config: &str, style: Style) -> Result<ExitCode, Failure> {
    let arguments = ["doctor", "--config", config];
    let told = cluster.ask_within(ANSWER, &arguments, |text| serde_json::from_slice::<Value>(text)).await?;
    let bare = without_agent(cluster).await;
    let reports: Vec<_> = told
        .iter()
        .map(|told| {
            told.map(|value| serde_json::from_value::<Report>(value.clone()).map_err(|error| error.to_string()))
        })
        .collect();
    let text = match output {
        Output::Json => {
            if !bare.is_empty() {
                remark(&clean(&no_agent(&bare)));
            }
            lines(&json!(told.iter().map(value).collect::<Vec<_>>()))
        }
        Output::Table => show(&reports, &bare, style),
    };
    print(&text, &mut std::io::stdout())?;
    let all_can = reports.iter().filter_map(|told| told.said.as_ref().ok()).all(|report| report.can_run);
    Ok(if all_can { Exit::Done } else { Exit::No }.into())
}

fn value(told: &Told<Value>) -> Value {
    let (report, error) = match &told.said {
        Ok(report) => (Some(report), None),
        Err(words) => (None, Some(words)),
    };
    json!({ "node": told.node, "agent": told.agent, "error": error, "report": report })
}

/// Nodes that no agent runs on; none where nodes may not be listed.
async fn without_agent(cluster: &Cluster) -> Vec<String> {
    let resource = ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        plural: "nodes".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    let Ok(found) = call(api.list_metadata(&ListParams::default())).await else { return Vec::new() };
    let names = found.items.into_iter().filter_map(|node| node.metadata.name);
    names.filter(|name| !cluster.agents().iter().any(|agent| agent.node == *name)).collect()
}

fn no_agent(bare: &[String]) -> String {
    format!("no agent on {}: {}", nodes(bare.len()), some(bare.to_vec()))
}

/// Checks in the order of the first report that has them, the worst outcome of each first.
fn merge<'a>(reports: impl Iterator<Item = (&'a str, &'a Report)>) -> Vec<Alike> {
    let mut alike: Vec<Alike> = Vec::new();
    for (node, report) in reports {
        for Check { check, state, found, lost, how } in &report.checks {
            match alike.iter_mut().find(|each| each.check == *check && each.state == *state) {
                Some(each) => {
                    if each.nodes.last().is_none_or(|last| last != node) {
                        each.nodes.push(node.to_owned());
                    }
                    each.same &= each.found == *found;
                }
                None => alike.push(Alike {
                    check: check.clone(),
                    state: state.clone(),
                    nodes: vec![node.to_owned()],
                    found: found.clone(),
                    same: true,
                    lost: lost.clone(),
                    how: how.clone(),
                }),
            }
        }
    }
    let order: Vec<_> = alike.iter().map(|each| each.check.clone()).collect();
    alike.sort_by_key(|each| {
        (order.iter().position(|check| *check == each.check), !matches!(&*each.state, "missing"), each.state == "ok")
    });
    alike
}

fn show(reports: &[Told<Report>], bare: &[String], style: Style) -> String {
    let answers = reports.iter().filter_map(|told| Some((told.node.as_str(), told.said.as_ref().ok()?)));
    let total = answers.clone().count();
    let alike = merge(answers.clone());
    let width = alike.iter().map(|each| each.check.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for each in &alike {
        let tone = match &*each.state {
            "ok" => Tone::Good,
            "missing" => Tone::Bad,
            _ => Tone::Doubtful,
        };
        let state = clean(&each.state);
        let pad = " ".repeat("degraded".len().saturating_sub(state.len()));
        let who = match (each.nodes.len(), &*each.state) {
            (all, _) if all == total => format!("all of {}", nodes(all)),
            (count, "ok") => format!("{count} of {}", nodes(total)),
            (count, _) => format!("{count} of {} ({})", nodes(total), some(each.nodes.clone())),
        };
        let first = each.nodes.first().map_or("", String::as_str);
        let at = if each.same || each.nodes.len() == 1 { String::new() } else { format!(" (so on {first})") };
        let name = format!("{:<width$}", clean(&each.check));
        text.push_str(&format!(
            "{}{pad}  {name}  {}: {}{at}",
            style.paint(&state, tone),
            clean(&who),
            clean(&each.found)
        ));
        if !each.lost.is_empty() {
            text.push_str(&format!(" | lost: {} | to get it: {}", clean(&each.lost), clean(&each.how)));
        }
        text.push('\n');
    }
    let unable: Vec<_> = answers.filter(|(_, report)| !report.can_run).map(|(node, _)| node.to_owned()).collect();
    let mut end = match unable.len() {
        0 => vec![format!("the agent can run on all of {}", nodes(total))],
        count => vec![format!("the agent cannot run on {count} of {}: {}", nodes(total), some(unable))],
    };
    let silent = reports.iter().filter_map(|told| Some(format!("{} ({})", told.node, told.said.as_ref().err()?)));
    let silent: Vec<_> = silent.collect();
    if !silent.is_empty() {
        end.push(format!("no answer from {} of {}: {}", silent.len(), nodes(reports.len()), some(silent)));
    }
    if !bare.is_empty() {
        end.push(no_agent(bare));
    }
    text.push_str(&format!("\n{}\n", end.iter().map(|line| clean(line)).collect::<Vec<_>>().join("\n")));
    text
}

#[cfg(test)]
mod tests {
    use super::{super::merge::tests::told, *};

    fn report(name: &str, can_run: bool, checks: &[(&str, &str, &str)]) -> Told<Report> {
        let checks = checks.iter().map(|(check, state, found)| {
            let lost = if *state == "ok" { "" } else { "much" };
            json!({"check": check, "state": state, "found": found, "lost": lost, "how": lost})
        });
        let value = json!({"checks": checks.collect::<Vec<_>>(), "can_run": can_run});
        told(name, Ok(serde_json::from_value(value).unwrap()))
    }

    #[test]
    fn nodes_that_are_alike_are_told_together() {
        let reports = [
            report("a", true, &[("kernel", "ok", "6.18"), ("BTF", "ok", "there"), ("store x", "ok", "in 2ms")]),
            report("b", true, &[("kernel", "ok", "6.18"), ("BTF", "ok", "there"), ("store x", "ok", "in 9ms")]),
            report(
                "c",
                false,
                &[("kernel", "ok", "6.18"), ("BTF", "missing", "no file"), ("store x", "degraded", "refused")],
            ),
            told("d", Err("no answer within 60s".to_owned())),
        ];
        let expected = "\
ok        kernel   all of 3 nodes: 6.18
missing   BTF      1 of 3 nodes (c): no file | lost: much | to get it: much
ok        BTF      2 of 3 nodes: there
degraded  store x  1 of 3 nodes (c): refused | lost: much | to get it: much
ok        store x  2 of 3 nodes: in 2ms (so on a)

the agent cannot run on 1 of 3 nodes: c
no answer from 1 of 4 nodes: d (no answer within 60s)
no agent on 1 node: e
";
        assert_eq!(show(&reports, &["e".to_owned()], Style { colours: false }), expected);
    }
}
