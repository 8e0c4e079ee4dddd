//! Compiles the .proto files with a compiler in Rust, so that no `protoc` is needed.

use std::error::Error;

const FILES: [&str; 5] = [
    "cri/runtime.proto",
    "hugegraph/health.proto",
    "hugegraph/metapb.proto",
    "hugegraph/pdpb.proto",
    "hugegraph/store.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["."])?;
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
