//! One kept connection to the agent, asked as often as one likes: blocking, and cheap enough not to be in the way.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

/// How often an answer is waited for; small against the shortest time that is measured.
const POLL: Duration = Duration::from_millis(2);
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// The asker.
#[derive(Debug)]
pub(crate) struct Probe {
    address: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

impl Probe {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// One GET.
    pub(crate) fn get(&mut self, path: &str) -> Result<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect_timeout(&self.address, ANSWER)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER))?;
                BufReader::new(stream)
            }
        };
        write!(connection.get_mut(), "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address)?;
        let mut line = String::new();
        connection.read_line(&mut line)?;
        let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let code = code.with_context(|| format!("{path}: `{}` is no status line", line.trim()))?;
        let mut length = None;
        loop {
            line.clear();
            ensure!(connection.read_line(&mut line)? > 0, "{path}: the answer ended in its head");
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = Some(value.trim().parse()?);
            }
        }
        let mut body = vec![0; length.with_context(|| format!("{path}: an answer without content-length"))?];
        connection.read_exact(&mut body)?;
        self.connection = Some(connection);
        Ok(Answer { code, body })
    }

    /// Asks until the answer is `wanted`; gives the moment at which that answer was there.
    pub(crate) fn until(&mut self, path: &str, limit: Duration, wanted: impl Fn(&Answer) -> bool) -> Result<Instant> {
        let begun = Instant::now();
        let mut last = String::new();
        while begun.elapsed() < limit {
            match self.get(path) {
                Ok(answer) if wanted(&answer) => return Ok(Instant::now()),
                Ok(answer) => last = format!("{} {}", answer.code, String::from_utf8_lossy(&answer.body)),
                Err(error) => last = format!("{error:#}"),
            }
            thread::sleep(POLL);
        }
        bail!("GET {path} was not as expected within {limit:?}; the last answer: {last}")
    }
}
