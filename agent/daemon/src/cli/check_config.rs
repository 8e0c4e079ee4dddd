//! `check-config`, and the reading of the configuration for `run`.

use super::{ConfigArgs, Exit, Failure, Output, exit::print};
use crate::config::{self, Config, Mistakes, PodSource, Surroundings};
use serde_json::json;
use std::{io, process::ExitCode};

/// The configuration, or all its mistakes.
pub(super) fn load(args: &ConfigArgs) -> Result<Config, Failure> {
    read(args).map_err(|mistakes| complaint(&mistakes))
}

fn read(args: &ConfigArgs) -> Result<Config, Mistakes> {
    config::load(&args.config, &Surroundings::of_process(args.sets.clone()))
}

pub(super) fn complaint(mistakes: &Mistakes) -> Failure {
    let mut lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    if mistakes.count() > 1 {
        lines.push(format!("storewatch: {} mistakes in the configuration", mistakes.count()));
    }
    Failure::mistakes(lines)
}

/// Prints the effective configuration, and as comments what of it has no effect; or all mistakes, those of the
/// pod list that it names included. A pod list that is not there yet is none: it may come while the agent runs.
pub(super) fn run(args: &ConfigArgs, output: Output, out: &mut dyn io::Write) -> Result<ExitCode, Failure> {
    let result = read(args);
    if let Ok(config) = &result {
        let lines = crate::source::pods::mistakes(config);
        if !lines.is_empty() {
            return pod_list(lines, output, out);
        }
    }
    match (output, result) {
        (Output::Table, Ok(config)) => {
            let notes: String = without_effect(&config).into_iter().map(|note| format!("# {note}\n")).collect();
            print(&format!("{notes}{}", config.to_yaml()), out)?;
        }
        (Output::Json, Ok(config)) => print(&format!("{:#}\n", config.to_json()), out)?,
        (Output::Table, Err(mistakes)) => return Err(complaint(&mistakes)),
        (Output::Json, Err(mistakes)) => {
            let list: Vec<_> = mistakes
                .iter()
                .map(|mistake| {
                    json!({"place": mistake.place, "key": mistake.key, "value": mistake.value, "rule": mistake.rule})
                })
                .collect();
            print(&format!("{:#}\n", json!({ "mistakes": list })), out)?;
            return Ok(Exit::Wrong.into());
        }
    }
    Ok(Exit::Done.into())
}

/// The mistakes of the pod list: its lines name file, line and key themselves.
fn pod_list(lines: Vec<String>, output: Output, out: &mut dyn io::Write) -> Result<ExitCode, Failure> {
    match output {
        Output::Table => Err(Failure::mistakes(lines)),
        Output::Json => {
            let list: Vec<_> = lines.iter().map(|line| json!({"key": "pods.file", "rule": line})).collect();
            print(&format!("{:#}\n", json!({ "mistakes": list })), out)?;
            Ok(Exit::Wrong.into())
        }
    }
}

/// What is configured rightly and has no effect.
fn without_effect(config: &Config) -> Vec<String> {
    let missing = config.pods.source == PodSource::File && !config.pods.file.exists();
    let told = missing
        .then(|| format!("pods.file: {} is not there; until it is, no pod is judged", config.pods.file.display()));
    told.into_iter().chain(config.without_effect()).collect()
}
