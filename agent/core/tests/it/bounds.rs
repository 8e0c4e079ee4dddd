//! What a judge may hold at most, list by list: all that decides is in its memory, so all that could grow is seen here.

use storewatch_core::{
    judge::MAX_PODS,
    memory::{ClusterMemory, ContainerMemory, Memory, PodMemory, Remote},
    ownership::{MAX_PER_TARGET, MAX_TENURES},
};

/// Entries of each short memory.
const RECENT: usize = 32;

/// Fails with the first list that is too long.
pub(crate) fn check(memory: &Memory) {
    at_most("pods", memory.pods.len(), MAX_PODS);
    at_most("early evidence", memory.node.early.len(), 1024);
    memory.clusters.iter().for_each(cluster);
    for PodMemory { containers, .. } in &memory.pods {
        at_most("containers of a pod", containers.len(), 32);
        containers.iter().for_each(container);
    }
}

fn cluster(cluster: &ClusterMemory) {
    at_most("Stores", cluster.pinged.len(), 1024 + cluster.stores.len());
    at_most("addresses pinged", cluster.addresses.len(), 2048);
    at_most("tenures", cluster.tenures.len(), MAX_TENURES);
    at_most("pods at addresses", cluster.occupants.len(), MAX_TENURES);
    at_most("targets that are gone", cluster.gone.len(), MAX_TENURES);
    let of_one = cluster.tenures.chunk_by(|one, other| one.target == other.target);
    of_one.for_each(|tenures| at_most("tenures of a target", tenures.len(), MAX_PER_TARGET));
}

fn container(container: &ContainerMemory) {
    at_most("former addresses of a container", container.stale.len(), MAX_TENURES);
    at_most("clocks of a container", container.baselines.len(), MAX_TENURES);
    at_most("processes of a container", container.dialers.len(), 32);
    for (_, dialer) in &container.dialers {
        at_most("addresses of a process", dialer.addresses.len(), 64);
    }
    if let Some(evidence) = &container.evidence {
        at_most("sockets of a container", evidence.sockets.len(), 1024);
        at_most("addresses of a container", evidence.remotes.len(), 128);
        evidence.remotes.iter().for_each(|(_, one)| remote(one));
    }
}

fn remote(remote: &Remote) {
    let Remote { begins, answers, failed, endings, slow, idle_drops, attempts, .. } = remote;
    let lists =
        [begins.len(), answers.len(), failed.len(), endings.len(), slow.len(), idle_drops.len(), attempts.len()];
    lists.into_iter().for_each(|length| at_most("a short memory", length, RECENT));
}

fn at_most(what: &str, length: usize, most: usize) {
    assert!(length <= most, "{what}: {length}, and {most} is the most");
}
