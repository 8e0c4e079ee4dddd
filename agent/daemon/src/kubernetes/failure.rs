//! What a failed call means, in words that name the remedy.

use kube::runtime::watcher;
use std::time::Duration;

/// Why a call gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// 401, 403: it will stay so until someone changes the rights.
    Forbidden,
    /// 404.
    Missing,
    /// 409: the object changed in between.
    Conflict,
    /// 410: the watched version is too old; a fresh list heals it.
    Expired,
    /// 422, or 400: it was refused for what it says.
    Invalid,
    /// 429.
    TooMany,
    /// 5xx.
    Server,
    /// No answer came, or none that could be read.
    Away,
}

/// A call that gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub why: Why,
    /// In words.
    pub words: String,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
}

/// The longest that a server's wish to wait is followed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The longest part of a server's message that is repeated.
const MAX_WORDS: usize = 240;

impl Failure {
    /// From a call's error.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            // Three layers say that something went wrong before the last one says what.
            kube::Error::Service(_) | kube::Error::HyperError(_) => {
                Self::away(&format!("the API server does not answer: {}", root(error)))
            }
            other => Self::away(&chain(other)),
        }
    }

    /// From a watch's error.
    pub fn of_watch(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Self::of(error),
            watcher::Error::WatchError(status) => Self::of_status(status),
            watcher::Error::NoResourceVersion => Self::away("its list has no version"),
        }
    }

    /// No answer within a time.
    pub fn timeout(after: Duration) -> Self {
        Self::away(&format!("no answer within {} s", after.as_secs()))
    }

    fn away(words: &str) -> Self {
        Self { why: Why::Away, words: cut(words), retry_after: None }
    }

    fn of_status(status: &kube::core::Status) -> Self {
        let why = match status.code {
            401 | 403 => Why::Forbidden,
            404 => Why::Missing,
            409 => Why::Conflict,
            410 => Why::Expired,
            400 | 422 => Why::Invalid,
            429 => Why::TooMany,
            _ => Why::Server,
        };
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Self {
            why,
            words: cut(&format!("{} {}", status.code, status.message)),
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(MAX_RETRY_AFTER)),
        }
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// The innermost cause.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn cut(words: &str) -> String {
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_WORDS) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_understood() {
        for (code, why) in [
            (401, Why::Forbidden),
            (403, Why::Forbidden),
            (404, Why::Missing),
            (409, Why::Conflict),
            (410, Why::Expired),
            (422, Why::Invalid),
            (429, Why::TooMany),
            (500, Why::Server),
            (503, Why::Server),
            (0, Why::Server),
        ] {
            let mut status = kube::core::Status::failure("no\n  way", "Because");
            status.code = code;
            let failure = Failure::of(&kube::Error::Api(Box::new(status)));
            assert_eq!((failure.why, failure.words), (why, format!("{code} no way")));
        }
        let mut status = kube::core::Status::failure(&"x".repeat(10_000), "TooManyRequests");
        status.code = 429;
        status.details = Some(kube::core::response::StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 100_000,
        });
        let failure = Failure::of(&kube::Error::Api(Box::new(status)));
        assert_eq!(failure.retry_after, Some(MAX_RETRY_AFTER));
        assert!(failure.words.len() <= MAX_WORDS + 3, "{}", failure.words.len());
    }
}
