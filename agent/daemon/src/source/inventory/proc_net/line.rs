//! One line of `/proc/net/tcp` or `tcp6`. Total: any bytes give a socket or an error.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use storewatch_core::connection::TcpState;

/// `timer_active`: retransmission.
const TIMER_RETRANSMIT: u8 = 1;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Own address.
    pub local: SocketAddr,
    /// The peer's address, port 0 for a listener.
    pub remote: SocketAddr,
    /// State.
    pub state: TcpState,
    /// Bytes not acknowledged.
    pub queued: u64,
    /// The retransmission timer runs.
    pub retransmitting: bool,
    /// Retransmissions in a row.
    pub retransmits: u8,
    /// Inode of the socket; 0 when no process holds it.
    pub inode: u64,
}

/// Why a line is refused: the column that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {0} is missing or no valid value")]
pub struct LineError(pub &'static str);

impl Line {
    /// Reads one line.
    ///
    /// # Errors
    /// When a column is missing or wrong.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let line = std::str::from_utf8(line).map_err(|_| LineError("sl"))?;
        let mut columns = line.split_ascii_whitespace();
        let mut next = |name| columns.next().ok_or(LineError(name));
        next("sl")?;
        let local = address(next("local_address")?).ok_or(LineError("local_address"))?;
        let remote = address(next("rem_address")?).ok_or(LineError("rem_address"))?;
        let state = hex_u8(next("st")?).and_then(|number| TcpState::try_from(number).ok()).ok_or(LineError("st"))?;
        let (sent, _) = pair(next("tx_queue:rx_queue")?).ok_or(LineError("tx_queue:rx_queue"))?;
        let (timer, _) = pair(next("tr:tm->when")?).ok_or(LineError("tr:tm->when"))?;
        let retransmits = hex(next("retrnsmt")?).ok_or(LineError("retrnsmt"))?;
        next("uid")?;
        next("timeout")?;
        let inode = next("inode")?.parse().map_err(|_| LineError("inode"))?;
        Ok(Self {
            local,
            remote,
            state,
            queued: sent,
            retransmitting: timer == u64::from(TIMER_RETRANSMIT),
            retransmits: u8::try_from(retransmits).unwrap_or(u8::MAX),
            inode,
        })
    }

    /// A listener, or a handshake that a peer began.
    pub fn is_server(&self) -> bool {
        matches!(self.state, TcpState::Listen | TcpState::SynRecv | TcpState::NewSynRecv)
    }

    /// Data bytes without an answer; a SYN is none.
    pub fn unanswered(&self) -> u64 {
        if self.state == TcpState::SynSent { 0 } else { self.queued }
    }
}

/// `0100007F:2134`: each 32-bit word of the address in the machine's byte order, the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    if port.len() != 4 || !ip.is_ascii() {
        return None;
    }
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| {
        let digits = ip.get(index * 8..index * 8 + 8)?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (index, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(index)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn pair(text: &str) -> Option<(u64, u64)> {
    let (a, b) = text.split_once(':')?;
    Some((hex(a)?, hex(b)?))
}

fn hex(text: &str) -> Option<u64> {
    // `from_str_radix` would take a sign.
    text.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(text, 16).ok())?
}

fn hex_u8(text: &str) -> Option<u8> {
    hex(text).and_then(|value| u8::try_from(value).ok())
}
