//! The inventory: `iter/task_file` walks the open files of all processes, whatever their network namespace, and so finds
//! exactly the sockets that have an owner.

use aya_ebpf::{
    bindings::{file, seq_file, task_struct},
    helpers::generated::{bpf_jiffies64, bpf_ktime_get_ns, bpf_seq_write, bpf_skc_to_tcp_sock, bpf_sock_from_file},
};
use core::ffi::c_void;
use storewatch_ebpf_common::{
    ABI_VERSION,
    socket::{FIN_RECEIVED, OWN, RawSocket},
    state::{CLOSE, LISTEN},
};

use crate::{
    maps::{IGNORED, global},
    socket::{Checked, Reads, Socket, Typed, current_tgid, sock_of, tgid_of},
};

/// Context of `bpf_iter__task_file`.
#[repr(C)]
pub struct TaskFile {
    meta: *const Meta,
    task: *mut task_struct,
    fd: u32,
    pad: u32,
    file: *mut file,
}

#[repr(C)]
pub struct Meta {
    seq: *mut seq_file,
    session_id: u64,
    seq_num: u64,
}

/// Writes one [`RawSocket`] per client socket towards a watched port, with plain loads.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub extern "C" fn sockets(ctx: *mut TaskFile) -> i32 {
    // SAFETY: the verifier knows the context and follows its pointers' types; each is checked before use.
    unsafe {
        let (task, file) = ((*ctx).task, (*ctx).file);
        if task.is_null() || file.is_null() {
            return 0;
        }
        let socket = bpf_sock_from_file(file);
        if socket.is_null() {
            return 0;
        }
        let tcp = bpf_skc_to_tcp_sock(sock_of::<Typed>(socket as u64) as *mut c_void);
        if tcp.is_null() {
            return 0;
        }
        if let Some(socket) = Socket::typed(tcp as u64) {
            tell(ctx, &socket, tgid_of::<Typed>(task as u64));
        }
    }
    0
}

/// The same for kernels whose verifier refuses plain loads there: several times as slow.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
pub extern "C" fn sockets_checked(ctx: *mut TaskFile) -> i32 {
    // SAFETY: as above.
    unsafe {
        let (task, file) = ((*ctx).task, (*ctx).file);
        if task.is_null() || file.is_null() {
            return 0;
        }
        let socket = bpf_sock_from_file(file);
        if socket.is_null() {
            return 0;
        }
        let sk = sock_of::<Checked>(socket as u64);
        if sk == 0 {
            return 0;
        }
        if let Some(socket) = Socket::watched(sk) {
            tell(ctx, &socket, tgid_of::<Checked>(task as u64));
        }
    }
    0
}

/// Writes the record of a socket that a process of this thread group holds.
#[inline(always)]
fn tell<R: Reads>(ctx: *mut TaskFile, socket: &Socket<R>, tgid: u32) {
    let state = socket.state();
    if matches!(state, CLOSE | LISTEN) || !socket.is_tcp() {
        return;
    }
    let mut flags = socket.fin_received() as u8 * FIN_RECEIVED;
    // The reader of this file is the agent.
    let own = knows_itself() && tgid == current_tgid();
    if own || IGNORED.get_ptr(socket.address).is_some() || socket.ambiguous() {
        flags |= OWN;
    }
    // SAFETY: helpers without arguments.
    let (at, jiffies) = unsafe { (bpf_ktime_get_ns(), bpf_jiffies64()) };
    let mut record = RawSocket {
        at,
        jiffies,
        socket: socket.address,
        cgroup: socket.cgroup(),
        bytes_received: socket.bytes_received(),
        bytes_acked: socket.bytes_acked(),
        local: [0; 16],
        remote: [0; 16],
        netns: socket.netns(),
        tgid,
        srtt_us: socket.srtt_us(),
        unanswered: socket.unanswered(),
        last_received: socket.last_received(),
        last_sent: socket.last_sent(),
        total_retrans: socket.total_retrans(),
        local_port: socket.local_port(),
        remote_port: socket.remote_port(),
        abi: ABI_VERSION,
        state,
        retransmits: socket.retransmits(),
        pending: socket.pending(),
        flags,
        zero: [0; 2],
    };
    // SAFETY: fields of the record, on the stack; the context's pointers are the kernel's.
    unsafe {
        socket.local_to(&raw mut record.local);
        socket.remote_to(&raw mut record.remote);
        let meta = (*ctx).meta;
        bpf_seq_write((*meta).seq, (&raw const record).cast(), size_of::<RawSocket>() as u32);
    }
}

/// Whether the loader could name the agent's own process. (A function, since the read is unsafe inside and so is the caller.)
#[inline(always)]
fn knows_itself() -> bool {
    global!(SETTINGS.pidns_ino) != 0
}
