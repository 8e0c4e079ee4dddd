//! Mistakes, each with its place, key, value and rule.

use super::tree::SyntaxError;
use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands: `FILE:LINE`, an environment variable or a `--set` argument.
    pub place: String,
    /// The key, such as `ping.interval`; empty when the whole file is meant.
    pub key: String,
    /// The value as written, shortened; `None` when the key or its absence is the mistake.
    pub value: Option<String>,
    /// What the rule is.
    pub rule: String,
}

impl Mistake {
    /// The file cannot be read at all.
    pub(crate) fn of_file(place: &str, rule: String) -> Self {
        Self { place: place.to_owned(), key: String::new(), value: None, rule }
    }

    /// The file is not YAML.
    pub(crate) fn of_syntax(place: &str, error: &SyntaxError) -> Self {
        let place = error.line.map_or_else(|| place.to_owned(), |line| format!("{place}:{line}"));
        Self::of_file(&place, error.message.clone())
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)?;
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        write!(f, ": {}", self.rule)
    }
}

/// All mistakes of a file: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(crate) fn one(mistake: Mistake) -> Self {
        Self(vec![mistake])
    }

    /// `None` when there is none.
    pub(crate) fn of(list: Vec<Mistake>) -> Option<Self> {
        (!list.is_empty()).then_some(Self(list))
    }

    /// Each of them, in the order of the file's lines.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// One line each.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
