//! The bytes of a recording: written line by line, read line by line, each refusal with its line.

use super::{Judgement, Lost, Start, Told, VERSION};
use crate::{
    clock::ClockPair,
    shape::{
        self, Stored,
        recording::{StartShape, ToldShape},
    },
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead};
use storewatch_core::time::MonoTime;

/// What the first line says it is.
const FORMAT: &str = "storewatch-recording";

/// A longer line is none of ours: an inventory of 100 000 sockets takes about 40 MiB.
const MAX_LINE: u64 = 64 << 20;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the agent.
    pub agent: String,
    /// Its node.
    pub node: String,
    /// When the recording began, by the monotonic clock...
    pub at: MonoTime,
    /// ... and as a date.
    pub date: Timestamp,
    /// Addresses and names were replaced.
    pub anonymized: bool,
}

impl Header {
    /// For a recording that begins at `at` on this machine.
    pub fn new(node: &str, at: MonoTime) -> Self {
        let date = ClockPair::read().date(at);
        Self { agent: env!("CARGO_PKG_VERSION").into(), node: node.into(), at, date, anonymized: false }
    }

    /// The date of a recorded instant.
    pub fn date_of(&self, at: MonoTime) -> Timestamp {
        let nanos = i128::from(at.as_nanos()) - i128::from(self.at.as_nanos());
        Timestamp::from_nanosecond(self.date.as_nanosecond() + nanos).unwrap_or(self.date)
    }
}

/// Any other line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The second.
    Start(Box<Start>),
    /// A judgement, and what changed by it.
    Judged {
        /// What was observed, and when it was judged.
        judgement: Judgement,
        /// What the agent told then.
        told: Vec<Told>,
    },
    /// So many are missing here.
    Lost {
        /// When that was noticed.
        at: MonoTime,
        /// How many.
        lost: Lost,
    },
    /// The last.
    End {
        /// What ended the recording.
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
struct HeaderShape {
    format: String,
    version: u32,
    agent: String,
    node: String,
    at: i64,
    date: String,
    anonymized: bool,
}

/// What a later version must still be able to say about itself.
#[derive(Deserialize)]
struct AnyHeader {
    format: String,
    version: u32,
    agent: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum LineShape {
    Start(Box<StartShape>),
    Judged {
        at: i64,
        observed: Vec<shape::observation::Observation>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        told: Vec<ToldShape>,
    },
    Lost {
        at: i64,
        observations: u64,
        judgements: u64,
    },
    End {
        why: String,
    },
}

/// The bytes of the first line.
pub fn encode_header(header: &Header) -> Vec<u8> {
    let Header { agent, node, at, date, anonymized } = header.clone();
    let shape = HeaderShape {
        format: FORMAT.into(),
        version: VERSION,
        agent,
        node,
        at: at.put(),
        date: date.to_string(),
        anonymized,
    };
    bytes(&shape)
}

/// The bytes of any other line.
pub fn encode(line: &Line) -> Vec<u8> {
    bytes(&match line {
        Line::Start(start) => LineShape::Start(Box::new(start.put())),
        Line::Judged { judgement: Judgement { at, observed }, told } => {
            LineShape::Judged { at: at.put(), observed: observed.put(), told: told.put() }
        }
        Line::Lost { at, lost: Lost { observations, judgements } } => {
            LineShape::Lost { at: at.put(), observations: *observations, judgements: *judgements }
        }
        Line::End { why } => LineShape::End { why: why.clone() },
    })
}

/// The bytes of the second line. Where everything would not fit into a line that is read, connections are left out.
pub fn encode_start(start: Start) -> Vec<u8> {
    let line = Line::Start(Box::new(start));
    let bytes = encode(&line);
    let fits = u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_LINE);
    match line {
        Line::Start(start) if !fits => {
            let memory = start.memory.without_evidence();
            encode(&Line::Start(Box::new(Start { memory, ..*start })))
        }
        _ => bytes,
    }
}

fn bytes(shape: &impl Serialize) -> Vec<u8> {
    // None of these types can fail to serialize: no map has a key that is not text.
    let mut bytes = serde_json::to_vec(shape).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// What is wrong with a recording.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is something else.
    #[error("this is no recording of storewatch")]
    Foreign,
    /// Another version wrote it.
    #[error("it has version {version} of the format{agent}, and this storewatch reads version {VERSION}")]
    OtherVersion {
        /// The format's version.
        version: u32,
        /// ` (written by storewatch X)`, if it says so.
        agent: String,
    },
    /// It ends before its end.
    #[error("the recording is cut off here")]
    CutOff,
    /// A line that is longer than any of ours.
    #[error("the line is longer than {} MiB", MAX_LINE >> 20)]
    TooLong,
    /// A line that is none of ours.
    #[error("the line makes no sense: {0}")]
    Senseless(String),
    /// Lines in another order than they can have been written.
    #[error("{0}")]
    Order(&'static str),
}

/// A fault and its line.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct Broken {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub fault: Fault,
}

/// Reads lines in their order.
#[derive(Debug, Default)]
pub struct Decoder {
    line: u64,
    last: Option<MonoTime>,
    ended: bool,
}

impl Decoder {
    /// Reads the first line, its end included.
    ///
    /// # Errors
    /// When it is not that of a recording, or of another version.
    pub fn header(&mut self, text: &[u8]) -> Result<Header, Broken> {
        self.line = 1;
        let header = header(text).map_err(|fault| self.broken(fault))?;
        self.last = Some(header.at);
        Ok(header)
    }

    /// Reads the next line, its end included.
    ///
    /// # Errors
    /// When it makes no sense or cannot stand there.
    pub fn line(&mut self, text: &[u8]) -> Result<Line, Broken> {
        self.line += 1;
        self.read(text).map_err(|fault| self.broken(fault))
    }

    fn broken(&self, fault: Fault) -> Broken {
        Broken { line: self.line, fault }
    }

    fn read(&mut self, text: &[u8]) -> Result<Line, Fault> {
        if self.ended {
            return Err(Fault::Order("there are lines after the end"));
        }
        let text = text.strip_suffix(b"\n").ok_or(Fault::CutOff)?;
        let shape = serde_json::from_slice(text).map_err(senseless)?;
        let line = match shape {
            LineShape::Start(start) => Line::Start(Box::new(Start::take(*start))),
            LineShape::Judged { at, observed, told } => {
                let judgement = Judgement { at: MonoTime::take(at), observed: Vec::take(observed) };
                Line::Judged { judgement, told: Vec::take(told) }
            }
            LineShape::Lost { at, observations, judgements } => {
                Line::Lost { at: MonoTime::take(at), lost: Lost { observations, judgements } }
            }
            LineShape::End { why } => Line::End { why },
        };
        if matches!(line, Line::Start(_)) != (self.line == 2) {
            return Err(Fault::Order("the second line, and no other, holds what the agent knew at the start"));
        }
        match &line {
            Line::Judged { judgement: Judgement { at, .. }, .. } | Line::Lost { at, .. } => {
                if self.last.is_some_and(|last| *at < last) {
                    return Err(Fault::Order("time goes back"));
                }
                self.last = Some(*at);
            }
            Line::End { .. } => self.ended = true,
            Line::Start(_) => {}
        }
        Ok(line)
    }
}

fn senseless(error: serde_json::Error) -> Fault {
    // It counts lines itself, and there is one only.
    let text = error.to_string();
    Fault::Senseless(match text.rsplit_once(" at line 1 column ") {
        Some((what, column)) => format!("{what} (byte {column})"),
        None => text,
    })
}

fn header(text: &[u8]) -> Result<Header, Fault> {
    let Some(text) = text.strip_suffix(b"\n") else {
        // A first line that ends early is ours only if it begins as ours does.
        let ours = format!("{{\"format\":\"{FORMAT}\"");
        let begins = text.starts_with(ours.as_bytes()) || (!text.is_empty() && ours.as_bytes().starts_with(text));
        return Err(if begins { Fault::CutOff } else { Fault::Foreign });
    };
    let AnyHeader { format, version, agent } = serde_json::from_slice(text).map_err(|_| Fault::Foreign)?;
    if format != FORMAT {
        return Err(Fault::Foreign);
    }
    if version != VERSION {
        let agent = agent.map(|agent| format!(" (written by storewatch {agent})")).unwrap_or_default();
        return Err(Fault::OtherVersion { version, agent });
    }
    let shape: HeaderShape = serde_json::from_slice(text).map_err(senseless)?;
    let HeaderShape { format: _, version: _, agent, node, at, date, anonymized } = shape;
    let date = date.parse().map_err(|error: jiff::Error| Fault::Senseless(error.to_string()))?;
    Ok(Header { agent, node, at: MonoTime::take(at), date, anonymized })
}

/// Reads a recording from its bytes.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    decoder: Decoder,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// When it is not that of a recording, or of another version.
    pub fn open(input: R) -> Result<(Self, Header), Broken> {
        let mut reader = Self { input, decoder: Decoder::default() };
        let text = reader.text()?;
        let header = reader.decoder.header(&text)?;
        Ok((reader, header))
    }

    /// The next line; `None` after the last.
    ///
    /// # Errors
    /// When it cannot be read, makes no sense or cannot stand there; what is read after that makes no sense.
    pub fn read_line(&mut self) -> Result<Option<Line>, Broken> {
        let text = self.text()?;
        if text.is_empty() && self.decoder.ended {
            return Ok(None);
        }
        self.decoder.line(&text).map(Some)
    }

    /// A line with its end, or what is left of one; empty at the end of the file.
    fn text(&mut self) -> Result<Vec<u8>, Broken> {
        let broken = |fault| Broken { line: self.decoder.line + 1, fault };
        let mut text = Vec::new();
        let read = io::Read::take(&mut self.input, MAX_LINE).read_until(b'\n', &mut text);
        read.map_err(|error| broken(error.into()))?;
        let full = u64::try_from(text.len()).is_ok_and(|length| length >= MAX_LINE);
        if full && !text.ends_with(b"\n") {
            return Err(broken(Fault::TooLong));
        }
        Ok(text)
    }
}
