//! The rules of the source tree that no compiler upholds. Each test names every offence with its place.
//!
//! They read text, not syntax: good enough for a rule that is meant to be noticed, and it needs no parser. A rule that
//! takes more than a search is a function over text, so that its test also shows what it finds and what it lets pass.

#![expect(clippy::unwrap_used, reason = "an unreadable tree is a failed test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What may stand in the repository's root, beside dotfiles and cargo's own `target`.
const TOP_LEVEL: [&str; 12] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "agent",
    "deny.toml",
    "deploy",
    "ebpf",
    "proto",
    "target",
    "tests",
];

/// Where Rust source lives.
const TREES: [&str; 4] = ["agent", "ebpf", "proto", "tests"];

/// All that the pure core is built on. Whatever does I/O, keeps time or knows a product stays out of this list.
const CORE_DEPENDENCIES: [&str; 1] = ["thiserror"];

/// A longer file holds more than one idea; its tests can go to `foo/tests.rs`.
const MAX_LINES: usize = 600;

#[test]
fn core_depends_on_nothing_that_does_io() {
    let manifest = read(&root().join("agent/core/Cargo.toml"));
    assert_eq!(dependencies(&manifest), CORE_DEPENDENCIES, "agent/core/Cargo.toml: its dependencies are its purity");

    assert_eq!(dependencies("[build-dependencies]\nb.x = 1\n[target.'cfg(unix)'.dependencies.a]\nc = 1\n"), ["b", "a"]);
    assert!(dependencies("[dev-dependencies]\na = \"1\"\n[lints]\nworkspace = true\n").is_empty());
}

#[test]
fn core_knows_no_product() {
    check("agent/core/src", |line| line.to_lowercase().contains("hugegraph"), "names a product; core knows roles only");
}

#[test]
fn publishers_never_import_sources() {
    let publishers: Vec<_> =
        rust_files("agent/daemon/src").into_iter().filter(|file| relative(file).contains("/publish")).collect();
    assert!(!publishers.is_empty(), "agent/daemon/src/publish is gone: the rule would check nothing");
    let offences: Vec<_> = publishers.iter().filter(|file| imports_source(&read(file))).map(|f| relative(f)).collect();
    assert!(offences.is_empty(), "publishers know the snapshot only, but these import crate::source: {offences:?}");

    let group = "use crate::{\n    engine, // why\n    source::{a, b},\n};";
    for found in ["use crate::source::Kernel;", group, "let x = crate::source::f();"] {
        assert!(imports_source(found), "{found}");
    }
    let sibling = "use super::{pod::Pod, source::Dto};"; // inside publish/, a module of its own
    for fine in ["use crate::{engine::source, snapshot};", "// crate::source", sibling, "crate::sources::f()"] {
        assert!(!imports_source(fine), "{fine}");
    }
}

#[test]
fn the_root_holds_only_what_was_agreed() {
    let strangers: Vec<_> =
        top_level().into_iter().filter(|name| !name.starts_with('.') && !TOP_LEVEL.contains(&name.as_str())).collect();
    assert!(strangers.is_empty(), "in the repository's root, but not agreed: {strangers:?}");
}

/// The build script and the scripts that prepare a machine name the same linker.
#[test]
fn there_is_one_version_of_the_linker() {
    let (build, scripts) = (read(&root().join("agent/daemon/build.rs")), read(&root().join(".ci/lib.sh")));
    let value = |name: &str| {
        let line = scripts.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap()
    };
    let (version, llvm) = (value("LINKER_VERSION="), value("LINKER_LLVM="));
    assert!(build.contains(&format!(" --version {version} ")), "build.rs and .ci/lib.sh: bpf-linker {version}");
    assert!(build.contains(&format!("LINKER_LLVM: &str = \"{llvm}\"")), "build.rs and .ci/lib.sh: LLVM {llvm}");
}

#[test]
fn files_stay_short() {
    let long: Vec<_> = TREES
        .iter()
        .flat_map(|tree| rust_files(tree))
        .map(|file| (relative(&file), read(&file).lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(file, lines)| format!("{file}: {lines} lines, at most {MAX_LINES}"))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not accuse itself.
    let marks = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("FIX", "ME"), concat!("TO", "DO")];
    for tree in TREES {
        check(tree, |line| marks.iter().any(|mark| line.contains(mark)), "is unfinished");
    }
}

/// Asserts that no line of a Rust file under `tree` is an offence.
fn check(tree: &str, offends: impl Fn(&str) -> bool, complaint: &str) {
    let files = rust_files(tree);
    assert!(!files.is_empty(), "no Rust file under {tree}: the rule would check nothing");
    let mut offences = Vec::new();
    for file in files {
        for (number, line) in (1..).zip(read(&file).lines()) {
            if offends(line) {
                offences.push(format!("{}:{number}: {complaint}: {}", relative(&file), line.trim()));
            }
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

/// Names of the crates that `manifest` links or builds with; those of tests do not count.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut listing = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            let path: Vec<_> = section.split('.').collect();
            let table = path.iter().position(|part| part.ends_with("dependencies") && *part != "dev-dependencies");
            listing = table.is_some_and(|at| at + 1 == path.len());
            // `[dependencies.name]`: the crate is in the heading.
            names.extend(table.and_then(|at| path.get(at + 1)));
        } else if listing && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['.', '=', ' ']).next());
        }
    }
    names
}

/// Does this text name the daemon's module `source`, alone or in a group of imports?
fn imports_source(text: &str) -> bool {
    let code: String = text.lines().filter_map(|line| line.split("//").next()).collect();
    let code: String = code.split_whitespace().collect();
    let is_source = |path: &str| {
        let rest = path.strip_prefix("source");
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    };
    code.match_indices("crate::").any(|(at, start)| {
        let path = &code[at + start.len()..];
        is_source(path) || path.strip_prefix('{').is_some_and(|group| members(group).into_iter().any(is_source))
    })
}

/// The members of a group of imports, whose opening brace is already taken off; inner groups stay whole.
fn members(group: &str) -> Vec<&str> {
    let (mut members, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                members.push(&group[start..at]);
                start = at + 1;
                if char == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    members
}

/// What git has at the top; in a copy without git, what lies there.
fn top_level() -> BTreeSet<String> {
    let mut git = Command::new("git");
    let tracked = git.args(["-c", "safe.directory=*", "ls-files"]).current_dir(root()).output();
    if let Some(tracked) = tracked.ok().filter(|output| output.status.success() && !output.stdout.is_empty()) {
        let paths = String::from_utf8(tracked.stdout).unwrap();
        return paths.lines().filter_map(|path| path.split('/').next()).map(str::to_owned).collect();
    }
    fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The Rust files under `tree`, a folder of the repository; what a build left there does not count.
fn rust_files(tree: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(tree)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                folders.extend((entry.file_name() != "target").then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
