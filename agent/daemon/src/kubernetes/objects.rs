//! Objects of the API server, less what is not read. Every field may be missing: an object that lacks one is an object
//! that says less, not an error.

use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::Resource;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap};

/// A kind with a namespace, of a known group and version.
macro_rules! kind {
    ($kind:ident, $group:literal, $version:literal, $plural:literal) => {
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

kind!(Pod, "", "v1", "pods");
kind!(Service, "", "v1", "services");
kind!(EndpointSlice, "discovery.k8s.io", "v1", "endpointslices");
kind!(Event, "events.k8s.io", "v1", "events");
kind!(Lease, "coordination.k8s.io", "v1", "leases");

/// A command can be run in its containers.
impl kube::api::Execute for Pod {}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Pod {
    /// Name, labels, owners.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// As wanted.
    #[serde(default)]
    pub spec: PodSpec,
    /// As it is.
    #[serde(default)]
    pub status: PodStatus,
}

/// A pod as wanted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Where it runs.
    pub node_name: Option<String>,
    /// In the node's network.
    pub host_network: bool,
    /// Conditions without which it is not ready.
    pub readiness_gates: Vec<ReadinessGate>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Those that run before, or beside (sidecars).
    pub init_containers: Vec<Container>,
}

/// A condition without which a pod is not ready.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReadinessGate {
    /// Which.
    pub condition_type: String,
}

/// A container as wanted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name in the pod.
    pub name: String,
    /// What decides whether it is ready.
    pub readiness_probe: Option<Probe>,
    /// What decides whether it is restarted.
    pub liveness_probe: Option<Probe>,
}

/// A probe.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// By HTTP.
    pub http_get: Option<HttpGet>,
    /// By gRPC.
    pub grpc: Option<Grpc>,
    /// By a command.
    pub exec: Option<Exec>,
}

/// A probe by HTTP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct HttpGet {
    /// What is asked for.
    pub path: Option<String>,
    /// Where, if not at the pod's own address.
    pub host: Option<String>,
}

/// A probe by gRPC.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Grpc {
    /// The name that is asked for.
    pub service: Option<String>,
}

/// A probe by a command.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Exec {
    /// The command.
    pub command: Vec<String>,
}

/// A pod as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: Option<String>,
    /// `Guaranteed`, `Burstable`, `BestEffort`.
    pub qos_class: Option<String>,
    /// Its first address.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// All of them.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    /// What is said about it.
    pub conditions: Vec<Condition>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct PodIp {
    /// The address.
    pub ip: String,
}

/// Something said about a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// Why (a code).
    pub reason: Option<String>,
    /// The same in words.
    pub message: Option<String>,
}

impl PodStatus {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Service {
    /// Its name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// As wanted.
    #[serde(default)]
    pub spec: ServiceSpec,
}

/// A Service as wanted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// Whom it leads to.
    pub selector: BTreeMap<String, String>,
    /// Its first address; `None` as a text for a headless one.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    /// All of them.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
}

/// A part of what is behind a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct EndpointSlice {
    /// Its labels name the Service.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The addresses.
    #[serde(default, deserialize_with = "nullable")]
    pub endpoints: Vec<Endpoint>,
}

/// The API server writes an empty slice's list as null.
fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Endpoint>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// An address behind a Service, or several of one process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Where.
    pub addresses: Vec<String>,
    /// How it is.
    pub conditions: EndpointConditions,
    /// Its own label in the Service's domain.
    pub hostname: Option<String>,
    /// What it is.
    pub target_ref: Option<TargetRef>,
}

/// How an endpoint is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// It passes its readiness checks; unlike `ready`, whatever the Service publishes.
    pub serving: Option<bool>,
    /// It is being deleted.
    pub terminating: Option<bool>,
}

/// What an endpoint is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct TargetRef {
    /// `Pod`, nearly always.
    pub kind: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its identity over time.
    pub uid: Option<String>,
}

/// A Lease.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Lease {
    /// Name, labels, annotations.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who holds it.
    #[serde(default)]
    pub spec: LeaseSpec,
}

/// An Event. It is written and never read, so that its content stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Event {
    /// Its name.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// All else.
    #[serde(flatten)]
    pub content: serde_json::Map<String, serde_json::Value>,
}

/// Who holds a Lease, and how long.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Who.
    pub holder_identity: Option<String>,
    /// How long after its renewal, in seconds.
    pub lease_duration_seconds: Option<i32>,
    /// Since when.
    pub acquire_time: Option<MicroTime>,
    /// When it was renewed.
    pub renew_time: Option<MicroTime>,
    /// How often it changed hands.
    pub lease_transitions: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_fields_says_less() {
        for empty in [
            "{}",
            r#"{"metadata":{},"spec":{},"status":{}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
        ] {
            assert!(serde_json::from_str::<Pod>(empty).unwrap().status.condition("Ready").is_none());
            serde_json::from_str::<Service>(empty).unwrap();
            serde_json::from_str::<EndpointSlice>(empty).unwrap();
            serde_json::from_str::<Lease>(empty).unwrap();
        }
        assert!(serde_json::from_str::<EndpointSlice>(r#"{"endpoints":null}"#).unwrap().endpoints.is_empty());
    }
}
