//! The exact counters: growth since the last reading.

use aya::maps::{MapData, MapError, PerCpuHashMap};
use std::{collections::HashMap, time::Duration};
use storewatch_core::{connection::AttemptCount, time::MonoTime};
use storewatch_ebpf_common::counters::{Count, CountKey};

use super::decode::{self, DecodeError};

/// A key that has not grown for this long gives its place back.
const IDLE: Duration = Duration::from_secs(600);
/// The same where a map is nearly full: whoever dials thousands of addresses once must not take the others' room for long.
const IDLE_CROWDED: Duration = Duration::from_secs(10);
/// The same for keys of selected pods while there is room: their history costs nothing.
const IDLE_SELECTED: Duration = Duration::from_secs(2 * 3600);

/// One map of counters.
struct Table {
    map: PerCpuHashMap<MapData, CountKey, Count>,
    capacity: usize,
    sum: bool,
    idle: Duration,
    known: HashMap<CountKey, Seen>,
}

#[derive(Clone, Copy)]
struct Seen {
    count: u64,
    first: u64,
    last_ended: u64,
}

/// The three maps of counters.
pub struct Counters {
    tables: [Table; 3],
}

/// What one reading gave.
#[derive(Debug, Default)]
pub struct Reading {
    /// What grew.
    pub counts: Vec<AttemptCount>,
    /// Keys that could not be decoded, with the first reason.
    pub refused: Option<(u64, DecodeError)>,
    /// A map could not be read to its end.
    pub failed: Option<String>,
}

impl Counters {
    /// Over the maps of selected sockets, of others, and of sums.
    pub fn new(
        selected: PerCpuHashMap<MapData, CountKey, Count>,
        other: PerCpuHashMap<MapData, CountKey, Count>,
        sums: PerCpuHashMap<MapData, CountKey, Count>,
        capacities: [usize; 3],
    ) -> Self {
        let table = |map, capacity, sum, idle| Table { map, capacity, sum, idle, known: HashMap::new() };
        let [a, b, c] = capacities;
        Self {
            tables: [
                table(selected, a, false, IDLE_SELECTED),
                table(other, b, false, IDLE),
                table(sums, c, true, IDLE_SELECTED),
            ],
        }
    }

    /// Reads all and tells what grew since the last time.
    pub fn read(&mut self) -> Reading {
        let mut reading = Reading::default();
        for table in &mut self.tables {
            table.read(&mut reading);
        }
        reading
    }

    /// Makes room where a map is nearly full.
    pub fn relieve(&mut self, now: MonoTime) {
        for table in self.tables.iter_mut().filter(|table| table.crowded()) {
            table.prune(now);
        }
    }

    /// Gives back the places of keys that have long been idle, sooner where a map fills up. A count that falls between the
    /// last look and the removal would be lost; after ten idle minutes that is one in billions, and a map that
    /// is full loses more.
    pub fn prune(&mut self, now: MonoTime) {
        for table in &mut self.tables {
            table.prune(now);
        }
    }
}

impl Table {
    fn read(&mut self, reading: &mut Reading) {
        for entry in self.map.iter() {
            let (key, counts) = match entry {
                Ok(entry) => entry,
                // Removed while reading.
                Err(MapError::KeyNotFound) => continue,
                Err(error) => {
                    reading.failed.get_or_insert_with(|| error.to_string());
                    break;
                }
            };
            let total = decode::sum(&counts);
            let seen = self.known.get(&key);
            // A key that was removed and made anew starts from zero.
            let before = seen.filter(|seen| seen.first == total.first).map_or(0, |seen| seen.count);
            let added = total.count.saturating_sub(before);
            if added == 0 {
                continue;
            }
            self.known.insert(key, Seen { count: total.count, first: total.first, last_ended: total.last_ended });
            match attempt(&key, self.sum, &total, added) {
                Ok(Some(count)) => reading.counts.push(count),
                Ok(None) => {}
                Err(error) => reading.refused.get_or_insert((0, error)).0 += added,
            }
        }
    }

    fn crowded(&self) -> bool {
        self.known.len() * 4 > self.capacity * 3
    }

    fn prune(&mut self, now: MonoTime) {
        let idle = if self.crowded() { IDLE_CROWDED } else { self.idle };
        let Self { map, known, .. } = self;
        known.retain(|key, seen| {
            let old = decode::time(seen.last_ended).is_ok_and(|ended| now.since(ended) > idle);
            // Kept when the removal fails, so that it is tried again.
            !old || !matches!(map.remove(key), Ok(()) | Err(MapError::KeyNotFound))
        });
    }
}

fn attempt(key: &CountKey, sum: bool, total: &Count, added: u64) -> Result<Option<AttemptCount>, DecodeError> {
    let Some((owner, remote, what)) = decode::count_key(key, sum)? else { return Ok(None) };
    Ok(Some(AttemptCount {
        owner,
        remote,
        what,
        added,
        last_begun: decode::some_time(total.last_begun)?,
        last_ended: decode::time(total.last_ended)?,
    }))
}
