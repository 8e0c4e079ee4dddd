//! What is still true of a state that was taken some time ago, maybe before a reboot.
//!
//! On the same boot a verdict stands however old it is, because a container that is still there is the same container.
//! What ages is ownership: an address that a target left a week ago is worth remembering only for a container that is
//! known to use it. After a reboot no container is the same, and a state older than that is of no use at all.

use super::format::{BootId, Kept};
use crate::clock::ClockPair;
use std::{collections::BTreeSet, time::Duration};
use storewatch_core::{
    memory::{ContainerMemory, Memory, PodMemory, TenureMemory},
    time::MonoTime,
};

/// How long a former owner is remembered, and a state of another boot is used. Connections live for days at most, and a
/// node that was away for longer has little in common with what it was.
pub(super) const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Brings what was kept to this boot's clock and leaves out what is too old; `None` when nothing is left of it.
pub(super) fn revive(kept: Kept, boot: &BootId, clock: &ClockPair) -> Option<Memory> {
    let Kept { boot: kept_boot, taken, mut memory } = kept;
    let now = clock.mono();
    let same_boot = kept_boot.is_some() && kept_boot == *boot;
    if !same_boot || memory.taken_at > now {
        // By the dates of both clocks. A wall clock that was set back would put instants into the future, where `since`
        // means nothing.
        let away = clock.date(now).as_nanosecond() - taken.as_nanosecond();
        let taken_at = i128::from(memory.taken_at.as_nanos());
        let moved = |at: MonoTime| {
            let age = away + taken_at - i128::from(at.as_nanos());
            let nanos = (i128::from(now.as_nanos()) - age.max(0)).max(i128::from(i64::MIN));
            MonoTime::from_nanos(i64::try_from(nanos).unwrap_or(now.as_nanos()))
        };
        memory.map_times(moved);
    }
    if !same_boot {
        if now.since(memory.taken_at) > MAX_AGE {
            return None;
        }
        memory = memory.after_reboot();
    }
    forget_former_owners(&mut memory, now);
    Some(memory)
}

fn forget_former_owners(memory: &mut Memory, now: MonoTime) {
    let Memory { clusters, pods, .. } = memory;
    for cluster in clusters {
        let name = &cluster.name;
        let used: BTreeSet<_> = pods
            .iter()
            .filter(|pod| pod.cluster == *name)
            .flat_map(|PodMemory { containers, .. }| containers)
            .flat_map(|ContainerMemory { stale, .. }| stale.iter().map(|(target, address, _)| (*target, *address)))
            .collect();
        cluster.tenures.retain(|TenureMemory { target, address, tenure }| {
            tenure.ended.is_none_or(|ended| now.since(ended) <= MAX_AGE) || used.contains(&(*target, *address))
        });
    }
}
