//! Disorder: whatever comes in whatever order, the judge stays bounded, does not panic, never asks to be called in the
//! past, and its verdicts keep their own rules.

use crate::{
    any::{START, any_observation, judge},
    bounds, how_many,
};
use proptest::{collection::vec, prelude::*};
use std::time::Duration;
use storewatch_core::{event::MAX_PENDING, judge::Judge, snapshot::Snapshot, table::TableQuery, verdict::Status};

fn check(snapshot: &Snapshot) {
    for cluster in &snapshot.clusters {
        let readiness = &cluster.readiness;
        let both = readiness.answered_store.filter(|store| readiness.unanswered_stores.contains(store));
        assert_eq!(both, None, "a store has answered and has not: {readiness:?}");
    }
    for pod in &snapshot.pods {
        let verdict = &pod.verdict;
        assert_eq!(verdict.status, verdict.reason.status());
        assert_eq!(verdict.ready, verdict.status != Status::NotReady, "on_unknown is ready");
        // Served without authentication: no address, no host.
        assert!(!verdict.message.contains("10.0.0.") && !verdict.message.contains("store-"), "{}", verdict.message);
    }
}

proptest! {
    #![proptest_config(how_many(96))]

    /// Observations in any order, with time standing still, jumping ahead and (in the stamps) back.
    #[test]
    fn any_order_of_anything(steps in vec((any_observation(), 0i64..40_000), 1..120), restart in 0usize..120) {
        let mut now = START;
        let mut judge = judge(now);
        for (index, (observation, pass)) in steps.into_iter().enumerate() {
            judge.observe(observation);
            now = now + Duration::from_millis(u64::try_from(pass / 3).unwrap());
            if index == restart {
                let mut memory = judge.memory(now);
                memory.map_times(|at| at);
                judge = self::judge(now);
                judge.restore(memory, now);
            }
            let advance = judge.advance(now);
            prop_assert!(advance.next.is_none_or(|next| next > now), "it would spin");
            prop_assert!(advance.events.len() <= MAX_PENDING);
            if let Some(snapshot) = &advance.snapshot {
                check(snapshot);
            }
            let table = judge.table(&TableQuery { limit: 3, ..TableQuery::default() });
            prop_assert!(table.connections.len() == table.total.min(3));
            prop_assert!(table.strays.len() as u64 <= table.unattributed.iter().map(|(_, count)| count).sum());
        }
        bounds::check(&judge.memory(now));
    }

    /// Whoever takes over what a judge knows, at whatever instant, publishes what it does from then on.
    #[test]
    fn taken_over_anywhere(steps in vec((any_observation(), 0u64..20_000), 2..60), at in any::<prop::sample::Index>()) {
        let mut now = START;
        let mut right = judge(now);
        let mut twin = None;
        let at = at.index(steps.len());
        for (index, (observation, pass)) in steps.into_iter().enumerate() {
            now = now + Duration::from_millis(pass / 2);
            right.observe(observation.clone());
            let published = right.advance(now).snapshot.map(Snapshot::without_counters);
            if let Some(twin) = &mut twin {
                let twin: &mut Judge = twin;
                twin.observe(observation);
                prop_assert_eq!(published, twin.advance(now).snapshot.map(Snapshot::without_counters));
            }
            if index == at {
                let mut other = judge(now);
                other.resume(right.whole_memory(now));
                twin = Some(other);
            }
        }
    }

    /// The same observations at the same instants give the same verdicts.
    #[test]
    fn the_same_twice(steps in vec((any_observation(), 0u64..5_000), 1..60)) {
        let play = || {
            let mut now = START;
            let mut judge = judge(now);
            let mut said = Vec::new();
            for (observation, pass) in steps.clone() {
                judge.observe(observation);
                now = now + Duration::from_millis(pass);
                let advance = judge.advance(now);
                said.push((advance.snapshot, advance.events, advance.requests));
            }
            said
        };
        prop_assert_eq!(play(), play());
    }
}
