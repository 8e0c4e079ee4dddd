//! The bytes of the file: three lines that are one JSON document.
//!
//! ```text
//! {"format":"storewatch-state","version":3,"node":"node-a","crc32":"89abcdef","state":
//! {"boot":"..","taken":"2026-..","memory":{..}}
//! }
//! ```
//! The checksum is taken over the exact bytes of the second line, so that the content is proven before it is read.

use crate::{
    clock::ClockPair,
    shape::{self, Stored as _},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io;
use storewatch_core::memory::Memory;

/// The shape of the content; raised with every change to it.
pub(super) const VERSION: u32 = 3;

/// A file that is larger is not one. The ownership of 4096 addresses takes about 2 MiB, a connection some 200 bytes and an
/// address that a container dials up to 8 KiB. What would be more is written without the connections: verdicts and whose
/// the addresses are outlive a flood.
pub(super) const MAX_BYTES: u64 = 16 << 20;

/// What the first line says it is.
const FORMAT: &str = "storewatch-state";

/// How the first line goes on to the second, and how the third ends both.
const OPENING: &str = ",\"state\":";
const CLOSING: &str = "\n}\n";

/// A boot of a machine, as the kernel names it.
pub(super) type BootId = Option<String>;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    node: String,
    crc32: String,
}

/// What a later version must still be able to say about itself.
#[derive(Debug, Deserialize)]
struct AnyHeader {
    format: String,
    version: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    boot: BootId,
    taken: String,
    memory: shape::memory::Memory,
}

/// The same on its way to the disk: a large node's memory is not held in a second shape.
#[derive(Serialize)]
struct Writing<'a> {
    boot: &'a BootId,
    taken: String,
    memory: shape::memory::Writing<'a>,
}

/// What a file held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The boot whose monotonic clock the instants are of.
    pub(super) boot: BootId,
    /// The date at which the memory was taken.
    pub(super) taken: Timestamp,
    /// The memory.
    pub(super) memory: Memory,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it is no regular file")]
    NoFile,
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("it is no state file of storewatch")]
    Foreign,
    #[error("it is the state of node {0:?}")]
    OtherNode(String),
    #[error("its version is {0}, and this agent reads version {VERSION}")]
    OtherVersion(u32),
    #[error("it is cut off")]
    Truncated,
    #[error("its checksum does not match its content")]
    Damaged,
    #[error("its content makes no sense: {0}")]
    Senseless(String),
}

impl Refusal {
    /// It is a file, and its content is at fault.
    pub(super) fn concerns_content(&self) -> bool {
        !matches!(self, Self::Unreadable(_) | Self::NoFile)
    }
}

fn checksum(content: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(content))
}

/// Makes the bytes of a file, and tells whether all is in it.
///
/// # Errors
/// When they would be more than [`MAX_BYTES`] even without connections, which no start would read.
pub(super) fn encode(memory: &Memory, node: &str, boot: &BootId, clock: &ClockPair) -> io::Result<(Vec<u8>, bool)> {
    match encode_all(memory, node, boot, clock) {
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Ok((encode_all(&memory.clone().without_evidence(), node, boot, clock)?, false))
        }
        bytes => Ok((bytes?, true)),
    }
}

fn encode_all(memory: &Memory, node: &str, boot: &BootId, clock: &ClockPair) -> io::Result<Vec<u8>> {
    let first = |crc32: String| -> io::Result<Vec<u8>> {
        let header = Header { format: FORMAT.into(), version: VERSION, node: node.into(), crc32 };
        let mut line = serde_json::to_vec(&header)?;
        line.pop();
        line.extend_from_slice(OPENING.as_bytes());
        line.push(b'\n');
        Ok(line)
    };
    // The checksum stands before what it is taken of, and is always as long.
    let mut bytes = first(checksum(b""))?;
    let begin = bytes.len();
    let taken = clock.date(memory.taken_at).to_string();
    serde_json::to_writer(&mut bytes, &Writing { boot, taken, memory: shape::memory::Writing(memory) })?;
    let line = first(checksum(bytes.get(begin..).unwrap_or_default()))?;
    bytes.splice(..begin, line);
    bytes.extend_from_slice(CLOSING.as_bytes());
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_BYTES) {
        Ok(bytes)
    } else {
        Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("the state would take more than {MAX_BYTES} bytes")))
    }
}

/// Reads the bytes of a file.
///
/// # Errors
/// The first reason why they cannot be trusted.
pub(super) fn decode(bytes: &[u8], node: &str) -> Result<Kept, Refusal> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let Some((first, rest)) = end.and_then(|end| Some((bytes.get(..end)?, bytes.get(end + 1..)?))) else {
        // A first line that ends early is ours only if it begins as ours does.
        let ours = format!("{{\"format\":\"{FORMAT}\"");
        let begins = bytes.starts_with(ours.as_bytes()) || ours.as_bytes().starts_with(bytes);
        return Err(if begins { Refusal::Truncated } else { Refusal::Foreign });
    };
    let mut line = first.strip_suffix(OPENING.as_bytes()).ok_or(Refusal::Foreign)?.to_vec();
    line.push(b'}');
    let AnyHeader { format, version } = serde_json::from_slice(&line).map_err(|_| Refusal::Foreign)?;
    if format != FORMAT {
        return Err(Refusal::Foreign);
    }
    if version != VERSION {
        return Err(Refusal::OtherVersion(version));
    }
    let header: Header = serde_json::from_slice(&line).map_err(|_| Refusal::Damaged)?;
    let content = rest.strip_suffix(CLOSING.as_bytes()).ok_or(Refusal::Truncated)?;
    if checksum(content) != header.crc32 {
        return Err(Refusal::Damaged);
    }
    if header.node != node {
        return Err(Refusal::OtherNode(header.node));
    }
    let senseless = |error: &dyn std::fmt::Display| Refusal::Senseless(error.to_string());
    let Content { boot, taken, memory } = serde_json::from_slice(content).map_err(|error| senseless(&error))?;
    let taken = taken.parse().map_err(|error: jiff::Error| senseless(&error))?;
    Ok(Kept { boot, taken, memory: Memory::take(memory) })
}
