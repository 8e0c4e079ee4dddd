//! An answer that goes on, line by line.

use super::{
    Failure,
    address::AgentAddress,
    client::{Begun, begin},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::time::Duration;

/// A longer line is none that an agent writes.
const MAX_LINE: usize = 64 << 20;

/// The lines of one answer.
pub(super) struct Lines {
    answer: Begun,
    /// The connection has ended; what it has brought is read to the end.
    driven: bool,
    rest: BytesMut,
    /// Bytes of `rest` without a line's end.
    searched: usize,
}

/// There is no next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over;

impl Lines {
    /// Asks the agent for `path`, and waits at most `budget` for the answer to begin.
    pub(super) async fn of(agent: &AgentAddress, path: &str, budget: Duration) -> Result<Self, Failure> {
        let answer = begin(agent, path, "application/x-ndjson", budget).await?;
        Ok(Self { answer, driven: false, rest: BytesMut::new(), searched: 0 })
    }

    /// The next line, its end included. Cancel-safe.
    ///
    /// # Errors
    /// When the answer has ended or has broken off; an agent says itself which of the two, by its last line.
    pub(super) async fn next(&mut self) -> Result<Bytes, Over> {
        loop {
            let unseen = self.rest.get(self.searched..).unwrap_or_default();
            if let Some(end) = unseen.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(self.searched + end + 1).freeze();
                self.searched = 0;
                return Ok(line);
            }
            self.searched = self.rest.len();
            if self.searched > MAX_LINE {
                return Err(Over);
            }
            let frame = tokio::select! {
                biased;
                frame = self.answer.body.frame() => frame,
                _ = &mut self.answer.connection, if !self.driven => {
                    self.driven = true;
                    continue;
                }
            };
            let frame = frame.and_then(Result::ok).ok_or(Over)?;
            if let Ok(data) = frame.into_data() {
                self.rest.extend_from_slice(&data);
            }
        }
    }
}
