//! One real packet per kernel hook. Needs root, iproute2 and nftables; makes its own network namespaces and cgroups.

mod hooks;
