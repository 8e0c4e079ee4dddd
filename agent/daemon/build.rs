//! Builds the eBPF object of `ebpf/probes` and hands its path to the crate.
//!
//! Contract with the crate, by compile-time variables:
//! - `STOREWATCH_EBPF_OBJECT`: path of the object, for `aya::include_bytes_aligned!`. Empty file when there is none.
//! - `STOREWATCH_EBPF_KIND`: `real` or `stub`.
//! - `STOREWATCH_EBPF_STUB_REASON`: why it is a stub, in one line; empty for a real object.
//! - the cfg `ebpf_object = "real"` or `"stub"`, for what only makes sense with one of them.
//!
//! Contract with whoever builds, by environment variables:
//! - `STOREWATCH_EBPF` = `auto` (a stub where the tools are missing; the default) or `stub` (never build the object).
//! - `STOREWATCH_ALLOW_STUB` = anything: a release build may carry a stub. Without it that is an error, because such a
//!   binary is blind to the kernel wherever it is installed.
//!
//! A tool that is missing leads to a stub; a program that does not compile is an error, as anywhere else. The object is
//! built by a second cargo in a target directory of its own (`target/ebpf`), since the outer one holds its lock while
//! this script runs. `aya-build` does the same for a nightly compiler only, which is why it is not used.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};

const BPF_TARGET: &str = "bpfel-unknown-none";
/// What Debian 12 needs beside a compiler; named in messages.
const DEBIAN_PACKAGES: &str = "rustc-web cargo-web libstd-rust-web-dev-bpf libllvm22";
const LINKER_COMMAND: &str = "cargo install bpf-linker --version 0.10.4 --locked";
/// The LLVM that the above bpf-linker is made for, by its default features.
const LINKER_LLVM: &str = "22";

/// A compiler that can produce code for `BPF_TARGET`, and the command that runs its cargo.
struct Toolchain {
    name: &'static str,
    /// Program and leading arguments.
    cargo: Vec<OsString>,
    /// Arguments behind `build`.
    build_args: &'static [&'static str],
    /// Set as `RUSTC` where cargo would not find this compiler by itself.
    rustc: Option<PathBuf>,
    /// `libLLVM` of the compiler: the one version that can read its bitcode for certain.
    llvm: PathBuf,
}

fn main() -> ExitCode {
    let Err(error) = prepare_object() else { return ExitCode::SUCCESS };
    println!("cargo::error={}", format!("{error:#}").replace('\n', "; "));
    // The line above ends the build. Only after a failed script cargo also shows its standard error, where the messages
    // of the inner compiler stand; for anything else that would bury the one line that matters.
    if error.is::<InnerCargoFailed>() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Debug)]
struct InnerCargoFailed(ExitStatus);

impl std::error::Error for InnerCargoFailed {}

impl fmt::Display for InnerCargoFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cargo build in ebpf/probes ended with {}, its messages stand with this script's output", self.0)
    }
}

/// Makes the object or its stub and tells the crate, as the head of this file says.
fn prepare_object() -> Result<()> {
    let out_dir = PathBuf::from(var("OUT_DIR")?);
    let root = Path::new(&var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize().context("no workspace root")?;
    let object = out_dir.join("storewatch-ebpf.o");

    for path in ["ebpf/common/Cargo.toml", "ebpf/common/src", "ebpf/probes/Cargo.toml", "ebpf/probes/Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo::rerun-if-changed={}", root.join("ebpf/probes/src").display());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=STOREWATCH_EBPF");
    println!("cargo::rerun-if-env-changed=STOREWATCH_ALLOW_STUB");

    let wish = env::var("STOREWATCH_EBPF").unwrap_or_default();
    let tools = match wish.as_str() {
        "" | "auto" => find_tools(),
        "stub" => Err("asked for by STOREWATCH_EBPF=stub".to_owned()),
        other => bail!("STOREWATCH_EBPF={other}: use `auto` or `stub`"),
    };
    let (kind, reason) = match tools {
        Ok((toolchain, linker)) => {
            let built = build(&toolchain, &linker, &root, &out_dir)
                .with_context(|| format!("the eBPF object does not build with {}", toolchain.name))?;
            fs::copy(&built, &object).with_context(|| format!("cannot copy {}", built.display()))?;
            ("real", String::new())
        }
        Err(reason) => {
            ensure!(
                var("PROFILE")? != "release" || env::var_os("STOREWATCH_ALLOW_STUB").is_some(),
                "a release build needs the real eBPF object: {reason} (to ship a binary that cannot see kernel events \
                 all the same, set STOREWATCH_ALLOW_STUB=1)"
            );
            fs::write(&object, []).with_context(|| format!("cannot write {}", object.display()))?;
            watch_for_tools();
            if wish != "stub" {
                println!("cargo::warning=stub instead of the eBPF object, kernel events will be absent: {reason}");
            }
            ("stub", reason)
        }
    };
    println!("cargo::rustc-check-cfg=cfg(ebpf_object, values(\"real\", \"stub\"))");
    println!("cargo::rustc-cfg=ebpf_object=\"{kind}\"");
    println!("cargo::rustc-env=STOREWATCH_EBPF_OBJECT={}", object.display());
    println!("cargo::rustc-env=STOREWATCH_EBPF_KIND={kind}");
    println!("cargo::rustc-env=STOREWATCH_EBPF_STUB_REASON={reason}");
    Ok(())
}

/// Finds compiler and linker, or says in one line what is missing and what to install.
fn find_tools() -> Result<(Toolchain, PathBuf), String> {
    let toolchain = match (nightly(), precompiled_core()) {
        (Ok(found), _) | (Err(_), Ok(found)) => found,
        (Err(nightly), Err(system)) => return Err(format!("no compiler for it ({nightly}; {system})")),
    };
    let linker = cargo_bin_dir()
        .into_iter()
        .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default()))
        .map(|dir| dir.join("bpf-linker"))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("bpf-linker is missing, install it with `{LINKER_COMMAND}`"))?;
    Ok((toolchain, linker))
}

/// The usual way on a workstation: rustup's nightly, which compiles `core` from `rust-src`.
fn nightly() -> Result<Toolchain, String> {
    // `rustup run` never installs a toolchain by itself, unlike `cargo +nightly`.
    let rustc = |args: &[&str]| output(scrub(Command::new("rustup")).args(["run", "nightly", "rustc"]).args(args));
    let sysroot = rustc(&["--print", "sysroot"])
        .map(PathBuf::from)
        .ok_or("rustup has no nightly with rust-src on this machine")?;
    if !sysroot.join("lib/rustlib/src/rust/library/core").is_dir() {
        return Err("rustup's nightly lacks rust-src: `rustup component add rust-src --toolchain nightly`".to_owned());
    }
    Ok(Toolchain {
        name: "rustup's nightly and -Z build-std=core",
        cargo: ["rustup", "run", "nightly", "cargo"].map(OsString::from).to_vec(),
        build_args: &["-Z", "build-std=core"],
        llvm: llvm_of(&sysroot, rustc(&["-vV"]))?,
        rustc: None,
    })
}

/// A compiler that comes with `core` for the target, as Debian's does.
fn precompiled_core() -> Result<Toolchain, String> {
    let missing = || format!("on Debian 12 `apt-get install --no-install-recommends {DEBIAN_PACKAGES}`");
    let bin = Path::new("/usr/bin");
    let (rustc, cargo) = (bin.join("rustc"), bin.join("cargo"));
    let run = |args: &[&str]| output(scrub(Command::new(&rustc)).args(args));
    let sysroot = run(&["--print", "sysroot"]).map(PathBuf::from).ok_or_else(missing)?;
    let libraries = fs::read_dir(sysroot.join("lib/rustlib").join(BPF_TARGET).join("lib")).map_err(|_| missing())?;
    let is_core = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|e| starts_with(&e.file_name(), "libcore-"));
    if !cargo.is_file() || !libraries.into_iter().any(is_core) {
        return Err(missing());
    }
    Ok(Toolchain {
        name: "/usr/bin/rustc and its precompiled core",
        cargo: vec![cargo.into()],
        build_args: &[],
        llvm: llvm_of(&sysroot, run(&["-vV"]))?,
        rustc: Some(rustc),
    })
}

/// The shared `libLLVM` that belongs to the compiler in `sysroot`, whose `rustc -vV` is `version`.
fn llvm_of(sysroot: &Path, version: Option<String>) -> Result<PathBuf, String> {
    let version = version.unwrap_or_default();
    let field = |name: &str| version.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let (llvm, host) = (field("LLVM version:"), field("host:"));
    let major = llvm.split('.').next().unwrap_or_default();
    if major != LINKER_LLVM {
        return Err(format!(
            "the compiler in {} uses LLVM {llvm}, bpf-linker 0.10.4 is made for LLVM {LINKER_LLVM}",
            sysroot.display()
        ));
    }
    let multiarch = format!("/usr/lib/{}", host.replace("-unknown", ""));
    let prefixes = [format!("libLLVM.so.{major}."), format!("libLLVM-{major}")];
    [sysroot.join("lib"), PathBuf::from(multiarch), PathBuf::from(format!("/usr/lib/llvm-{major}/lib"))]
        .iter()
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flat_map(|entries| entries.flatten())
        // The linker script `libLLVM-22-….so` of rustup's toolchains is not a library; the real file is larger.
        .filter(|entry| prefixes.iter().any(|prefix| starts_with(&entry.file_name(), prefix)))
        .map(|entry| entry.path())
        .filter(|path| fs::metadata(path).is_ok_and(|meta| meta.len() > 1 << 20))
        .min_by_key(|path| !starts_with(path.file_name().unwrap_or_default(), &prefixes[0]))
        .ok_or_else(|| {
            format!("bpf-linker needs libLLVM {major} at run time: on Debian 12 `apt-get install libllvm{major}`")
        })
}

/// Runs the inner cargo and returns the object it made.
fn build(toolchain: &Toolchain, linker: &Path, root: &Path, out_dir: &Path) -> Result<PathBuf> {
    // bpf-linker loads the first file named `libLLVM*` that it meets in the directories of LD_LIBRARY_PATH, whatever its
    // version: it gets a directory that holds nothing else. The name is kept, since the compiler finds its own by it.
    let llvm_dir = out_dir.join("llvm");
    if llvm_dir.exists() {
        fs::remove_dir_all(&llvm_dir).context("cannot empty the directory for libLLVM")?;
    }
    fs::create_dir_all(&llvm_dir).context("cannot make the directory for libLLVM")?;
    let link = llvm_dir.join(toolchain.llvm.file_name().context("libLLVM without a file name")?);
    std::os::unix::fs::symlink(&toolchain.llvm, &link).with_context(|| format!("cannot make {}", link.display()))?;

    let arch = var("CARGO_CFG_TARGET_ARCH")?; // of the machine that will run the programs, not of this one
    // Line information names sources: the same object wherever the tree and cargo's home lie.
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|| PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cargo"));
    let flags = [
        format!("--remap-path-prefix={}=/storewatch", root.display()),
        format!("--remap-path-prefix={}=/cargo", home.display()),
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", linker.display()),
    ];
    let target_dir = target_dir(out_dir);
    let mut command = scrub(Command::new(&toolchain.cargo[0]));
    command
        .args(&toolchain.cargo[1..])
        .args(["build", "--release", "--locked", "--target", BPF_TARGET])
        .args(toolchain.build_args)
        .current_dir(root.join("ebpf/probes"))
        .env("CARGO_TARGET_DIR", &target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("LD_LIBRARY_PATH", &llvm_dir)
        .env("RUSTC_BOOTSTRAP", "1") // the target's intrinsics are unstable, the compiler need not be a nightly
        .stdin(Stdio::null())
        .stdout(io::stderr()); // what goes to standard output would be taken for instructions to the outer cargo
    if let Some(rustc) = &toolchain.rustc {
        command.env("RUSTC", rustc);
    }
    let status = command.status().with_context(|| format!("cannot run {}", toolchain.cargo[0].display()))?;
    if !status.success() {
        bail!(InnerCargoFailed(status));
    }

    let object = target_dir.join(BPF_TARGET).join("release/storewatch-ebpf");
    let bytes = fs::read(&object).with_context(|| format!("cannot read {}", object.display()))?;
    let is_bpf = bytes.starts_with(b"\x7fELF") && bytes.get(18..20) == Some(&[247, 0]); // e_machine, EM_BPF
    ensure!(is_bpf, "{} is not an eBPF object", object.display());
    ensure!(bytes.windows(5).any(|name| name == b".BTF\0"), "{} carries no BTF", object.display());
    Ok(object)
}

/// `target/ebpf`, shared by all profiles of the outer build; `OUT_DIR` is `target/[<triple>/]<profile>/build/<crate>/out`.
fn target_dir(out_dir: &Path) -> PathBuf {
    let marked = |dir: &&Path| dir.join("CACHEDIR.TAG").is_file() || dir.join(".rustc_info.json").is_file();
    out_dir.ancestors().find(marked).unwrap_or(out_dir).join("ebpf")
}

/// Removes what the outer build set for this script and its compiler, which is wrong for another target and compiler.
fn scrub(mut command: Command) -> Command {
    const KEPT: [&str; 6] =
        ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_", "CARGO_TERM_COLOR"];
    const REMOVED: [&str; 16] = [
        "CARGO",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTUP_TOOLCHAIN",
        "LD_LIBRARY_PATH",
        "MAKEFLAGS",
        "MFLAGS",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "OUT_DIR",
        "NUM_JOBS",
        "CLIPPY_ARGS",
    ];
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let outer = REMOVED.contains(&text.as_ref())
            || ["CARGO_", "RUSTC_", "DEP_"].iter().any(|prefix| text.starts_with(prefix));
        if outer && !KEPT.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Lets cargo run this script again when something was installed. Only files that exist: a missing one would run the
/// script, and compile the crate, at every build.
fn watch_for_tools() {
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let rustup = env::var_os("RUSTUP_HOME").map_or_else(|| home.join(".rustup"), PathBuf::from);
    let nightlies = fs::read_dir(rustup.join("toolchains")).into_iter().flatten().flatten();
    let components = nightlies
        .filter(|entry| starts_with(&entry.file_name(), "nightly"))
        .map(|entry| entry.path().join("lib/rustlib/components"));
    let packages = PathBuf::from("/var/lib/dpkg/status");
    let installed = cargo_bin_dir().map(|bin| bin.with_file_name(".crates.toml"));
    for path in components.chain([packages]).chain(installed).filter(|path| path.is_file()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn cargo_bin_dir() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    home.map(|home| home.join("bin"))
}

/// Trimmed standard output of a command that ended well; its complaints are of no interest.
fn output(command: &mut Command) -> Option<String> {
    let output = command.env("RUSTUP_AUTO_INSTALL", "0").stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn starts_with(name: &OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}

fn var(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name}: cargo sets it for a build script"))
}
