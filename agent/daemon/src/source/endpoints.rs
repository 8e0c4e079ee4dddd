//! The Stores' and PD's Services, EndpointSlices and pods: who is at which address, by the word of the control plane.
//!
//! Watched in the clusters' namespaces only. While a watch fails nothing is said: silence of the API server ends nobody's
//! time at an address. While all are well the word is repeated, because a claim that has ended counts only once its
//! source has gone on answering without it.

mod collect;

use crate::{
    clock,
    config::Config,
    kubernetes::{client::Access, health::Part, watch},
    observe::ObservationSender,
};
use collect::{Role, Seen, Slice, TargetPod};
use futures_util::future::select_all;
use kube::{Api, runtime::watcher};
use std::{sync::Arc, time::Duration};
use storewatch_core::{
    endpoints::{EndpointsReport, Service},
    id::ClusterId,
    observation::Observation,
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

/// How often an unchanged word is repeated.
const CONFIRM: Duration = Duration::from_secs(10);

/// Changes that come together are told together: a rolled StatefulSet is a burst.
const GATHER: Duration = Duration::from_millis(50);

/// What is watched in one namespace.
struct Place {
    namespace: String,
    parts: Vec<Part>,
    services: watch::Receiver<Seen>,
    slices: watch::Receiver<Slice>,
    pods: Vec<(Role, watch::Receiver<TargetPod>)>,
}

impl Place {
    fn watch(
        namespace: &str,
        config: &Config,
        access: &Access,
        client: &kube::Client,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let mut parts = Vec::new();
        let mut part = |what: &str| {
            let part = access.health().part(format!("{what} in {namespace}"));
            parts.push(part.clone());
            part
        };
        let (set, services) = tokio::sync::watch::channel(None);
        let api = Api::namespaced(client.clone(), namespace);
        tasks.spawn(watch::follow(api, watcher::Config::default(), part("services"), collect::service, set));
        let (set, slices) = tokio::sync::watch::channel(None);
        let api = Api::namespaced(client.clone(), namespace);
        tasks.spawn(watch::follow(api, watcher::Config::default(), part("endpointslices"), collect::slice, set));
        let selectors = [(Role::Store, &config.kubernetes.store_selector), (Role::Pd, &config.kubernetes.pd_selector)];
        let pods = selectors.into_iter().map(|(role, selector)| {
            let (set, pods) = tokio::sync::watch::channel(None);
            let api = Api::namespaced(client.clone(), namespace);
            let selection = watcher::Config::default().labels(&selector.to_string());
            let part = part(if role == Role::Store { "store pods" } else { "pd pods" });
            tasks.spawn(watch::follow(api, selection, part, collect::pod, set));
            (role, pods)
        });
        let pods = pods.collect();
        Self { namespace: namespace.to_owned(), parts, services, slices, pods }
    }

    /// Waits for any change.
    async fn changed(&mut self) -> bool {
        let mut waits: Vec<futures_util::future::BoxFuture<'_, bool>> = vec![
            Box::pin(async { self.services.changed().await.is_ok() }),
            Box::pin(async { self.slices.changed().await.is_ok() }),
        ];
        for (_, pods) in &mut self.pods {
            waits.push(Box::pin(async { pods.changed().await.is_ok() }));
        }
        select_all(waits).await.0
    }

    /// What is known here; `None` while a list is missing or a watch fails.
    fn known(&mut self, config: &Config) -> Option<Vec<Service>> {
        let services = self.services.borrow_and_update().clone();
        let slices = self.slices.borrow_and_update().clone();
        let pods: Vec<_> = self.pods.iter_mut().map(|(role, pods)| (*role, pods.borrow_and_update().clone())).collect();
        if self.parts.iter().any(|part| part.trouble().is_some()) {
            return None;
        }
        let pods: Option<Vec<_>> = pods.into_iter().map(|(role, pods)| Some((role, pods?))).collect();
        Some(collect::collect(&config.kubernetes, &services?, &slices?, &pods?))
    }
}

/// Runs until the engine ends.
///
/// # Errors
/// When a watch has ended that must not.
pub async fn run(config: Arc<Config>, access: Arc<Access>, sender: ObservationSender) -> anyhow::Result<()> {
    let mut namespaces: Vec<&String> = config.clusters.iter().flat_map(|cluster| &cluster.namespaces).collect();
    namespaces.sort();
    namespaces.dedup();
    if namespaces.is_empty() {
        tracing::info!(
            "no namespace is configured or in the names of pd_peers: Services and EndpointSlices are not watched"
        );
        return std::future::pending().await;
    }
    let client = access.client().await;
    let mut tasks = JoinSet::new();
    let mut places: Vec<_> =
        namespaces.into_iter().map(|name| Place::watch(name, &config, &access, &client, &mut tasks)).collect();
    let mut timer = interval(CONFIRM);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let changed = select_all(places.iter_mut().map(|place| Box::pin(place.changed())));
        tokio::select! {
            (alive, ..) = changed => {
                anyhow::ensure!(alive, "a watch of Services has ended");
                tokio::time::sleep(GATHER).await;
            }
            _ = timer.tick() => {}
        }
        let at = clock::now();
        let known: Vec<_> = places.iter_mut().map(|place| (place.namespace.clone(), place.known(&config))).collect();
        for (cluster, number) in config.clusters.iter().zip(0..) {
            let of_cluster = |(namespace, _): &&(String, _)| cluster.namespaces.contains(namespace);
            let services: Option<Vec<_>> =
                known.iter().filter(of_cluster).map(|(_, services)| services.clone()).collect();
            let Some(services) = services.filter(|lists| !lists.is_empty()) else { continue };
            let services = services.into_iter().flatten().collect();
            let report = EndpointsReport { cluster: ClusterId(number), at, services };
            if sender.send(Observation::Endpoints(report)).await.is_err() {
                return Ok(());
            }
        }
    }
}
