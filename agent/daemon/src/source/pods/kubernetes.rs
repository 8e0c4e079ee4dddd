//! Pods by the API server: a watch that is limited to this node, to each cluster's namespaces and to its selector.
//!
//! While the API server is away the last good list is kept and said to be so; where its pods are in the kernel is looked
//! up all the same, so that a container that restarts meanwhile is attributed anew.

use super::{CONFIRM, PERIOD, Reading, few, placing::Placing, report};
use crate::{
    clock,
    config::Config,
    kubernetes::{
        client::Access,
        health::Part,
        manifest,
        scope::{Scope, scopes},
        watch::{self, Objects},
    },
    observe::ObservationSender,
    source::clock::every,
    source::pods::Host,
};
use futures_util::future::select_all;
use std::sync::Arc;
use storewatch_core::{id::ClusterId, source::SourceState, time::MonoTime};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::interval,
};

/// A watched scope.
struct Watched {
    scope: Scope,
    part: Part,
    set: watch::Receiver<manifest::Seen>,
}

/// Runs until the engine ends.
pub(super) async fn follow(
    config: &PodsOfNode,
    access: &Access,
    host: Host,
    sender: &ObservationSender,
) -> anyhow::Result<()> {
    let client = {
        let access_part = access.health().part("access");
        let mut timer = interval(PERIOD);
        let mut connecting = std::pin::pin!(access.client());
        let mut told: Option<(String, MonoTime)> = None;
        loop {
            tokio::select! {
                client = &mut connecting => break client,
                _ = timer.tick() => {}
            }
            let now = clock::now();
            // Nobody to ask is another thing than one who does not answer: the agent runs on without pods.
            if let Some(words) = access_part.failing()
                && told.as_ref().is_none_or(|(last, at)| *last != words || now.since(*at) >= PERIOD * CONFIRM)
            {
                if sender.send(report(now, SourceState::Absent, words.as_str().into())).await.is_err() {
                    return Ok(());
                }
                told = Some((words, now));
            }
        }
    };
    let mut tasks = JoinSet::new();
    let mut watched: Vec<Watched> = config
        .scopes
        .iter()
        .map(|scope| {
            let part = access.health().part(format!("pods in {}", scope.place()));
            let (set, receiver) = tokio::sync::watch::channel(None);
            let selection = scope.selection().fields(&format!("spec.nodeName={}", config.node));
            // What changes with every word about a pod would look like a change of the pod.
            let read = |pod| manifest::read(pod).map(|seen| manifest::Seen { version: None, ..seen });
            tasks.spawn(watch::follow(scope.api(&client), selection, part.clone(), read, set));
            Watched { scope: scope.clone(), part, set: receiver }
        })
        .collect();
    let mut placing = Some(Placing::new(host));
    let mut timer = every(PERIOD);
    let mut last: Option<Reading> = None;
    let mut said = clock::now();
    loop {
        let changed = select_all(watched.iter_mut().map(|watched| Box::pin(watched.set.changed())));
        tokio::select! {
            (result, ..) = changed => {
                if result.is_err() {
                    anyhow::bail!("a watch of pods has ended");
                }
            }
            _ = timer.tick() => {}
        }
        let sets: Vec<_> =
            watched.iter_mut().map(|each| (each.scope.cluster, each.set.borrow_and_update().clone())).collect();
        let mut problems: Vec<_> = watched
            .iter()
            .filter_map(|each| {
                let trouble = each.part.trouble()?;
                let known = each.set.borrow().is_some();
                Some(format!(
                    "{trouble}; {}",
                    if known { "the last good list is kept" } else { "no list is known yet" }
                ))
            })
            .collect();
        let Some(list) = together(sets, !problems.is_empty()) else {
            // Before the first list only trouble is news.
            if !problems.is_empty() && clock::now().since(said) >= PERIOD * CONFIRM {
                said = clock::now();
                if sender.send(report(said, SourceState::Absent, few(&problems).into())).await.is_err() {
                    return Ok(());
                }
            }
            continue;
        };
        let current = problems.is_empty();
        // Reading files can block.
        let (back, reading) = spawn_blocking(move || {
            let reading = placing.as_mut().map(|placing| {
                let pods = placing.place(&list, &mut problems);
                Reading { pods: Some(pods), current, detail: few(&problems).into() }
            });
            (placing, reading)
        })
        .await?;
        placing = back;
        let Some(reading) = reading else { return Ok(()) };
        let now = clock::now();
        if last.as_ref() == Some(&reading) && now.since(said) < PERIOD * CONFIRM {
            continue;
        }
        for observation in reading.observations(now) {
            if sender.send(observation).await.is_err() {
                return Ok(());
            }
        }
        last = Some(reading);
        said = now;
    }
}

/// All pods; `None` while a scope has neither a list nor trouble, or none has a list.
fn together(
    sets: Vec<(ClusterId, Option<Objects<manifest::Seen>>)>,
    trouble: bool,
) -> Option<Vec<(ClusterId, Arc<manifest::Seen>)>> {
    let known = sets.iter().filter(|(_, set)| set.is_some()).count();
    if known == 0 || (known < sets.len() && !trouble) {
        return None;
    }
    let mut list: Vec<(ClusterId, Arc<manifest::Seen>)> = Vec::new();
    for (cluster, set) in sets {
        for seen in set.iter().flat_map(|set| set.values()) {
            if !list.iter().any(|(_, other)| other.uid == seen.uid) {
                list.push((cluster, Arc::clone(seen)));
            }
        }
    }
    Some(list)
}

/// What is watched.
#[derive(Debug)]
pub(super) struct PodsOfNode {
    node: Arc<str>,
    scopes: Vec<Scope>,
}

impl PodsOfNode {
    pub(super) fn new(config: &Config) -> Self {
        Self { node: Arc::clone(&config.node), scopes: scopes(&config.clusters) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use storewatch_core::id::{PodRef, PodUid};

    fn set(uids: &[&str]) -> Option<Objects<manifest::Seen>> {
        let seen = |uid: &&str| manifest::Seen {
            pod: PodRef { namespace: "graph".into(), name: (*uid).into() },
            uid: PodUid((*uid).into()),
            cgroup_uid: (*uid).into(),
            workload: None,
            ips: Vec::new(),
            host_network: false,
            running: true,
            wiring: None,
            node: None,
            ready: true,
            version: None,
        };
        let of = |uid: &&str| (("graph".to_owned(), (*uid).to_owned()), Arc::new(seen(uid)));
        Some(Arc::new(uids.iter().map(of).collect::<BTreeMap<_, _>>()))
    }

    #[test]
    fn a_list_is_whole_when_every_scope_has_one_or_cannot() {
        let names = |sets: Vec<Option<Objects<manifest::Seen>>>, trouble: bool| {
            let sets = sets.into_iter().zip(0..).map(|(set, cluster)| (ClusterId(cluster), set)).collect();
            together(sets, trouble).map(|list| {
                list.iter().map(|(cluster, seen)| format!("{}{}", cluster.0, seen.uid.0)).collect::<Vec<_>>()
            })
        };
        assert_eq!(names(vec![set(&["a"]), set(&["b", "a"])], false), Some(vec!["0a".to_owned(), "1b".to_owned()]));
        assert_eq!(names(vec![set(&["a"]), None], false), None, "the other list is on its way");
        assert_eq!(names(vec![set(&["a"]), None], true), Some(vec!["0a".to_owned()]));
        assert_eq!(names(vec![None, None], true), None);
        assert_eq!(names(vec![set(&[])], false), Some(Vec::new()), "no pod is an answer");
    }
}
