//! Evicts pods whose transport is stale, by the Eviction API, which keeps disruption budgets. The rules are
//! [`storewatch_core::heal`]'s.

use super::{GateSettings, MANAGER};
use crate::{
    clock,
    config::HealingMode,
    kubernetes::{
        client::{Access, call},
        failure::{Failure, Why},
        health::Part,
        manifest::Seen,
        objects::Pod,
    },
    publish::events::{self, Words},
};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};
use storewatch_core::{
    heal::{Healer, Patient},
    id::PodUid,
};

/// What the elected agent does about stale transports.
pub(super) struct Healing {
    mode: HealingMode,
    node: Arc<str>,
    client: Client,
    part: Part,
    healer: Healer,
    /// Told in a dry run; each pod once.
    told: BTreeSet<PodUid>,
}

impl Healing {
    pub(super) fn new(settings: &GateSettings, access: &Access, client: &Client) -> Self {
        Self {
            mode: settings.healing,
            node: Arc::clone(&settings.node),
            client: client.clone(),
            part: access.health().part("evictions"),
            healer: Healer::default(),
            told: BTreeSet::new(),
        }
    }

    /// Evicts who may be. `stale`: the uids that their agents call so.
    pub(super) async fn look(&mut self, pods: &[&Arc<Seen>], stale: impl Iterator<Item = &String>) {
        if self.mode == HealingMode::Off {
            return;
        }
        let stale: BTreeSet<&str> = stale.map(String::as_str).collect();
        let patients: Vec<_> = pods.iter().filter_map(|pod| patient(pod, &stale)).collect();
        self.told.retain(|uid| patients.iter().any(|patient| patient.uid == *uid));
        for uid in self.healer.choose(&patients, clock::now()) {
            let Some(pod) = pods.iter().find(|pod| pod.uid == uid) else { continue };
            let result = self.evict(pod).await;
            self.healer.tried(&patients, &uid, result.is_ok(), clock::now());
            let dry = self.mode == HealingMode::DryRun;
            let (reason, note) = match result {
                Ok(()) if dry && !self.told.insert(uid.clone()) => continue,
                Ok(()) if dry => {
                    ("WouldEvict", "its transport is stale, which only a restart ends; healing.mode is dry_run")
                }
                Ok(()) => ("EvictedStaleTransport", "evicted: its transport was stale, which only a restart ends"),
                Err(Failure { why: Why::Missing | Why::Conflict, .. }) => continue,
                // What a disruption budget says is no fault of the API server's.
                Err(Failure { why: Why::TooMany, words, .. }) => {
                    tracing::info!(pod = %pod.pod, "eviction refused: {words}");
                    continue;
                }
                Err(failure) => {
                    self.part.fails(failure);
                    continue;
                }
            };
            self.part.well();
            tracing::warn!(pod = %pod.pod, reason, "{note}");
            let words = Words { pod: pod.pod.clone(), uid, reason, warning: true, note: note.to_owned() };
            events::tell(&self.client, &self.node, words, &self.part).await;
        }
    }

    async fn evict(&self, pod: &Seen) -> Result<(), Failure> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.pod.namespace);
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": &*pod.pod.name, "namespace": &*pod.pod.namespace },
            // Not another pod of the same name.
            "deleteOptions": { "preconditions": { "uid": &*pod.uid.0 } },
        });
        let params = PostParams { dry_run: self.mode == HealingMode::DryRun, field_manager: Some(MANAGER.to_owned()) };
        let sent: Result<serde_json::Value, _> =
            call(api.create_subresource("eviction", &pod.pod.name, &params, &eviction)).await;
        sent.map(|_| ())
    }
}

fn patient(pod: &Seen, stale: &BTreeSet<&str>) -> Option<Patient> {
    let (terminating, maintenance) =
        pod.wiring.as_ref().map_or((false, false), |wiring| (wiring.terminating, wiring.maintenance));
    Some(Patient {
        uid: pod.uid.clone(),
        namespace: Arc::clone(&pod.pod.namespace),
        workload: pod.workload.clone()?,
        running: pod.running && !terminating,
        ready: pod.ready && !terminating,
        stale: stale.contains(&*pod.uid.0) && !maintenance,
    })
}
