//! Plays a recording: the same judge, fed with the recorded observations, judging at the recorded instants.

use super::{
    Judgement, Lost, Start, Told,
    format::{Broken, Fault, Header, Line, Reader},
    told::{Standing, Subject, Timeline},
};
use std::io::BufRead;
use storewatch_core::{judge::Judge, time::MonoTime};

/// What a recording says.
#[derive(Debug)]
pub struct Replayed {
    /// Its first line.
    pub header: Header,
    /// How everybody stood when it began.
    pub before: Vec<(Subject, Standing)>,
    /// What changed after that, each with its sentence.
    pub told: Vec<(Told, String)>,
    /// How everybody stands at its end.
    pub after: Vec<(Subject, Standing)>,
    /// The last instant.
    pub until: MonoTime,
    /// Observations played.
    pub observations: u64,
    /// What is missing, and when.
    pub missing: Vec<Missing>,
    /// Where the agent told something else at the time.
    pub differences: Vec<Difference>,
    /// What ended the recording; `None` if it breaks off.
    pub why: Option<String>,
    /// Where and how it breaks off.
    pub broken: Option<Broken>,
}

/// A gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The first judgement after it.
    pub at: MonoTime,
    /// Its size.
    pub lost: Lost,
}

/// A judgement by which not the same was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub at: MonoTime,
    /// What only the recorded agent told.
    pub then: Vec<Told>,
    /// What only this replay tells.
    pub now: Vec<Told>,
}

/// Plays a recording to its end, or as far as it can be read.
///
/// # Errors
/// When it is none, when another version wrote it, or when it breaks off before its start is told.
pub fn replay(input: impl BufRead) -> Result<Replayed, Broken> {
    let (mut reader, header) = Reader::open(input)?;
    let start = match reader.read_line()? {
        Some(Line::Start(start)) => *start,
        // The reader lets no other line stand there.
        _ => return Err(Broken { line: 2, fault: Fault::CutOff }),
    };
    let mut judge = begin(start, header.at);
    let mut timeline = Timeline::of(&judge.snapshot(header.at));
    let mut replayed = Replayed {
        before: standings(&timeline),
        told: Vec::new(),
        after: Vec::new(),
        until: header.at,
        observations: 0,
        missing: Vec::new(),
        differences: Vec::new(),
        why: None,
        broken: None,
        header,
    };
    loop {
        match reader.read_line() {
            Ok(Some(Line::Judged { judgement, told })) => {
                let Judgement { at, observed } = judgement;
                replayed.until = at;
                replayed.observations = replayed.observations.saturating_add(observed.len() as u64);
                let advance = judged(&mut judge, Judgement { at, observed });
                let news = advance.map(|snapshot| timeline.follow(&snapshot)).unwrap_or_default();
                replayed.differences.extend(difference(at, told, &news));
                replayed.told.extend(news);
            }
            Ok(Some(Line::Lost { at, lost })) => replayed.missing.push(Missing { at, lost }),
            Ok(Some(Line::End { why })) => replayed.why = Some(why),
            // The reader lets a start stand on the second line only.
            Ok(Some(Line::Start(_))) => {}
            Ok(None) => break,
            Err(broken) => {
                replayed.broken = Some(broken);
                break;
            }
        }
    }
    replayed.after = standings(&timeline);
    Ok(replayed)
}

/// The judge as it stood when the recording began.
fn begin(start: Start, at: MonoTime) -> Judge {
    let Start { settings, memory } = start;
    let mut judge = Judge::new(settings, at);
    judge.resume(memory);
    judge
}

fn judged(judge: &mut Judge, judgement: Judgement) -> Option<storewatch_core::snapshot::Snapshot> {
    let Judgement { at, observed } = judgement;
    for observation in observed {
        judge.observe(observation);
    }
    judge.advance(at).snapshot
}

fn standings(timeline: &Timeline) -> Vec<(Subject, Standing)> {
    timeline.standings().map(|(who, standing)| (who.clone(), standing.clone())).collect()
}

fn difference(at: MonoTime, then: Vec<Told>, now: &[(Told, String)]) -> Option<Difference> {
    let is_now = |told: &Told| now.iter().any(|(other, _)| other == told);
    let only_now = now.iter().map(|(told, _)| told).filter(|told| !then.contains(told)).cloned().collect::<Vec<_>>();
    let only_then = then.into_iter().filter(|told| !is_now(told)).collect::<Vec<_>>();
    let same = only_now.is_empty() && only_then.is_empty();
    (!same).then_some(Difference { at, then: only_then, now: only_now })
}
