//! `explain`: one pod's verdict, as a colleague would note it: why, since when, what to do now, and what prevents it.
//!
//! The sentences about findings are the agent's own; here they are put in order, joined with what the answer says of the
//! other pods and the Stores, and given dates.

mod sentences;
#[cfg(test)]
mod tests;
mod wire;

use super::{
    Exit, Failure, Output,
    address::AgentAddress,
    client::{self, segment},
    exit::print,
    list::tone,
    probe::name_of_pod,
    table::{Style, Tone, clean, human},
    wire::{Pod as ListedPod, Source},
};
use http::StatusCode;
use jiff::Timestamp;
use sentences::Story;
use std::{process::ExitCode, time::Duration};
use wire::Finding;

pub(super) use wire::Detail;

/// Names that are offered when there is no such pod.
const OFFERED: usize = 10;

/// Where the text of a line begins.
const INDENT: usize = 12;

/// Prints what there is to say about a pod.
pub(super) async fn run(
    agent: Option<&str>,
    output: Output,
    pod: Option<&str>,
    budget: Duration,
) -> Result<ExitCode, Failure> {
    let agent = AgentAddress::choose(agent, AgentAddress::admin())?;
    let Some(pod) = pod else { return unwell(&agent, output, budget).await };
    let (namespace, name) = name_of_pod(pod)?;
    let path = format!("/v1/pods/{}/{}", segment(&namespace), segment(&name));
    let answer = client::get(&agent, &path, budget).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Err(unknown(&agent, &format!("{namespace}/{name}"), budget).await);
    }
    let said = client::read_json::<Detail>(&agent, &path, answer)?;
    let text = match output {
        Output::Json => said.text,
        Output::Table => show(&said.value, Timestamp::now(), Style::of_stdout()),
    };
    print(&text, &mut std::io::stdout())?;
    Ok(Exit::Done.into())
}

/// Every pod that is not well, the worst first; with `-o json` one document a line.
async fn unwell(agent: &AgentAddress, output: Output, budget: Duration) -> Result<ExitCode, Failure> {
    let (pods, _) = client::get_json::<Vec<ListedPod>>(agent, "/v1/pods", budget).await?;
    let mut unwell: Vec<_> = pods.iter().filter(|pod| !pod.is_well()).collect();
    unwell.sort_by_key(|pod| pod.severity());
    let mut notes = Vec::new();
    for pod in &unwell {
        let path = format!("/v1/pods/{}/{}", segment(&pod.namespace), segment(&pod.name));
        let answer = client::get(agent, &path, budget).await?;
        // Gone since it was listed.
        if answer.status == StatusCode::NOT_FOUND {
            continue;
        }
        let said = client::read_json::<Detail>(agent, &path, answer)?;
        notes.push(match output {
            Output::Json => said.text,
            Output::Table => show(&said.value, Timestamp::now(), Style::of_stdout()),
        });
    }
    let text = match (output, notes.is_empty()) {
        (Output::Table, true) => {
            let mut text = match pods.len() {
                0 => "this agent watches no pod\n".to_owned(),
                1 => "the only pod is well: storewatch explain NAMESPACE/POD says why\n".to_owned(),
                all => format!("all {all} pods are well: storewatch explain NAMESPACE/POD says why\n"),
            };
            let (sources, _) = client::get_json::<Vec<Source>>(agent, "/v1/sources", budget).await?;
            for limit in limits(&sources).filter(|_| !pods.is_empty()) {
                text.push_str(&format!("but not all is seen: {}\n", clean(limit)));
            }
            text
        }
        (Output::Table, false) => notes.join("\n"),
        (Output::Json, _) => notes.concat(),
    };
    print(&text, &mut std::io::stdout())?;
    Ok(Exit::Done.into())
}

/// What keeps the agent from seeing the pods' own connections.
fn limits(sources: &[Source]) -> impl Iterator<Item = &str> {
    let blind = |source: &&Source| match source.name.as_str() {
        "pods" => !source.detail.is_empty(),
        "kernel" => source.state != "active",
        _ => false,
    };
    sources.iter().filter(blind).map(|source| source.detail.as_str())
}

/// Fails where `pod` was named and is none of the agent's: nothing to show is no answer then.
pub(super) async fn check_pod(agent: &AgentAddress, pod: Option<&str>, budget: Duration) -> Result<(), Failure> {
    let Some(pod) = pod.filter(|pod| pod.contains('/')) else { return Ok(()) };
    let (pods, _) = client::get_json::<Vec<ListedPod>>(agent, "/v1/pods", budget).await?;
    if pods.iter().any(|listed| format!("{}/{}", listed.namespace, listed.name) == pod) {
        return Ok(());
    }
    Err(unknown(agent, pod, budget).await)
}

/// Which pods there are instead.
async fn unknown(agent: &AgentAddress, wanted: &str, budget: Duration) -> Failure {
    let pods = match client::get_json::<Vec<ListedPod>>(agent, "/v1/pods", budget).await {
        Ok((pods, _)) => pods,
        // Not an admin listener at all: its own complaint says more.
        Err(failure) => return failure,
    };
    let mut names: Vec<String> = pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    names.sort();
    let more = names.len().saturating_sub(OFFERED);
    names.truncate(OFFERED);
    let there = match (names.is_empty(), more) {
        (true, _) => "it watches none".to_owned(),
        (false, 0) => format!("it watches {}", names.join(", ")),
        (false, more) => format!("it watches {} and {more} more (storewatch pods)", names.join(", ")),
    };
    Failure::wrong(clean(&format!("the agent at {agent} watches no pod {wanted}; {there}")))
}

/// The whole note.
pub(super) fn show(detail: &Detail, now: Timestamp, style: Style) -> String {
    let story = Story::new(detail, now);
    let behind = story.behind();
    let reason = match behind.and_then(|finding| finding.mode.as_deref()) {
        Some(mode) => format!("{} ({mode})", detail.reason),
        None => detail.reason.clone(),
    };
    let mut text = format!(
        "{}    {}    {}{}\n",
        style.paint(&clean(&format!("{}/{}", detail.namespace, detail.name)), Tone::Heading),
        style.paint(&clean(&detail.status), tone(&detail.status)),
        clean(&reason),
        since(detail.since.as_deref(), now),
    );
    let mut note = Note { text: &mut text, style };
    note.lines("Why", &story.why());
    note.lines("Missing", &story.missing());
    note.lines("When", &story.when());
    note.lines("Until", &story.until());
    let remedy = behind.map(|finding| &finding.remedy).or(detail.remedy.as_ref());
    if let Some(remedy) = remedy {
        note.lines("Now", std::slice::from_ref(&remedy.now));
        note.lines("Prevent", std::slice::from_ref(&remedy.prevent));
    }
    for group in story.others() {
        text.push('\n');
        text.push_str(&block(&story, &group, now, style));
    }
    text
}

/// One finding beside the verdict, or several that say the same of several targets.
fn block(story: &Story<'_>, group: &[&Finding], now: Timestamp, style: Style) -> String {
    let Some(first) = group.first() else { return String::new() };
    let mode = first.mode.as_deref().map(|mode| format!(" ({mode})")).unwrap_or_default();
    let targets: Vec<_> = group.iter().filter_map(|finding| story.target(finding)).collect();
    let at = if targets.is_empty() { String::new() } else { format!(" at {}", targets.join(", ")) };
    let tone = match first.severity.as_str() {
        "critical" => Tone::Bad,
        "warning" => Tone::Doubtful,
        _ => Tone::Plain,
    };
    let oldest = group.iter().filter_map(|finding| finding.since.as_deref()).min();
    let mut text = format!(
        "  {}    {}{}\n",
        style.paint(&clean(&format!("{}{mode}{at}", first.code)), Tone::Heading),
        style.paint(&clean(&first.severity), tone),
        since(oldest, now),
    );
    // What all say is said once; what only some say stays with each of them.
    let each = |say: &dyn Fn(&Finding) -> Vec<String>| {
        let said: Vec<Vec<String>> = group.iter().map(|finding| say(finding)).collect();
        let mut lines: Vec<String> = Vec::new();
        for line in said.iter().flatten() {
            if !(lines.contains(line) && said.iter().all(|each| each.contains(line))) {
                lines.push(line.clone());
            }
        }
        lines
    };
    let mut note = Note { text: &mut text, style };
    note.lines("Why", &each(&|finding| story.about(finding)));
    note.lines("When", &each(&|finding| story.dates(finding)));
    note.lines("Now", &each(&|finding| vec![finding.remedy.now.clone()]));
    note.lines("Prevent", &each(&|finding| vec![finding.remedy.prevent.clone()]));
    text
}

fn since(date: Option<&str>, now: Timestamp) -> String {
    let date = date.and_then(|date| date.parse::<Timestamp>().ok());
    date.map_or_else(String::new, |date| format!("    since {}", age(date, now)))
}

/// How long ago; a clock that was set back makes it nothing.
fn age(date: Timestamp, now: Timestamp) -> String {
    human(Duration::try_from(now.duration_since(date)).unwrap_or_default())
}

/// Lines under a heading at their left.
pub(super) struct Note<'a> {
    pub(super) text: &'a mut String,
    pub(super) style: Style,
}

impl Note<'_> {
    /// The heading at the first of them.
    pub(super) fn lines(&mut self, heading: &str, lines: &[String]) {
        for (index, line) in lines.iter().filter(|line| !line.is_empty()).enumerate() {
            let heading = if index == 0 { heading } else { "" };
            // Padded before it is coloured, for colours have no width.
            let heading = self.style.paint(&format!("{heading:<0$}", INDENT - 2), Tone::Heading);
            self.text.push_str(&format!("  {heading}{}\n", clean(line)));
        }
    }
}
