//! The judge's settings.

use super::Stored;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use storewatch_core::{id, policy};

names! {
    OnUnknown of policy::OnUnknown { Ready, NotReady }
    StaleTransport of policy::StaleTransportAction { NotReady, Degraded }
}

record! {
    Settings of policy::Settings {
        node: Arc<str>,
        clusters: Vec<policy::ClusterSettings>,
        policy: policy::VerdictPolicy,
        kernel_off: bool,
    }
    Cluster of policy::ClusterSettings {
        name: Arc<str>,
        pd_peers: Vec<id::HostPort>,
        stores: Vec<id::HostPort>,
        store_port: u16,
        pd_port: u16,
    }
    Policy of policy::VerdictPolicy {
        failure_threshold: u32,
        success_threshold: u32,
        window: Duration,
        stale_suspect_after: Duration,
        stale_confirm_after: Duration,
        stale_transport: policy::StaleTransportAction,
        min_other_ready: u32,
        on_unknown: policy::OnUnknown,
        ping_interval: Duration,
        inventory_interval: Duration,
    }
}
