//! Reads the records of the eBPF iterator: one call gives every client socket of the node, whatever its namespace.

use std::{
    collections::HashSet,
    fs::File,
    io::{ErrorKind, Read as _},
};
use storewatch_core::connection::{InventorySample, SocketId, SocketSample};
use storewatch_ebpf_common::socket::RawSocket;

use super::Reading;
use crate::{
    clock,
    source::kernel::{decode::Decoder, ticks::Ticks},
};

const RECORD: usize = size_of::<RawSocket>();
/// Sockets in one sample; beyond, the sample says that it is not complete.
const MOST_SOCKETS: usize = 200_000;
/// Room for one read: what the kernel gathers at once.
const BUFFER: usize = 64 * 1024;

/// Reads one inventory to its end.
///
/// # Errors
/// When the kernel refuses or writes what this agent does not understand.
pub fn read(mut file: File, decoder: &Decoder, mut ticks: Ticks) -> Result<Reading, String> {
    let at = clock::now();
    let mut sockets = Vec::new();
    let mut seen = HashSet::new();
    let mut buffer = vec![0; BUFFER];
    let mut held = 0;
    let mut complete = true;
    loop {
        let got = match file.read(&mut buffer[held..]) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The kernel asks to come back when it walked long without a hit.
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(format!("the inventory could not be read: {error}")),
        };
        held += got;
        let whole = held - held % RECORD;
        take(&buffer[..whole], decoder, &mut ticks, &mut seen, &mut sockets)?;
        buffer.copy_within(whole..held, 0);
        held -= whole;
        if sockets.len() >= MOST_SOCKETS {
            complete = false;
            break;
        }
    }
    if held != 0 {
        return Err(format!("the inventory ended within a record ({held} of {RECORD} bytes)"));
    }
    let shortfall = if complete { String::new() } else { format!("cut off at {MOST_SOCKETS} sockets") };
    Ok(Reading { sample: InventorySample { at, ended: clock::now(), complete, sockets }, shortfall, ticks })
}

fn take(
    bytes: &[u8],
    decoder: &Decoder,
    ticks: &mut Ticks,
    seen: &mut HashSet<SocketId>,
    sockets: &mut Vec<SocketSample>,
) -> Result<(), String> {
    for record in bytes.chunks_exact(RECORD) {
        if let (Some(at), Some(jiffies)) = (number(record, 0), number(record, 8)) {
            ticks.learn(jiffies, at);
        }
        match decoder.socket(record, ticks) {
            // Held by several processes, or under several numbers: one socket.
            Ok(Some(socket)) if seen.insert(socket.socket) => sockets.push(socket),
            Ok(_) => {}
            Err(error) => return Err(format!("the inventory holds what this agent does not understand: {error}")),
        }
    }
    Ok(())
}

fn number(record: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?))
}
