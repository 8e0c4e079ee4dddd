//! The configuration: raw YAML in, validated [`Config`] out, every mistake at once.
//!
//! ```text
//! file ──► tree (with line numbers) ◄── environment ◄── --set
//!            └──► read ──► Config, or all Mistakes
//! ```
//! The tree is read by hand and not by a derive, because a derive stops at the first mistake and an operator wants the
//! whole list, each with its key, its value, the rule and the place where it stands.

mod effective;
mod error;
mod keys;
mod model;
mod overrides;
mod read;
pub(crate) mod section;
mod selector;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod value;

pub use error::{Mistake, Mistakes};
pub use model::{
    Cluster, Config, HealingMode, Kernel, KernelMode, Kubernetes, Listen, Log, LogFormat, LogLevel, Ping, PodSource,
    Pods, Verdict,
};
pub use selector::{Selector, SelectorError};
pub use value::duration as show_duration;

use std::{ffi::OsString, path::Path};

/// A configuration is written by hand; one that is larger is not one.
const MAX_BYTES: u64 = 1 << 20;

/// What the configuration depends on besides the file.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Environment variables: `STOREWATCH_*` override keys, `NODE_NAME` is the default of `node`.
    pub environment: Vec<(OsString, OsString)>,
    /// `--set key=value`, in the order given.
    pub sets: Vec<String>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process(sets: Vec<String>) -> Self {
        Self { environment: std::env::vars_os().collect(), sets }
    }
}

/// Reads the file, applies the overrides and validates the whole.
///
/// # Errors
/// Every mistake of the file and of the overrides at once; an unreadable file is one mistake.
pub fn load(path: &Path, surroundings: &Surroundings) -> Result<Config, Mistakes> {
    let place = path.display().to_string();
    match tree::read_file(path, MAX_BYTES) {
        Ok(text) => parse(&text, &place, surroundings),
        Err(reason) => Err(Mistakes::one(Mistake::of_file(&place, reason))),
    }
}

/// The same on a text; `place` stands for the file's name in mistakes.
///
/// # Errors
/// Every mistake at once.
pub fn parse(text: &str, place: &str, surroundings: &Surroundings) -> Result<Config, Mistakes> {
    let found = section::Found::new(place);
    let mut root = match tree::parse(text) {
        Ok(root) => root,
        Err(error) => return Err(Mistakes::one(Mistake::of_syntax(place, &error))),
    };
    overrides::apply(&mut root, surroundings, &found);
    if !matches!(root.value, tree::Value::Map(_)) {
        // What the sections lack is no news then.
        let rule =
            if root.value == tree::Value::Null { "the file is empty" } else { "must be a mapping of keys to values" };
        return Err(Mistakes::one(Mistake::of_file(place, rule.to_owned())));
    }
    let config = read::config(&root, surroundings, &found);
    found.into_result(config)
}
