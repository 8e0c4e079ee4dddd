//! The inventory: which client sockets towards watched ports exist right now, who holds them, and whether data flows.
//!
//! Events tell what changes; the inventory tells what was there before the agent, what sits idle, and what an event that got
//! lost would have told. It is read by the kernel's iterator over open files ([`iterator`]), or from `/proc`
//! ([`proc_net`]) where that is not possible. Reading happens on a blocking thread, one at a time.

use std::{fs::File, sync::Arc};
use storewatch_core::{
    connection::InventorySample,
    observation::Observation,
    source::{SourceName, SourceReport, SourceState},
};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    clock,
    observe::ObservationSender,
    source::kernel::{KernelHandle, decode::Decoder, ticks::Ticks},
};

pub mod iterator;
pub mod proc_net;

/// A reading that has ended; an error is one line.
pub type Finished = Result<Reading, String>;

/// One reading.
#[derive(Debug)]
pub struct Reading {
    /// The sockets.
    pub sample: InventorySample,
    /// What could not be read although it is there, in one line; empty when nothing.
    pub shortfall: String,
    /// What was learned about the kernel's ticks.
    pub ticks: Ticks,
}

/// How the inventory is read, and how it went last.
#[derive(Debug)]
pub struct Inventory {
    decoder: Option<Decoder>,
    ticks: Ticks,
    /// Why `/proc` is read instead of the iterator; empty when the iterator is.
    fallback: Arc<str>,
    state: SourceState,
    detail: Arc<str>,
}

impl Inventory {
    /// By the kernel's iterator.
    pub fn from_kernel(decoder: Decoder) -> Self {
        Self {
            decoder: Some(decoder),
            ticks: Ticks::default(),
            fallback: "".into(),
            state: SourceState::Active,
            detail: "".into(),
        }
    }

    /// From `/proc`, because of `reason`.
    pub fn from_proc(reason: Arc<str>) -> Self {
        let detail = fallback_detail(&reason);
        Self { decoder: None, ticks: Ticks::default(), fallback: reason, state: SourceState::Degraded, detail }
    }

    /// How it is.
    pub fn report(&self) -> SourceReport {
        SourceReport {
            source: SourceName::Inventory,
            at: clock::now(),
            state: self.state,
            detail: Arc::clone(&self.detail),
        }
    }

    /// Begins one reading.
    pub fn begin(&self, kernel: &KernelHandle, ports: &[u16]) -> JoinHandle<Finished> {
        let ports = ports.to_vec();
        let opened: Result<Option<(File, Decoder)>, String> = match self.decoder {
            Some(decoder) => kernel.open_inventory().map(|file| Some((file, decoder))),
            None => Ok(None),
        };
        let ticks = self.ticks;
        spawn_blocking(move || match opened {
            Ok(Some((file, decoder))) => iterator::read(file, &decoder, ticks),
            Ok(None) => Ok(proc_net::read(&ports, ticks)),
            // The iterator was there and no longer is; a reading of /proc is better than none.
            Err(error) => {
                let reading = proc_net::read(&ports, ticks);
                Ok(Reading { shortfall: format!("the kernel's iterator failed: {error}"), ..reading })
            }
        })
    }

    /// Tells what a reading gave, and how the inventory is. False when the engine has ended.
    pub async fn tell(&mut self, finished: Finished, observations: &ObservationSender) -> bool {
        let sample = match finished {
            Ok(Reading { sample, shortfall, ticks }) => {
                self.ticks = ticks;
                let mut parts = Vec::new();
                if self.decoder.is_none() {
                    parts.push(fallback_detail(&self.fallback).to_string());
                }
                if !shortfall.is_empty() {
                    parts.push(shortfall);
                }
                self.state = if parts.is_empty() { SourceState::Active } else { SourceState::Degraded };
                self.detail = parts.join("; ").into();
                Some(sample)
            }
            Err(error) => {
                self.state = SourceState::Absent;
                self.detail = error.into();
                None
            }
        };
        if let Some(sample) = sample
            && observations.send(Observation::Inventory(sample)).await.is_err()
        {
            return false;
        }
        observations.send(Observation::Source(self.report())).await.is_ok()
    }
}

fn fallback_detail(reason: &str) -> Arc<str> {
    format!("read from /proc, without byte counts and idle times: {reason}").into()
}
