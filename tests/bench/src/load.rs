//! A closed loop of keep-alive requests: every connection has exactly one in flight.

use anyhow::{Context as _, Result, ensure};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Answers per second.
    pub(crate) rate: f64,
    /// How long each took.
    pub(crate) latencies: Vec<Duration>,
}

/// Puts load on `/readiness` for a while. Every answer must have the status `code`.
pub(crate) fn run(address: SocketAddr, connections: usize, time: Duration, code: u16) -> Result<Load> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for stream in streams {
            tasks.spawn(ask(stream, begun + time, code));
        }
        let mut latencies = Vec::new();
        while let Some(done) = tasks.join_next().await {
            latencies.append(&mut done??);
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
        Ok(Load { rate, latencies })
    })
}

async fn ask(mut stream: TcpStream, until: Instant, code: u16) -> Result<Vec<Duration>> {
    let wanted = format!("HTTP/1.1 {code} ").into_bytes();
    let mut latencies = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let sent = Instant::now();
        if sent >= until {
            return Ok(latencies);
        }
        stream.write_all(b"GET /readiness HTTP/1.1\r\nhost: bench\r\n\r\n").await?;
        let mut filled = 0;
        while answer_length(&buffer[..filled])?.is_none_or(|length| filled < length) {
            ensure!(filled < buffer.len(), "an answer is larger than {} bytes", buffer.len());
            let read = stream.read(&mut buffer[filled..]).await?;
            ensure!(read > 0, "the server closed a connection");
            filled += read;
        }
        latencies.push(sent.elapsed());
        ensure!(
            buffer.starts_with(&wanted),
            "not {code}: {}",
            String::from_utf8_lossy(&buffer[..filled]).lines().next().unwrap_or_default()
        );
    }
}

/// The length of head and body; `None` while the head is not complete.
fn answer_length(text: &[u8]) -> Result<Option<usize>> {
    let Some(head) = text.windows(4).position(|end| end == b"\r\n\r\n") else { return Ok(None) };
    let length = std::str::from_utf8(&text[..head])?.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Ok(Some(head + 4 + length.context("an answer without content-length")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_it_says() -> Result<()> {
        assert_eq!(answer_length(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n")?, None);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(answer_length(head)?, Some(head.len() + 3));
        assert!(answer_length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        Ok(())
    }
}
