//! The readiness gate's condition: its name, and its shape on the wire.

use super::objects::PodStatus;
use serde_json::{Value, json};
use storewatch_core::{id::PodUid, pod::GateCondition};

/// The condition's type.
pub const TYPE: &str = "storewatch.io/storage-reachable";

/// The annotation that takes a pod out of judgement while its value is `true`.
pub const MAINTENANCE: &str = "storewatch.io/maintenance";

/// The gate's condition of a pod. `Unknown` does not let a pod be ready, so it counts as shut.
pub fn of(status: &PodStatus) -> Option<GateCondition> {
    let condition = status.condition(TYPE)?;
    Some(GateCondition {
        open: condition.status == "True",
        reason: condition.reason.as_deref().unwrap_or_default().into(),
        message: condition.message.as_deref().unwrap_or_default().into(),
    })
}

/// A strategic merge patch of a pod's status that says `word` and leaves every other condition alone: the list is merged
/// by type. It fails on another pod of the same name, and with a version also if the pod has changed since.
pub fn patch(word: &GateCondition, flips: bool, at: jiff::Timestamp, uid: &PodUid, version: Option<&str>) -> Value {
    // Kubernetes keeps seconds.
    let at = at.round(jiff::Unit::Second).unwrap_or(at).to_string();
    let mut condition = json!({
        "type": TYPE,
        "status": if word.open { "True" } else { "False" },
        "reason": &*word.reason,
        "message": &*word.message,
        "lastProbeTime": null,
    });
    if flips {
        condition["lastTransitionTime"] = json!(at);
    }
    let mut patch = json!({ "metadata": { "uid": &*uid.0 }, "status": { "conditions": [condition] } });
    if let Some(version) = version {
        patch["metadata"]["resourceVersion"] = json!(version);
    }
    patch
}
