//! Recordings: what an agent knew at one moment and all that it observed from then on, as a file, and what follows from
//! it on any other machine.
//!
//! ```text
//! engine ─► Tap ─► bounded queue per recorder ─► Recording ─► GET /v1/recording ─► storewatch record ─► file
//! file ─► format (version, order) ─► replay (the same judge, the recorded instants) ─► verdict timeline
//! ```
//!
//! A recording is text, one JSON document a line; it compresses to about a tenth.
//!
//! | Line | Holds |
//! |---|---|
//! | first | `{"format":"storewatch-recording","version":2,"agent":..,"node":..,"at":..,"date":..,"anonymized":..}`: which agent wrote it, and both clocks at its begin |
//! | second | `{"start":{"settings":..,"memory":..}}`: the judge's settings, and all that decides at the begin |
//! | then | `{"judged":{"at":..,"observed":[..],"told":[..]}}`: what was observed since the line before, the instant of the judgement that followed, and which verdicts and findings changed by it |
//! | anywhere | `{"lost":{"at":..,"observations":..,"judgements":..}}`: so many are missing here, because whoever recorded was slower than the agent |
//! | last | `{"end":{"why":..}}`: the file is whole |
//!
//! Instants (`at` and all within) are nanoseconds of the recorded machine's monotonic clock; the first line gives the date
//! of one of them. The judge reads no clock, so the same observations at the same instants give the same verdicts. What
//! `told` is for is to notice where they do not, in another version or where something is lost.
//!
//! The shape of the values is that of [`crate::shape`]; [`VERSION`] goes up with every change to it that an older reader
//! would misread.

mod anonymize;
pub mod format;
mod replay;
mod tap;
#[cfg(test)]
mod tests;
mod told;

pub use anonymize::Anonymizer;
pub use replay::{Difference, Missing, Replayed, replay};
pub use tap::{Busy, MAX_RECORDERS, Recording, Recordings, Tap, channel};
pub use told::{Mark, News, Standing, Subject, Timeline, Told};

use storewatch_core::{memory::Memory, observation::Observation, policy::Settings, time::MonoTime};

/// The shape of the lines.
pub const VERSION: u32 = 2;

/// One judgement: what was observed since the last one, in order, and the instant at which the rules were applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The instant.
    pub at: MonoTime,
    /// What was filed before it.
    pub observed: Vec<Observation>,
}

/// What a recording begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// What the judge is configured with.
    pub settings: Settings,
    /// All that decides, so that what follows depends on nothing else.
    pub memory: Memory,
}

/// What is missing at one place of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// So many observations.
    pub observations: u64,
    /// So many judgements.
    pub judgements: u64,
}

impl Lost {
    /// Nothing is missing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
