//! Where the agent is.

use super::Failure;
use std::{fmt, net::Ipv6Addr, path::PathBuf};

/// An agent's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// HTTP without TLS.
    Http {
        /// A name or a literal address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

impl AgentAddress {
    /// The admin API's usual place.
    pub(super) fn admin() -> Self {
        Self::Unix(PathBuf::from("/run/storewatch/admin.sock"))
    }

    /// The probe listener's usual place.
    pub(super) fn probe() -> Self {
        Self::Http { host: "127.0.0.1".to_owned(), port: 9465 }
    }

    /// The address given, or `default`; an empty one counts as not given.
    pub(super) fn choose(given: Option<&str>, default: Self) -> Result<Self, Failure> {
        match given.filter(|text| !text.is_empty()) {
            Some(text) => Self::parse(text).map_err(|rule| Failure::wrong(format!("--agent {text:?}: {rule}"))),
            None => Ok(default),
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err("unix: needs a path") } else { Ok(Self::Unix(PathBuf::from(path))) };
        }
        if text.starts_with("https://") {
            return Err("the agent does not speak TLS; use http://HOST:PORT");
        }
        let rest = text.strip_prefix("http://").ok_or("must be unix:PATH or http://HOST:PORT")?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or("lacks a port; use http://HOST:PORT")?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or("must have a port from 1 to 65535")?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner
                .strip_suffix(']')
                .filter(|inner| inner.parse::<Ipv6Addr>().is_ok())
                .ok_or("has no IPv6 address between its brackets")?,
            // `http://$(NODE_IP):9465` on an IPv6 node: a pod's manifest cannot know that brackets are needed.
            None if host.contains(':') && host.parse::<Ipv6Addr>().is_err() => return Err("has no valid host"),
            None => host,
        };
        let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(fits) {
            return Err("has no valid host");
        }
        Ok(Self::Http { host: host.to_owned(), port })
    }

    /// For the `Host` header.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Unix(_) => "localhost".to_owned(),
            Self::Http { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Http { host, port } => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http { .. } => write!(f, "http://{}", self.authority()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        let rows = [
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("unix:///run/a.sock", "unix:/run/a.sock"),
            ("unix:a.sock", "unix:a.sock"),
            ("http://127.0.0.1:9467", "http://127.0.0.1:9467"),
            ("http://node-a:9465/", "http://node-a:9465"),
            ("http://[fd00::1]:9465", "http://[fd00::1]:9465"),
            ("http://fd00::1:9465", "http://[fd00::1]:9465"),
            ("", "unix:/run/storewatch/admin.sock"),
        ];
        for (given, shown) in rows {
            assert_eq!(AgentAddress::choose(Some(given), AgentAddress::admin()).unwrap().to_string(), shown, "{given}");
        }
    }

    #[test]
    fn wrong_addresses_are_wrong_usage() {
        let rows = [
            ("unix:", "needs a path"),
            ("https://a:1", "does not speak TLS"),
            ("127.0.0.1:9467", "must be unix:PATH or http://HOST:PORT"),
            ("http://a", "lacks a port"),
            ("http://a:0", "1 to 65535"),
            ("http://a:99999", "1 to 65535"),
            ("http://a:1/v1", "1 to 65535"),
            ("http://:9465", "no valid host"),
            ("http://a b:9465", "no valid host"),
            ("http://[::1:9465", "between its brackets"),
            ("http://x::1::2:9465", "no valid host"),
        ];
        for (given, complaint) in rows {
            let failure = AgentAddress::choose(Some(given), AgentAddress::admin()).unwrap_err();
            assert_eq!(failure.exit(), super::super::Exit::Wrong, "{given}");
            assert!(failure.lines().all(|line| line.contains(complaint)), "{given}: {failure:?}");
        }
    }
}
