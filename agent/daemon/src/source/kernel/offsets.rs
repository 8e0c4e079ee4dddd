//! Which fields the programs need, and where this kernel has them.

use super::btf::{Btf, BtfError};
use storewatch_ebpf_common::config::{MISSING, Offsets};

/// Bits of the word that the first look reads.
const HEAD_BYTES: u32 = 8;

/// Offsets for the programs, and what this kernel lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// For the programs' read-only global.
    pub offsets: Offsets,
    /// Fields that were not found: what they tell is unknown on this kernel.
    pub missing: Vec<BtfError>,
}

/// Looks every field up.
///
/// # Errors
/// When what decides whether a socket is watched at all cannot be found.
pub fn resolve(btf: &Btf<'_>) -> Result<Resolved, BtfError> {
    let common = |field: &str| btf.offset("sock_common", field);
    let (dport, family, state) = (common("skc_dport")?, common("skc_family")?, common("skc_state")?);
    let head = dport.min(family).min(state);
    let bit = |offset: u32, width: u32, field: &str| {
        let start = offset - head;
        if start + width <= HEAD_BYTES {
            Ok(start * 8)
        } else {
            Err(BtfError::NoField(format!("sock_common.{field} within {HEAD_BYTES} bytes of the port")))
        }
    };
    let mut missing = Vec::new();
    let mut optional = |name: &str, field: &str| {
        btf.offset(name, field).unwrap_or_else(|error| {
            missing.push(error);
            MISSING
        })
    };
    let offsets = Offsets {
        head,
        head_dport: bit(dport, 2, "skc_dport")?,
        head_family: bit(family, 2, "skc_family")?,
        head_state: bit(state, 1, "skc_state")?,
        daddr: common("skc_daddr")?,
        saddr: common("skc_rcv_saddr")?,
        v6_daddr: optional("sock_common", "skc_v6_daddr"),
        v6_saddr: optional("sock_common", "skc_v6_rcv_saddr"),
        net: optional("sock_common", "skc_net"),
        net_inum: optional("net", "ns.inum"),
        protocol: optional("sock", "sk_protocol"),
        err: optional("sock", "sk_err"),
        err_soft: optional("sock", "sk_err_soft"),
        flags: optional("sock_common", "skc_flags"),
        cgroup: optional("sock", "sk_cgrp_data.cgroup"),
        cgroup_kn: optional("cgroup", "kn"),
        kn_id: optional("kernfs_node", "id"),
        sport: optional("inet_sock", "inet_sport"),
        retransmits: optional("inet_connection_sock", "icsk_retransmits"),
        pending: optional("inet_connection_sock", "icsk_pending"),
        lrcvtime: optional("inet_connection_sock", "icsk_ack.lrcvtime"),
        total_retrans: optional("tcp_sock", "total_retrans"),
        bytes_received: optional("tcp_sock", "bytes_received"),
        bytes_acked: optional("tcp_sock", "bytes_acked"),
        srtt_us: optional("tcp_sock", "srtt_us"),
        snd_una: optional("tcp_sock", "snd_una"),
        write_seq: optional("tcp_sock", "write_seq"),
        lsndtime: optional("tcp_sock", "lsndtime"),
        socket_sk: optional("socket", "sk"),
        task_tgid: optional("task_struct", "tgid"),
        send_reset_args: btf.tracepoint_arguments("tcp_send_reset").unwrap_or(0),
    };
    Ok(Resolved { offsets, missing })
}
