//! Everything that was counted of one namespace, as one line: what is not in it did not happen.

use std::{collections::BTreeMap, fmt};
use storewatch_core::{
    classify,
    connection::{ConnectionOutcome, Counted},
    id::NetnsId,
};

use crate::Watch;

/// Counters by what they say, evidence classified as the agent does it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    begun: u64,
    established: u64,
    attempts: BTreeMap<ConnectionOutcome, u64>,
    endings: BTreeMap<ConnectionOutcome, u64>,
    resets_received: u64,
    resets_sent: u64,
    retransmits: u64,
}

impl Tally {
    /// Of the sockets in this namespace.
    pub fn of(watch: &Watch, netns: u32) -> Self {
        let mut tally = Self::default();
        for ((_, owner, _, what), count) in &watch.counts {
            if *owner != Some(NetnsId(netns)) {
                continue;
            }
            let slot = match what {
                Counted::Begun => &mut tally.begun,
                Counted::Established => &mut tally.established,
                Counted::Failed(evidence) => tally.attempts.entry(classify::attempt(evidence)).or_default(),
                Counted::Ended(evidence) => tally.endings.entry(classify::ending(evidence)).or_default(),
                Counted::ResetsReceived => &mut tally.resets_received,
                Counted::ResetsSent => &mut tally.resets_sent,
                Counted::Retransmits => &mut tally.retransmits,
            };
            *slot += count.added;
        }
        tally
    }
}

impl Tally {
    /// With ends that were seen only when the socket was destroyed counted among the other ends, at most `missed` of them:
    /// the kernel does not run a program that it interrupted on the same CPU, so how these ended is not known.
    #[must_use]
    pub fn explained(mut self, missed: u64) -> Self {
        let unknown = self.endings.remove(&ConnectionOutcome::Unknown).unwrap_or(0);
        let moved = unknown.min(missed);
        match self.endings.values_mut().max() {
            Some(most) => {
                *most += moved;
                if unknown > moved {
                    self.endings.insert(ConnectionOutcome::Unknown, unknown - moved);
                }
            }
            None if unknown > 0 => drop(self.endings.insert(ConnectionOutcome::Unknown, unknown)),
            None => {}
        }
        self
    }
}

impl fmt::Display for Tally {
    /// For example `begun 2, established 1, attempt refused 1, end peer_closed 1, reset received 1, retransmitted`. How often a
    /// segment was sent again is a matter of time, so only that it happened is said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { begun, established, attempts, endings, resets_received, resets_sent, retransmits } = self;
        let mut parts: Vec<String> = Vec::new();
        let mut part = |name: &str, count: u64| {
            if count > 0 {
                parts.push(format!("{name} {count}"));
            }
        };
        part("begun", *begun);
        part("established", *established);
        for (outcome, count) in attempts {
            part(&format!("attempt {}", outcome.as_str()), *count);
        }
        for (outcome, count) in endings {
            part(&format!("end {}", outcome.as_str()), *count);
        }
        part("reset received", *resets_received);
        part("reset sent", *resets_sent);
        if *retransmits > 0 {
            parts.push("retransmitted".to_owned());
        }
        f.write_str(if parts.is_empty() { "nothing" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}
