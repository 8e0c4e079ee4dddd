//! One real packet per kernel hook, then the cases that prove a classifier right. Needs root, iproute2 and nftables; makes
//! its own network namespaces and cgroups, and removes them.

mod attribution;
mod cases;
mod hooks;
mod inventory;
mod local;
mod reconcile;
mod rights;
mod rows;
mod stage;
mod storms;
