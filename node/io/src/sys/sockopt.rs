//! Opening sockets and setting options, for all kinds of sockets.

use std::ffi::{c_int, c_short};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use dwell_units::{Instant, Monotonic, Nanos};

use super::address::RawAddress;
use super::time::{timespec, timeval};
use crate::clock::monotonic;

/// Index of the drop counter in SO_MEMINFO (SK_MEMINFO_DROPS, linux/sock_diag.h).
const DROPS_INDEX: usize = 8;

/// Converts a C return value to a result.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a socket, close-on-exec.
pub(crate) fn open(like: IpAddr, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    let family = if like.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: socket() takes plain integers.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: `fd` was just created, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option whose value is plain data.
pub(crate) fn set<T: Copy>(
    fd: &impl AsRawFd,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    let size = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes of `value`, which outlives the call.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size) };
    check(result).map(drop)
}

/// Returns and clears the pending error, which the next call would fail with (SO_ERROR).
pub(crate) fn take_error(fd: &impl AsRawFd) -> io::Result<c_int> {
    let (mut error, mut size) = (0, mem::size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `size` bytes to `error`, and their number to `size`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut size,
        )
    };
    check(result).map(|_| error)
}

pub(crate) fn bind(fd: &OwnedFd, to: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::from(to);
    // SAFETY: `raw` holds an address of `raw.len` bytes and outlives the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), raw.len) }).map(drop)
}

/// Allows or forbids other sockets of this user on the same port (SO_REUSEPORT).
pub(crate) fn share_port(fd: &OwnedFd, shared: bool) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, c_int::from(shared))
}

/// Gives this socket, the first one bound to a shared port, all packets for which no other socket
/// is connected. Attaches a program that selects the first socket (SO_ATTACH_REUSEPORT_CBPF,
/// socket(7)).
pub(crate) fn first_receives_all(fd: &OwnedFd) -> io::Result<()> {
    attach_zero(fd, libc::SO_ATTACH_REUSEPORT_CBPF)
}

/// Starts or ends dropping all packets before they are queued (SO_ATTACH_FILTER, socket(7)).
pub(crate) fn drop_all(fd: &OwnedFd, dropped: bool) -> io::Result<()> {
    match dropped {
        true => attach_zero(fd, libc::SO_ATTACH_FILTER),
        false => set(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0 as c_int),
    }
}

/// Attaches a program that always returns 0.
fn attach_zero(fd: &OwnedFd, option: c_int) -> io::Result<()> {
    let mut zero =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut zero };
    set(fd, libc::SOL_SOCKET, option, program)
}

pub(crate) fn connect(fd: &OwnedFd, to: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::from(to);
    // SAFETY: `raw` holds an address of `raw.len` bytes and outlives the call.
    check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), raw.len) }).map(drop)
}

pub(crate) fn local_addr(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::empty();
    let mut len = raw.len;
    // SAFETY: `raw` has room for `len` bytes, and the kernel writes no more than that.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), raw.as_mut_ptr(), &mut len) })?;
    raw.to_std().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

/// Sets the option of one of the two families, whose values are integers.
pub(crate) fn set_ip(
    fd: &OwnedFd,
    family: IpAddr,
    v4: c_int,
    v6: c_int,
    value: impl Into<c_int>,
) -> io::Result<()> {
    match family {
        IpAddr::V4(_) => set(fd, libc::IPPROTO_IP, v4, value.into()),
        IpAddr::V6(_) => set(fd, libc::IPPROTO_IPV6, v6, value.into()),
    }
}

/// Starts or ends queueing ICMP errors, with their packets, in the socket's error queue.
pub(crate) fn receive_errors(fd: &OwnedFd, like: IpAddr, on: bool) -> io::Result<()> {
    set_ip(fd, like, libc::IP_RECVERR, libc::IPV6_RECVERR, on)
}

/// Requests a receive buffer of `len` bytes, beyond the system's limit if permitted. Best effort.
pub(crate) fn enlarge_receive_buffer(fd: &OwnedFd, len: c_int) {
    if set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, len).is_err() {
        let _ = set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, len);
    }
}

/// Requests a send buffer of `len` bytes, beyond the system's limit if permitted. Best effort.
pub(crate) fn enlarge_send_buffer(fd: &OwnedFd, len: c_int) {
    if set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, len).is_err() {
        let _ = set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, len);
    }
}

/// Sets the time-out of blocking receive calls, if it differs from `current`. [`Nanos::MAX`], the
/// initial state of sockets, means none.
pub(crate) fn receive_timeout(fd: &OwnedFd, current: &mut Nanos, wait: Nanos) -> io::Result<()> {
    if *current == wait {
        return Ok(());
    }
    // Zero means no time-out.
    let time = if wait == Nanos::MAX { Nanos::ZERO } else { wait.max(Nanos::from_micros(1)) };
    set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, timeval(time))?;
    *current = wait;
    Ok(())
}

/// Sleeps until the socket has a message or an error, or until `until`.
pub(crate) fn sleep_until(fd: &impl AsRawFd, until: Instant<Monotonic>) {
    sleep_for(fd, libc::POLLIN, until);
}

/// Sleeps until one of the `events` of poll(2) or an error, or until `until`.
pub(crate) fn sleep_for(fd: &impl AsRawFd, events: c_short, until: Instant<Monotonic>) {
    let time = timespec((until - monotonic()).max(Nanos::ZERO));
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one pollfd and one timespec, both valid for the call; no signal mask. An early
    // return (a signal) is allowed by this function's contract.
    unsafe { libc::ppoll(&mut poll, 1, &time, std::ptr::null()) };
}

/// Returns the number of packets dropped by this socket for lack of room or by a filter, if the kernel reports it.
pub(crate) fn drop_count(fd: &OwnedFd) -> Option<u64> {
    let mut memory = [0_u32; DROPS_INDEX + 1];
    let mut len = mem::size_of_val(&memory) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `memory`, and the length to `len`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            memory.as_mut_ptr().cast(),
            &mut len,
        )
    };
    let has_drops = check(result).is_ok() && len as usize == mem::size_of_val(&memory);
    has_drops.then(|| memory[DROPS_INDEX].into())
}
