//! What the machine allows the process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files for all but the listeners: the kernel part takes some 60, each target a connection.
const RESERVED: u64 = 256;

/// Listeners that accept connections: probe, metrics, admin and its socket.
const LISTENERS: u64 = 4;

/// Files below which whoever asks for readiness may find no room among others who ask.
const ENOUGH: u64 = RESERVED + LISTENERS * 64;

/// Lets the process have as many files open as it may, and warns where that is few.
pub fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        }
        Ok(hard)
    });
    match raised {
        Ok(allowed) if allowed >= ENOUGH => {}
        Ok(allowed) => {
            let raise = "raise the hard limit (ulimit -Hn, LimitNOFILE=)";
            tracing::warn!(
                allowed,
                enough = ENOUGH,
                "few files may be open at a time, and probes may go unanswered: {raise}"
            );
        }
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
}

/// Connections that one listener may hold, so that all of them together leave enough for the agent's own work.
pub fn connections() -> usize {
    let allowed = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    let share = allowed.saturating_sub(RESERVED) / LISTENERS;
    usize::try_from(share).unwrap_or(usize::MAX).max(8)
}
