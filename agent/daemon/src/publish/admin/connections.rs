//! `/v1/connections`: the table that the engine is asked for.

use super::{clocks, large};
use crate::{
    ask::{Asker, Unanswered},
    publish::{
        Publication,
        dto::connection::ConnectionDto,
        problem::{Problem, quote},
        query::{self, Pairs, Values},
    },
};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use storewatch_core::{
    connection::{ConnectionOutcome, TcpState},
    snapshot::Snapshot,
    table::{ConnectionFilter, OwnerView, Table, TableQuery, TargetFilter},
};

#[cfg(test)]
mod tests;

/// Connections in an answer that asks for no number: all of most nodes.
const LIMIT: usize = 1_000;

/// Connections in one answer: some 6 MB of JSON.
const MAX_LIMIT: usize = 10_000;

/// How many connections the filters admit, of which the answer is a page.
const TOTAL: HeaderName = HeaderName::from_static("storewatch-total");

/// `true` when the answer ends before the last of them.
const TRUNCATED: HeaderName = HeaderName::from_static("storewatch-truncated");

/// Age of the sample that states, idle times and byte counts are from, in milliseconds; absent before the first.
const SAMPLE_AGE: HeaderName = HeaderName::from_static("storewatch-sample-age-ms");

/// Sockets of that sample that belong to no judged pod, by the reason: `stranger=3, no_owner=1`.
const UNATTRIBUTED: HeaderName = HeaderName::from_static("storewatch-unattributed");

/// Whose connections are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attributed {
    /// Those of judged pods.
    Yes,
    /// Sockets towards watched ports that belong to none.
    No,
}

/// Answers, or says why not.
pub(super) async fn connections(
    State(publication): State<Publication>,
    State(asker): State<Asker>,
    pairs: Pairs,
) -> Result<Response, Problem> {
    let snapshot = publication.snapshot();
    let (query, attributed) = read(pairs, &snapshot)?;
    let (offset, limit) = (query.offset, query.limit);
    let asked = match attributed {
        Attributed::Yes => query,
        // The others come with every answer.
        Attributed::No => TableQuery { limit: 0, ..query },
    };
    let table = match asker.table(asked).await {
        Ok(table) => table,
        Err(why) => return Ok(refused(why)),
    };
    let clocks = clocks(&publication);
    let Table { generation: _, sampled_at, total, connections, unattributed, strays } = table;
    let sample_age = sampled_at.map(|at| clocks.age_ms(at));
    let (total, shown) = match attributed {
        Attributed::Yes => (total, connections.len()),
        Attributed::No => (strays.len(), strays.len().saturating_sub(offset).min(limit)),
    };
    let mut response = large(shown, move || {
        let rows: Vec<_> = match attributed {
            Attributed::Yes => connections.iter().map(|view| ConnectionDto::new(&snapshot, view, &clocks)).collect(),
            Attributed::No => {
                let page = strays.iter().skip(offset).take(limit);
                page.map(|view| ConnectionDto::of_nobody(&snapshot, view, &clocks)).collect()
            }
        };
        super::ok(&rows)
    })
    .await?;
    let headers = response.headers_mut();
    headers.insert(TOTAL, HeaderValue::from(total));
    let cut = shown < total.saturating_sub(offset);
    headers.insert(TRUNCATED, HeaderValue::from_static(if cut { "true" } else { "false" }));
    if let Some(age) = sample_age {
        headers.insert(SAMPLE_AGE, HeaderValue::from(age));
    }
    let reasons: Vec<_> = unattributed.iter().map(|(reason, count)| format!("{}={count}", reason.as_str())).collect();
    if let Ok(value) = HeaderValue::try_from(reasons.join(", ")) {
        headers.insert(UNATTRIBUTED, value);
    }
    Ok(response)
}

/// The agent is there and its engine has no time: unlike other problems this one is worth another try at once.
fn refused(why: Unanswered) -> Response {
    let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string()).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn read(pairs: Pairs, snapshot: &Snapshot) -> Result<(TableQuery, Attributed), Problem> {
    let keys = ["namespace", "pod", "cluster", "target", "owner", "outcome", "state", "attributed", "limit", "offset"];
    let mut values = Values::read(pairs, &keys)?;
    let cluster = values.take("cluster").map(|name| {
        let known = snapshot.clusters.iter().find(|cluster| *cluster.name == *name);
        known.map(|cluster| cluster.id).ok_or_else(|| {
            let names: Vec<_> = snapshot.clusters.iter().map(|cluster| &*cluster.name).collect();
            query::wrong("cluster", &name, &format!("is not configured; there is {}", names.join(", ")))
        })
    });
    let target = values.take("target").map(|label| {
        TargetFilter::parse(&label)
            .ok_or_else(|| query::wrong("target", &label, "must be the id of a Store, static-N, pd or other"))
    });
    let filter = ConnectionFilter {
        cluster: cluster.transpose()?,
        namespace: values.take("namespace"),
        pod: values.take("pod"),
        target: target.transpose()?,
        owner: values.one_of("owner", &OwnerView::ALL, OwnerView::as_str)?,
        outcome: values.one_of("outcome", &ConnectionOutcome::ALL, ConnectionOutcome::as_str)?,
        state: values.one_of("state", &TcpState::ALL, TcpState::as_str)?,
    };
    let attributed =
        values.one_of("attributed", &[Attributed::Yes, Attributed::No], |attributed| match attributed {
            Attributed::Yes => "yes",
            Attributed::No => "no",
        })?;
    let limit = values.number("limit")?.unwrap_or(LIMIT as u64);
    if !(1..=MAX_LIMIT as u64).contains(&limit) {
        return Err(Problem::bad_request(format!(
            "query key {} must be from 1 to {MAX_LIMIT}, not {limit}",
            quote("limit")
        )));
    }
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let query = TableQuery { filter, offset: whole(values.number("offset")?.unwrap_or(0)), limit: whole(limit) };
    Ok((query, attributed.unwrap_or(Attributed::Yes)))
}
