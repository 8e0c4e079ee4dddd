//! YAML as a tree that remembers where each node stands.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};
use std::{
    fmt,
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
    sync::Arc,
};

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A line of the file; 0 when unknown.
    Line(u64),
    /// An override, by how it was given.
    Override(Arc<str>),
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// What YAML can say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// Text of an override, whose type the reader of the key decides.
    Untyped(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and what it stands for. A key may occur twice: that is for the reader to complain about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) origin: Origin,
    pub(crate) node: Node,
}

/// A text that is not YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// Where, if the parser knows.
    pub(crate) line: Option<u64>,
    /// What, in one line.
    pub(crate) message: String,
}

/// Reads a text file of at most `limit` bytes; the error is one clause about the file.
pub(crate) fn read_file(path: &Path, limit: u64) -> Result<String, String> {
    let reason = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => "no such file".to_owned(),
        ErrorKind::PermissionDenied => "no permission to read it".to_owned(),
        ErrorKind::IsADirectory => "is a directory; a file is needed".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    // A FIFO or a device would block or never end.
    let kind = std::fs::metadata(path).map_err(reason)?.file_type();
    if kind.is_dir() {
        return Err("is a directory; a file is needed".to_owned());
    }
    if !kind.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)).map_err(reason)?;
    if bytes.len() as u64 > limit {
        return Err(format!("is larger than {} KiB", limit >> 10));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        format!("is not UTF-8 text (line {})", before.iter().filter(|byte| **byte == b'\n').count() + 1)
    })
}

/// Parses one YAML document. An empty one is [`Value::Null`].
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let options = serde_saphyr::options! {
        // Small enough that no alias bomb is felt, large enough for any list that a person or a script writes.
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_depth: 32,
            max_nodes: 200_000,
            max_total_scalar_bytes: 8 << 20,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        null_as_string: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
        let message = error.without_snippet().to_string();
        // The place is told apart; the library's text may repeat it and may have several lines.
        let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        SyntaxError { line, message: format!("not valid YAML: {message}") }
    })
}

impl Node {
    /// The same tree, said to come from `origin`.
    pub(crate) fn moved_to(mut self, origin: &Origin) -> Self {
        self.origin = origin.clone();
        self.value = match self.value {
            Value::List(items) => Value::List(items.into_iter().map(|item| item.moved_to(origin)).collect()),
            Value::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|entry| Entry { origin: origin.clone(), node: entry.node.moved_to(origin), ..entry })
                    .collect(),
            ),
            other => other,
        };
        self
    }
}

/// As an operator wrote it, on one line.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Text(text) | Value::Untyped(text) => write!(f, "{text:?}"),
            Value::List(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Value::Map(entries) => {
                f.write_str("{")?;
                for (index, entry) in entries.iter().enumerate() {
                    write!(f, "{}{}: {}", if index == 0 { "" } else { ", " }, entry.key, entry.node)?;
                }
                f.write_str("}")
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, origin: Origin::Line(spanned.referenced.line()) })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Value, E> {
        i128::try_from(value).map(Value::Integer).map_err(|_| E::custom("an integer beyond all use"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element::<Node>()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            if key.value.len() > 256 {
                return Err(A::Error::custom("a key longer than 256 bytes"));
            }
            let node = access.next_value::<Node>()?;
            entries.push(Entry { key: key.value, origin: Origin::Line(key.referenced.line()), node });
        }
        Ok(Value::Map(entries))
    }
}
