//! Environment variables and `--set` arguments, put into the tree before it is read.

use super::{
    Surroundings, keys,
    section::Found,
    tree::{self, Entry, Node, Origin, Value},
};
use std::sync::Arc;

const PREFIX: &str = "STOREWATCH_";

/// Variables with the prefix that are no keys: the client's address, and what the build reads.
const OTHERS: [&str; 3] = ["STOREWATCH_AGENT", "STOREWATCH_EBPF", "STOREWATCH_ALLOW_STUB"];

/// Deepest path that makes sense, with room: `clusters.0.pd_peers`.
const MAX_DEPTH: usize = 6;

/// Applies the environment first and `--set` second.
pub(super) fn apply(root: &mut Node, surroundings: &Surroundings, found: &Found) {
    let mut variables: Vec<_> =
        surroundings.environment.iter().filter(|(name, _)| name.to_string_lossy().starts_with(PREFIX)).collect();
    variables.sort();
    for (name, value) in variables {
        let name = name.to_string_lossy();
        let origin = Origin::Override(format!("environment {name}").into());
        let Some(path) = key_of(&name, &origin, found) else { continue };
        match value.to_str() {
            Some(value) => set(root, &path, value, &origin, found),
            None => found.about(Some(&origin), &path.join("."), "is not UTF-8 text"),
        }
    }
    for argument in &surroundings.sets {
        let origin = Origin::Override(Arc::from("--set"));
        match argument.split_once('=') {
            Some((path, value)) if !path.trim().is_empty() => {
                let path: Vec<String> = path.trim().split('.').map(str::to_owned).collect();
                set(root, &path, value, &origin, found);
            }
            _ => found.about(Some(&origin), argument, "must be KEY=VALUE, such as ping.interval=1s"),
        }
    }
}

/// The key that a variable stands for; `None` if it is none of ours. Kubernetes gives every container variables about
/// the Services of its namespace (`STOREWATCH_PORT_9465_TCP`), so an unknown name is a mistake only when it has the
/// double underscore, or when it is a key with that underscore forgotten.
fn key_of(name: &str, origin: &Origin, found: &Found) -> Option<Vec<String>> {
    let key = name.strip_prefix(PREFIX)?.to_lowercase();
    if OTHERS.contains(&name) {
        return None;
    }
    if key.contains("__") || keys::KEYS.contains(&key.as_str()) {
        return Some(key.split("__").map(str::to_owned).collect());
    }
    if let Some(meant) = keys::KEYS.iter().find(|meant| meant.contains('.') && meant.replace('.', "_") == key) {
        let right = format!("{PREFIX}{}", meant.to_uppercase().replace('.', "__"));
        found.about(Some(origin), meant, format!("keys are joined by two underscores; did you mean {right}?"));
    } else if let Some(inside) =
        keys::KEYS.iter().find(|inside| inside.split_once('.').is_some_and(|(section, _)| section == key))
    {
        let such = format!("{PREFIX}{}", inside.to_uppercase().replace('.', "__"));
        found.about(Some(origin), &key, format!("is a section and takes no value; its keys are such as {such}"));
    }
    None
}

fn set(root: &mut Node, path: &[String], text: &str, origin: &Origin, found: &Found) {
    let full = path.join(".");
    if path.len() > MAX_DEPTH || path.iter().any(String::is_empty) {
        found.about(Some(origin), &full, "is no key");
        return;
    }
    let node = match structured(text) {
        None => Node { value: Value::Untyped(text.to_owned()), origin: origin.clone() },
        Some(Ok(node)) => node.moved_to(origin),
        Some(Err(error)) => {
            found.about(Some(origin), &full, error.message);
            return;
        }
    };
    let mut place = root;
    for (depth, segment) in path.iter().enumerate() {
        if place.value == Value::Null {
            *place = Node { value: Value::Map(Vec::new()), origin: origin.clone() };
        }
        place = match &mut place.value {
            Value::Map(entries) => {
                let at = entries.iter().rposition(|entry| entry.key == *segment).unwrap_or_else(|| {
                    let node = Node { value: Value::Null, origin: origin.clone() };
                    entries.push(Entry { key: segment.clone(), origin: origin.clone(), node });
                    entries.len() - 1
                });
                &mut entries[at].node
            }
            Value::List(items) => {
                let count = items.len();
                match segment.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                    Some(item) => item,
                    None => {
                        let rule = format!("has {count} entries, counted from 0; {segment} is none of them");
                        found.about(Some(origin), &path[..depth].join("."), rule);
                        return;
                    }
                }
            }
            _ => {
                found.about(Some(origin), &full, format!("{} is a value, not a section", path[..depth].join(".")));
                return;
            }
        };
    }
    *place = node;
}

/// A value that is written as a YAML list or mapping. (`[::]:9465` is an address.)
fn structured(text: &str) -> Option<Result<Node, tree::SyntaxError>> {
    let text = text.trim();
    let wrapped = |open: char, close: char| text.starts_with(open) && text.ends_with(close);
    (wrapped('[', ']') || wrapped('{', '}')).then(|| tree::parse(text))
}
