//! `events`: what happened, and with `--follow` what happens.

use super::{
    EventsArgs, Exit, Failure, Output,
    address::AgentAddress,
    client::{self, Said},
    exit::{print, print_more, remark},
    explain::check_pod,
    query::Query,
    table::{Cell, Style, Tone, clean, table},
    wire::Event,
};
use std::{ops::ControlFlow, process::ExitCode, time::Duration};
use tokio::signal::unix::{SignalKind, signal};

/// The agent says every 15 s that it lives.
const SILENCE: Duration = Duration::from_secs(45);

/// An event is a few hundred bytes.
const MAX_FRAME: usize = 1 << 20;

const HEADINGS: [&str; 7] = ["TIME", "GENERATION", "KIND", "POD", "TARGET", "WHAT", "MESSAGE"];

/// Prints what is held, and goes on if so wished.
pub(super) async fn run(agent: Option<&str>, output: Output, args: &EventsArgs) -> Result<ExitCode, Failure> {
    let agent = AgentAddress::choose(agent, AgentAddress::admin())?;
    if !args.follow {
        return list(&agent, output, args).await;
    }
    let listening = |error| Failure::running(format!("cannot listen for signals: {error}"));
    let mut interrupted = signal(SignalKind::interrupt()).map_err(listening)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(listening)?;
    tokio::select! {
        ended = follow(&agent, output, args) => ended,
        _ = interrupted.recv() => Ok(Exit::Done.into()),
        _ = terminated.recv() => Ok(Exit::Done.into()),
    }
}

fn query(args: &EventsArgs, since: Option<u64>) -> Result<Query, Failure> {
    let since = since.map(|since| since.to_string());
    let query = Query::default().with_pod(args.namespace.as_deref(), args.pod.as_deref())?;
    Ok(query.with("kind", args.kind.as_deref()).with("since", since.as_deref()))
}

async fn held(agent: &AgentAddress, args: &EventsArgs) -> Result<Said<Vec<Event>>, Failure> {
    let path = query(args, args.since)?.of("/v1/events");
    let said = client::ask(agent, &path, args.ask.timeout).await?;
    if said.header("storewatch-restarted") == "true" {
        remark("the agent has restarted since that generation; these are all events of this run");
    }
    Ok(said)
}

async fn list(agent: &AgentAddress, output: Output, args: &EventsArgs) -> Result<ExitCode, Failure> {
    let said = held(agent, args).await?;
    if said.value.is_empty() {
        check_pod(agent, args.pod.as_deref(), args.ask.timeout).await?;
    }
    let text = match output {
        Output::Json => said.text,
        Output::Table if said.value.is_empty() => "Nothing happened.\n".to_owned(),
        Output::Table => table(&HEADINGS, said.value.iter().map(cells).collect(), Style::of_stdout()),
    };
    print(&text, &mut std::io::stdout())?;
    Ok(Exit::Done.into())
}

async fn follow(agent: &AgentAddress, output: Output, args: &EventsArgs) -> Result<ExitCode, Failure> {
    let held = held(agent, args).await?;
    let mut lines = Lines { output, style: Style::of_stdout(), widths: [0; HEADINGS.len()] };
    if lines.begin(&held)?.is_break() {
        return Ok(Exit::Done.into());
    }
    // What came between the two questions is in the second answer.
    let reached = held.header("storewatch-generation").parse().ok();
    let path = query(args, reached)?.of("/v1/events/stream");
    let mut frames = Frames::default();
    let take = |bytes: &[u8]| {
        frames.add(bytes);
        while let Some(data) = frames.next() {
            if lines.event(&data)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if frames.buffer.len() > MAX_FRAME {
            return Err(Failure::wrong(format!("what answers at {agent} is no storewatch agent: an endless event")));
        }
        Ok(ControlFlow::Continue(()))
    };
    match client::follow(agent, &path, args.ask.timeout, SILENCE, take).await? {
        ControlFlow::Break(()) => Ok(Exit::Done.into()),
        ControlFlow::Continue(()) => Err(Failure::running(format!("the agent at {agent} has ended the stream"))),
    }
}

fn cells(event: &Event) -> Vec<Cell> {
    let pod = match (&event.namespace, &event.pod) {
        (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
        _ => String::new(),
    };
    let what = match (&event.from, &event.to) {
        (None, None) => event.outcome.clone().unwrap_or_default(),
        (from, to) => {
            let (from, to) = (from.as_deref().unwrap_or_default(), to.as_deref().unwrap_or_default());
            format!("{from} -> {to}").trim().to_owned()
        }
    };
    let tone = match event.kind.as_str() {
        "transition" => Tone::Heading,
        "loss" => Tone::Doubtful,
        _ => Tone::Plain,
    };
    vec![
        Cell::from(event.at.as_str()),
        Cell::from(event.generation.to_string()),
        Cell::new(event.kind.as_str(), tone),
        Cell::from(pod),
        Cell::from(event.target.as_deref().unwrap_or_default()),
        Cell::from(what),
        Cell::from(event.message.as_str()),
    ]
}

/// Events as lines of a table that has no end: a column is as wide as it has ever been.
struct Lines {
    output: Output,
    style: Style,
    widths: [usize; HEADINGS.len()],
}

impl Lines {
    fn begin(&mut self, held: &Said<Vec<Event>>) -> Result<ControlFlow<()>, Failure> {
        let mut text = String::new();
        match self.output {
            Output::Table => {
                // As wide as the first event will need at least.
                let headings = HEADINGS.map(|heading| Cell::new(heading, Tone::Heading));
                let rows: Vec<_> = held.value.iter().map(cells).collect();
                for row in &rows {
                    self.widen(row);
                }
                text.push_str(&self.line(&headings));
                rows.iter().for_each(|row| text.push_str(&self.line(row)));
            }
            Output::Json => {
                let events: Vec<serde_json::Value> = serde_json::from_str(&held.text).unwrap_or_default();
                events.iter().for_each(|event| text.push_str(&format!("{event}\n")));
            }
        }
        print_more(&text, &mut std::io::stdout())
    }

    fn event(&mut self, data: &str) -> Result<ControlFlow<()>, Failure> {
        let text = match self.output {
            Output::Json => format!("{}\n", clean(data)),
            Output::Table => {
                let event: Event = serde_json::from_str(data)
                    .map_err(|error| Failure::wrong(format!("the agent told something that is no event: {error}")))?;
                self.line(&cells(&event))
            }
        };
        print_more(&text, &mut std::io::stdout())
    }

    fn widen(&mut self, cells: &[Cell]) {
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = cell.width().max(*width);
        }
    }

    fn line(&mut self, cells: &[Cell]) -> String {
        self.widen(cells);
        super::table::line(cells, &self.widths, self.style)
    }
}

/// Takes `text/event-stream` apart.
#[derive(Debug, Default)]
struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    fn add(&mut self, bytes: &[u8]) {
        // Line ends of any kind are one, as the format wants it; the agent itself writes none but these.
        self.buffer.extend(bytes.iter().filter(|byte| **byte != b'\r'));
    }

    /// The data of the next whole event; comments and what has no data are passed over.
    fn next(&mut self) -> Option<String> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&block);
            let data: Vec<_> = text
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .map(|data| data.strip_prefix(' ').unwrap_or(data))
                .collect();
            if !data.is_empty() {
                return Some(data.join("\n"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_in_any_pieces() {
        let stream = ": hello\n\nevent: ping\nid: 7\ndata: {\"a\":1}\n\n:\n\ndata:x\r\ndata: y\r\n\r\nid: 8\n\ndata: ü";
        for size in 1..stream.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                frames.add(piece);
                found.extend(std::iter::from_fn(|| frames.next()));
            }
            assert_eq!(found, ["{\"a\":1}", "x\ny"], "in pieces of {size}");
            frames.add(b"\n\n");
            assert_eq!(frames.next().as_deref(), Some("ü"));
        }
    }
}
