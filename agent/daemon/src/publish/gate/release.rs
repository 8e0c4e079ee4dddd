//! Opens every gate for good: what is to be done before the agents are taken away.

use super::{GateSettings, MANAGER};
use crate::kubernetes::{
    client::{Access, call},
    condition,
    failure::{Failure, Why},
    health::Health,
    manifest,
    objects::Pod,
};
use anyhow::{Context as _, bail};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use std::{sync::Arc, time::Duration};
use storewatch_core::gate;
use tokio::time::{sleep, timeout};

/// How long to wait for a way to the API server.
const CONNECT: Duration = Duration::from_secs(10);

/// Rounds, for pods that change while they are written.
const ROUNDS: u32 = 5;

/// Opens the gates of all selected pods of all nodes, and gives how many were shut.
///
/// # Errors
/// When the API server cannot be reached, or when a gate stays shut.
pub async fn open_all(settings: &GateSettings) -> anyhow::Result<u32> {
    let access = Access::new(Arc::new(Health::default()));
    let client = timeout(CONNECT, access.client()).await.context("there is no way to the API server")?;
    let mut opened = 0;
    let mut left = None;
    for _ in 0..ROUNDS {
        left = None;
        for scope in &settings.scopes {
            let params = ListParams::default().labels(&scope.selector);
            let pods = call(scope.api(&client).list(&params)).await;
            let pods = pods.map_err(|failure| anyhow::anyhow!("pods in {}: {}", scope.place(), failure.words))?;
            for pod in pods.items.into_iter().filter_map(manifest::read) {
                if !pod.wiring.as_ref().is_some_and(gate::opens) {
                    continue;
                }
                match open(&client, &pod).await {
                    Ok(()) => opened += 1,
                    Err(failure) if failure.why == Why::Missing => {}
                    Err(failure) => left = Some(format!("{}: {}", pod.pod, failure.words)),
                }
            }
        }
        if left.is_none() {
            return Ok(opened);
        }
        sleep(Duration::from_secs(1)).await;
    }
    match left {
        Some(words) => bail!("a gate stays shut: {words}"),
        None => Ok(opened),
    }
}

async fn open(client: &Client, pod: &manifest::Seen) -> Result<(), Failure> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.pod.namespace);
    let patch = condition::patch(&gate::absent_word(), true, jiff::Timestamp::now(), &pod.uid, None);
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    call(api.patch_status(&pod.pod.name, &params, &Patch::Strategic(&patch))).await.map(|_| ())
}
