//! Scalars: from a node to a typed value, with a rule that says what would be right.

use super::tree::{Node, Value};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
use storewatch_core::id::HostPort;

/// Longest path of a Unix socket: `sun_path` less its closing zero.
const MAX_SOCKET_PATH: usize = 107;

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// A duration as the configuration writes it: the largest unit that is exact.
pub fn duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (unit, factor) = UNITS.iter().rev().find(|(_, factor)| millis % factor == 0 && millis > 0).unwrap_or(&UNITS[1]);
    format!("{}{unit}", millis / factor)
}

/// `2s`, `150s`, `5m`, `200ms`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "is no duration; write a whole number and a unit (ms, s, m, h), such as 2s".to_owned();
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(wrong)?;
    if number.is_empty() {
        return Err(wrong());
    }
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    // A year: beyond it sums of instants could overflow, and nothing here waits that long.
    millis
        .filter(|millis| *millis <= 366 * 24 * 3_600_000)
        .map(Duration::from_millis)
        .ok_or_else(|| "is longer than a year".to_owned())
}

/// A duration within `min..=max`.
pub(crate) fn duration_within(node: &Node, min: Duration, max: Duration) -> Result<Duration, String> {
    let value = match &node.value {
        Value::Text(text) | Value::Untyped(text) => parse_duration(text)?,
        Value::Integer(_) | Value::Float(_) => {
            return Err("has no unit; write a whole number and a unit (ms, s, m, h), such as 2s".to_owned());
        }
        _ => return Err("must be a duration, such as 2s".to_owned()),
    };
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(format!("must be {} to {}", duration(min), duration(max)))
    }
}

/// An integer within `min..=max`.
pub(crate) fn integer_within(node: &Node, min: u32, max: u32) -> Result<u32, String> {
    let number = match &node.value {
        Value::Integer(number) => Some(*number),
        Value::Untyped(text) => text.parse::<i128>().ok(),
        _ => None,
    };
    number
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("must be a whole number from {min} to {max}"))
}

/// A TCP port.
pub(crate) fn port(node: &Node) -> Result<u16, String> {
    let number = integer_within(node, 1, u32::from(u16::MAX)).map_err(|_| "must be a port, 1 to 65535".to_owned())?;
    u16::try_from(number).map_err(|_| "must be a port, 1 to 65535".to_owned())
}

/// One of `words`.
pub(crate) fn word<T: Copy>(node: &Node, words: &[(&'static str, T)]) -> Result<T, String> {
    let text = match &node.value {
        Value::Text(text) | Value::Untyped(text) => text.as_str(),
        _ => "",
    };
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let list: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        format!("must be one of: {}", list.join(", "))
    })
}

/// A text, not empty.
pub(crate) fn text(node: &Node) -> Result<String, String> {
    let text = any_text(node)?;
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text) }
}

/// A text, possibly empty, on one line.
pub(crate) fn any_text(node: &Node) -> Result<String, String> {
    match &node.value {
        Value::Text(text) | Value::Untyped(text) if text.chars().any(char::is_control) => {
            Err("must not contain control characters".to_owned())
        }
        Value::Text(text) | Value::Untyped(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => Err("must be a text; put it in quotes".to_owned()),
        _ => Err("must be a text".to_owned()),
    }
}

/// `true` or `false`.
pub(crate) fn boolean(node: &Node) -> Result<bool, String> {
    match &node.value {
        Value::Bool(value) => Ok(*value),
        Value::Untyped(text) if text == "true" => Ok(true),
        Value::Untyped(text) if text == "false" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// A path, not empty.
pub(crate) fn path(node: &Node) -> Result<PathBuf, String> {
    text(node).map(PathBuf::from)
}

/// An absolute path.
pub(crate) fn absolute_path(node: &Node) -> Result<PathBuf, String> {
    let path = path(node)?;
    if path.is_absolute() { Ok(path) } else { Err("must be an absolute path".to_owned()) }
}

/// A path that a Unix socket can have; `None` for `off`.
pub(crate) fn socket_path(node: &Node) -> Result<Option<PathBuf>, String> {
    let text = text(node)?;
    if text == "off" {
        return Ok(None);
    }
    let path = absolute_path(node)?;
    if text.len() > MAX_SOCKET_PATH {
        return Err(format!("is {} bytes long; a socket's path has at most {MAX_SOCKET_PATH}", text.len()));
    }
    Ok(Some(path))
}

/// An address to listen on; `None` for `off`.
pub(crate) fn listen(node: &Node) -> Result<Option<SocketAddr>, String> {
    let text = text(node)?;
    if text == "off" {
        return Ok(None);
    }
    let address: SocketAddr = text.parse().map_err(|_| {
        "must be ADDRESS:PORT with a literal address, such as 127.0.0.1:9467 or \"[::]:9465\"".to_owned()
    })?;
    if address.port() == 0 { Err("must have a port from 1 to 65535".to_owned()) } else { Ok(Some(address)) }
}

/// `host:port` of a target.
pub(crate) fn host_port(node: &Node) -> Result<HostPort, String> {
    parse_host_port(&any_text(node)?)
}

/// The same on a text.
pub(crate) fn parse_host_port(text: &str) -> Result<HostPort, String> {
    if text.is_empty() {
        return Err("is empty, as after a trailing comma; write host:port".to_owned());
    }
    if let Some((scheme, _)) = text.split_once("://") {
        return Err(format!("must be host:port without {scheme}://"));
    }
    if text.contains(',') {
        return Err("contains a comma; write one host:port per list entry".to_owned());
    }
    if text.contains(char::is_whitespace) {
        return Err("must not contain white space".to_owned());
    }
    if text.contains('/') || text.contains('@') {
        return Err("must be host:port and nothing else".to_owned());
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("lacks the closing bracket of its IPv6 address")?;
        if host.contains('%') {
            return Err("must not have a zone (%)".to_owned());
        }
        let address: Ipv6Addr = host.parse().map_err(|_| "has no IPv6 address between its brackets".to_owned())?;
        (address.to_string(), rest.strip_prefix(':').unwrap_or_default())
    } else if text.matches(':').count() > 1 {
        return Err("looks like an IPv6 address without brackets; write [ADDRESS]:PORT".to_owned());
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        host_name(host)?;
        (host.to_owned(), port)
    };
    if port.is_empty() {
        return Err("lacks a port; write host:port".to_owned());
    }
    let number = if port.bytes().all(|byte| byte.is_ascii_digit()) { port.parse::<u16>().ok() } else { None };
    match number {
        Some(port) if port > 0 => Ok(HostPort { host: host.into(), port }),
        _ => Err("must have a port from 1 to 65535".to_owned()),
    }
}

fn host_name(host: &str) -> Result<(), String> {
    if host.is_empty() {
        return Err("lacks a host; write host:port".to_owned());
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err("has no valid host name".to_owned());
    }
    // A name whose last label is a number is an address, or a mistyped one.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) && host.parse::<Ipv4Addr>().is_err() {
        return Err("has no valid IPv4 address".to_owned());
    }
    Ok(())
}

/// An IP address.
pub(crate) fn ip(node: &Node) -> Result<IpAddr, String> {
    any_text(node)?.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| "must be an IP address".to_owned())
}

/// A name as Kubernetes gives them: lower-case letters, digits, `-` and `.`.
pub(crate) fn object_name(node: &Node) -> Result<String, String> {
    let text = text(node)?;
    let ends = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit();
    let inner = |char: char| ends(char) || char == '-' || char == '.';
    if text.len() <= 253 && text.chars().all(inner) && text.starts_with(ends) && text.ends_with(ends) {
        Ok(text)
    } else {
        Err("must consist of lower-case letters, digits, '-' and '.', begin and end with a letter or digit".to_owned())
    }
}

/// A name that can stand in a URL's path and in a label: letters, digits, `-`, `_`, `.`.
pub(crate) fn plain_name(node: &Node) -> Result<String, String> {
    let text = text(node)?;
    let fits = text.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'));
    if fits && text.len() <= 63 && text.starts_with(|char: char| char.is_ascii_alphanumeric()) {
        Ok(text)
    } else {
        Err("must be 1 to 63 letters, digits, '-', '_' or '.', and begin with a letter or digit".to_owned())
    }
}

/// The node's name.
pub(crate) fn node_name(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > 253 || text.chars().any(|char| char.is_control() || char.is_whitespace()) {
        Err("must be 1 to 253 characters without white space".to_owned())
    } else {
        Ok(())
    }
}
