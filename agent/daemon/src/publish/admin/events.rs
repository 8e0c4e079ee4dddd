//! `/v1/events` and `/v1/events/stream`: what happened, once or as it happens.

use super::{clocks, large};
use crate::publish::{
    Publication,
    dto::event::EventDto,
    feed::{Cursor, MAX_STREAMS},
    problem::{Problem, quote},
    query::{self, Pairs, Values},
};
use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use futures_util::{Stream, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
use storewatch_core::event::{Event, EventKind};
use tokio::sync::{OwnedSemaphorePermit, watch};

#[cfg(test)]
mod tests;

/// A stream that says nothing says at least this often that it lives: well below the idle time-outs of proxies, and short
/// enough to notice a reader that is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How many of the events asked for are no longer held (at most).
const LOST: HeaderName = HeaderName::from_static("storewatch-lost");

/// The newest generation: where to go on.
const GENERATION: HeaderName = HeaderName::from_static("storewatch-generation");

/// `true` when the generation asked for is from an earlier run of the agent: then everything of this run is given.
const RESTARTED: HeaderName = HeaderName::from_static("storewatch-restarted");

/// Where a browser's `EventSource` and others say how far they have come.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const KEYS: [&str; 4] = ["since", "kind", "namespace", "pod"];

/// Which events are asked for.
#[derive(Clone, Debug, Default)]
struct Filter {
    kinds: Option<BTreeSet<EventKind>>,
    namespace: Option<String>,
    pod: Option<String>,
}

impl Filter {
    fn read(values: &mut Values) -> Result<Self, Problem> {
        let kinds = values.take("kind").map(|list| {
            let kind = |name: &str| {
                EventKind::ALL.into_iter().find(|kind| kind.as_str() == name).ok_or_else(|| {
                    let known = EventKind::ALL.map(EventKind::as_str).join(", ");
                    query::wrong("kind", name, &format!("must be one or more of: {known}; with commas in between"))
                })
            };
            list.split(',').map(kind).collect()
        });
        Ok(Self { kinds: kinds.transpose()?, namespace: values.take("namespace"), pod: values.take("pod") })
    }

    fn admits(&self, event: &Event) -> bool {
        let of = |wanted: &Option<String>, name: Option<&Arc<str>>| {
            wanted.as_deref().is_none_or(|wanted| name.is_some_and(|name| **name == *wanted))
        };
        let pod = event.pod.as_ref();
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
            && of(&self.namespace, pod.map(|pod| &pod.namespace))
            && of(&self.pod, pod.map(|pod| &pod.name))
    }
}

/// Where to begin, and what is missing before it.
struct Begin {
    cursor: Cursor,
    generation: u64,
    missed: u64,
    restarted: bool,
}

impl Begin {
    /// After `since`. A generation that this run has not reached is from an earlier run, so all of this run is new.
    fn after(publication: &Publication, since: u64) -> Self {
        let reached = publication.feed().newest().max(publication.snapshot().generation);
        let restarted = since > reached;
        let generation = if restarted { 0 } else { since };
        let (cursor, missed) = publication.feed().after(generation);
        Self { cursor, generation, missed, restarted }
    }
}

/// Everything held, or what came after a generation.
pub(super) async fn events(State(publication): State<Publication>, pairs: Pairs) -> Result<Response, Problem> {
    let mut values = Values::read(pairs, &KEYS)?;
    let (since, filter) = (values.number("since")?, Filter::read(&mut values)?);
    let feed = publication.feed();
    let Begin { mut cursor, generation, mut missed, restarted } = Begin::after(&publication, since.unwrap_or(0));
    if since.is_none() {
        // Nobody asked for more than there is.
        missed = 0;
    }
    // What happens meanwhile is the next answer's.
    let newest = feed.newest();
    let mut found: Vec<Arc<Event>> = Vec::new();
    loop {
        let batch = feed.read(&mut cursor);
        missed += batch.missed;
        let Some(last) = batch.events.last().map(|event| event.generation) else { break };
        found.extend(batch.events.into_iter().filter(|event| event.generation <= newest && filter.admits(event)));
        if last >= newest {
            break;
        }
    }
    let (snapshot, clocks) = (publication.snapshot(), clocks(&publication));
    let mut response = large(found.len(), move || {
        let words = missing(missed);
        let first = (missed > 0).then(|| EventDto::missed(generation, &words, &clocks));
        let rest = found.iter().map(|event| EventDto::new(&snapshot, event, &clocks));
        super::ok(&first.into_iter().chain(rest).collect::<Vec<_>>())
    })
    .await?;
    let headers = response.headers_mut();
    headers.insert(LOST, HeaderValue::from(missed));
    headers.insert(GENERATION, HeaderValue::from(newest));
    if restarted {
        headers.insert(RESTARTED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn missing(count: u64) -> String {
    format!("{count} older events are no longer held")
}

/// The same as they happen, from now on or from a generation on.
pub(super) async fn follow(
    State(publication): State<Publication>,
    headers: HeaderMap,
    pairs: Pairs,
) -> Result<Response, Problem> {
    let mut values = Values::read(pairs, &KEYS)?;
    let (since, filter) = (values.number("since")?, Filter::read(&mut values)?);
    // A reader that comes back knows better than the address it was once given.
    let since = last_event_id(&headers)?.or(since);
    let Some(place) = publication.feed().follow() else {
        let detail = format!("{MAX_STREAMS} readers follow already");
        let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response();
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        return Ok(response);
    };
    let wakes = publication.feed().subscribe();
    let begin = Begin::after(&publication, since.unwrap_or_else(|| publication.feed().newest()));
    let mut response = HeaderMap::new();
    response.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.insert(LOST, HeaderValue::from(begin.missed));
    if begin.restarted {
        response.insert(RESTARTED, HeaderValue::from_static("true"));
    }
    let reader = Reader {
        publication,
        filter,
        wakes,
        cursor: begin.cursor,
        last: begin.generation,
        missed: begin.missed,
        ready: VecDeque::new(),
        _place: place,
    };
    let events = Sse::new(reader.stream()).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok((response, events).into_response())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    query::number(text)
        .map(Some)
        .ok_or_else(|| Problem::bad_request(format!("header Last-Event-ID is {}, which is no generation", quote(text))))
}

/// One who follows. It is asked for the next event when the connection has room for one, so that a slow connection makes it
/// fall behind and nothing else wait.
struct Reader {
    publication: Publication,
    filter: Filter,
    wakes: watch::Receiver<u64>,
    cursor: Cursor,
    /// The newest generation handed out.
    last: u64,
    /// What is missing before the next event, and was not told yet.
    missed: u64,
    ready: VecDeque<Arc<Event>>,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    fn stream(self) -> impl Stream<Item = Result<sse::Event, Infallible>> {
        stream::unfold(self, |mut reader| async move {
            let event = reader.next().await?;
            Some((Ok(event), reader))
        })
    }

    /// The next event; `None` once the agent drains. Cancel-safe: what was read is handed out next time.
    async fn next(&mut self) -> Option<sse::Event> {
        let draining = self.publication.draining().clone();
        loop {
            if draining.is_cancelled() {
                return None;
            }
            let missed = std::mem::take(&mut self.missed);
            let (snapshot, clocks) = (self.publication.snapshot(), clocks(&self.publication));
            if missed > 0 {
                let words = format!("{missed} events were no longer held when this reader came to them");
                return Some(frame(&EventDto::missed(self.last, &words, &clocks), EventKind::Loss, self.last));
            }
            while let Some(event) = self.ready.pop_front() {
                if self.filter.admits(&event) {
                    self.last = event.generation;
                    return Some(frame(&EventDto::new(&snapshot, &event, &clocks), event.kind, event.generation));
                }
            }
            // In this order: what is pushed after the reading wakes.
            self.wakes.mark_unchanged();
            let batch = self.publication.feed().read(&mut self.cursor);
            self.missed = batch.missed;
            self.ready.extend(batch.events);
            if self.missed > 0 || !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                () = draining.cancelled() => return None,
                changed = self.wakes.changed() => changed.ok()?,
            }
        }
    }
}

fn frame(event: &EventDto<'_>, kind: EventKind, generation: u64) -> sse::Event {
    // Strings and numbers: it cannot fail, and an event without data would be skipped by every reader.
    let data = serde_json::to_string(event).unwrap_or_default();
    sse::Event::default().event(kind.as_str()).id(generation.to_string()).data(data)
}
