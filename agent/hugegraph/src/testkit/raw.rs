//! Servers that are none: bytes written by hand.

use std::io;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// What stands on the port instead of a gRPC server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Answers the HTTP/2 preface as a web server of the old kind does.
    Http1,
    /// Answers it with a TLS alert.
    Tls,
    /// HTTP/2 that ends the connection at the first request.
    GoAway,
    /// HTTP/2 whose trailers never end.
    EndlessTrailers,
    /// HTTP/2 whose message never ends.
    EndlessMessage,
    /// Accepts and closes.
    Closes,
}

/// Speaks it to one client until either side ends.
pub(super) async fn speak(stream: TcpStream, protocol: Protocol) {
    // How it ends is the client's business.
    let _ = try_speak(stream, protocol).await;
}

async fn try_speak(mut stream: TcpStream, protocol: Protocol) -> io::Result<()> {
    let mut sink = [0; 4096];
    match protocol {
        Protocol::Closes => return Ok(()),
        Protocol::Http1 => {
            stream.read_exact(&mut [0; 24]).await?;
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await?;
        }
        Protocol::Tls => {
            stream.read_exact(&mut [0; 24]).await?;
            // Alert, TLS 1.2, fatal, unexpected_message.
            stream.write_all(&[0x15, 3, 3, 0, 2, 2, 10]).await?;
        }
        Protocol::GoAway => {
            stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
            until_headers(&mut stream).await?;
            let mut payload = vec![0, 0, 0, 0, 0, 0, 0, ENHANCE_YOUR_CALM];
            payload.extend_from_slice(b"too_many_pings");
            stream.write_all(&frame(GOAWAY, 0, 0, &payload)).await?;
        }
        Protocol::EndlessTrailers => {
            begin_answer(&mut stream).await?;
            stream.write_all(&frame(DATA, 0, 1, &[0, 0, 0, 0, 0])).await?;
            let mut block = Vec::new();
            for number in 0..100 {
                literal(&mut block, &format!("x-trailer-{number}"), "again and again and again");
            }
            stream.write_all(&frame(HEADERS, END_STREAM, 1, &block)).await?;
            loop {
                stream.write_all(&frame(CONTINUATION, 0, 1, &block)).await?;
            }
        }
        Protocol::EndlessMessage => {
            begin_answer(&mut stream).await?;
            // The length that is announced is allowed; what follows is longer.
            stream.write_all(&frame(DATA, 0, 1, &[0, 0, 0, 0, 4])).await?;
            let (mut reading, mut writing) = stream.into_split();
            let part = frame(DATA, 0, 1, &[0; 8192]);
            // The client's windows are ignored: a broken server does that too.
            tokio::select! {
                result = async { loop { writing.write_all(&part).await? } } => return result,
                result = async { while reading.read(&mut sink).await? > 0 {} io::Result::Ok(()) } => return result,
            }
        }
    }
    // Reading on, so that closing sends a FIN and not a RST that could overtake what was written.
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u8 = 11;

/// One HTTP/2 frame. Every payload here is far below the 16 KiB that need no negotiation.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A header field without index and without Huffman coding; both texts shorter than 127 bytes.
fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        block.push(u8::try_from(text.len()).unwrap_or_default());
        block.extend_from_slice(text.as_bytes());
    }
}

async fn begin_answer(stream: &mut TcpStream) -> io::Result<()> {
    // `:status 200` stands in HPACK's static table at 8.
    const STATUS_200: u8 = 0x88;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    until_headers(stream).await?;
    stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
    let mut block = vec![STATUS_200];
    literal(&mut block, "content-type", "application/grpc");
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &block)).await
}

/// Reads the client's preface and frames up to its first request.
async fn until_headers(stream: &mut TcpStream) -> io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await?;
        if header[3] == HEADERS {
            return Ok(());
        }
    }
}
