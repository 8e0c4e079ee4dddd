//! The `storewatch` binary.
fn main() {}
