//! The two text formats: what Prometheus has always read (0.0.4), and OpenMetrics for those who ask for it.

use http::{HeaderMap, header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Plain,
    OpenMetrics,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// `encoded` is OpenMetrics.
    pub(super) fn render(self, encoded: String) -> String {
        match self {
            Self::Plain => plain(&encoded),
            Self::OpenMetrics => encoded,
        }
    }
}

/// OpenMetrics only when it is named, and preferred to plain text.
pub(super) fn negotiate(headers: &HeaderMap) -> Format {
    let (mut open, mut plain) = (0, 0);
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1000, thousandths);
        let best = match kind.to_ascii_lowercase().as_str() {
            "application/openmetrics-text" => &mut open,
            "text/plain" | "text/*" => &mut plain,
            _ => continue,
        };
        *best = weight.max(*best);
    }
    if open > 0 && open >= plain { Format::OpenMetrics } else { Format::Plain }
}

/// A quality value in thousandths; one that cannot be read is 0.
fn thousandths(quality: &str) -> u32 {
    let weight: f32 = quality.parse().unwrap_or_default();
    // Saturates, and takes NaN for 0.
    (weight.clamp(0.0, 1.0) * 1000.0) as u32
}

/// Rewrites what differs: the older format names a counter and an info with their suffix in HELP and TYPE, too, and knows
/// neither `info` nor `unknown`, nor UNIT and EOF lines.
fn plain(open: &str) -> String {
    let mut out = String::with_capacity(open.len() + open.len() / 16);
    let mut help = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, text)) = help.take() {
                out.extend(["# HELP ", name, suffix, " ", text, "\n"]);
            }
            out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}
