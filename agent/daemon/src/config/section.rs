//! Reading a mapping key by key: what is asked for is known, what is left over is a mistake.

use super::{
    error::{Mistake, Mistakes},
    keys,
    tree::{Entry, Node, Origin, Value},
    value,
};
use std::{cell::RefCell, time::Duration};

/// Values longer than this are shortened in mistakes.
const SHOWN: usize = 80;

/// More mistakes than this are not listed: nobody reads them, and the file is of another kind.
const MAX_MISTAKES: usize = 200;

/// Collects mistakes.
#[derive(Debug)]
pub(crate) struct Found {
    place: String,
    list: RefCell<Vec<(u64, Mistake)>>,
}

impl Found {
    pub(crate) fn new(place: &str) -> Self {
        Self { place: place.to_owned(), list: RefCell::default() }
    }

    /// The file's name, for mistakes about no particular line.
    pub(crate) fn place(&self, origin: Option<&Origin>) -> String {
        match origin {
            Some(Origin::Line(line)) if *line > 0 => format!("{}:{line}", self.place),
            Some(Origin::Override(name)) => name.to_string(),
            _ => self.place.clone(),
        }
    }

    /// Adds a mistake about a value.
    pub(crate) fn wrong(&self, key: &str, node: &Node, rule: impl Into<String>) {
        let mut shown = node.to_string();
        if shown.chars().count() > SHOWN {
            shown = shown.chars().take(SHOWN).chain(['…']).collect();
        }
        self.push(Some(&node.origin), key, Some(shown), rule.into());
    }

    /// Adds a mistake about a key or its absence.
    pub(crate) fn about(&self, origin: Option<&Origin>, key: &str, rule: impl Into<String>) {
        self.push(origin, key, None, rule.into());
    }

    fn push(&self, origin: Option<&Origin>, key: &str, value: Option<String>, rule: String) {
        let mut list = self.list.borrow_mut();
        if list.len() < MAX_MISTAKES {
            // In the file's order; what stands on no line comes after.
            let line = match origin {
                Some(Origin::Line(line)) if *line > 0 => *line,
                _ => u64::MAX,
            };
            list.push((line, Mistake { place: self.place(origin), key: key.to_owned(), value, rule }));
        }
    }

    /// Adds a mistake about how keys stand to each other.
    pub(crate) fn relation(&self, origin: Option<&Origin>, key: &str, value: Option<String>, rule: String) {
        self.push(origin, key, value, rule);
    }

    /// Whether `key` or an item of its list has a mistake already.
    pub(crate) fn mentions_within(&self, key: &str) -> bool {
        let item = format!("{key}[");
        self.list.borrow().iter().any(|(_, mistake)| mistake.key == key || mistake.key.starts_with(&item))
    }

    /// Whether `key` has a mistake already: then nothing more is said about its relations.
    pub(crate) fn mentions(&self, key: &str) -> bool {
        self.list.borrow().iter().any(|(_, mistake)| mistake.key == key)
    }

    /// `value`, if nothing was found.
    pub(crate) fn into_result<T>(self, value: T) -> Result<T, Mistakes> {
        let mut list = self.list.into_inner();
        list.sort_by_key(|(line, _)| *line);
        Mistakes::of(list.into_iter().map(|(_, mistake)| mistake).collect()).map_or(Ok(value), Err)
    }
}

/// A mapping that is being read.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    path: String,
    origin: Option<&'a Origin>,
    entries: &'a [Entry],
    known: RefCell<Vec<&'static str>>,
    found: &'a Found,
}

impl<'a> Section<'a> {
    /// The mapping at `node`; anything else is a mistake, and reads like an empty one. `path` is empty for the root.
    pub(crate) fn new(node: &'a Node, path: &str, found: &'a Found) -> Self {
        let entries: &[Entry] = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            _ => {
                found.wrong(path, node, "must be a mapping of keys to values");
                &[]
            }
        };
        Self { path: path.to_owned(), origin: Some(&node.origin), entries, known: RefCell::default(), found }
    }

    fn empty(path: String, found: &'a Found) -> Self {
        Self { path, origin: None, entries: &[], known: RefCell::default(), found }
    }

    /// Where mistakes go.
    pub(crate) fn found(&self) -> &'a Found {
        self.found
    }

    /// Where the mapping stands, if anywhere.
    pub(crate) fn origin(&self) -> Option<&'a Origin> {
        self.origin
    }

    /// Where `name` stands, or else the mapping.
    pub(crate) fn place_of(&self, name: &str) -> Option<&'a Origin> {
        let entry = self.entries.iter().rev().find(|entry| entry.key == name);
        entry.map(|entry| &entry.node.origin).or(self.origin)
    }

    /// The full key.
    pub(crate) fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The node of `name`, if there is one.
    pub(crate) fn get(&self, name: &'static str) -> Option<&'a Node> {
        let mut known = self.known.borrow_mut();
        if !known.contains(&name) {
            known.push(name);
        }
        self.entries.iter().rev().find(|entry| entry.key == name).map(|entry| &entry.node)
    }

    /// Whether `name` is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == name)
    }

    /// The mapping under `name`; an absent one reads like an empty one.
    pub(crate) fn section(&self, name: &'static str) -> Section<'a> {
        match self.get(name) {
            Some(node) => Section::new(node, &self.key(name), self.found),
            None => Section::empty(self.key(name), self.found),
        }
    }

    /// The same for a look at one that is read elsewhere: it complains of nothing.
    pub(crate) fn section_again(&self, name: &'static str) -> Section<'a> {
        let mut section = Section::empty(self.key(name), self.found);
        if let Some(node) = self.get(name)
            && let Value::Map(entries) = &node.value
        {
            section.origin = Some(&node.origin);
            section.entries = entries;
        }
        section
    }

    /// The value of `name` as `parse` reads it; `None` when absent or wrong (then the mistake is recorded).
    pub(crate) fn optional<T>(&self, name: &'static str, parse: impl FnOnce(&Node) -> Result<T, String>) -> Option<T> {
        let node = self.get(name)?;
        let result = if node.value == Value::Null {
            Err("has no value; leave the key out for the default".into())
        } else {
            parse(node)
        };
        result.map_err(|rule| self.found.wrong(&self.key(name), node, rule)).ok()
    }

    /// The same with a default.
    pub(crate) fn value<T>(&self, name: &'static str, default: T, parse: impl FnOnce(&Node) -> Result<T, String>) -> T {
        self.optional(name, parse).unwrap_or(default)
    }

    /// A duration within `min..=max`.
    pub(crate) fn duration(&self, name: &'static str, default: Duration, min: Duration, max: Duration) -> Duration {
        self.value(name, default, |node| value::duration_within(node, min, max))
    }

    /// An integer within `min..=max`.
    pub(crate) fn integer(&self, name: &'static str, default: u32, min: u32, max: u32) -> u32 {
        self.value(name, default, |node| value::integer_within(node, min, max))
    }

    /// One of `words`.
    pub(crate) fn word<T: Copy>(&self, name: &'static str, default: T, words: &[(&'static str, T)]) -> T {
        self.value(name, default, |node| value::word(node, words))
    }

    /// Every item of the list under `name` that `parse` can read; mistakes are recorded per item, as `key[2]`.
    pub(crate) fn list<T>(&self, name: &'static str, parse: impl Fn(&Node) -> Result<T, String>) -> Vec<(T, Node)> {
        let Some(node) = self.get(name) else { return Vec::new() };
        let key = self.key(name);
        let items = match &node.value {
            Value::List(items) => items.clone(),
            // In an environment variable a list is most easily written with commas.
            Value::Untyped(text) if text.is_empty() => Vec::new(),
            Value::Untyped(text) => text
                .split(',')
                .map(|part| Node { value: Value::Untyped(part.trim().to_owned()), origin: node.origin.clone() })
                .collect(),
            Value::Text(_) => {
                self.found.wrong(&key, node, "must be a list, such as [\"a\", \"b\"], not one text");
                return Vec::new();
            }
            _ => {
                self.found.wrong(&key, node, "must be a list");
                return Vec::new();
            }
        };
        let mut list = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            match parse(&item) {
                Ok(value) => list.push((value, item)),
                Err(rule) => self.found.wrong(&format!("{key}[{index}]"), &item, rule),
            }
        }
        list
    }

    /// Records keys that nobody asked for, and keys that occur twice.
    pub(crate) fn finish(self) {
        let known = self.known.into_inner();
        let full = |name: &str| if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        for (index, entry) in self.entries.iter().enumerate() {
            if !known.contains(&entry.key.as_str()) {
                let hint = keys::suggest(&entry.key, &known, &self.path);
                let hint = hint
                    .map_or_else(|| format!("known here: {}", known.join(", ")), |key| format!("did you mean {key}?"));
                self.found.about(Some(&entry.origin), &full(&entry.key), format!("unknown key; {hint}"));
            }
            if let Some(first) = self.entries[..index].iter().find(|earlier| earlier.key == entry.key) {
                let rule = match &first.origin {
                    Origin::Line(line) => format!("is there twice, first in line {line}"),
                    Origin::Override(_) => "is there twice".to_owned(),
                };
                self.found.about(Some(&entry.origin), &full(&entry.key), rule);
            }
        }
    }
}
