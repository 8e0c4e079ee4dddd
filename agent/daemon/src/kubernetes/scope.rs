//! Where the judged pods are.

use super::objects::Pod;
use crate::config::Cluster;
use kube::{Api, Client, runtime::watcher};
use storewatch_core::id::ClusterId;

/// Pods of one cluster in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Whose Stores they use.
    pub cluster: ClusterId,
    /// `None`: in all namespaces.
    pub namespace: Option<String>,
    /// Their labels.
    pub selector: String,
}

/// Each namespace of each cluster. A pod that two clusters select is the first one's.
pub fn scopes(clusters: &[Cluster]) -> Vec<Scope> {
    let mut scopes: Vec<Scope> = Vec::new();
    for (cluster, number) in clusters.iter().zip(0..) {
        let selector = cluster.selector.to_string();
        let named = cluster.namespaces.iter().cloned().map(Some);
        let namespaces: Vec<_> = if cluster.namespaces.is_empty() { vec![None] } else { named.collect() };
        for namespace in namespaces {
            if !scopes.iter().any(|scope| scope.namespace == namespace && scope.selector == selector) {
                scopes.push(Scope { cluster: ClusterId(number), namespace, selector: selector.clone() });
            }
        }
    }
    scopes
}

impl Scope {
    /// Its pods.
    pub fn api(&self, client: &Client) -> Api<Pod> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }

    /// What selects them.
    pub fn selection(&self) -> watcher::Config {
        watcher::Config::default().labels(&self.selector)
    }

    /// In words.
    pub fn place(&self) -> &str {
        self.namespace.as_deref().unwrap_or("every namespace")
    }
}
