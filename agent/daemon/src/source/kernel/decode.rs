//! Bytes from the kernel to the core's types. Total: every input gives a value or an error that says what is wrong.

use std::{
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};
use storewatch_core::{
    connection::{
        ConnectionChange, ConnectionEvent, Counted, KernelEvidence, SocketId, SocketOwner, SocketSample, TcpState,
    },
    id::{CgroupId, NetnsId},
    time::MonoTime,
};
use storewatch_ebpf_common::{
    ABI_VERSION,
    config::{MISSING, Offsets},
    counters::{Count, CountKey, kind},
    event::RawEvent,
    evidence as bits,
    socket::{FIN_RECEIVED, OWN, RawSocket},
};

use super::ticks::Ticks;

#[cfg(test)]
mod tests;

/// `icsk_pending`: the retransmission timer.
const TIMER_RETRANSMIT: u8 = 1;

/// Why a record is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not one record.
    #[error("a record has {0} bytes, {1} expected")]
    Length(usize, usize),
    /// Written by other programs than this agent was built with.
    #[error("a record has ABI version {0}, {ABI_VERSION} expected")]
    Abi(u16),
    /// An unknown kind.
    #[error("a record has the unknown kind {0}")]
    Kind(u8),
    /// No TCP state.
    #[error("a record has the unknown TCP state {0}")]
    State(u8),
    /// Bits without a meaning are set.
    #[error("evidence {0:#018x} has unknown bits")]
    Evidence(u64),
    /// A time beyond any uptime.
    #[error("{0} is no time")]
    Time(u64),
    /// A port that cannot be dialled.
    #[error("a record has remote port 0")]
    Port,
}

/// Knows what this kernel tells at all, so that an absent field is not taken for a zero.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    bytes_received: bool,
    bytes_acked: bool,
    srtt: bool,
    total_retrans: bool,
    reset_reason: bool,
    last_received: bool,
    last_sent: bool,
}

impl Decoder {
    /// For a kernel with these fields.
    pub fn new(offsets: &Offsets) -> Self {
        let known = |offset: u32| offset != MISSING;
        Self {
            bytes_received: known(offsets.bytes_received),
            bytes_acked: known(offsets.bytes_acked),
            srtt: known(offsets.srtt_us),
            total_retrans: known(offsets.total_retrans),
            reset_reason: offsets.send_reset_args >= 3,
            last_received: known(offsets.lrcvtime),
            last_sent: known(offsets.lsndtime),
        }
    }

    /// One record of the ring buffer.
    ///
    /// # Errors
    /// When it is not a record of this ABI, or holds a value without a meaning.
    pub fn event(&self, bytes: &[u8]) -> Result<ConnectionEvent, DecodeError> {
        let raw: RawEvent = plain(bytes)?;
        abi(raw.abi)?;
        let at = time(raw.at)?;
        let begun = some_time(raw.begun)?;
        let evidence = KernelEvidence { retransmits: raw.retransmits, ..evidence(raw.evidence)? };
        let what = match raw.kind {
            kind::BEGUN => ConnectionChange::Begun,
            kind::ESTABLISHED => ConnectionChange::Established { begun },
            kind::FAILED => ConnectionChange::Failed { begun, evidence },
            kind::ENDED => ConnectionChange::Ended {
                begun,
                evidence,
                bytes_received: self
                    .bytes_received
                    .then(|| payload(raw.bytes_received, raw.evidence & bits::FIN_RECEIVED != 0)),
            },
            kind::RESET_RECEIVED => ConnectionChange::ResetReceived { state: state(raw.state)? },
            kind::RESET_SENT => ConnectionChange::ResetSent {
                state: Some(state(raw.state)?),
                reason: self.reset_reason.then_some(byte(raw.evidence, bits::RESET_REASON_SHIFT)),
            },
            kind::RETRANSMIT => ConnectionChange::Retransmit { state: state(raw.state)?, count: raw.retransmits },
            kind::ERROR => ConnectionChange::ErrorReported {
                errno: u16::from(byte(raw.evidence, bits::REPORTED_SHIFT)),
                state: state(raw.state)?,
            },
            other => return Err(DecodeError::Kind(other)),
        };
        Ok(ConnectionEvent {
            at,
            socket: SocketId(raw.socket),
            owner: owner(raw.cgroup, raw.netns, raw.tgid),
            local: address(raw.local, raw.local_port),
            remote: remote(raw.remote, raw.remote_port)?,
            rtt: self.rtt(raw.srtt_us),
            retransmits_total: self.total_retrans.then_some(raw.total_retrans),
            what,
        })
    }

    /// One record of the inventory; `None` for a socket of the agent itself.
    ///
    /// # Errors
    /// When it is not a record of this ABI, or holds a value without a meaning.
    pub fn socket(&self, bytes: &[u8], ticks: &Ticks) -> Result<Option<SocketSample>, DecodeError> {
        let raw: RawSocket = plain(bytes)?;
        abi(raw.abi)?;
        if raw.flags & OWN != 0 {
            return Ok(None);
        }
        let at = time(raw.at)?;
        let state = state(raw.state)?;
        // Before the handshake nothing was sent or received, and both counters are 0: that is no time.
        let used = state != TcpState::SynSent;
        let ago = |then: u32| ticks.ago(raw.jiffies, then).filter(|_| used).map(|ago| at - ago);
        // While connecting, the SYN is what is unanswered; it is no data.
        let unanswered = if state == TcpState::SynSent { 0 } else { u64::from(raw.unanswered) };
        Ok(Some(SocketSample {
            socket: SocketId(raw.socket),
            owner: owner(raw.cgroup, raw.netns, raw.tgid),
            local: address(raw.local, raw.local_port),
            remote: remote(raw.remote, raw.remote_port)?,
            state,
            bytes_received: self.bytes_received.then(|| payload(raw.bytes_received, raw.flags & FIN_RECEIVED != 0)),
            // The SYN of an active open counts as one.
            bytes_acked: self.bytes_acked.then(|| raw.bytes_acked.saturating_sub(1)),
            unanswered,
            retransmits: raw.retransmits,
            retransmits_total: self.total_retrans.then_some(raw.total_retrans),
            retransmitting: raw.pending == TIMER_RETRANSMIT,
            rtt: self.rtt(raw.srtt_us),
            last_received: self.last_received.then(|| ago(raw.last_received)).flatten(),
            last_sent: self.last_sent.then(|| ago(raw.last_sent)).flatten(),
        }))
    }

    /// 0 before the first measurement.
    fn rtt(&self, micros: u32) -> Option<Duration> {
        (self.srtt && micros > 0).then(|| Duration::from_micros(u64::from(micros)))
    }
}

/// One counter: whose (`None` for a sum), the address, and what; `Ok(None)` for a kind that the core does not count.
///
/// # Errors
/// When the key holds a value without a meaning.
pub fn count_key(key: &CountKey, sum: bool) -> Result<Option<(Option<SocketOwner>, SocketAddr, Counted)>, DecodeError> {
    let what = match key.kind {
        kind::BEGUN => Counted::Begun,
        kind::ESTABLISHED => Counted::Established,
        kind::FAILED => Counted::Failed(evidence(key.evidence)?),
        kind::ENDED => Counted::Ended(evidence(key.evidence)?),
        kind::RESET_RECEIVED => Counted::ResetsReceived,
        kind::RESET_SENT => Counted::ResetsSent,
        kind::RETRANSMIT => Counted::Retransmits,
        kind::ERROR => return Ok(None),
        other => return Err(DecodeError::Kind(other)),
    };
    let owner = (!sum).then(|| owner(key.cgroup, key.netns, 0));
    Ok(Some((owner, remote(key.remote, key.port)?, what)))
}

/// What all CPUs counted, as one.
pub fn sum(counts: &[Count]) -> Count {
    counts.iter().fold(Count::ZERO, |sum, count| Count {
        count: sum.count.saturating_add(count.count),
        first: if sum.first == 0 || (count.first != 0 && count.first < sum.first) { count.first } else { sum.first },
        last_begun: sum.last_begun.max(count.last_begun),
        last_ended: sum.last_ended.max(count.last_ended),
        ..Count::ZERO
    })
}

/// The packed evidence.
///
/// # Errors
/// When bits without a meaning are set, or the state is none.
pub fn evidence(word: u64) -> Result<KernelEvidence, DecodeError> {
    if word & !bits::KNOWN != 0 {
        return Err(DecodeError::Evidence(word));
    }
    let flag = |bit: u64| word & bit != 0;
    let from = (word >> bits::FROM_SHIFT & 15) as u8;
    Ok(KernelEvidence {
        from: if from == 0 { None } else { Some(state(from)?) },
        error: u16::from(byte(word, bits::ERROR_SHIFT)),
        soft_error: u16::from(byte(word, bits::SOFT_SHIFT)),
        reported: flag(bits::REPORTED).then(|| u16::from(byte(word, bits::REPORTED_SHIFT))),
        retransmits: (word >> bits::RETRANSMITS_SHIFT & 3) as u8,
        no_source_port: flag(bits::NO_SOURCE_PORT),
        in_process: flag(bits::IN_PROCESS),
        reset_received: flag(bits::RESET_RECEIVED),
        reset_sent: flag(bits::RESET_SENT).then(|| byte(word, bits::RESET_REASON_SHIFT)),
        unanswered: flag(bits::UNANSWERED),
    })
}

/// A kernel time.
///
/// # Errors
/// When it does not fit.
pub fn time(nanos: u64) -> Result<MonoTime, DecodeError> {
    i64::try_from(nanos).map(MonoTime::from_nanos).map_err(|_| DecodeError::Time(nanos))
}

/// A kernel time where 0 is none.
///
/// # Errors
/// When it does not fit.
pub fn some_time(nanos: u64) -> Result<Option<MonoTime>, DecodeError> {
    if nanos == 0 { Ok(None) } else { time(nanos).map(Some) }
}

/// The kernel counts a FIN as a byte.
fn payload(bytes: u64, fin: bool) -> u64 {
    bytes.saturating_sub(u64::from(fin))
}

fn plain<T: aya::Pod>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() != size_of::<T>() {
        return Err(DecodeError::Length(bytes.len(), size_of::<T>()));
    }
    // SAFETY: the length fits, any bytes are a value of a `Pod`, and the read does not ask for alignment.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

fn abi(version: u16) -> Result<(), DecodeError> {
    if version == ABI_VERSION { Ok(()) } else { Err(DecodeError::Abi(version)) }
}

fn state(number: u8) -> Result<TcpState, DecodeError> {
    TcpState::try_from(number).map_err(DecodeError::State)
}

fn byte(word: u64, shift: u32) -> u8 {
    (word >> shift & 0xff) as u8
}

fn owner(cgroup: u64, netns: u32, tgid: u32) -> SocketOwner {
    SocketOwner {
        cgroup: (cgroup != 0).then_some(CgroupId(cgroup)),
        netns: (netns != 0).then_some(NetnsId(netns)),
        pid: (tgid != 0).then_some(tgid),
    }
}

fn address(ip: [u8; 16], port: u16) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
}

fn remote(ip: [u8; 16], port: u16) -> Result<SocketAddr, DecodeError> {
    if port == 0 { Err(DecodeError::Port) } else { Ok(address(ip, port)) }
}
