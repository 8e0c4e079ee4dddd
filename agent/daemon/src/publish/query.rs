//! Strict query strings: an unknown key is a mistake that must not pass for an answer.

use super::problem::{Problem, quote};
use axum::extract::{Query, rejection::QueryRejection};
use std::collections::BTreeMap;

/// The pairs of a query string, as they were sent.
pub(crate) type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

/// The values of `known` keys.
///
/// # Errors
/// A problem for a key that is not known, one given twice, or a string that cannot be decoded.
pub(crate) fn parse(pairs: Pairs, known: &[&'static str]) -> Result<BTreeMap<&'static str, String>, Problem> {
    let Query(pairs) = pairs
        .map_err(|error| Problem::bad_request(format!("the query string cannot be read: {}", error.body_text())))?;
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

/// For paths that take no query at all.
pub(crate) fn none(pairs: Pairs) -> Result<(), Problem> {
    parse(pairs, &[]).map(|_| ())
}
