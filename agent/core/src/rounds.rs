//! Failure accrual over rounds of pings.
//!
//! A round is all Stores once. The first answer decides at once that the round has one; that it has none is known when
//! it is over. With more Stores than fit into one round, "none" needs a full sweep.
//!
//! Two failed rounds that count begin at least [`MIN_SPACING`] apart, so that a burst of triggered rounds is not taken
//! for persistence; two answered ones likewise. An answer ends a streak of failures however close it follows, because a
//! success between two failures makes them not consecutive.

use crate::{ping::RoundEnded, policy::VerdictPolicy, time::MonoTime};
use std::time::Duration;

/// Least distance between the begins of two rounds that count alike.
pub const MIN_SPACING: Duration = Duration::from_millis(150);

/// What the rounds so far say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoundState {
    /// Neither enough answers nor enough failures yet.
    #[default]
    NoneYet,
    /// At least one Store answers.
    Answering,
    /// None answered for the threshold's number of rounds.
    Failing {
        /// When the round that reached the threshold began.
        began: MonoTime,
        /// When it ended.
        ended: MonoTime,
    },
}

/// Streaks of rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// What they say.
    pub state: RoundState,
    /// When the first failing round of the present streak ended: what a Store sent while that round was under way may be
    /// its last word.
    pub first_failed: Option<MonoTime>,
    /// Failed ones in a row that counted...
    pub failed: u32,
    /// ... and answered ones.
    pub answered: u32,
    /// When the last one that counted as failed began...
    pub last_failed: Option<MonoTime>,
    /// ... and the last one that counted as answered.
    pub last_answered: Option<MonoTime>,
    /// A Store has answered in the present sweep.
    pub sweep_answered: bool,
    /// The number of the last round that had an answer.
    pub counted: Option<u64>,
}

impl Rounds {
    /// A Store answered in round `number`. Returns whether the state changed.
    pub(crate) fn answer(&mut self, number: u64, at: MonoTime, policy: &VerdictPolicy) -> bool {
        self.sweep_answered = true;
        self.failed = 0;
        self.first_failed = None;
        if self.counted == Some(number) {
            return false;
        }
        self.counted = Some(number);
        if self.last_answered.is_none_or(|last| at.since(last) >= MIN_SPACING) || self.answered == 0 {
            self.answered = self.answered.saturating_add(1);
            self.last_answered = Some(at);
        }
        let recovered = match self.state {
            RoundState::Answering => false,
            RoundState::NoneYet => true,
            RoundState::Failing { .. } => self.answered >= policy.success_threshold,
        };
        if recovered {
            self.state = RoundState::Answering;
        }
        recovered
    }

    /// A round is over. Returns whether it counted as a failed one.
    pub(crate) fn ended(&mut self, round: &RoundEnded, policy: &VerdictPolicy) -> bool {
        let answered = self.counted == Some(round.round);
        let sweep_answered = self.sweep_answered;
        if round.sweep_complete {
            self.sweep_answered = false;
        }
        if answered || round.asked.is_empty() || !round.sweep_complete || sweep_answered || round.late {
            return false;
        }
        if self.failed > 0 && self.last_failed.is_some_and(|last| round.started.since(last) < MIN_SPACING) {
            return false;
        }
        self.answered = 0;
        self.failed = self.failed.saturating_add(1);
        self.last_failed = Some(round.started);
        self.first_failed.get_or_insert(round.ended);
        if self.failed >= policy.failure_threshold && !matches!(self.state, RoundState::Failing { .. }) {
            self.state = RoundState::Failing { began: round.started, ended: round.ended };
        }
        true
    }
}
