//! From a fault of the Stores to the changed answer of `/readiness`, and back.

use crate::{stage::Stage, table::Table};
use anyhow::Result;
use nix::sys::signal::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};
use storewatch::demo::cluster::STORES;

const REPETITIONS: u32 = 5;
/// How long a reaction may take before it counts as none.
const LIMIT: Duration = Duration::from_secs(30);
/// Not a multiple of the agent's intervals, so that each repetition meets them in another phase.
const PHASE: Duration = Duration::from_millis(377);

/// Every time begins before the fault or its end is put in place, so what is measured is never shorter than the truth.
pub(crate) fn measure(stage: &mut Stage, table: &mut Table) -> Result<()> {
    let (mut killed, mut answering) = (Vec::new(), Vec::new());
    for repetition in 1..=REPETITIONS {
        settle(stage, repetition)?;
        let begun = Instant::now();
        for index in 0..STORES {
            stage.cluster.kill_store(index)?;
        }
        killed.push(changed(stage, 503)? - begun);
        let listening = stage.start_store(0)?;
        answering.push(changed(stage, 200)?.saturating_duration_since(listening));
        for index in 1..STORES {
            stage.start_store(index)?;
        }
    }
    table.times("all Stores killed -> 503", &killed, Some(Duration::from_millis(300)));

    let (mut silent, mut lifted) = (Vec::new(), Vec::new());
    for repetition in 1..=REPETITIONS {
        settle(stage, repetition)?;
        let begun = Instant::now();
        stage.silence()?;
        silent.push(changed(stage, 503)? - begun);
        let begun = Instant::now();
        stage.lift()?;
        lifted.push(changed(stage, 200)? - begun);
    }
    table.times("all Stores silent under pod traffic -> 503", &silent, Some(Duration::from_millis(2500)));

    let (mut frozen, mut thawed) = (Vec::new(), Vec::new());
    for repetition in 1..=REPETITIONS {
        settle(stage, repetition)?;
        let begun = Instant::now();
        stage.signal_stores(Signal::SIGSTOP)?;
        let noticed = changed(stage, 503);
        let continued = Instant::now();
        // Also where nothing was noticed: a stopped Store would spoil all that follows.
        stage.signal_stores(Signal::SIGCONT)?;
        frozen.push(noticed? - begun);
        thawed.push(changed(stage, 200)? - continued);
    }
    table.times("all Stores frozen -> 503", &frozen, Some(Duration::from_millis(4300)));
    table.times("a killed Store listens again -> 200", &answering, Some(Duration::from_millis(500)));
    table.times("the silence lifted -> 200", &lifted, Some(Duration::from_millis(1300)));
    table.times("the frozen continued -> 200", &thawed, None);
    Ok(())
}

fn settle(stage: &mut Stage, repetition: u32) -> Result<()> {
    stage.steady()?;
    thread::sleep(PHASE * repetition);
    Ok(())
}

fn changed(stage: &mut Stage, code: u16) -> Result<Instant> {
    stage.probe.until("/readiness", LIMIT, |answer| answer.code == code)
}
