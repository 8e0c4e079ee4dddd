//! What user space decides: before loading (read-only globals) and while running (maps).

/// Name of the read-only global that holds [`Offsets`].
pub const OFFSETS_GLOBAL: &str = "OFFSETS";
/// Name of the read-only global that holds [`Settings`].
pub const SETTINGS_GLOBAL: &str = "SETTINGS";

/// An offset of a field that this kernel does not have. Reads of it give 0, and the verifier removes them.
pub const MISSING: u32 = u32::MAX;

/// Where this kernel keeps the fields that the programs read, in bytes, from `/sys/kernel/btf/vmlinux`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Start of the 8 bytes of `sock_common` that hold the remote port, family and state: one read decides what is watched.
    pub head: u32,
    /// Bit positions within those 8 bytes: `skc_dport`.
    pub head_dport: u32,
    /// `skc_family`.
    pub head_family: u32,
    /// `skc_state`.
    pub head_state: u32,
    /// `sock_common.skc_daddr`.
    pub daddr: u32,
    /// `sock_common.skc_rcv_saddr`.
    pub saddr: u32,
    /// `sock_common.skc_v6_daddr`.
    pub v6_daddr: u32,
    /// `sock_common.skc_v6_rcv_saddr`.
    pub v6_saddr: u32,
    /// `sock_common.skc_net`.
    pub net: u32,
    /// `net.ns.inum`.
    pub net_inum: u32,
    /// `sock.sk_protocol`.
    pub protocol: u32,
    /// `sock.sk_err`.
    pub err: u32,
    /// `sock.sk_err_soft`.
    pub err_soft: u32,
    /// `sock.__sk_common.skc_flags`.
    pub flags: u32,
    /// `sock.sk_cgrp_data.cgroup`.
    pub cgroup: u32,
    /// `cgroup.kn`.
    pub cgroup_kn: u32,
    /// `kernfs_node.id`.
    pub kn_id: u32,
    /// `inet_sock.inet_sport`.
    pub sport: u32,
    /// `inet_connection_sock.icsk_retransmits`.
    pub retransmits: u32,
    /// `inet_connection_sock.icsk_pending`.
    pub pending: u32,
    /// `inet_connection_sock.icsk_ack.lrcvtime`.
    pub lrcvtime: u32,
    /// `tcp_sock.total_retrans`.
    pub total_retrans: u32,
    /// `tcp_sock.bytes_received`.
    pub bytes_received: u32,
    /// `tcp_sock.bytes_acked`.
    pub bytes_acked: u32,
    /// `tcp_sock.srtt_us`.
    pub srtt_us: u32,
    /// `tcp_sock.snd_una`.
    pub snd_una: u32,
    /// `tcp_sock.write_seq`.
    pub write_seq: u32,
    /// `tcp_sock.lsndtime`.
    pub lsndtime: u32,
    /// `socket.sk`.
    pub socket_sk: u32,
    /// `task_struct.tgid`.
    pub task_tgid: u32,
    /// Arguments of the tracepoint `tcp_send_reset`: the third is the reason.
    pub send_reset_args: u32,
}

impl Offsets {
    /// No field known.
    pub const NONE: Self = Self {
        head: MISSING,
        head_dport: 0,
        head_family: 0,
        head_state: 0,
        daddr: MISSING,
        saddr: MISSING,
        v6_daddr: MISSING,
        v6_saddr: MISSING,
        net: MISSING,
        net_inum: MISSING,
        protocol: MISSING,
        err: MISSING,
        err_soft: MISSING,
        flags: MISSING,
        cgroup: MISSING,
        cgroup_kn: MISSING,
        kn_id: MISSING,
        sport: MISSING,
        retransmits: MISSING,
        pending: MISSING,
        lrcvtime: MISSING,
        total_retrans: MISSING,
        bytes_received: MISSING,
        bytes_acked: MISSING,
        srtt_us: MISSING,
        snd_una: MISSING,
        write_seq: MISSING,
        lsndtime: MISSING,
        socket_sk: MISSING,
        task_tgid: MISSING,
        send_reset_args: 0,
    };
}

const _: () = assert!(size_of::<Offsets>() == 31 * 4);

/// What does not change while the programs run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Device of the agent's pid namespace, in the kernel's own encoding.
    pub pidns_dev: u64,
    /// Its inode number; 0: do not recognise own sockets.
    pub pidns_ino: u64,
    /// The agent's process id within that namespace.
    pub own_tgid: u32,
    /// Details per counter key, CPU and second; more are only counted.
    pub details_per_second: u32,
}

impl Settings {
    /// Recognises no own sockets, lets no detail through.
    pub const NONE: Self = Self { pidns_dev: 0, pidns_ino: 0, own_tgid: 0, details_per_second: 0 };
}

const _: () = assert!(size_of::<Settings>() == 24);

/// Words of the bitmap of watched ports (map `WATCHED`): port `p` is bit `p % 64` of word `p / 64`.
pub const WATCHED_WORDS: u32 = 1024;

/// Key of the map `SELECTED` for a cgroup.
pub const fn selected_cgroup(id: u64) -> u64 {
    id & !SELECTED_NETNS
}

/// Key of the map `SELECTED` for a network namespace.
pub const fn selected_netns(inum: u32) -> u64 {
    SELECTED_NETNS | inum as u64
}

const SELECTED_NETNS: u64 = 1 << 63;
