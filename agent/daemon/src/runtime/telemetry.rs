//! Logging: text for people, JSON for collectors; always to standard error, since standard output belongs to answers.

use crate::config::{LogFormat, LogLevel};
use std::io::IsTerminal as _;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// Installs the logger. A second call in one process changes nothing.
pub fn install(level: LogLevel, format: LogFormat) {
    // `RUST_LOG` is for whoever debugs the agent itself; it beats the configured level.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(directive(level)));
    let registry = tracing_subscriber::registry().with(filter);
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let installed = match format {
        LogFormat::Text => registry.with(layer.with_target(false)).try_init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
    };
    if installed.is_err() {
        tracing::debug!("a logger is installed already");
    }
}

/// HTTP/2 warns of every client that breaks its rules: on a port without authentication anybody could fill the log.
fn directive(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn,h2=error",
        LogLevel::Info => "info,h2=error",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}
