//! Label selectors as Kubernetes writes them, equality-based and set-based.

use std::{collections::BTreeMap, fmt};

/// All requirements must hold. An empty selector selects everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

/// What is wrong with a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no label selector: {0}")]
pub struct SelectorError(String);

impl Selector {
    /// Reads `a=b`, `a==b`, `a!=b`, `a in (x, y)`, `a notin (x, y)`, `a`, `!a`, separated by commas.
    ///
    /// # Errors
    /// With the requirement that cannot be read.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::everything());
        }
        let requirements = split(text)?.into_iter().map(requirement).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// The selector without requirements.
    pub fn everything() -> Self {
        Self { requirements: Vec::new() }
    }

    /// Whether these labels satisfy every requirement. As in Kubernetes, `!=` and `notin` hold for an absent label.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
        })
    }
}

/// In a form that the API server and [`Selector::parse`] read.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::Exists(key) => f.write_str(key)?,
                Requirement::Absent(key) => write!(f, "!{key}")?,
                Requirement::In(key, values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Requirement::NotIn(key, values) if values.len() == 1 => write!(f, "{key}!={}", values[0])?,
                Requirement::In(key, values) => write!(f, "{key} in ({})", values.join(","))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Result<Vec<&str>, SelectorError> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, char) in text.char_indices() {
        match char {
            '(' if inside => return Err(SelectorError("a parenthesis within parentheses".to_owned())),
            '(' => inside = true,
            ')' if !inside => return Err(SelectorError("a closing parenthesis without an opening one".to_owned())),
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(SelectorError("a parenthesis is not closed".to_owned()));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn requirement(text: &str) -> Result<Requirement, SelectorError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(SelectorError("an empty requirement, as after a trailing comma".to_owned()));
    }
    if let Some(head) = text.strip_suffix(')') {
        let (head, values) = head.split_once('(').ok_or_else(|| unreadable(text))?;
        let values = values.split(',').map(|value| label_value(value.trim())).collect::<Result<Vec<_>, _>>()?;
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok(Requirement::In(label_key(key)?, values)),
            (Some(key), Some("notin"), None) => Ok(Requirement::NotIn(label_key(key)?, values)),
            _ => Err(unreadable(text)),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(Requirement::NotIn(label_key(key.trim())?, vec![label_value(value.trim())?]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Requirement::In(label_key(key.trim())?, vec![label_value(value.trim())?]));
    }
    match text.strip_prefix('!') {
        Some(key) => label_key(key.trim()).map(Requirement::Absent),
        None => label_key(text).map(Requirement::Exists),
    }
}

fn unreadable(text: &str) -> SelectorError {
    SelectorError(format!("{text:?} is none of a=b, a!=b, a in (x,y), a notin (x,y), a, !a"))
}

fn label_key(key: &str) -> Result<String, SelectorError> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_fits = prefix.is_none_or(|prefix| {
        (1..=253).contains(&prefix.len())
            && prefix
                .chars()
                .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-' || char == '.')
    });
    if !name.is_empty() && prefix_fits && is_label(name) {
        Ok(key.to_owned())
    } else {
        Err(SelectorError(format!("{key:?} is no label key")))
    }
}

fn label_value(value: &str) -> Result<String, SelectorError> {
    if value.is_empty() || is_label(value) {
        Ok(value.to_owned())
    } else {
        Err(SelectorError(format!("{value:?} is no label value")))
    }
}

fn is_label(text: &str) -> bool {
    let ends = |char: char| char.is_ascii_alphanumeric();
    text.len() <= 63
        && text.chars().all(|char| ends(char) || matches!(char, '-' | '_' | '.'))
        && text.starts_with(ends)
        && text.ends_with(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> BTreeMap<String, String> {
        text.split_terminator(',')
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn requirements_hold_as_in_kubernetes() {
        let rows = [
            ("", "", true),
            ("a=b", "a=b", true),
            ("a=b", "a=c", false),
            ("a=b", "", false),
            ("a==b,c=d", "a=b,c=d", true),
            ("a==b,c=d", "a=b", false),
            ("a!=b", "a=b", false),
            ("a!=b", "", true),
            ("a in (x, y)", "a=y", true),
            ("a in (x, y)", "a=z", false),
            ("a in (x)", "", false),
            ("a notin (x,y)", "a=z", true),
            ("a notin (x,y)", "a=x", false),
            ("a notin (x,y)", "", true),
            ("a", "a=", true),
            ("!a", "a=", false),
            ("!a,b in (1,2),c", "b=2,c=z", true),
            ("app.kubernetes.io/name=hugegraph", "app.kubernetes.io/name=hugegraph", true),
            ("a=", "a=", true),
        ];
        for (selector, present, expected) in rows {
            let parsed = Selector::parse(selector).unwrap();
            assert_eq!(parsed.matches(&labels(present)), expected, "{selector} on {present}");
            assert_eq!(Selector::parse(&parsed.to_string()).unwrap(), parsed, "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_with_its_part() {
        let rows = [
            ("a=b,", "trailing comma"),
            ("a in x", "\"a in x\""),
            ("a in (x", "not closed"),
            ("a)", "without an opening one"),
            ("a within (x)", "none of a=b"),
            ("=b", "\"\" is no label key"),
            ("a=b c", "\"b c\" is no label value"),
            ("A/b=c", "\"A/b\" is no label key"),
            ("a=((x))", "within parentheses"),
        ];
        for (selector, complaint) in rows {
            let error = Selector::parse(selector).unwrap_err().to_string();
            assert!(error.contains(complaint), "{selector}: {error}");
        }
    }
}
