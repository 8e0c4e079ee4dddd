//! Generated protobuf and gRPC code. No logic.
//!
//! `proto/hugegraph` holds the part of HugeGraph's wire that is called, `proto/cri` that of a node's container runtime, and
//! nothing of the rest: messages list only the fields that are read.

/// PD's messages about Stores.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto file explains")]
pub mod metapb {
    tonic::include_proto!("metapb");
}

/// PD's service.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto file explains")]
pub mod pdpb {
    tonic::include_proto!("pdpb");
}

/// The Store's service; its file has no package.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto file explains")]
pub mod store {
    tonic::include_proto!("_");
}

/// The standard health service.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto file explains")]
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

/// The container runtime's interface.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated; the .proto file explains")]
pub mod cri {
    tonic::include_proto!("runtime.v1");
}
