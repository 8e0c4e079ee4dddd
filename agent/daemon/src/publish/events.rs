//! Events on the Servers' pods: what a verdict became, and what to do about it, where people look first.

mod teller;

pub(super) use teller::Words;

use crate::{
    clock,
    kubernetes::{
        client::{Access, call, pause},
        failure::{Failure, Why},
        health::Part,
        objects::Event,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use rand::Rng as _;
use serde_json::json;
use std::{collections::VecDeque, sync::Arc};
use storewatch_core::snapshot::Snapshot;
use teller::{Say, Teller};
use tokio::{sync::watch, time::sleep};

/// Who reports.
const CONTROLLER: &str = "storewatch.io/agent";

/// Events that may wait while the API server is away; older ones give way, since the later ones say how it ended.
const WAITING: usize = 128;

/// Attempts at one Event.
const ATTEMPTS: u32 = 5;

/// Runs until the engine ends.
///
/// # Errors
/// None; the type is that of every task.
pub async fn run(
    node: Arc<str>,
    access: Arc<Access>,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
) -> anyhow::Result<()> {
    let client = access.client().await;
    let part = access.health().part("events");
    let mut teller = Teller::default();
    let mut waiting: VecDeque<Say> = VecDeque::new();
    loop {
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        if snapshot.generation > 0 {
            for say in teller.look(&snapshot, clock::now(), || rand::rng().random()) {
                if waiting.len() >= WAITING {
                    waiting.pop_front();
                    tracing::warn!("too many Events wait; the oldest is dropped");
                }
                waiting.push_back(say);
            }
        }
        while let Some(say) = waiting.pop_front() {
            write(&client, &node, &say, &part).await;
        }
        if snapshots.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Writes one Event about a pod that is no transition of a verdict.
pub(super) async fn tell(client: &Client, node: &str, words: Words, part: &Part) {
    let name = teller::name(&words.pod, rand::rng().random());
    write(client, node, &Say { name, count: 1, words }, part).await;
}

async fn write(client: &Client, node: &str, say: &Say, part: &Part) {
    let mut failures = 0;
    loop {
        match once(client, node, say).await {
            Ok(()) => return part.well(),
            // The pod's namespace is going, or the series has been forgotten there: nobody is waiting for it.
            Err(failure) if failure.why == Why::Missing => return,
            Err(failure) => {
                failures += 1;
                let wait = pause(failures, failure.retry_after);
                let hopeless = matches!(failure.why, Why::Forbidden | Why::Invalid | Why::Conflict);
                part.fails(failure);
                if hopeless || failures >= ATTEMPTS {
                    tracing::warn!(pod = %say.words.pod, reason = say.words.reason, "Event not written");
                    return;
                }
                sleep(wait).await;
            }
        }
    }
}

async fn once(client: &Client, node: &str, say: &Say) -> Result<(), Failure> {
    let Say { name, count, words } = say;
    let Words { pod, uid, reason, warning, note } = words;
    let api: Api<Event> = Api::namespaced(client.clone(), &pod.namespace);
    let now = MicroTime(jiff::Timestamp::now());
    if *count > 1 {
        let patch = json!({ "note": note, "series": { "count": count, "lastObservedTime": now } });
        let params = PatchParams { field_manager: Some("storewatch".to_owned()), ..PatchParams::default() };
        return call(api.patch(name, &params, &Patch::Merge(&patch))).await.map(|_| ());
    }
    let event = json!({
        "metadata": { "name": name, "namespace": &*pod.namespace },
        "eventTime": now,
        "reportingController": CONTROLLER,
        "reportingInstance": node,
        "action": "JudgeStorage",
        "reason": reason,
        "type": if *warning { "Warning" } else { "Normal" },
        "regarding": {
            "apiVersion": "v1", "kind": "Pod", "namespace": &*pod.namespace, "name": &*pod.name, "uid": &*uid.0,
        },
        "note": note,
    });
    let event = serde_json::from_value(event).unwrap_or_default();
    call(api.create(&PostParams::default(), &event)).await.map(|_| ())
}
