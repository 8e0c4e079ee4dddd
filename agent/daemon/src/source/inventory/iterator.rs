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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Seek as _, Write as _};
    use storewatch_ebpf_common::{ABI_VERSION, config::Offsets};

    fn read_bytes(bytes: &[u8]) -> Result<Reading, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        read(file, &Decoder::new(&Offsets::NONE), Ticks::default())
    }

    /// Records of this version that are zero but for their socket and their port.
    fn records(sockets: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; RECORD * sockets.len()];
        for (record, socket) in bytes.chunks_exact_mut(RECORD).zip(sockets) {
            let mut put = |at: usize, value: &[u8]| record[at..at + value.len()].copy_from_slice(value);
            put(std::mem::offset_of!(RawSocket, socket), &socket.to_ne_bytes());
            put(std::mem::offset_of!(RawSocket, abi), &ABI_VERSION.to_ne_bytes());
            put(std::mem::offset_of!(RawSocket, state), &[1]);
            put(std::mem::offset_of!(RawSocket, remote_port), &8500_u16.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn whole_records_are_sockets_and_each_socket_is_one() {
        let reading = read_bytes(&records(&[1, 2, 1])).unwrap();
        assert_eq!(reading.sample.sockets.len(), 2);
        assert!(reading.sample.complete && reading.shortfall.is_empty());
    }

    proptest! {
        /// Cut anywhere, or of another version at any place: an error that names it, never half an inventory.
        #[test]
        fn a_damaged_inventory_is_refused_by_name(count in 1_usize..300, at in any::<prop::sample::Index>(), version in any::<u16>(), cut in any::<bool>()) {
            let sockets: Vec<u64> = (1..=count as u64).collect();
            let mut bytes = records(&sockets);
            if cut {
                bytes.truncate(at.index(bytes.len()));
                let whole = bytes.len().is_multiple_of(RECORD);
                match read_bytes(&bytes) {
                    Ok(reading) => prop_assert!(whole && reading.sample.sockets.len() == bytes.len() / RECORD),
                    Err(why) => prop_assert!(!whole && why.contains("ended within a record"), "{}", why),
                }
            } else if version != ABI_VERSION {
                let place = at.index(count) * RECORD + std::mem::offset_of!(RawSocket, abi);
                bytes[place..place + 2].copy_from_slice(&version.to_ne_bytes());
                let why = read_bytes(&bytes).unwrap_err();
                prop_assert!(why.contains(&format!("ABI version {version}")), "{}", why);
            }
        }

        #[test]
        fn any_bytes_give_an_inventory_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..4 * RECORD)) {
            let _ = read_bytes(&bytes);
        }
    }
}
