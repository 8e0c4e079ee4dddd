//! The API server, asked as an agent of this configuration asks it: each resource is listed and watched once, and what is
//! written is asked for as a right (a SelfSubjectAccessReview), so that nothing changes.

use super::Check;
use crate::{
    config::{Config, HealingMode, PodSource},
    kubernetes::{
        client::{self, call},
        failure::{Failure, Why},
        manifest::{self, Seen},
        objects::{EndpointSlice, Pod, Service},
        scope::scopes,
    },
};
use http::{Request, header};
use kube::{
    Api, Client, Resource,
    api::{ListParams, WatchParams},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt::Debug, sync::Arc};
use storewatch_core::{id::ClusterId, time::short};
use tokio::time::Instant;

const NAME: &str = "kubernetes";
const LOST: &str = "pods from the API server, owners of addresses by its word, readiness gates, Events and eviction";
const PODS_LOST: &str = "the pods of this node, and with them every verdict about one";
const TARGETS_LOST: &str = "owners of addresses by the control plane's word: PD and DNS have to do";

/// The selected pods of this node, each with its cluster.
pub(super) type Listed = Vec<(ClusterId, Arc<Seen>)>;

/// The checks, and the pods where they could be listed.
pub(super) async fn checks(config: &Config, given: bool) -> (Vec<Check>, Option<Listed>) {
    if !given {
        let how = "storewatch doctor --config FILE";
        return (vec![Check::degraded(NAME, "not asked: no configuration is given", LOST, how)], None);
    }
    if config.pods.source != PodSource::Kubernetes {
        return (vec![Check::ok(NAME, "not asked: pods.source is another")], None);
    }
    let client = match client::infer().await {
        Ok(client) => client,
        Err(words) => {
            let how = "a service account's token in the agent's pod, or KUBECONFIG";
            return (vec![Check::missing(NAME, words, LOST, how)], None);
        }
    };
    let begin = Instant::now();
    let mut checks = match call(client.apiserver_version()).await {
        Ok(version) => vec![Check::ok(NAME, format!("{} answers in {}", version.git_version, short(begin.elapsed())))],
        Err(failure) => {
            let how = match failure.why {
                Why::Forbidden => {
                    "credentials that the API server takes: a service account's token ends with its account"
                }
                _ => "a way from this node to the API server, and its certificate authority",
            };
            return (vec![Check::missing(NAME, failure.words, LOST, how)], None);
        }
    };
    let mut pods = Some(Listed::new());
    for scope in scopes(&config.clusters) {
        let fields = format!("spec.nodeName={}", config.node);
        let select = Some((scope.selector.as_str(), fields.as_str()));
        let (check, found) = seen::<Pod>(scope.api(&client), "pods", scope.place(), select).await;
        checks.push(check);
        match (&mut pods, found) {
            (Some(pods), Some(found)) => {
                let read = found.into_iter().filter_map(manifest::read);
                pods.extend(read.map(|seen| (scope.cluster, Arc::new(seen))));
            }
            (pods, _) => *pods = None,
        }
    }
    let namespaces: BTreeSet<&String> = config.clusters.iter().flat_map(|cluster| &cluster.namespaces).collect();
    for namespace in &namespaces {
        let (of, place) = (|| client.clone(), namespace.as_str());
        checks.push(seen::<Service>(Api::namespaced(of(), place), "services", place, None).await.0);
        checks.push(seen::<EndpointSlice>(Api::namespaced(of(), place), "endpointslices", place, None).await.0);
    }
    let everywhere = [String::new()];
    let places: Vec<&String> =
        if namespaces.is_empty() { everywhere.iter().collect() } else { namespaces.into_iter().collect() };
    for (what, wanted) in writes(config, &client, &places) {
        checks.push(allowed(&client, what, &wanted).await);
    }
    (checks, pods)
}

/// Lists and watches a resource once.
async fn seen<K>(api: Api<K>, what: &str, place: &str, select: Option<(&str, &str)>) -> (Check, Option<Vec<K>>)
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let name = format!("kubernetes {what} in {place}");
    let lost = if what == "pods" { PODS_LOST } else { TARGETS_LOST };
    let (labels, fields) = select.unwrap_or_default();
    // Of what is only looked at for the right to see it, one is enough.
    let limit = if select.is_some() { None } else { Some(1) };
    let params = ListParams { limit, ..ListParams::default() }.labels(labels).fields(fields);
    let begin = Instant::now();
    let list = match call(api.list(&params)).await {
        Ok(list) => list,
        Err(failure) => return (refused(name, "listed", what, lost, &failure), None),
    };
    let took = begin.elapsed();
    let params = WatchParams::default().timeout(1).labels(labels).fields(fields);
    let version = list.metadata.resource_version.clone().unwrap_or_default();
    let watched = call(async { api.watch(&params, &version).await.map(|_| ()) }).await;
    let check = match watched {
        Ok(()) => {
            let count = if select.is_some() { format!("{} on this node, ", list.items.len()) } else { String::new() };
            Check::ok(name, format!("{count}listed in {} and watched", short(took)))
        }
        Err(failure) => refused(name, "watched", what, lost, &failure),
    };
    (check, Some(list.items))
}

fn refused(name: String, done: &str, what: &str, lost: &str, failure: &Failure) -> Check {
    let how = match failure.why {
        Why::Forbidden => format!("a rule for list and watch of {what} in the agent's Role, which the chart makes"),
        _ => "the API server: what it says is above".to_owned(),
    };
    let found = format!("cannot be {done}: {}", failure.words);
    if what == "pods" { Check::missing(name, found, lost, how) } else { Check::degraded(name, found, lost, how) }
}

/// A right that is needed.
#[derive(Clone, Debug)]
struct Right {
    namespace: String,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    verb: &'static str,
}

/// What of the configuration writes, under the names by which it is told.
fn writes(config: &Config, client: &Client, places: &[&String]) -> Vec<((&'static str, &'static str), Vec<Right>)> {
    let each = |group: &'static str, resource: &'static str, subresource: &'static str, verbs: &[&'static str]| {
        let mut rights = Vec::new();
        for namespace in places {
            let of =
                |verb: &&'static str| Right { namespace: (*namespace).clone(), group, resource, subresource, verb };
            rights.extend(verbs.iter().map(of));
        }
        rights
    };
    let heals = config.healing != HealingMode::Off;
    let mut all = Vec::new();
    if config.kubernetes.events || heals {
        all.push((
            ("events", "Events about pods: verdicts are told nowhere but here"),
            each("events.k8s.io", "events", "", &["create", "patch"]),
        ));
    }
    if config.kubernetes.readiness_gate {
        all.push((
            ("readiness gate", "the gate: it stays as it is, and shut on new pods"),
            each("", "pods", "status", &["patch"]),
        ));
    }
    if config.kubernetes.readiness_gate || heals {
        let home = client.default_namespace();
        let verbs = ["list", "watch", "create", "update", "patch"];
        let right = |verb| Right {
            namespace: home.to_owned(),
            group: "coordination.k8s.io",
            resource: "leases",
            subresource: "",
            verb,
        };
        all.push((
            ("leases", "the gate and healing: an agent writes only while it holds its node's Lease"),
            verbs.map(right).into(),
        ));
    }
    if heals {
        all.push((
            ("eviction", "healing: stale pods are told and not evicted"),
            each("", "pods", "eviction", &["create"]),
        ));
    }
    all
}

/// The answer to a SelfSubjectAccessReview, as far as it is needed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Review {
    status: ReviewStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReviewStatus {
    allowed: bool,
}

async fn allowed(client: &Client, (what, lost): (&str, &str), rights: &[Right]) -> Check {
    let name = format!("kubernetes {what}");
    let mut missing = Vec::new();
    for right in rights {
        let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let request =
            request.header(header::CONTENT_TYPE, "application/json").body(question(right).to_string().into_bytes());
        let Ok(request) = request else { continue };
        match call(client.request::<Review>(request)).await {
            Ok(review) if review.status.allowed => {}
            Ok(_) => missing.push(right.words()),
            Err(failure) => {
                let how = "an API server that answers a SelfSubjectAccessReview";
                return Check::degraded(name, format!("not known: {}", failure.words), lost, how);
            }
        }
    }
    if missing.is_empty() {
        let words: Vec<_> = rights.iter().map(Right::words).collect();
        Check::ok(name, format!("may {}", words.join(", ")))
    } else {
        let words = missing.join(", ");
        Check::missing(
            name,
            format!("may not {words}"),
            lost,
            format!("{words} in the agent's Role, which the chart makes"),
        )
    }
}

fn question(right: &Right) -> Value {
    let Right { namespace, group, resource, subresource, verb } = right;
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "namespace": namespace, "group": group, "resource": resource, "subresource": subresource, "verb": verb,
        } },
    })
}

impl Right {
    fn words(&self) -> String {
        let Self { namespace, resource, subresource, verb, group: _ } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let place = if namespace.is_empty() { "all namespaces" } else { namespace };
        format!("{verb} {resource}{slash}{subresource} in {place}")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    #[test]
    fn a_right_is_asked_for_in_the_api_servers_terms_and_told_in_words() {
        let right =
            Right { namespace: "graph".into(), group: "", resource: "pods", subresource: "status", verb: "patch" };
        assert_eq!(right.words(), "patch pods/status in graph");
        assert_eq!(question(&right)["spec"]["resourceAttributes"]["subresource"], "status");
        let everywhere = Right { namespace: String::new(), subresource: "", verb: "list", ..right };
        assert_eq!(everywhere.words(), "list pods in all namespaces");
    }

    #[test]
    fn what_is_forbidden_names_the_rule() {
        let failure = Failure { why: Why::Forbidden, words: "403 no".to_owned(), retry_after: None };
        let check = refused("n".to_owned(), "watched", "pods", PODS_LOST, &failure);
        assert_eq!((check.state, &*check.found), (State::Missing, "cannot be watched: 403 no"));
        assert!(check.how.contains("list and watch of pods"), "{check:?}");
        let check = refused("n".to_owned(), "listed", "services", TARGETS_LOST, &failure);
        assert_eq!(check.state, State::Degraded);
    }

    #[tokio::test]
    async fn without_kubernetes_nobody_is_asked() {
        let config = super::super::tests::config("");
        for (given, found) in
            [(false, "not asked: no configuration is given"), (true, "not asked: pods.source is another")]
        {
            let (checks, pods) = checks(&config, given).await;
            assert_eq!((checks.len(), &*checks[0].found, pods), (1, found, None));
        }
    }
}
