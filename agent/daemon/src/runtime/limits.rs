//! What the machine allows the process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files below which the agent cannot do all its work: the kernel part takes some 60, each target a connection, and whoever
/// asks for readiness one more. Where none is left, a probe gets no answer and a pod goes out of service for it.
const NEEDED: u64 = 1024;

/// Lets the process have as many files open as it may, and warns where that is few.
pub fn raise_open_files() {
    let allowed = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        }
        Ok(hard)
    });
    match allowed {
        Ok(allowed) if allowed >= NEEDED => {}
        Ok(allowed) => {
            tracing::warn!(
                allowed,
                needed = NEEDED,
                "few files may be open at a time: probes may go unanswered; raise the hard limit (ulimit -Hn, LimitNOFILE=)"
            );
        }
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
}
