//! The files.

use crate::{
    course::Course,
    labels::{Judged, Labels},
    node::Node,
    script::Script,
};
use std::{
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
};
use storewatch::recording::replay;

/// One file.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its path below `cases`, without the suffix.
    pub name: String,
    path: PathBuf,
    body: String,
    labels: Labels,
}

/// The folder of all.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// All files, sorted; only those whose name contains `only`.
///
/// # Panics
/// When one cannot be read; likewise below.
pub fn all(only: &str) -> Vec<Case> {
    let mut files = Vec::new();
    let mut folders = vec![folder()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "txt") {
                files.push(path);
            }
        }
    }
    files.sort();
    let cases = files.into_iter().map(Case::read);
    cases.filter(|case| case.name.contains(only)).collect()
}

impl Case {
    /// Reads a file.
    pub fn read(path: PathBuf) -> Self {
        let name = path.strip_prefix(folder()).unwrap_or(&path).with_extension("").display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        let (body, labels) =
            text.split_once("\n---\n").unwrap_or_else(|| panic!("{name}: no line `---` before what is right"));
        let labels = Labels::parse(&name, body.lines().count() + 2, labels);
        Self { body: body.to_owned(), labels, name, path }
    }

    /// The recording that it names; `None` for a timeline.
    pub fn recording(&self) -> Option<PathBuf> {
        let file = self.body.lines().find_map(|line| line.strip_prefix("recording "))?;
        Some(self.path.with_file_name(file.trim()))
    }

    /// Its timeline; empty for a recording.
    pub fn script(&self) -> Script {
        if self.recording().is_some() { Script::default() } else { Script::parse(&self.name, &self.body) }
    }

    /// Plays it.
    pub fn play(&self) -> Course {
        match self.recording() {
            Some(path) => {
                let replayed = replay(BufReader::new(File::open(&path).unwrap()))
                    .unwrap_or_else(|broken| panic!("{}: {broken}", path.display()));
                assert!(replayed.broken.is_none(), "{}: {:?}", path.display(), replayed.broken);
                Course::of(&replayed)
            }
            None => Node::play(self.script()),
        }
    }

    /// Compares what was said with what is right.
    pub fn judge(&self, course: &Course) -> Judged {
        self.labels.judge(course)
    }
}
