//! One agent of all does what is beyond its node: whoever holds the Lease of that name.
//!
//! The others only watch the Lease, so that electing costs one write each ten seconds in the whole cluster. Each judges by
//! how long it has not changed in its own eyes, never by its date.

use super::{GateSettings, elected, now, owner::Owner};
use crate::{
    clock,
    kubernetes::{
        client::{Access, call, pause},
        failure::{Failure, Why},
        health::Part,
        objects::{Lease, LeaseSpec},
        watch,
    },
};
use kube::{Api, Client, api::PostParams, runtime::watcher};
use rand::Rng as _;
use std::{sync::Arc, time::Duration};
use storewatch_core::time::MonoTime;
use tokio::time::{sleep, timeout};

/// The Lease's name.
const NAME: &str = "storewatch-elected";

/// How long it is good for, how often it is renewed, and when its holder gives up on a renewal that fails: before others
/// may take it.
const VALID: Duration = Duration::from_secs(30);
const RENEWAL: Duration = Duration::from_secs(10);
const GIVE_UP: Duration = Duration::from_secs(22);

/// Candidates spread their attempts over this time.
const SPREAD: Duration = Duration::from_secs(2);

/// Runs until cancelled.
pub(super) async fn run(settings: GateSettings, access: Arc<Access>, client: Client, owner: Arc<Owner>) {
    let api: Api<Lease> = Api::namespaced(client.clone(), client.default_namespace());
    let (set, mut leases) = tokio::sync::watch::channel(None);
    let selection = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    let watching = watch::follow(api.clone(), selection, access.health().part("elected lease"), Some, set);
    let part = access.health().part("election");
    // Not the node's name alone: while an agent is replaced, there are two of a node.
    let identity = format!("{}_{:08x}", settings.node, rand::rng().random::<u32>());
    let campaign = async {
        let mut seen: Option<(Option<Lease>, MonoTime)> = None;
        loop {
            let present = leases.borrow_and_update().clone();
            if let Some(set) = present {
                let lease = set.values().next().map(|lease| Lease::clone(lease));
                if seen.as_ref().is_none_or(|(before, _)| renewed(before.as_ref()) != renewed(lease.as_ref())) {
                    seen = Some((lease, clock::now()));
                }
            }
            let wait = match &seen {
                None => VALID,
                Some((lease, since)) => {
                    let free = lease.as_ref().is_none_or(|lease| holder(lease).is_none_or(str::is_empty));
                    let unchanged = clock::now().since(*since);
                    if free || unchanged >= VALID {
                        let spread = SPREAD.mul_f64(rand::rng().random());
                        sleep(spread).await;
                        match take(&api, &owner, lease.as_ref(), &identity).await {
                            Ok(lease) => {
                                part.well();
                                tracing::info!("elected: this agent looks after the gates of nodes without one");
                                hold(&api, lease, &part, elected::run(&settings, &access, &client)).await;
                                tracing::info!("no longer elected");
                            }
                            Err(failure) if failure.why == Why::Conflict => part.well(),
                            Err(failure) => {
                                let wait = pause(5, failure.retry_after);
                                part.fails(failure);
                                sleep(wait).await;
                            }
                        }
                        seen = None;
                        Duration::from_secs(1)
                    } else {
                        VALID - unchanged
                    }
                }
            };
            if let Ok(Err(_)) = timeout(wait, leases.changed()).await {
                return;
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = campaign => {}
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.holder_identity.as_deref()
}

/// What changes with each renewal.
fn renewed(lease: Option<&Lease>) -> Option<(Option<&str>, Option<jiff::Timestamp>)> {
    lease.map(|lease| (holder(lease), lease.spec.renew_time.as_ref().map(|time| time.0)))
}

/// Takes the Lease, unless someone else was faster.
async fn take(api: &Api<Lease>, owner: &Owner, seen: Option<&Lease>, identity: &str) -> Result<Lease, Failure> {
    let mut lease = seen.cloned().unwrap_or_default();
    let changes = lease.spec.lease_transitions.unwrap_or_default();
    lease.spec = LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(VALID.as_secs()).ok(),
        acquire_time: Some(now()),
        renew_time: Some(now()),
        lease_transitions: Some(changes.saturating_add(i32::from(seen.is_some()))),
    };
    lease.metadata.managed_fields = None;
    if seen.is_some() {
        // With the version that was seen: it fails if it has changed since.
        call(api.replace(NAME, &PostParams::default(), &lease)).await
    } else {
        lease.metadata.name = Some(NAME.to_owned());
        lease.metadata.owner_references = owner.references().await?;
        call(api.create(&PostParams::default(), &lease)).await
    }
}

/// Renews the Lease while `work` goes on; ends when it is lost or may be.
async fn hold(api: &Api<Lease>, mut lease: Lease, part: &Part, work: impl Future<Output = ()>) {
    let renewing = async {
        let mut good = clock::now();
        let mut wait = RENEWAL;
        loop {
            sleep(wait).await;
            let began = clock::now();
            if began.since(good) >= GIVE_UP {
                return;
            }
            let mut next = lease.clone();
            next.metadata.managed_fields = None;
            next.spec.renew_time = Some(now());
            match call(api.replace(NAME, &PostParams::default(), &next)).await {
                Ok(renewed) => {
                    part.well();
                    lease = renewed;
                    good = began;
                    wait = RENEWAL;
                }
                // Someone else has it, or has taken it away.
                Err(failure) if matches!(failure.why, Why::Conflict | Why::Missing) => return,
                Err(failure) => {
                    part.fails(failure);
                    wait = Duration::from_secs(2);
                }
            }
        }
    };
    tokio::select! {
        () = renewing => {}
        () = work => {}
    }
}
