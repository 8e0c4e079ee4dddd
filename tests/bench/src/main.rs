//! The figures of the whole product on this machine, as one table.
//!
//! ```text
//! stage      the demo's node and cluster with the shipped binary in it
//! reactions  from a fault to the changed answer
//! telling    from a pod's dial to the admin side
//! requests   requests beside a bare handler      (bare, load)
//! kernel     what the programs cost              (bpf, connections)
//! footprint  memory and CPU
//! storm      dials that fail, twenty thousand a second
//! inventory  one reading of all sockets           (hold)
//! engine     the judge alone, on a large node
//! ```
//!
//! Whatever has a counterpart is compared with it within the run, in turns. A missed target is a row of the table; the exit
//! code says only whether everything could be measured.

mod bare;
mod bpf;
mod connections;
mod engine;
mod footprint;
mod hold;
mod inventory;
mod kernel;
mod load;
mod probe;
mod process;
mod reactions;
mod requests;
mod stage;
mod storm;
mod table;
mod telling;

use anyhow::{Context as _, Result, bail, ensure};
use stage::Stage;
use std::{env, path::PathBuf, process::ExitCode};
use storewatch::demo::world;
use table::Table;

const USAGE: &str =
    "usage: storewatch-bench --program STOREWATCH [reactions|telling|http|kernel|footprint|storm|inventory|engine]...";

/// A group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Reactions,
    Telling,
    Http,
    Kernel,
    Footprint,
    Storm,
    Inventory,
    Engine,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Reactions,
        Self::Telling,
        Self::Http,
        Self::Kernel,
        Self::Footprint,
        Self::Storm,
        Self::Inventory,
        Self::Engine,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Reactions => "reactions",
            Self::Telling => "telling",
            Self::Http => "http",
            Self::Kernel => "kernel",
            Self::Footprint => "footprint",
            Self::Storm => "storm",
            Self::Inventory => "inventory",
            Self::Engine => "engine",
        }
    }

    fn measure(self, stage: &mut Stage, table: &mut Table) -> Result<()> {
        match self {
            Self::Reactions => reactions::measure(stage, table),
            Self::Telling => telling::measure(stage, table),
            Self::Http => requests::measure(stage, table),
            Self::Kernel => kernel::measure(stage, table),
            Self::Footprint => footprint::measure(stage, table),
            Self::Storm => storm::measure(stage, table),
            // These two measure parts of the agent in processes of their own: a running one would only be in the way.
            Self::Inventory => stage.cluster.stop_agent().and_then(|()| inventory::measure(table)),
            Self::Engine => stage.cluster.stop_agent().and_then(|()| engine::measure(table)),
        }
    }
}

fn main() -> Result<ExitCode> {
    let mut arguments = env::args().skip(1).peekable();
    // The binary is also what it needs beside itself.
    let helper = arguments.peek().cloned().unwrap_or_default();
    let ran = match helper.as_str() {
        bare::COMMAND => Some(bare::run(arguments.by_ref().skip(1))),
        hold::COMMAND => Some(hold::run(arguments.by_ref().skip(1))),
        // As a part's name it comes after `--program`.
        engine::COMMAND => Some(engine::run()),
        _ => None,
    };
    if let Some(ran) = ran {
        return ran.map(|()| ExitCode::SUCCESS);
    }
    let mut program = None;
    let mut parts = Vec::new();
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), Part::ALL.into_iter().find(|part| part.name() == argument)) {
            ("--program", _) => program = Some(PathBuf::from(arguments.next().context(USAGE)?)),
            (_, Some(part)) => parts.push(part),
            _ => bail!("`{argument}`: {USAGE}"),
        }
    }
    let program = program.context(USAGE)?;
    let program = program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?;
    if parts.is_empty() {
        parts.extend(Part::ALL);
    }

    process::raise_open_files()?;
    world::enter_node()?;
    let mut stage = Stage::start(&program)?;
    let mut table = Table::new(process::machine(&program)?);
    for part in parts {
        // Each part has an agent of its own, so that none inherits what another one did to it.
        if let Err(error) = stage.fresh_agent().and_then(|()| part.measure(&mut stage, &mut table)) {
            // A fallen process explains more than what came of it.
            let fallen = stage.cluster.fallen().map(anyhow::Error::msg);
            table.failed(part.name(), &fallen.unwrap_or(error));
        }
    }
    table.print()?;
    ensure!(table.complete(), "not everything could be measured");
    Ok(ExitCode::SUCCESS)
}
