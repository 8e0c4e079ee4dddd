//! Strict query strings: an unknown key is a mistake that must not pass for an answer.

use super::problem::{Problem, quote};
use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use std::{collections::BTreeMap, convert::Infallible};

/// The pairs of a query string, as they were sent, or why it cannot be read. Most requests have none, and cost nothing.
#[derive(Debug)]
pub(crate) struct Pairs(Result<Vec<(String, String)>, String>);

impl<S: Sync> FromRequestParts<S> for Pairs {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        if parts.uri.query().is_none_or(str::is_empty) {
            return Ok(Self(Ok(Vec::new())));
        }
        Ok(Self(match Query::try_from_uri(&parts.uri) {
            Ok(Query(pairs)) => Ok(pairs),
            Err(error) => Err(error.body_text()),
        }))
    }
}

/// The values of `known` keys.
///
/// # Errors
/// A problem for a key that is not known, one given twice, or a string that cannot be decoded.
pub(crate) fn parse(pairs: Pairs, known: &[&'static str]) -> Result<BTreeMap<&'static str, String>, Problem> {
    let pairs = pairs.0.map_err(|error| Problem::bad_request(format!("the query string cannot be read: {error}")))?;
    let mut values = BTreeMap::new();
    for (key, value) in pairs {
        let Some(name) = known.iter().find(|name| **name == key) else {
            let allowed =
                if known.is_empty() { "none is".to_owned() } else { format!("only {} are", known.join(", ")) };
            return Err(Problem::bad_request(format!("query key {} is unknown, {allowed} allowed here", quote(&key))));
        };
        if values.insert(*name, value).is_some() {
            return Err(Problem::bad_request(format!("query key {} is given twice", quote(&key))));
        }
    }
    Ok(values)
}

/// The values of a query string whose keys are all known, to be taken one by one.
#[derive(Debug)]
pub(crate) struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// As [`parse`].
    pub(crate) fn read(pairs: Pairs, known: &[&'static str]) -> Result<Self, Problem> {
        parse(pairs, known).map(Self)
    }

    /// The value of `key`, as it was sent.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// The one of `all` that `key` names.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        key: &str,
        all: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let found = all.iter().copied().find(|one| name(*one) == value);
        found.map(Some).ok_or_else(|| {
            let mut names: Vec<_> = all.iter().map(|one| name(*one)).collect();
            names.dedup();
            wrong(key, &value, &format!("must be one of: {}", names.join(", ")))
        })
    }

    /// The number that `key` is.
    pub(crate) fn number(&mut self, key: &str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.take(key) else { return Ok(None) };
        number(&value).map(Some).ok_or_else(|| wrong(key, &value, "must be a whole number"))
    }
}

/// Digits and nothing else.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A value that its key cannot have.
pub(crate) fn wrong(key: &str, value: &str, rule: &str) -> Problem {
    Problem::bad_request(format!("query key {}: {} {rule}", quote(key), quote(value)))
}

/// For paths that take no query at all.
pub(crate) fn none(pairs: Pairs) -> Result<(), Problem> {
    parse(pairs, &[]).map(|_| ())
}
