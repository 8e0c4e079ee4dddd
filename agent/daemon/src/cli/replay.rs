//! `replay`: what follows from a recording, as a timeline.

use super::{
    Exit, Failure, Output,
    exit::print,
    list::tone,
    table::{Cell, Style, Tone, clean, human, table},
};
use crate::recording::{Difference, Lost, Mark, Missing, News, Replayed, Standing, Subject, Told, replay};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{BufRead, BufReader, stdin},
    path::Path,
    process::ExitCode,
};
use storewatch_core::{time::MonoTime, verdict::Reason};

/// Plays the recording and prints what it says, as far as it can be read.
pub(super) fn run(path: &Path, output: Output) -> Result<ExitCode, Failure> {
    let name = path.display();
    let input: Box<dyn BufRead> = if path.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        let file = File::open(path).map_err(|error| Failure::wrong(format!("cannot read {name}: {error}")))?;
        Box::new(BufReader::new(file))
    };
    let replayed = replay(input).map_err(|broken| Failure::wrong(format!("{name}: {broken}")))?;
    let text = match output {
        Output::Table => show(&replayed, Style::of_stdout()),
        Output::Json => format!("{:#}\n", document(&replayed)),
    };
    print(&text, &mut std::io::stdout())?;
    match &replayed.broken {
        None => Ok(Exit::Done.into()),
        Some(broken) => Err(Failure::wrong(format!("{name}: {broken}; what stands before it was replayed"))),
    }
}

fn who(subject: &Subject, clusters: usize) -> String {
    match subject {
        Subject::Node(cluster) if clusters > 1 => format!("node, cluster {cluster}"),
        Subject::Node(_) => "node".to_owned(),
        Subject::Pod { pod, uid: _ } => pod.to_string(),
    }
}

fn show_mark(mark: &Mark) -> String {
    let Mark { code, mode, target, severity } = mark;
    let mode = mode.map(|mode| format!(" ({})", mode.as_str())).unwrap_or_default();
    let target = if target.is_empty() { String::new() } else { format!(" {target}") };
    format!("{}{mode}{target}, {}", code.as_str(), severity.as_str())
}

fn show_news(news: &News) -> String {
    let reason = |reason: &Option<Reason>| match reason {
        Some(reason) => format!("{} {}", reason.status().as_str(), reason.as_str()),
        None => "not there".to_owned(),
    };
    match news {
        News::Verdict { from, to } => format!("{} -> {}", reason(from), reason(to)),
        News::Came(mark) => format!("+ {}", show_mark(mark)),
        News::Went(mark) => format!("- {}", show_mark(mark)),
    }
}

fn tone_of(news: &News) -> Tone {
    match news {
        News::Verdict { to: Some(reason), .. } => tone(reason.status().as_str()),
        _ => Tone::Plain,
    }
}

fn show_lost(lost: Lost) -> String {
    format!("{} observations of {} judgements are missing", lost.observations, lost.judgements)
}

fn show(replayed: &Replayed, style: Style) -> String {
    let Replayed { header, before, told, after, until, observations, missing, differences, why, broken: _ } = replayed;
    let took = human(until.since(header.at));
    let anonymized = if header.anonymized { ", anonymized" } else { "" };
    let mut text = format!(
        "{}   from {:.3} for {took}: {observations} observations, by storewatch {}{anonymized}\n",
        style.paint(&clean(&header.node), Tone::Heading),
        header.date,
        clean(&header.agent),
    );
    if let Some(why) = why {
        text.push_str(&format!("Ended by: {}\n", clean(why)));
    }
    let gaps = missing.iter().fold(Lost::default(), |sum, Missing { lost, .. }| Lost {
        observations: sum.observations.saturating_add(lost.observations),
        judgements: sum.judgements.saturating_add(lost.judgements),
    });
    if !gaps.is_none() {
        let line =
            format!("{}: the recorder was too slow; what follows may differ from what happened", show_lost(gaps));
        text.push_str(&format!("{}\n", style.paint(&line, Tone::Doubtful)));
    }
    let clusters = before.iter().filter(|(who, _)| matches!(who, Subject::Node(_))).count();
    text.push_str(&standings("At the start", before, clusters, style));
    text.push('\n');
    let date = |at: MonoTime| format!("{:.3}", header.date_of(at));
    let mut rows: Vec<(MonoTime, Vec<Cell>)> = told
        .iter()
        .map(|(Told { at, who: subject, what }, message)| {
            let row = vec![
                Cell::from(date(*at)),
                Cell::from(format!("+{:.3}", at.since(header.at).as_secs_f64())),
                Cell::from(who(subject, clusters)),
                Cell::new(show_news(what), tone_of(what)),
                Cell::from(message.as_str()),
            ];
            (*at, row)
        })
        .collect();
    rows.extend(missing.iter().map(|Missing { at, lost }| {
        let row = vec![
            Cell::from(date(*at)),
            Cell::from(format!("+{:.3}", at.since(header.at).as_secs_f64())),
            Cell::from("recording"),
            Cell::new(show_lost(*lost), Tone::Doubtful),
            Cell::from(""),
        ];
        (*at, row)
    }));
    rows.sort_by_key(|(at, _)| *at);
    if rows.is_empty() {
        text.push_str("Nothing changed.\n");
    } else {
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        text.push_str(&table(&["TIME", "SECONDS", "WHO", "WHAT", "IN WORDS"], rows, style));
        text.push('\n');
        text.push_str(&standings("At the end", after, clusters, style));
    }
    if !differences.is_empty() {
        let line = "The recorded agent told something else; it was of another version, or something is missing:";
        text.push_str(&format!("\n{}\n", style.paint(line, Tone::Doubtful)));
        for Difference { at, then, now } in differences {
            for (verb, list) in [("only then", then), ("only now", now)] {
                for told in list {
                    let line =
                        format!("{}  {verb}  {}  {}\n", date(*at), who(&told.who, clusters), show_news(&told.what));
                    text.push_str(&clean_line(&line));
                }
            }
        }
    }
    text
}

fn clean_line(line: &str) -> String {
    format!("{}\n", clean(line.trim_end()))
}

fn standings(title: &str, all: &[(Subject, Standing)], clusters: usize, style: Style) -> String {
    let rows = all.iter().map(|(subject, Standing { reason, findings })| {
        let findings: Vec<_> = findings.iter().map(show_mark).collect();
        vec![
            Cell::from(who(subject, clusters)),
            Cell::new(reason.status().as_str(), tone(reason.status().as_str())),
            Cell::from(reason.as_str()),
            Cell::from(findings.join("; ")),
        ]
    });
    table(&[title, "STATUS", "REASON", "FINDINGS"], rows.collect(), style)
}

/// The same for a script. Events have the form of `/v1/events`.
fn document(replayed: &Replayed) -> Value {
    let Replayed { header, before, told, after, until, observations, missing, differences, why, broken } = replayed;
    let date = |at: MonoTime| format!("{:.3}", header.date_of(at));
    let event = |told: &Told, message: Option<&str>| {
        let Told { at, who, what } = told;
        let mut event = subject(who);
        event["at"] = date(*at).into();
        match what {
            News::Verdict { from, to } => {
                event["kind"] = "transition".into();
                event["from"] = from.map(Reason::as_str).into();
                event["to"] = to.map(Reason::as_str).into();
                event["status"] = to.map(|reason| reason.status().as_str()).into();
            }
            News::Came(mark) | News::Went(mark) => {
                let Mark { code, mode, target, severity } = mark;
                let came = matches!(what, News::Came(_));
                event["kind"] = "finding".into();
                event["outcome"] = code.as_str().into();
                event["from"] = (!came).then_some(code.as_str()).into();
                event["to"] = came.then_some(code.as_str()).into();
                event["mode"] = mode.map(|mode| mode.as_str()).into();
                event["target"] = Some(target.as_str()).filter(|target| !target.is_empty()).into();
                event["severity"] = severity.as_str().into();
            }
        }
        if let Some(message) = message {
            event["message"] = message.into();
        }
        event
    };
    let stand = |all: &[(Subject, Standing)]| -> Vec<Value> {
        all.iter()
            .map(|(who, Standing { reason, findings })| {
                let mut stand = subject(who);
                stand["status"] = reason.status().as_str().into();
                stand["reason"] = reason.as_str().into();
                stand["findings"] = findings
                    .iter()
                    .map(|Mark { code, mode, target, severity }| {
                        json!({
                            "code": code.as_str(), "mode": mode.map(|mode| mode.as_str()), "target": target,
                            "severity": severity.as_str(),
                        })
                    })
                    .collect();
                stand
            })
            .collect()
    };
    let only = |list: &[Told]| list.iter().map(|told| event(told, None)).collect::<Vec<_>>();
    json!({
        "node": header.node,
        "agent": header.agent,
        "anonymized": header.anonymized,
        "from": date(header.at),
        "to": date(*until),
        "observations": observations,
        "ended_by": why,
        "complete": broken.is_none(),
        "start": stand(before),
        "events": told.iter().map(|(told, message)| event(told, Some(message))).collect::<Vec<_>>(),
        "end": stand(after),
        "missing": missing
            .iter()
            .map(|Missing { at, lost: Lost { observations, judgements } }| {
                json!({"at": date(*at), "observations": observations, "judgements": judgements})
            })
            .collect::<Vec<_>>(),
        "differences": differences
            .iter()
            .map(|Difference { at, then, now }| json!({"at": date(*at), "then": only(then), "now": only(now)}))
            .collect::<Vec<_>>(),
    })
}

fn subject(who: &Subject) -> Value {
    match who {
        Subject::Node(cluster) => json!({"cluster": &**cluster}),
        Subject::Pod { pod, uid } => json!({"namespace": &*pod.namespace, "pod": &*pod.name, "uid": &*uid.0}),
    }
}
