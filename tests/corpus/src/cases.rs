//! Plays every file of `tests/scenarios`.

use crate::{node::Node, script::Script};
use std::{fs, path::Path};

#[test]
fn every_scenario_ends_as_its_file_says() {
    let update = std::env::var_os("UPDATE").is_some();
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut wrong = Vec::new();
    let mut played = 0;
    for file in files.iter().filter(|file| file.to_string_lossy().contains(&only)) {
        let text = fs::read_to_string(file).unwrap();
        let script = Script::parse(&text);
        let (body, right) = (script.text.clone(), script.right.clone());
        let got = Node::play(script);
        played += 1;
        if update {
            fs::write(file, format!("{}\n---\n{got}", body.trim_end())).unwrap();
        } else if got.trim() != right.trim() {
            wrong.push(format!("{}:\n{}", file.display(), difference(&right, &got)));
        }
    }
    assert!(played > 0, "no scenario was played");
    assert!(wrong.is_empty(), "{} scenarios differ\n{}", wrong.len(), wrong.join("\n"));
}

/// Lines that only one side has, in order.
fn difference(right: &str, got: &str) -> String {
    let missing =
        right.lines().filter(|line| !got.lines().any(|other| other == *line)).map(|line| format!("  - {line}"));
    let extra = got.lines().filter(|line| !right.lines().any(|other| other == *line)).map(|line| format!("  + {line}"));
    let lines: Vec<_> = missing.chain(extra).collect();
    if lines.is_empty() { "  the same lines in another order or number".into() } else { lines.join("\n") }
}
