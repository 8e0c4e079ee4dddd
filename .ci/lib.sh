# shellcheck shell=bash disable=SC2034
# What the scripts beside this file share. Sourced; leaves the caller in the repository's root with a usable PATH.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

LINKER_VERSION=0.10.4 # of bpf-linker; agent/daemon/build.rs names these two as well, and a test compares them
LINKER_LLVM=22        # the LLVM that it is made for
DENY_VERSION=0.20.2   # of cargo-deny

# A user's PATH has no sbin, and a fresh `cargo install` is not on it either: /usr/sbin for ip and nft, last for tools.
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
export PATH

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }
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
    [ -z "${cargo_in_use:-}" ] || return 0
    wanted=$(rust_wanted)
    for candidate in "$(command -v cargo)" /usr/bin/cargo; do
        [ -x "$candidate" ] || continue
        version=$("$candidate" --version 2>/dev/null | cut -d ' ' -f 2)
        if [ -n "$version" ] && at_least "$wanted" "$version"; then
            PATH="$(dirname "$candidate"):$PATH"
            cargo_in_use=$candidate
            return 0
        fi
    done
    return 1
}

# The same order as agent/daemon/build.rs: prints `nightly`, `system` or, where neither is there, nothing.
ebpf_compiler() {
    if have_nightly; then
        echo nightly
    elif have_bpf_core && have_llvm; then
        echo system
    fi
}
have_nightly() {
    local sysroot
    have rustup && sysroot=$(RUSTUP_AUTO_INSTALL=0 rustup run nightly rustc --print sysroot 2>/dev/null) &&
        [ -d "$sysroot/lib/rustlib/src/rust/library/core" ] &&
        "$sysroot/bin/rustc" -vV | grep -q "^LLVM version: $LINKER_LLVM\."
}
have_bpf_core() {
    [ -x /usr/bin/cargo ] && [ -x /usr/bin/rustc ] &&
        compgen -G "/usr/lib/rustlib/bpfel-unknown-none/lib/libcore-*.rlib" >/dev/null
}
have_llvm() { compgen -G "/usr/lib/*/libLLVM.so.$LINKER_LLVM.*" >/dev/null; }
# All that a real object takes. Version and libraries of a linker that is there are the build script's business.
have_ebpf_tools() { [ -n "$(ebpf_compiler)" ] && have bpf-linker; }

# not_run NAME REASON: something that should have run and cannot. On the CI machine that is a failure, unless
# .ci/exceptions names it. The caller ends with `exit "$not_run_failed"` or worse.
not_run_failed=0
not_run() {
    say "not run: $1: $2"
    if in_ci && ! grep -q "^$1:" .ci/exceptions; then
        say "$1 must run where CI=true; the exceptions stand in .ci/exceptions"
        not_run_failed=1
    fi
}

check_format() {
    say "format"
    if cargo fmt --version >/dev/null 2>&1; then
        cargo fmt --all --check
        cargo fmt --manifest-path ebpf/probes/Cargo.toml --check
    else
        not_run format "this cargo has no rustfmt"
    fi
}
