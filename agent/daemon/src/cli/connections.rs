//! `connections`: who talks to whom, whose the address is, and what became of it.

use super::{
    ConnectionsArgs, Exit, Failure, Output,
    address::AgentAddress,
    client::{self, Said},
    exit::{print, remark},
    explain::check_pod,
    list::several,
    query::Query,
    table::{Cell, Style, Tone, clean, human_ms, table},
    wire::Connection,
};
use jiff::Timestamp;
use std::{process::ExitCode, time::Duration};

/// Prints the connections.
pub(super) async fn run(agent: Option<&str>, output: Output, args: &ConnectionsArgs) -> Result<ExitCode, Failure> {
    let agent = AgentAddress::choose(agent, AgentAddress::admin())?;
    let query = Query::default()
        .with_pod(args.namespace.as_deref(), args.pod.as_deref())?
        .with("cluster", args.cluster.as_deref())
        .with("target", args.target.as_deref())
        .with("owner", args.owner.as_deref())
        .with("outcome", args.outcome.as_deref())
        .with("state", args.state.as_deref())
        .with("attributed", args.unattributed.then_some("no"))
        .with("limit", Some(&args.limit.to_string()));
    let said: Said<Vec<Connection>> = client::ask(&agent, &query.of("/v1/connections"), args.ask.timeout).await?;
    let rows = &said.value;
    if rows.is_empty() {
        check_pod(&agent, args.pod.as_deref(), args.ask.timeout).await?;
    }
    let style = Style::of_stdout();
    let text = match (output, args.unattributed) {
        (Output::Json, _) => said.text.clone(),
        (Output::Table, _) if rows.is_empty() => "No such connection.\n".to_owned(),
        (Output::Table, false) => of_pods(rows, Timestamp::now(), style),
        (Output::Table, true) => of_nobody(rows, style),
    };
    print(&text, &mut std::io::stdout())?;
    if said.header("storewatch-truncated") == "true" {
        remark(&format!(
            "{} of {} connections; --limit shows more",
            rows.len(),
            clean(said.header("storewatch-total"))
        ));
    }
    let others = said.header("storewatch-unattributed");
    if output == Output::Table && !args.unattributed && !others.is_empty() {
        remark(&format!("other sockets to the watched ports: {}; see --unattributed", clean(others)));
    }
    Ok(Exit::Done.into())
}

fn of_pods(rows: &[Connection], now: Timestamp, style: Style) -> String {
    let several = several(rows.iter().map(|row| row.cluster.as_deref()));
    let proxied = rows.iter().any(|row| row.via.as_deref() == Some("proxy"));
    let ended = rows.iter().any(|row| row.ended_at.is_some());
    let mut headings =
        vec!["NAMESPACE", "POD", "TARGET", "REMOTE", "OWNER", "STATE", "OUTCOME", "AGE", "IDLE", "RTT", "RETRANS"];
    let more = [(ended, "ENDED AGO"), (proxied, "VIA"), (several, "CLUSTER")];
    headings.extend(more.iter().filter(|(shown, _)| *shown).map(|(_, heading)| *heading));
    let cells = |row: &Connection| {
        let mut cells = vec![
            Cell::from(row.namespace.as_deref().unwrap_or_default()),
            Cell::from(row.pod.as_deref().unwrap_or_default()),
            Cell::from(row.target.as_str()),
            Cell::from(row.remote.as_str()),
            owner(row),
            Cell::from(row.state.as_str()),
            outcome(row),
            Cell::from(age(row)),
            Cell::from(row.idle_ms.map(human_ms).unwrap_or_default()),
            Cell::from(row.rtt_us.map(rtt).unwrap_or_default()),
            retransmits(row),
        ];
        let since =
            row.ended_at.as_deref().and_then(|at| at.parse::<Timestamp>().ok()).map(|at| now.duration_since(at));
        let ago = since.map(|since| super::table::human(Duration::try_from(since).unwrap_or_default()));
        let more = [
            (ended, ago.unwrap_or_default()),
            (proxied, row.via.clone().unwrap_or_default()),
            (several, row.cluster.clone().unwrap_or_default()),
        ];
        cells.extend(more.into_iter().filter(|(shown, _)| *shown).map(|(_, text)| Cell::from(text)));
        cells
    };
    table(&headings, rows.iter().map(cells).collect(), style)
}

fn of_nobody(rows: &[Connection], style: Style) -> String {
    let headings = ["REASON", "PID", "CGROUP", "NETNS", "TARGET", "REMOTE", "OWNER", "STATE", "IDLE", "RTT", "RETRANS"];
    let cells = |row: &Connection| {
        let container = row.container.as_ref();
        vec![
            Cell::from(row.unattributed.as_deref().unwrap_or_default()),
            Cell::from(row.pid.map(|pid| pid.to_string()).unwrap_or_default()),
            Cell::from(container.and_then(|place| place.cgroup).map(|id| id.to_string()).unwrap_or_default()),
            Cell::from(container.and_then(|place| place.netns).map(|id| id.to_string()).unwrap_or_default()),
            Cell::from(row.target.as_str()),
            Cell::from(row.remote.as_str()),
            owner(row),
            Cell::from(row.state.as_str()),
            Cell::from(row.idle_ms.map(human_ms).unwrap_or_default()),
            Cell::from(row.rtt_us.map(rtt).unwrap_or_default()),
            retransmits(row),
        ]
    };
    table(&headings, rows.iter().map(cells).collect(), style)
}

fn owner(row: &Connection) -> Cell {
    let tone = match row.owner.as_str() {
        "current" => Tone::Good,
        "previous" => Tone::Bad,
        _ => Tone::Doubtful,
    };
    Cell::new(row.owner.as_str(), tone)
}

fn outcome(row: &Connection) -> Cell {
    let tone = match row.outcome.as_deref() {
        Some("established") => Tone::Good,
        None | Some("closed" | "peer_closed" | "cancelled" | "unknown") => Tone::Plain,
        Some(_) => Tone::Bad,
    };
    Cell::new(row.outcome.as_deref().unwrap_or_default(), tone)
}

fn retransmits(row: &Connection) -> Cell {
    let tone = if row.retransmits.is_some_and(|count| count > 0) { Tone::Doubtful } else { Tone::Plain };
    Cell::new(row.retransmits.map(|count| count.to_string()).unwrap_or_default(), tone)
}

/// At least, for one whose begin was not seen.
fn age(row: &Connection) -> String {
    let older = if row.opened_at.is_none() { ">" } else { "" };
    row.age_ms.map(|age| format!("{older}{}", human_ms(age))).unwrap_or_default()
}

/// On one node a round trip is some tens of microseconds.
fn rtt(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{:.2}ms", micros as f64 / 1_000.0),
        10_000..100_000 => format!("{:.1}ms", micros as f64 / 1_000.0),
        _ => human_ms(micros / 1_000),
    }
}
