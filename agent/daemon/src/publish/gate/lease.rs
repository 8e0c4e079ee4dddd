//! This node's Lease: while it is renewed, nobody else writes this node's pods. It also carries the question which pods
//! may leave although this node's guard holds them, and the answer.

use super::{MANAGER, SOON, now, owner::Owner};
use crate::{
    clock,
    kubernetes::{
        client::{call, pause},
        failure::{Failure, Why},
        health::Part,
        objects::Lease,
    },
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use storewatch_core::{
    gate::{LEASE_RENEWAL, LEASE_VALID},
    id::PodUid,
    time::MonoTime,
};

/// Label of the nodes' Leases.
pub(super) const LABEL: (&str, &str) = ("storewatch.io/lease", "node");
/// Which node (a name can be too long for a label).
pub(super) const NODE: &str = "storewatch.io/node";
/// Who would leave if it might.
pub(super) const ASKED: &str = "storewatch.io/exits-asked";
/// Who may.
pub(super) const GRANTED: &str = "storewatch.io/exits-granted";

/// Whose transport is stale, confirmed.
pub(super) const STALE: &str = "storewatch.io/stale-transports";

/// How often the answer to a question is looked for.
const ASKING: Duration = Duration::from_secs(5);

/// The agent stops writing this long before others may begin to.
const MARGIN: Duration = Duration::from_secs(5);

/// The name of a node's Lease.
pub(super) fn name(node: &str) -> String {
    format!("storewatch-node-{node}")
}

/// A pod that would leave.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) uid: String,
    pub(super) reason: String,
}

/// What a Lease's annotation lists; nothing when it cannot be read.
pub(super) fn listed<T: serde::de::DeserializeOwned>(lease: &Lease, annotation: &str) -> Vec<T> {
    let text = lease.metadata.annotations.as_ref().and_then(|all| all.get(annotation));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// This node's Lease.
pub(super) struct NodeLease {
    api: Api<Lease>,
    owner: Arc<Owner>,
    node: Arc<str>,
    part: Part,
    held_until: Option<MonoTime>,
    due: Option<MonoTime>,
    failures: u32,
    asked: BTreeSet<Ask>,
    stale: BTreeSet<String>,
    granted: BTreeSet<PodUid>,
}

impl NodeLease {
    pub(super) fn new(api: Api<Lease>, owner: Arc<Owner>, node: Arc<str>, part: Part) -> Self {
        Self {
            api,
            owner,
            node,
            part,
            held_until: None,
            due: None,
            failures: 0,
            asked: BTreeSet::new(),
            stale: BTreeSet::new(),
            granted: BTreeSet::new(),
        }
    }

    /// This agent may write.
    pub(super) fn held(&self, now: MonoTime) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// The pods that may leave by the elected agent's word.
    pub(super) fn granted(&self) -> &BTreeSet<PodUid> {
        &self.granted
    }

    /// Sets what is asked and told; what is new is due at once.
    pub(super) fn say(&mut self, asked: BTreeSet<Ask>, stale: BTreeSet<String>) {
        if self.asked != asked || self.stale != stale {
            self.asked = asked;
            self.stale = stale;
            self.due = None;
        }
    }

    /// When it is to be renewed.
    pub(super) fn due(&self, now: MonoTime) -> MonoTime {
        self.due.unwrap_or(now)
    }

    /// Renews it.
    pub(super) async fn renew(&mut self) {
        let began = clock::now();
        match self.write().await {
            Ok(lease) => {
                self.part.well();
                self.failures = 0;
                self.held_until = Some(began + (LEASE_VALID - MARGIN));
                self.due = Some(began + if self.asked.is_empty() { LEASE_RENEWAL } else { ASKING });
                self.granted = listed::<String>(&lease, GRANTED).into_iter().map(|uid| PodUid(uid.into())).collect();
            }
            Err(failure) => {
                self.failures += 1;
                self.due = Some(clock::now() + pause(self.failures, failure.retry_after).min(SOON));
                self.part.fails(failure);
            }
        }
    }

    async fn write(&self) -> Result<Lease, Failure> {
        let name = name(&self.node);
        let body = json!({
            "metadata": {
                "labels": { LABEL.0: LABEL.1, "app.kubernetes.io/name": "storewatch" },
                "annotations": {
                    NODE: &*self.node,
                    ASKED: json!(self.asked).to_string(),
                    STALE: json!(self.stale).to_string(),
                },
            },
            "spec": {
                "holderIdentity": &*self.node,
                "leaseDurationSeconds": LEASE_VALID.as_secs(),
                "renewTime": now(),
            },
        });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match call(self.api.patch(&name, &params, &Patch::Merge(&body))).await {
            Err(failure) if failure.why == Why::Missing => {
                let mut lease: Lease = serde_json::from_value(body).unwrap_or_default();
                lease.metadata.name = Some(name);
                lease.metadata.owner_references = self.owner.references().await?;
                call(self.api.create(&PostParams::default(), &lease)).await
            }
            result => result,
        }
    }
}
