//! `host:port` as HugeGraph writes it.

use std::net::{IpAddr, Ipv6Addr};
use storewatch_core::id::HostPort;

/// Longest host name that DNS can carry, without the final dot.
const LONGEST_NAME: usize = 253;

/// Why a `host:port` cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No colon separates host and port.
    #[error("no port; write host:port")]
    NoPort,
    /// The port is not a number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    BadPort,
    /// An IPv6 address must stand in brackets.
    #[error("an IPv6 address needs brackets: [address]:port")]
    NoBrackets,
    /// A bracket without an IPv6 address in it.
    #[error("no IPv6 address between the brackets")]
    BadBrackets,
    /// Neither a DNS name nor an address.
    #[error("the host is neither a DNS name nor an IP address")]
    BadHost,
    /// `0.0.0.0` or `::`: an address to listen on, not one to connect to.
    #[error("an unspecified address (0.0.0.0, ::) cannot be connected to")]
    Unspecified,
}

/// Reads `name:port`, `1.2.3.4:port` or `[v6]:port`.
///
/// # Errors
/// [`AddressError`] names the part that is wrong.
pub fn parse(text: &str) -> Result<HostPort, AddressError> {
    let (host, port) = text.rsplit_once(':').ok_or(AddressError::NoPort)?;
    let host = if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or(AddressError::BadBrackets)?;
        inner.parse::<Ipv6Addr>().map_err(|_| AddressError::BadBrackets)?;
        inner
    } else if host.contains(':') {
        return Err(AddressError::NoBrackets);
    } else {
        host
    };
    // `u16::from_str` takes a leading plus sign.
    let port = match port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse()) {
        Some(Ok(port)) if port > 0 => port,
        _ => return Err(AddressError::BadPort),
    };
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => return Err(AddressError::Unspecified),
        Ok(_) => {}
        Err(_) if is_name(host) => {}
        Err(_) => return Err(AddressError::BadHost),
    }
    Ok(HostPort { host: host.into(), port })
}

/// The address that a host literally is; `None` for a name.
pub fn literal(host: &str) -> Option<IpAddr> {
    host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    // A last label of digits only would be an address that did not parse, such as 1.2.3 or 1.2.3.400.
    let numeric = host.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    host.len() <= LONGEST_NAME
        && !numeric
        && host.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read() {
        for (text, host, port) in [
            ("hugegraph-store-0.hugegraph-store.graph.svc:8500", "hugegraph-store-0.hugegraph-store.graph.svc", 8500),
            ("10.0.0.7:1", "10.0.0.7", 1),
            ("[fd00::7]:65535", "fd00::7", 65535),
            ("store_1:8500", "store_1", 8500),
            ("store.:8500", "store.", 8500),
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!((&*parsed.host, parsed.port), (host, port), "{text}");
        }
    }

    #[test]
    fn each_mistake_has_its_name() {
        for (text, error) in [
            ("", AddressError::NoPort),
            ("store", AddressError::NoPort),
            ("store:", AddressError::BadPort),
            ("store:0", AddressError::BadPort),
            ("store:+8500", AddressError::BadPort),
            ("store:65536", AddressError::BadPort),
            ("store:8500,", AddressError::BadPort),
            ("fd00::7:8500", AddressError::NoBrackets),
            ("http://store:8500", AddressError::NoBrackets),
            ("[fd00::7:8500", AddressError::BadBrackets),
            ("[store]:8500", AddressError::BadBrackets),
            (":8500", AddressError::BadHost),
            (" store:8500", AddressError::BadHost),
            ("a..b:8500", AddressError::BadHost),
            ("1.2.3.400:8500", AddressError::BadHost),
            ("-a:8500", AddressError::BadHost),
            ("0.0.0.0:8500", AddressError::Unspecified),
            ("[::]:8500", AddressError::Unspecified),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
