//! `record`: the agent's own lines into a file. Between two lines the file is good as far as it goes, and its last line
//! says that it is whole; so a full disk or an agent that is gone costs what comes after, and nothing before.

use super::{Exit, Failure, RecordArgs, address::AgentAddress, lines::Lines, table::human_ms};
use crate::{
    publish::AGENT_ENDS,
    recording::{
        Anonymizer, Judgement, Lost,
        format::{Decoder, Line, encode, encode_header},
    },
    runtime::shutdown::Signals,
};
use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use tokio::time::{Instant, sleep_until, timeout};

/// How long the agent may take to begin: its engine turns every half second.
const BEGIN: Duration = Duration::from_secs(10);

/// Lines that may be cut off a file on a full disk for the room that its last line needs.
const SPARE: usize = 256;

/// Records until the time is over, a signal comes, or it cannot go on.
pub(super) async fn run(agent: Option<&str>, args: &RecordArgs) -> Result<ExitCode, Failure> {
    let RecordArgs { out, duration, anonymize } = args;
    let agent = AgentAddress::choose(agent, AgentAddress::admin())?;
    let mut signals =
        Signals::install().map_err(|error| Failure::running(format!("cannot install signal handlers: {error}")))?;
    let foreign = |why: &dyn std::fmt::Display| Failure::wrong(format!("what answers at {agent} cannot record: {why}"));
    let mut lines = Lines::of(&agent, "/v1/recording", BEGIN).await?;
    let first = timeout(BEGIN, lines.next()).await.map_err(|_| foreign(&"it says nothing"))?;
    let first = first.map_err(|_| foreign(&"it says nothing"))?;
    let mut decoder = Decoder::default();
    let header = decoder.header(&first).map_err(|broken| foreign(&broken.fault))?;
    // From here on there is something to write: an older file is worth no more.
    let mut file = Out::create(out)?;
    let mut anonymizer = anonymize.then(Anonymizer::default);
    let header = match &mut anonymizer {
        Some(anonymizer) => encode_header(&anonymizer.header(header)),
        None => first.to_vec(),
    };
    let begun = Instant::now();
    let over = duration.map(|duration| begun + duration);
    let mut seen = Seen::default();
    let mut written = file.append(&header);
    let end = loop {
        if let Err(error) = written {
            break End::Unwritten(error);
        }
        let line = tokio::select! {
            biased;
            signal = signals.next() => break End::Asked(signal),
            () = sleep_until(over.unwrap_or(begun)), if over.is_some() => break End::Asked("its time was over"),
            line = lines.next() => line,
        };
        let Ok(text) = line else { break End::Gone };
        let line = match decoder.line(&text) {
            Ok(line) => line,
            Err(broken) => break End::Foreign(broken.fault.to_string()),
        };
        if matches!(&line, Line::End { why } if why == AGENT_ENDS) {
            break End::Gone;
        }
        seen.count(&line);
        written = match &mut anonymizer {
            Some(anonymizer) => file.append(&encode(&anonymizer.line(line))),
            None => file.append(&text),
        };
    };
    file.close(end, &agent, &seen, begun.elapsed())
}

/// What ends a recording.
enum End {
    /// Its time or a signal.
    Asked(&'static str),
    /// The agent, by going away...
    Gone,
    /// ... or by saying what no agent of this version says.
    Foreign(String),
    /// The file.
    Unwritten(io::Error),
}

/// What came so far.
#[derive(Debug, Default)]
struct Seen {
    observations: u64,
    lost: Lost,
}

impl Seen {
    fn count(&mut self, line: &Line) {
        match line {
            Line::Judged { judgement: Judgement { observed, .. }, .. } => self.observations += observed.len() as u64,
            Line::Lost { lost, .. } => {
                self.lost.observations += lost.observations;
                self.lost.judgements += lost.judgements;
            }
            Line::Start(_) | Line::End { .. } => {}
        }
    }

    fn show(&self, took: Duration) -> String {
        let took = human_ms(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let lost = match self.lost {
            lost if lost.is_none() => String::new(),
            Lost { observations, judgements } => {
                format!(", {observations} observations of {judgements} judgements lost")
            }
        };
        format!("{} observations in {took}{lost}", self.observations)
    }
}

/// The file being written.
#[derive(Debug)]
struct Out {
    path: PathBuf,
    file: File,
    /// Where the last lines end.
    ends: VecDeque<u64>,
}

impl Out {
    fn create(path: &Path) -> Result<Self, Failure> {
        // It names addresses and hosts.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let file = file.map_err(|error| Failure::wrong(format!("cannot write {}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), file, ends: VecDeque::from([0]) })
    }

    /// Writes one line or, as far as the file shows, nothing of it.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let before = self.ends.back().copied().unwrap_or_default();
        if let Err(error) = self.file.write_all(line) {
            // A pipe cannot take back what it has.
            let _ = self.cut(before);
            return Err(error);
        }
        if self.ends.len() >= SPARE {
            self.ends.pop_front();
        }
        self.ends.push_back(before + line.len() as u64);
        Ok(())
    }

    fn cut(&mut self, at: u64) -> io::Result<()> {
        self.file.set_len(at)?;
        self.file.seek(SeekFrom::Start(at)).map(|_| ())
    }

    /// Writes the last line, instead of earlier ones where the disk has no room for it.
    fn finish(&mut self, why: &str) -> io::Result<()> {
        let line = encode(&Line::End { why: why.into() });
        let mut written = self.append(&line);
        while written.is_err() && self.ends.len() > 1 {
            self.ends.pop_back();
            let end = self.ends.back().copied().unwrap_or_default();
            self.cut(end)?;
            written = self.append(&line);
        }
        written.and_then(|()| match self.file.sync_data() {
            // What cannot be synchronised, such as a pipe, has nothing to lose either.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synchronised => synchronised,
        })
    }

    fn close(mut self, end: End, agent: &AgentAddress, seen: &Seen, took: Duration) -> Result<ExitCode, Failure> {
        let path = self.path.display().to_string();
        let kept = |finished: io::Result<()>| match finished {
            Ok(()) => format!("what came before is in {path}, which can be replayed: {}", seen.show(took)),
            Err(error) => format!("{path} breaks off, since its end cannot be written: {error}"),
        };
        match end {
            End::Asked(why) => {
                if let Err(error) = self.finish(why) {
                    return Err(Failure::running(format!("cannot write {path}: {error}; it breaks off")));
                }
                // Nobody is left to tell when this fails.
                let _ = writeln!(io::stderr(), "{path}: {}", seen.show(took));
                Ok(Exit::Done.into())
            }
            End::Gone => {
                let finished = self.finish(AGENT_ENDS);
                Err(Failure::running(format!("the agent at {agent} has ended; {}", kept(finished))))
            }
            End::Foreign(why) => {
                let finished = self.finish("what came next made no sense");
                Err(Failure::running(format!(
                    "what the agent at {agent} says makes no sense: {why}; {}",
                    kept(finished)
                )))
            }
            End::Unwritten(error) => {
                let finished = self.finish(&format!("the file could not be written: {error}"));
                Err(Failure::running(format!("cannot write {path}: {error}; {}", kept(finished))))
            }
        }
    }
}
