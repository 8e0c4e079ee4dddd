# shellcheck shell=bash
# What the scripts beside this file share. Sourced; leaves the caller in the repository's root with a usable PATH.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# A user's PATH has no sbin, and a fresh `cargo install` is not on it either: /usr/sbin for ip and nft, last for tools.
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
export PATH

say() { printf '%s\n' "storewatch: $*"; }
die() { say "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }
in_ci() { [ "${CI:-}" = true ]; }
# Debian has the compiler with a precompiled bpf core; its derivatives do not.
is_debian() { [ -r /etc/os-release ] && ( . /etc/os-release; [ "${ID:-}" = debian ] ) && have apt-get; }

# at_least 1.90 1.96.0: is the second version the same or newer?
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# The oldest Rust that the workspace accepts.
rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

# Puts the first cargo that is new enough in front, so that an old one on PATH is no obstacle. Fails where there is none.
use_cargo() {
    local wanted candidate version
    wanted=$(rust_wanted)
    for candidate in "$(command -v cargo)" /usr/bin/cargo; do
        [ -x "$candidate" ] || continue
        version=$("$candidate" --version 2>/dev/null | cut -d ' ' -f 2)
        if [ -n "$version" ] && at_least "$wanted" "$version"; then
            PATH="$(dirname "$candidate"):$PATH"
            return 0
        fi
    done
    return 1
}

# The same order as agent/daemon/build.rs: prints `nightly`, `system` or, where neither is there, nothing.
ebpf_compiler() {
    local sysroot
    if have rustup; then
        sysroot=$(RUSTUP_AUTO_INSTALL=0 rustup run nightly rustc --print sysroot 2>/dev/null)
        if [ -d "$sysroot/lib/rustlib/src/rust/library/core" ] &&
            "$sysroot/bin/rustc" -vV | grep -q '^LLVM version: 22\.'; then
            echo nightly
            return
        fi
    fi
    if [ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ]; then
        sysroot=$(/usr/bin/rustc --print sysroot 2>/dev/null)
        if compgen -G "$sysroot/lib/rustlib/bpfel-unknown-none/lib/libcore-*.rlib" >/dev/null; then
            echo system
        fi
    fi
}

# not_run NAME REASON: something that should have run and cannot. On the CI machine that is a failure, unless
# .ci/exceptions names it. The caller ends with `exit "$not_run_failed"` or worse.
not_run_failed=0
not_run() {
    say "not run: $1: $2"
    if in_ci && ! grep -q "^$1:" .ci/exceptions; then
        say "$1 must run where CI=true; the exceptions stand in .ci/exceptions"
        # shellcheck disable=SC2034 # read by the scripts that source this one
        not_run_failed=1
    fi
}
