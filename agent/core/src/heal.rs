//! Which pod may be restarted to end a stale transport: only a restart does.
//!
//! One of a workload at a time, and the next one only after the workload is whole again: as many pods as before, and all
//! that are not stale themselves ready. At least one other must run, whatever the guard says: the guard keeps a pod in
//! service, and a restart is what ends the need for it.

use crate::{id::PodUid, pod::Workload, time::MonoTime};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Least distance between two restarts within a workload.
pub const SPACING: Duration = Duration::from_secs(60);

/// The longest wait after attempts that were refused (a disruption budget, most of all).
pub const MAX_RETRY: Duration = Duration::from_secs(600);

/// A pod as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patient {
    /// Which.
    pub uid: PodUid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// What it belongs to; without one nobody would make it anew.
    pub workload: Workload,
    /// Its containers run, and it is not being deleted.
    pub running: bool,
    /// It is ready.
    pub ready: bool,
    /// Its agent has confirmed that its transport is stale.
    pub stale: bool,
}

/// A workload in its namespace.
type Key = (Arc<str>, Workload);

#[derive(Clone, Copy, Debug)]
struct Past {
    /// When one was restarted, or was to be.
    at: MonoTime,
    /// Pods that there were.
    pods: usize,
    /// Refusals in a row.
    refused: u32,
}

/// What was done about each workload.
#[derive(Clone, Debug, Default)]
pub struct Healer {
    past: BTreeMap<Key, Past>,
}

impl Healer {
    /// The pods to restart now, at most one of each workload.
    pub fn choose(&mut self, patients: &[Patient], now: MonoTime) -> Vec<PodUid> {
        let mut workloads: BTreeMap<Key, Vec<&Patient>> = BTreeMap::new();
        for patient in patients {
            workloads.entry((Arc::clone(&patient.namespace), patient.workload.clone())).or_default().push(patient);
        }
        // A workload that has been well for long is forgotten; one that is gone as well.
        self.past.retain(|key, past| workloads.contains_key(key) && now.since(past.at) < 2 * MAX_RETRY);
        let one = |(key, pods): (&Key, &Vec<&Patient>)| {
            let stale = pods.iter().filter(|pod| pod.stale && pod.running).map(|pod| &pod.uid).min()?;
            let others_run = pods.iter().any(|pod| pod.running && pod.uid != *stale);
            let whole = pods.iter().all(|pod| pod.running && (pod.stale || pod.ready));
            let due = self.past.get(key).is_none_or(|past| {
                let wait = SPACING.saturating_mul(1 << past.refused.min(8)).min(MAX_RETRY);
                now.since(past.at) >= wait && pods.len() >= past.pods
            });
            (others_run && whole && due).then(|| stale.clone())
        };
        workloads.iter().filter_map(one).collect()
    }

    /// A restart was tried: accepted, or refused.
    pub fn tried(&mut self, patients: &[Patient], uid: &PodUid, accepted: bool, now: MonoTime) {
        let Some(patient) = patients.iter().find(|patient| patient.uid == *uid) else { return };
        let same = |other: &&Patient| other.namespace == patient.namespace && other.workload == patient.workload;
        let key = (Arc::clone(&patient.namespace), patient.workload.clone());
        let refused = self.past.get(&key).map_or(0, |past| past.refused);
        let past = Past {
            at: now,
            pods: patients.iter().filter(same).count(),
            refused: if accepted { 0 } else { refused.saturating_add(1) },
        };
        self.past.insert(key, past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> MonoTime {
        MonoTime::from_millis(seconds * 1000)
    }

    /// `NAME[:s][:r][:x]`: stale, not ready, not running.
    fn patients(text: &str) -> Vec<Patient> {
        text.split(' ')
            .map(|word| {
                let mut marks = word.split(':');
                let name = marks.next().unwrap();
                let marks: Vec<_> = marks.collect();
                Patient {
                    uid: PodUid(name.into()),
                    namespace: "graph".into(),
                    workload: Workload { kind: "Deployment".into(), name: name.split('-').next().unwrap().into() },
                    running: !marks.contains(&"x"),
                    ready: !marks.contains(&"r"),
                    stale: marks.contains(&"s"),
                }
            })
            .collect()
    }

    fn chosen(healer: &mut Healer, text: &str, now: i64) -> String {
        let list: Vec<_> = healer.choose(&patients(text), at(now)).into_iter().map(|uid| uid.0.to_string()).collect();
        list.join(" ")
    }

    #[test]
    fn one_of_a_workload_that_is_whole() {
        for (list, expected) in [
            ("a-0:s a-1", "a-0"),
            ("a-0:s:r a-1", "a-0"),
            ("a-0:s a-1:s", "a-0"),
            ("a-0:s:r a-1:s:r", "a-0"),
            ("a-0 a-1", ""),
            ("a-0:s", ""),
            ("a-0:s a-1:x", ""),
            ("a-0:s a-1:r", ""),
            ("a-0:s a-1 a-2:r", ""),
            ("a-0:s:x a-1", ""),
            ("a-0:s a-1 b-0:s b-1", "a-0 b-0"),
            ("a-0:s b-0", ""),
        ] {
            assert_eq!(chosen(&mut Healer::default(), list, 0), expected, "{list}");
        }
    }

    #[test]
    fn the_next_one_only_when_the_new_one_is_there_and_well() {
        let mut healer = Healer::default();
        let both = "a-0:s a-1:s";
        assert_eq!(chosen(&mut healer, both, 0), "a-0");
        healer.tried(&patients(both), &PodUid("a-0".into()), true, at(0));
        assert_eq!(chosen(&mut healer, "a-1:s a-2", 30), "", "too soon");
        assert_eq!(chosen(&mut healer, "a-1:s", 61), "", "the new one is not there");
        assert_eq!(chosen(&mut healer, "a-1:s a-2:r", 61), "", "not ready");
        assert_eq!(chosen(&mut healer, "a-1:s a-2", 61), "a-1");
    }

    #[test]
    fn refusals_make_it_wait_longer() {
        let mut healer = Healer::default();
        let list = patients("a-0:s a-1");
        let mut waits = Vec::new();
        let mut now = 0;
        for _ in 0..5 {
            healer.tried(&list, &PodUid("a-0".into()), false, at(now));
            let wait =
                (0..2000).step_by(10).find(|wait| !healer.clone().choose(&list, at(now + wait)).is_empty()).unwrap();
            waits.push(wait);
            now += wait;
        }
        assert_eq!(waits, [120, 240, 480, 600, 600]);
    }
}
