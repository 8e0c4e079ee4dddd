//! Losses on their way to being told: a storm loses with every reading, and one line a second says as much.

use crate::{
    event::{Event, EventKind, EventLog},
    source::{Loss, SourceName},
    time::MonoTime,
};
use std::{collections::BTreeMap, time::Duration};

/// Least distance between two events about one source's losses of one kind.
const SPACING: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    lost: u64,
    /// When the last of it was lost.
    at: MonoTime,
    told: Option<MonoTime>,
}

/// By source, and by whether counters are concerned.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<(SourceName, bool), Waiting>);

impl Losses {
    pub(super) fn add(&mut self, loss: &Loss) {
        let waiting = self.0.entry((loss.source, loss.counters)).or_default();
        waiting.lost = waiting.lost.saturating_add(loss.lost);
        waiting.at = waiting.at.max(loss.at);
    }

    /// Tells what is due at `now`; gives the instant at which the next is.
    pub(super) fn tell(&mut self, now: MonoTime, log: &mut EventLog) -> Option<MonoTime> {
        let mut next: Option<MonoTime> = None;
        for ((source, counters), waiting) in self.0.iter_mut().filter(|(_, waiting)| waiting.lost > 0) {
            if let Some(due) = waiting.told.map(|told| told + SPACING).filter(|due| *due > now) {
                next = Some(next.map_or(due, |next| next.min(due)));
                continue;
            }
            let what = if *counters { "counters are no longer exact" } else { "details were dropped" };
            let message = format!("{}: {what} ({})", source.as_str(), waiting.lost);
            log.mention(Event::new(waiting.at, EventKind::Loss, message).outcome(source.as_str()));
            *waiting = Waiting { told: Some(now), ..Waiting::default() };
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_a_line_a_second_and_nothing_of_it_is_left_out() {
        let at = MonoTime::from_millis;
        let (mut losses, mut log, mut generation) = (Losses::default(), EventLog::default(), 0);
        let loss = |millis, counters| Loss { source: SourceName::Kernel, at: at(millis), lost: 1, counters };
        let mut told = Vec::new();
        for millis in (0..2_500).step_by(50) {
            losses.add(&loss(millis, false));
            losses.tell(at(millis), &mut log);
            told.extend(log.drain(at(millis), &mut generation));
        }
        losses.add(&loss(2_500, true));
        assert_eq!(losses.tell(at(2_500), &mut log), Some(at(3_000)), "details of the last half second wait");
        assert_eq!(losses.tell(at(3_000), &mut log), None);
        told.extend(log.drain(at(3_000), &mut generation));
        let messages: Vec<_> = told.iter().map(|event| event.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "kernel: details were dropped (1)",
                "kernel: details were dropped (20)",
                "kernel: details were dropped (20)",
                "kernel: counters are no longer exact (1)",
                "kernel: details were dropped (9)",
            ]
        );
    }
}
