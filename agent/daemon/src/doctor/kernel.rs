//! The kernel part: each program is loaded, attached and detached again.

use super::Check;
use crate::{
    config::KernelMode,
    source::kernel::{
        Settings,
        capability::{BTF_PATH, Capabilities},
        loader::{self, CALLS, Hook, ITERATOR, LoadError, Loaded, TRACEPOINTS, Tier},
    },
};

/// What is lost without the kernel's events.
const EVENTS: &str =
    "what the kernel saw of pods' connections: PodCannotReachStores, stale dials and all findings about them";

/// The oldest kernel that has every tracepoint: `inet_sk_error_report` came with it.
const OLDEST: (u32, u32) = (5, 13);

/// Room for the counters of a trial that counts nothing.
const FEW_KEYS: usize = 16;
const SMALL_RING: u32 = 4096;

pub(super) fn checks(mode: KernelMode) -> Vec<Check> {
    let capabilities = Capabilities::read();
    let mut checks = machine(&capabilities);
    if mode == KernelMode::Off {
        let off = "switched off by configuration (kernel.mode: off)";
        checks.push(Check::degraded("hooks", off, EVENTS, "kernel.mode: auto"));
        return checks;
    }
    let required = mode == KernelMode::Required;
    let settings =
        Settings { selected_keys: Some(FEW_KEYS), ring_bytes: SMALL_RING, ignore_own: false, ..Settings::default() };
    match loader::load(&settings, &capabilities) {
        Ok(loaded) => checks.extend(hooks(loaded, required)),
        Err(error) => checks.extend(none(&error, required)),
    }
    checks
}

/// What the kernel and this process's rights offer.
fn machine(capabilities: &Capabilities) -> Vec<Check> {
    let release = capabilities.release.as_str();
    let mut checks = vec![match version(release) {
        Some(version) if version < OLDEST => Check::degraded(
            "kernel",
            release,
            "what tracepoints of later kernels tell",
            format!("a kernel from {}.{}", OLDEST.0, OLDEST.1),
        ),
        _ => Check::ok("kernel", release),
    }];
    checks.push(if capabilities.btf {
        Check::ok("BTF", BTF_PATH)
    } else {
        let how = "a kernel built with CONFIG_DEBUG_INFO_BTF, and /sys in the container";
        Check::missing("BTF", format!("no {BTF_PATH}"), EVENTS, how)
    });
    for (name, has, how) in [
        ("CAP_BPF", capabilities.bpf, "BPF among the container's capabilities, or root"),
        ("CAP_PERFMON", capabilities.perfmon, "PERFMON among the container's capabilities, or root"),
    ] {
        let found = if has { "held" } else { "not held" };
        checks.push(if has { Check::ok(name, found) } else { Check::missing(name, found, EVENTS, how) });
    }
    checks.push(if capabilities.locked_down {
        Check::missing("kernel lockdown", "confidentiality", EVENTS, "boot with lockdown=integrity or none")
    } else {
        Check::ok("kernel lockdown", "does not forbid to read kernel memory")
    });
    checks
}

fn hooks(mut loaded: Loaded, required: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    if !loaded.missing_fields.is_empty() {
        let fields: Vec<_> = loaded.missing_fields.iter().map(ToString::to_string).collect();
        let lost = "what those fields tell; it is treated as unknown";
        checks.push(Check::degraded("kernel fields", fields.join("; "), lost, "another kernel"));
    }
    let hooks = std::mem::take(&mut loaded.hooks);
    for Hook { name, tier, lost, missing } in &hooks {
        checks.push(match (tier, missing) {
            // Loaded; whether it may also be begun, is tried below.
            (Tier::Inventory, _) => continue,
            (Tier::Events, None) => Check::ok(format!("hook {name}"), "attached and detached"),
            (Tier::Calls, None) => Check::ok(format!("call {name}"), "attached and detached"),
            (Tier::Calls, Some(reason)) => call(name, reason),
            // `run` requires the source to be whole then.
            (Tier::Events, Some(reason)) => {
                Check::missing(format!("hook {name}"), reason, lost, "another kernel").fatal_if(required)
            }
        });
    }
    checks.push(match iterate(&mut loaded) {
        Ok(()) => Check::ok("iterator", "attached and detached"),
        Err(reason) => Check::degraded("iterator", reason, ITERATOR.1, "a kernel from 5.8 with BTF"),
    });
    checks
}

fn iterate(loaded: &mut Loaded) -> Result<(), String> {
    let program = loader::iterator(&mut loaded.ebpf)?;
    let link = program.attach().map_err(|error| error.to_string())?;
    let link = program.take_link(link).map_err(|error| error.to_string())?;
    link.into_file().map(drop).map_err(|error| error.to_string())
}

/// The tier for failures that never fire a tracepoint is not there.
fn call(name: &str, reason: &str) -> Check {
    Check::degraded(
        format!("call {name}"),
        reason,
        "dials that the pod's own routing refuses fire no tracepoint: finding LocalRoute (AttemptsNotObservable)",
        "a kernel whose functions can be traced (CONFIG_FUNCTION_TRACER with direct calls); ip route in the pod shows such \
         a route",
    )
}

/// Nothing could be loaded: why, once, and what each program would have told.
fn none(error: &LoadError, required: bool) -> Vec<Check> {
    let how = match error {
        LoadError::Stub(_) => "a release, or a build where the eBPF toolchain is installed",
        LoadError::Refused(_) => "what is missing above",
        LoadError::Btf(_) | LoadError::Read(_) => "a kernel whose BTF can be read",
        LoadError::Load(_) | LoadError::Essential { .. } => "see the reason; kernel.mode: auto runs without",
    };
    let mut checks: Vec<_> = TRACEPOINTS
        .into_iter()
        .map(|(name, lost)| Check::missing(format!("hook {name}"), "not tried", lost, how))
        .collect();
    if let Some(first) = checks.first_mut() {
        if !matches!(error, LoadError::Refused(_)) {
            first.found = error.to_string();
        }
        first.fatal = required;
    }
    checks.extend(CALLS.map(|(name, _)| call(name, "not tried")));
    checks.push(Check::degraded("iterator", "not tried", ITERATOR.1, how));
    checks
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|char: char| !char.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.18.44"), Some((6, 18)));
        assert_eq!(version("5.9-rc1+"), Some((5, 9)));
        assert!(
            version("5.9.1") < Some(OLDEST) && version("5.13") >= Some(OLDEST) && version("6.1.0-amd64") > Some(OLDEST)
        );
        assert_eq!(version("x"), None);
    }

    #[test]
    fn a_refusal_is_told_once_and_every_hook_says_what_is_lost() {
        let checks = none(&LoadError::Load("the verifier said no".to_owned()), true);
        assert_eq!(checks.len(), TRACEPOINTS.len() + CALLS.len() + 1);
        assert!(checks.iter().all(|check| check.state != State::Ok && !check.lost.is_empty() && !check.how.is_empty()));
        assert_eq!(checks.iter().filter(|check| check.found.contains("the verifier said no")).count(), 1);
        assert_eq!(checks.iter().filter(|check| check.fatal).count(), 1);
        // What this process lacks has lines of its own.
        assert!(
            none(&LoadError::Refused("no CAP_BPF".to_owned()), false).iter().all(|check| check.found == "not tried")
        );
        assert!(!none(&LoadError::Refused(String::new()), false).iter().any(|check| check.fatal));
    }

    #[test]
    fn what_this_process_lacks_is_missing_with_what_is_lost() {
        let none = Capabilities {
            release: "4.19.1".to_owned(),
            btf: false,
            bpf: false,
            perfmon: false,
            locked_down: true,
            measures_programs: false,
        };
        let checks = machine(&none);
        let states: Vec<_> = checks.iter().map(|check| (check.name.as_str(), check.state)).collect();
        let expected = [
            ("kernel", State::Degraded),
            ("BTF", State::Missing),
            ("CAP_BPF", State::Missing),
            ("CAP_PERFMON", State::Missing),
            ("kernel lockdown", State::Missing),
        ];
        assert_eq!(states, expected);
        assert!(!checks.iter().any(|check| check.fatal || check.how.is_empty()), "the agent runs on without");
    }
}
