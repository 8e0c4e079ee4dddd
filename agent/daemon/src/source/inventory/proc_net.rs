//! The fallback: `/proc/<pid>/net/tcp` and `tcp6`, once per network namespace.
//!
//! It needs no capability beyond seeing other processes, knows no byte counts, and costs what the kernel's whole hash table
//! costs to walk; so the walk has budgets, and a sample that was cut short says so.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, ErrorKind, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};
use storewatch_core::{
    connection::{InventorySample, SocketId, SocketOwner, SocketSample},
    id::{CgroupId, NetnsId},
};

use super::Reading;
use crate::{clock, netns::cgroup, source::kernel::ticks::Ticks};

pub mod line;

#[cfg(test)]
mod tests;

use line::Line;

/// Bytes of all tables together.
const TABLE_BYTES: u64 = 64 << 20;
/// A line is 150 to 200 characters.
const LONGEST_LINE: u64 = 4096;
/// Sockets in one sample.
const MOST_SOCKETS: usize = 50_000;
/// Open files looked at to find who holds the sockets.
const MOST_FILES: usize = 500_000;

/// Reads the tables of every namespace below `/proc`.
pub fn read(ports: &[u16], ticks: Ticks) -> Reading {
    read_at(Path::new("/proc"), cgroup::root().as_deref(), ports, ticks)
}

struct Namespace {
    /// The process through which the tables are read.
    pid: u32,
    inum: Option<u32>,
    /// Its processes, in case that one ends meanwhile.
    pids: Vec<u32>,
}

struct Found {
    line: Line,
    netns: Option<u32>,
}

fn read_at(proc_root: &Path, cgroups: Option<&Path>, ports: &[u16], ticks: Ticks) -> Reading {
    let at = clock::now();
    let own = own(proc_root);
    let pids = pids(proc_root);
    let mut shortfall = Vec::new();
    let mut found = Vec::new();
    let mut budget = TABLE_BYTES;
    let mut broken = 0_u64;
    for namespace in namespaces(proc_root, &pids) {
        let tables = namespace.pids.iter().find_map(|pid| open(proc_root, *pid).map(|tables| (*pid, tables)));
        let Some((_, tables)) = tables else { continue };
        for table in tables {
            let mut take = |line: &[u8]| match Line::parse(line) {
                Ok(line) if ports.contains(&line.remote.port()) && !line.is_server() && line.inode != 0 => {
                    found.push(Found { line, netns: namespace.inum });
                    found.len() < MOST_SOCKETS
                }
                Ok(_) => true,
                Err(_) => {
                    broken += 1;
                    true
                }
            };
            if !lines(table, &mut budget, &mut take) {
                shortfall.push(format!("cut short in the namespace of process {}", namespace.pid));
            }
        }
        if budget == 0 {
            break;
        }
    }
    if broken > 0 {
        shortfall.push(format!("{broken} lines could not be read"));
    }
    let (owners, all_looked_at) = owners(proc_root, &pids, &found);
    if !all_looked_at {
        shortfall
            .push("not every process may be looked into, so some sockets are attributed by namespace only".to_owned());
    }
    let mut cgroup_ids = HashMap::new();
    let complete = budget > 0 && found.len() < MOST_SOCKETS;
    let sockets = found
        .into_iter()
        .filter(|found| owners.get(&found.line.inode) != Some(&own))
        .map(|Found { line, netns }| {
            let pid = owners.get(&line.inode).copied();
            let cgroup =
                pid.and_then(|pid| *cgroup_ids.entry(pid).or_insert_with(|| cgroup_of(proc_root, cgroups?, pid)));
            SocketSample {
                socket: SocketId(0),
                owner: SocketOwner { cgroup: cgroup.map(CgroupId), netns: netns.map(NetnsId), pid },
                local: line.local,
                remote: line.remote,
                state: line.state,
                bytes_received: None,
                bytes_acked: None,
                unanswered: line.unanswered(),
                retransmits: line.retransmits,
                retransmits_total: None,
                retransmitting: line.retransmitting,
                rtt: None,
                last_received: None,
                last_sent: None,
            }
        })
        .collect();
    let sample = InventorySample { at, ended: clock::now(), complete, sockets };
    Reading { sample, shortfall: shortfall.join("; "), ticks }
}

/// The agent's id as this `/proc` shows it, which may be that of another pid namespace.
fn own(proc_root: &Path) -> u32 {
    let link = fs::read_link(proc_root.join("self")).ok();
    link.and_then(|link| link.to_str()?.parse().ok()).unwrap_or_else(std::process::id)
}

fn pids(proc_root: &Path) -> Vec<u32> {
    let entries = fs::read_dir(proc_root).into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Processes by namespace. The inode of `net/tcp` tells namespaces apart and needs no right; the namespace's own number
/// needs the right to trace the process.
fn namespaces(proc_root: &Path, pids: &[u32]) -> Vec<Namespace> {
    let mut by_inode: HashMap<u64, usize> = HashMap::new();
    let mut namespaces: Vec<Namespace> = Vec::new();
    for pid in pids {
        let process = proc_root.join(pid.to_string());
        let Ok(table) = fs::metadata(process.join("net/tcp")) else { continue };
        let inum = || fs::metadata(process.join("ns/net")).ok().and_then(|meta| u32::try_from(meta.ino()).ok());
        match by_inode.get(&table.ino()) {
            Some(index) => {
                let namespace = &mut namespaces[*index];
                namespace.pids.push(*pid);
                if namespace.inum.is_none() {
                    namespace.inum = inum();
                }
            }
            None => {
                by_inode.insert(table.ino(), namespaces.len());
                namespaces.push(Namespace { pid: *pid, inum: inum(), pids: vec![*pid] });
            }
        }
    }
    namespaces
}

/// Both tables through one process; a kernel without IPv6 has one.
fn open(proc_root: &Path, pid: u32) -> Option<Vec<File>> {
    let net = proc_root.join(pid.to_string()).join("net");
    let first = File::open(net.join("tcp")).ok()?;
    Some(std::iter::once(first).chain(File::open(net.join("tcp6"))).collect())
}

/// Hands each line after the heading to `take` until it has enough. False when a budget cut it short.
fn lines(table: File, budget: &mut u64, take: &mut impl FnMut(&[u8]) -> bool) -> bool {
    let mut reader = BufReader::with_capacity(64 * 1024, table);
    let mut line = Vec::new();
    let mut heading = true;
    loop {
        line.clear();
        let limit = LONGEST_LINE.min(*budget);
        match reader.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) => return *budget > 0,
            Ok(got) => *budget -= (got as u64).min(*budget),
            // The process has ended: the table is as long as it got.
            Err(_) => return false,
        }
        if !std::mem::take(&mut heading) && !take(&line) {
            return false;
        }
    }
}

/// The process that holds each socket, and whether all could be looked into. The lowest pid wins.
fn owners(proc_root: &Path, pids: &[u32], found: &[Found]) -> (HashMap<u64, u32>, bool) {
    let mut wanted: std::collections::HashSet<u64> = found.iter().map(|found| found.line.inode).collect();
    let mut owners = HashMap::new();
    let mut files = 0;
    let mut complete = true;
    for pid in pids {
        if wanted.is_empty() {
            break;
        }
        let entries = match fs::read_dir(proc_root.join(pid.to_string()).join("fd")) {
            Ok(entries) => entries,
            // One that has ended meanwhile holds nothing.
            Err(error) => {
                complete &= error.kind() != ErrorKind::PermissionDenied;
                continue;
            }
        };
        for entry in entries.flatten() {
            files += 1;
            if files > MOST_FILES {
                return (owners, false);
            }
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let Some(inode) = target.to_str().and_then(socket_inode) else { continue };
            if wanted.remove(&inode) {
                owners.insert(inode, *pid);
            }
        }
    }
    (owners, complete || wanted.is_empty())
}

fn socket_inode(target: &str) -> Option<u64> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Inode of the cgroup v2 directory of a process.
fn cgroup_of(proc_root: &Path, cgroups: &Path, pid: u32) -> Option<u64> {
    let text = fs::read_to_string(proc_root.join(pid.to_string()).join("cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Seen from another cgroup namespace the path leads out of it: then it cannot be resolved.
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    fs::metadata(cgroups.join(path.trim_start_matches('/'))).ok().map(|meta| meta.ino())
}
