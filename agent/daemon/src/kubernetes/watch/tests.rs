//! Answers that a real API server gives on bad days only, in an order that the test chooses.

use super::*;
use crate::kubernetes::{health::Health, objects::Pod};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Mutex, PoisonError},
};
use tower::service_fn;

/// One answer.
#[derive(Debug)]
enum Answer {
    Status(u16, Value),
    /// Not even a header.
    Silence,
}

/// A server that gives these answers, and then none.
fn server(answers: impl IntoIterator<Item = Answer>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let service = service_fn(move |request: http::Request<Body>| {
        let answer = answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        log.lock().unwrap().push(request.uri().to_string());
        async move {
            match answer {
                Some(Answer::Status(code, body)) => {
                    let mut text = body.to_string();
                    text.push('\n');
                    Ok::<_, Infallible>(
                        http::Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap(),
                    )
                }
                Some(Answer::Silence) | None => std::future::pending().await,
            }
        }
    });
    (Client::new(service, "default"), asked)
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": format!("no, {code}"), "reason": "Because"})
}

fn refuses(code: u16) -> Answer {
    Answer::Status(code, failure(code))
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"namespace": "graph", "name": name, "uid": name, "resourceVersion": "7"}})
}

fn lists(names: &[&str]) -> Answer {
    let items: Vec<_> = names.iter().map(|name| pod(name)).collect();
    Answer::Status(
        200,
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items}),
    )
}

fn happens(kind: &str, object: Value) -> Answer {
    Answer::Status(200, json!({"type": kind, "object": object}))
}

struct Followed {
    health: Arc<Health>,
    part: Part,
    set: Receiver<String>,
    asked: Arc<Mutex<Vec<String>>>,
    _task: tokio::task::JoinSet<()>,
}

impl Followed {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let (client, asked) = server(answers);
        let health = Arc::new(Health::default());
        let part = health.part("pods");
        let (sender, set) = watch::channel(None);
        let config = watcher::Config::default().fields("spec.nodeName=n").labels("a=b");
        let read = |pod: Pod| pod.metadata.name;
        let mut task = tokio::task::JoinSet::new();
        task.spawn(follow(Api::namespaced(client, "graph"), config, part.clone(), read, sender));
        Self { health, part, set, asked, _task: task }
    }

    /// Waits until the set holds these; time is the test's own, so that waiting costs nothing.
    async fn becomes(&mut self, names: &str) {
        let shows = |set: &Option<Objects<String>>| {
            set.as_ref()
                .is_some_and(|set| set.values().map(|name| name.as_str()).collect::<Vec<_>>().join(" ") == names)
        };
        let shown = tokio::time::timeout(Duration::from_secs(600), self.set.wait_for(shows)).await;
        assert!(shown.is_ok_and(|shown| shown.is_ok()), "never {names:?}: {:?}", self.set.borrow());
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_limited_by_its_selectors_and_follows_what_happens() {
    let mut followed = Followed::new([
        lists(&["a"]),
        happens("ADDED", pod("b")),
        // The stream of one answer ends with it; the watch goes on from the last version.
        happens("DELETED", pod("a")),
    ]);
    // Answers that come at once are seen together.
    followed.becomes("b").await;
    let asked = followed.asked.lock().unwrap().clone();
    assert!(asked.len() >= 3 && asked.iter().all(|uri| uri.starts_with("/api/v1/namespaces/graph/pods?")), "{asked:?}");
    for wanted in ["fieldSelector=spec.nodeName%3Dn", "labelSelector=a%3Db"] {
        assert!(asked.iter().all(|uri| uri.contains(wanted)), "{asked:?}");
    }
    assert_eq!(followed.part.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_named_and_survived() {
    let storm = [429, 500, 503, 429, 502, 504].map(refuses);
    let mut followed = Followed::new(storm.into_iter().chain([refuses(403), lists(&["a"])]));
    let told = async {
        while followed.part.trouble().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        followed.part.trouble()
    };
    let told = tokio::time::timeout(Duration::from_secs(600), told).await.unwrap().unwrap();
    assert!(told.starts_with("pods: may not be done (403 no, 403)"), "{told}");
    followed.becomes("a").await;
    assert_eq!(followed.part.trouble(), None);
    drop(followed.health);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_a_fresh_list_that_replaces() {
    let mut followed = Followed::new([lists(&["a", "b"]), happens("ERROR", failure(410)), lists(&["b", "c"])]);
    followed.becomes("a b").await;
    followed.becomes("b c").await;
}

#[tokio::test(start_paused = true)]
async fn silence_and_nonsense_are_failures_and_the_last_good_set_stays() {
    let nonsense = Answer::Status(200, json!({"kind": "PodList", "metadata": {}, "items": 7}));
    let mut followed = Followed::new([
        Answer::Silence,
        lists(&["a"]),
        happens("ERROR", failure(500)),
        nonsense,
        Answer::Silence,
        lists(&[]),
    ]);
    followed.becomes("a").await;
    let seen = followed.set.borrow_and_update().is_some();
    followed.becomes("").await;
    assert!(seen, "in between nothing was published");
}

#[tokio::test(start_paused = true)]
async fn objects_without_fields_are_kept_apart_from_the_rest() {
    let items =
        json!({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [{}, {"metadata": {}}, pod("a")]});
    let mut followed = Followed::new([Answer::Status(200, items)]);
    followed.becomes("a").await;
}
