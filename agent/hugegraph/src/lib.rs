//! Everything that storewatch knows about Apache HugeGraph's wire: how PD lists the Stores, what a Store's answer proves,
//! and a test kit that speaks like both.
//!
//! ```text
//! resolve ──► connect (TCP, HTTP/2, timed) ──► call (unary gRPC, seen whole) ──► store: a ping and its outcome
//!                                                                           └──► pd: the list, and who is alive
//! ```
//!
//! Only calls that change nothing are made: `HgStoreState/getScanState`, `pdpb.PD/GetAllStores` and
//! `grpc.health.v1.Health/Check`. PD's other methods refresh leases or change its state.

pub mod address;
pub mod call;
pub mod connect;
pub mod fault;
pub mod identity;
pub mod pd;
pub mod resolve;
pub mod store;

#[cfg(feature = "testkit")]
pub mod testkit;
