//! The single place that reads kernel structures.

use aya_ebpf::{
    bindings::bpf_pidns_info,
    helpers::{
        bpf_get_current_pid_tgid,
        generated::{bpf_get_ns_current_pid_tgid, bpf_probe_read_kernel},
    },
};
use core::{ffi::c_void, marker::PhantomData, mem::MaybeUninit};
use storewatch_ebpf_common::{config::MISSING, state::CLOSE};

use crate::maps::{WATCHED, global};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IPPROTO_TCP: u16 = 6;
/// Bit of `skc_flags`.
const SOCK_DONE: u32 = 1;
const MAPPED: [u8; 4] = [0, 0, 0xff, 0xff];
/// Where `sockaddr_in` and `sockaddr_in6` hold the address: part of the system call's interface, the same everywhere.
const SOCKADDR_V4: u32 = 4;
const SOCKADDR_V6: u32 = 8;

/// Reads a field; 0 when this kernel does not have it or the address is bad.
macro_rules! field {
    ($reads:ident, $base:expr, $offset:ident as $type:ty) => {{
        let offset = global!(OFFSETS.$offset);
        if offset == MISSING { 0 } else { read::<$reads, $type>($base, offset) }
    }};
}

/// What is any bytes' value: integers and arrays of them.
pub trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl<T: Plain, const N: usize> Plain for [T; N] {}

/// How a field gets out of the kernel's memory.
pub trait Reads: Copy {
    /// Pointers read this way have a type that the verifier follows, and no arithmetic is allowed on them.
    const TYPED: bool;

    /// Reads a field straight to a place.
    ///
    /// # Safety
    /// `place` must be writable, and as aligned as an integer of its size, at most 8 bytes.
    unsafe fn read_to<T: Plain>(place: *mut T, base: u64, offset: u32);
}

/// By a helper that checks the address: of any pointer, at some 30 ns.
#[derive(Clone, Copy)]
pub struct Checked;

/// By a plain load, whose address the verifier has checked: only of pointers with a type, at next to nothing.
#[derive(Clone, Copy)]
pub struct Typed;

impl Reads for Checked {
    const TYPED: bool = false;

    #[inline(always)]
    unsafe fn read_to<T: Plain>(place: *mut T, base: u64, offset: u32) {
        // SAFETY: the helper checks the address instead of faulting, and fills all of the value: with zeros when it fails.
        unsafe {
            bpf_probe_read_kernel(place.cast(), size_of::<T>() as u32, (base + u64::from(offset)) as *const c_void);
        }
    }
}

impl Reads for Typed {
    const TYPED: bool = true;

    #[inline(always)]
    unsafe fn read_to<T: Plain>(place: *mut T, base: u64, offset: u32) {
        let from = base + u64::from(offset);
        // SAFETY: the verifier has found a field there; a fault reads as zero. Volatile, so that each load is of one field.
        unsafe {
            match size_of::<T>() {
                1 => place.cast::<u8>().write((from as *const u8).read_volatile()),
                2 => place.cast::<u16>().write((from as *const u16).read_volatile()),
                4 => place.cast::<u32>().write((from as *const u32).read_volatile()),
                8 => place.cast::<u64>().write((from as *const u64).read_volatile()),
                _ => {
                    let words = place.cast::<u64>();
                    let mut word = 0;
                    while word < size_of::<T>() / 8 {
                        words.add(word).write(((from as *const u64).add(word)).read_volatile());
                        word += 1;
                    }
                }
            }
        }
    }
}

/// Zero when the address is bad. Without a branch for that case: the verifiers of older kernels would follow both ways of
/// every read through all that comes after it.
#[inline(always)]
fn read<R: Reads, T: Plain>(base: u64, offset: u32) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: all of it is written.
    unsafe {
        R::read_to(value.as_mut_ptr(), base, offset);
        value.assume_init()
    }
}

/// A TCP socket whose remote port is watched.
#[derive(Clone, Copy)]
pub struct Socket<R: Reads = Checked> {
    /// Address of `struct sock`.
    pub address: u64,
    head: u64,
    /// Address of the `struct sockaddr` of a connect call that has not reached the socket; 0 otherwise.
    asked: u64,
    reads: PhantomData<R>,
}

impl Socket {
    /// The first look. `None` for everything that is not watched.
    #[inline(always)]
    pub fn watched(address: u64) -> Option<Self> {
        let head = read::<Checked, u64>(address, global!(OFFSETS.head));
        Self { address, head, asked: 0, reads: PhantomData }.if_watched()
    }

    /// The socket of a connect call that failed before it took the address: what was dialled is read from the call's own
    /// argument, at `asked`. `None` as in [`Self::watched`].
    #[inline(always)]
    pub fn refused(address: u64, asked: u64) -> Option<Self> {
        // `sockaddr_in` and `sockaddr_in6` alike: family, then the port in network order.
        let [family, port] = read::<Checked, [u16; 2]>(asked, 0);
        Self { address, head: head(family, port, CLOSE), asked, reads: PhantomData }.if_watched()
    }
}

impl Socket<Typed> {
    /// As [`Socket::watched`], of a `struct tcp_sock` whose type the verifier knows.
    #[inline(always)]
    pub fn typed(address: u64) -> Option<Self> {
        // A load must not reach over fields, so each has its own.
        let base = global!(OFFSETS.head);
        let family = read::<Typed, u16>(address, base + global!(OFFSETS.head_family) / 8);
        let port = read::<Typed, u16>(address, base + global!(OFFSETS.head_dport) / 8);
        let state = read::<Typed, u8>(address, base + global!(OFFSETS.head_state) / 8);
        Self { address, head: head(family, port, state), asked: 0, reads: PhantomData }.if_watched()
    }
}

/// The first look, made of its parts; the port in network order.
#[inline(always)]
fn head(family: u16, port: u16, state: u8) -> u64 {
    u64::from(family) << global!(OFFSETS.head_family)
        | u64::from(port) << global!(OFFSETS.head_dport)
        | u64::from(state) << global!(OFFSETS.head_state)
}

impl<R: Reads> Socket<R> {
    #[inline(always)]
    fn if_watched(self) -> Option<Self> {
        let port = self.remote_port();
        let bits = *WATCHED.get(u32::from(port >> 6))?;
        if bits & (1 << (port & 63)) == 0 {
            return None;
        }
        let family = self.family();
        (family == AF_INET || family == AF_INET6).then_some(self)
    }

    /// False for MPTCP and whatever else shares the tracepoint. True where the kernel hides the protocol in a bit field.
    #[inline(always)]
    pub fn is_tcp(&self) -> bool {
        global!(OFFSETS.protocol) == MISSING || field!(R, self.address, protocol as u16) == IPPROTO_TCP
    }

    /// An IPv4 address in an IPv6 call.
    #[inline(always)]
    pub fn is_handed_on(&self) -> bool {
        self.family() == AF_INET6 && {
            let [a, b, c, ..] = read::<Checked, [u32; 4]>(self.asked, SOCKADDR_V6);
            a == 0 && b == 0 && c == u32::from_ne_bytes(MAPPED)
        }
    }

    /// The port dialled, host order.
    #[inline(always)]
    pub fn remote_port(&self) -> u16 {
        ((self.head >> global!(OFFSETS.head_dport)) as u16).swap_bytes()
    }

    /// Present state: at `inet_sock_set_state` still the old one.
    #[inline(always)]
    pub fn state(&self) -> u8 {
        (self.head >> global!(OFFSETS.head_state)) as u8
    }

    #[inline(always)]
    fn family(&self) -> u16 {
        (self.head >> global!(OFFSETS.head_family)) as u16
    }

    /// True when the local port is a watched one as well: whose end this is cannot be told from the ports.
    #[inline(always)]
    pub fn ambiguous(&self) -> bool {
        let port = self.local_port();
        match WATCHED.get(u32::from(port >> 6)) {
            Some(bits) => *bits & (1 << (port & 63)) != 0,
            None => false,
        }
    }

    /// Source port, host order; 0 while none is chosen.
    #[inline(always)]
    pub fn local_port(&self) -> u16 {
        (field!(R, self.address, sport as u16)).swap_bytes()
    }

    /// Writes the address of the peer, IPv4 as IPv4-mapped.
    ///
    /// # Safety
    /// `place` must be writable.
    #[inline(always)]
    pub unsafe fn remote_to(&self, place: *mut [u8; 16]) {
        let (base, v4, v6) = if self.asked == 0 {
            (self.address, global!(OFFSETS.daddr), global!(OFFSETS.v6_daddr))
        } else {
            (self.asked, SOCKADDR_V4, SOCKADDR_V6)
        };
        // SAFETY: the caller's promise.
        unsafe { self.ip_to(place, base, v4, v6) }
    }

    /// Writes the own address, IPv4 as IPv4-mapped.
    ///
    /// # Safety
    /// `place` must be writable.
    #[inline(always)]
    pub unsafe fn local_to(&self, place: *mut [u8; 16]) {
        let (v4, v6) = (global!(OFFSETS.saddr), global!(OFFSETS.v6_saddr));
        // SAFETY: the caller's promise.
        unsafe { self.ip_to(place, self.address, v4, v6) }
    }

    /// Straight to where it is wanted: a copy on the way would cost stack, of which there is little.
    #[inline(always)]
    unsafe fn ip_to(&self, place: *mut [u8; 16], base: u64, v4: u32, v6: u32) {
        // SAFETY: the caller's promise; all 16 bytes are written.
        unsafe {
            if self.family() == AF_INET6 && v6 != MISSING {
                R::read_to(place, base, v6);
            } else {
                let words = place.cast::<[u8; 4]>();
                words.write([0; 4]);
                words.add(1).write([0; 4]);
                words.add(2).write(if self.family() == AF_INET6 { [0; 4] } else { MAPPED });
                if self.family() == AF_INET6 {
                    words.add(3).write([0; 4]);
                } else {
                    R::read_to(words.add(3), base, v4);
                }
            }
        }
    }

    /// Inode of the creating container's cgroup v2 directory; 0 unknown.
    #[inline(always)]
    pub fn cgroup(&self) -> u64 {
        let cgroup = field!(R, self.address, cgroup as u64);
        // Before 5.15 the low bits tag something that is no pointer.
        if cgroup == 0 || (!R::TYPED && cgroup & 3 != 0) {
            return 0;
        }
        let node = field!(R, cgroup, cgroup_kn as u64);
        if node == 0 { 0 } else { field!(R, node, kn_id as u64) }
    }

    /// Inode of the socket's network namespace; 0 unknown.
    #[inline(always)]
    pub fn netns(&self) -> u32 {
        let net = field!(R, self.address, net as u64);
        if net == 0 { 0 } else { field!(R, net, net_inum as u32) }
    }

    /// `sk_err`.
    #[inline(always)]
    pub fn error(&self) -> u32 {
        field!(R, self.address, err as u32)
    }

    /// `sk_err_soft`.
    #[inline(always)]
    pub fn soft_error(&self) -> u32 {
        field!(R, self.address, err_soft as u32)
    }

    /// `icsk_retransmits`.
    #[inline(always)]
    pub fn retransmits(&self) -> u8 {
        field!(R, self.address, retransmits as u8)
    }

    /// `total_retrans`.
    #[inline(always)]
    pub fn total_retrans(&self) -> u32 {
        field!(R, self.address, total_retrans as u32)
    }

    /// Bytes written and not acknowledged, a FIN included.
    #[inline(always)]
    pub fn unanswered(&self) -> u32 {
        (field!(R, self.address, write_seq as u32)).wrapping_sub(field!(R, self.address, snd_una as u32))
    }

    /// `bytes_received`.
    #[inline(always)]
    pub fn bytes_received(&self) -> u64 {
        field!(R, self.address, bytes_received as u64)
    }

    /// `bytes_acked`.
    #[inline(always)]
    pub fn bytes_acked(&self) -> u64 {
        field!(R, self.address, bytes_acked as u64)
    }

    /// Smoothed round trip in microseconds; the kernel keeps eight times of it.
    #[inline(always)]
    pub fn srtt_us(&self) -> u32 {
        (field!(R, self.address, srtt_us as u32)) >> 3
    }

    /// 1 when the peer's FIN has arrived, else 0.
    #[inline(always)]
    pub fn fin_received(&self) -> u64 {
        field!(R, self.address, flags as u64) >> SOCK_DONE & 1
    }

    /// `icsk_pending`.
    #[inline(always)]
    pub fn pending(&self) -> u8 {
        field!(R, self.address, pending as u8)
    }

    /// Low half of the tick counter when data last arrived.
    #[inline(always)]
    pub fn last_received(&self) -> u32 {
        field!(R, self.address, lrcvtime as u32)
    }

    /// Low half of the tick counter when data was last sent.
    #[inline(always)]
    pub fn last_sent(&self) -> u32 {
        field!(R, self.address, lsndtime as u32)
    }
}

/// 1 for all but 0, without a branch.
#[inline(always)]
pub fn is_set(value: u64) -> u64 {
    let mut negative = value;
    // The negation is hidden from the compiler, which would make a comparison of it, and a branch of that.
    #[cfg(target_arch = "bpf")]
    // SAFETY: one instruction on one register.
    unsafe {
        core::arch::asm!("{0} = -{0}", inout(reg) negative, options(pure, nomem, nostack));
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        negative = negative.wrapping_neg();
    }
    (value | negative) >> 63
}

/// `value`, or `most` when it is larger, without a branch; `most` is a power of two less one.
#[inline(always)]
pub fn at_most(most: u64, value: u64) -> u64 {
    (value & most) | (is_set(value & !most) * most)
}

/// `sock` of a `struct socket`.
#[inline(always)]
pub fn sock_of<R: Reads>(socket: u64) -> u64 {
    field!(R, socket, socket_sk as u64)
}

/// Thread group of a `struct task_struct`, in the initial pid namespace.
#[inline(always)]
pub fn tgid_of<R: Reads>(task: u64) -> u32 {
    field!(R, task, task_tgid as u32)
}

/// Thread group of the running task, in the initial pid namespace. Only where the running task is known to be the one
/// that acts.
#[inline(always)]
pub fn current_tgid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

/// The running task is the agent itself.
#[inline(always)]
pub fn current_is_agent() -> bool {
    let inode = global!(SETTINGS.pidns_ino);
    if inode == 0 {
        return false;
    }
    let device = global!(SETTINGS.pidns_dev);
    let mut info = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: `info` is writable and of the size given. The helper fails when the task lives in another pid namespace.
    let failed =
        unsafe { bpf_get_ns_current_pid_tgid(device, inode, &raw mut info, size_of::<bpf_pidns_info>() as u32) };
    failed == 0 && info.tgid == global!(SETTINGS.own_tgid)
}
