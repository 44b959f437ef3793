//! Socket calls of timing loops as raw system calls. The C library's wrappers are cancellation
//! points, which in a multi-threaded process cost two locked instructions each: some 80 ns per
//! round trip (glibc 2.36, `SYSCALL_CANCEL`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_long};

use super::address::RawAddress;

/// Converts a return value: a length, or -1 with errno.
fn length(returned: c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// send(2).
#[inline]
pub(crate) fn send(fd: &OwnedFd, message: &[u8], flags: c_int) -> io::Result<usize> {
    send_to(fd, message, flags, None)
}

/// sendto(2); without an address, send(2).
#[inline]
pub(crate) fn send_to(
    fd: &OwnedFd,
    message: &[u8],
    flags: c_int,
    to: Option<&RawAddress>,
) -> io::Result<usize> {
    let (address, len) = to.map_or((ptr::null(), 0), |to| (to.as_ptr(), to.len as usize));
    // SAFETY: the kernel reads `message.len()` bytes of `message` and `len` bytes of address, which
    // `to` holds.
    length(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            c_long::from(fd.as_raw_fd()),
            message.as_ptr(),
            message.len(),
            c_long::from(flags),
            address,
            len,
        )
    })
}

/// recv(2).
#[inline]
pub(crate) fn receive(fd: &OwnedFd, buffer: &mut [u8], flags: c_int) -> io::Result<usize> {
    receive_from(fd, buffer, None, flags)
}

/// recvfrom(2); without storage for an address, recv(2).
#[inline]
pub(crate) fn receive_from(
    fd: &OwnedFd,
    buffer: &mut [u8],
    mut from: Option<&mut RawAddress>,
    flags: c_int,
) -> io::Result<usize> {
    let mut len = RawAddress::STORAGE_LEN;
    let (address, address_len) = match &mut from {
        Some(from) => (from.as_mut_ptr(), &raw mut len),
        None => (ptr::null_mut(), ptr::null_mut()),
    };
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer` and at most `len` bytes
    // of address to `from`, which has that much room; all are borrowed exclusively.
    let received = length(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            c_long::from(fd.as_raw_fd()),
            buffer.as_mut_ptr(),
            buffer.len(),
            c_long::from(flags),
            address,
            address_len,
        )
    })?;
    if let Some(from) = from {
        // The kernel returns the full length of the address even if it truncated it.
        from.len = len.min(RawAddress::STORAGE_LEN);
    }
    Ok(received)
}

/// recvmsg(2).
///
/// # Safety
/// Every pointer in `header` points to memory of the stated length that outlives the call and is
/// borrowed exclusively.
#[inline]
pub(crate) unsafe fn receive_message(
    fd: &impl AsRawFd,
    header: &mut libc::msghdr,
    flags: c_int,
) -> io::Result<usize> {
    // SAFETY: the header is borrowed exclusively; the caller vouches for what it points to.
    length(unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            c_long::from(fd.as_raw_fd()),
            &raw mut *header,
            c_long::from(flags),
        )
    })
}

/// sendmsg(2).
///
/// # Safety
/// Every pointer in `header` points to memory of the stated length that outlives the call.
#[inline]
pub(crate) unsafe fn send_message(
    fd: &OwnedFd,
    header: &libc::msghdr,
    flags: c_int,
) -> io::Result<usize> {
    // SAFETY: the kernel only reads; the caller vouches for what the header points to.
    length(unsafe {
        libc::syscall(
            libc::SYS_sendmsg,
            c_long::from(fd.as_raw_fd()),
            &raw const *header,
            c_long::from(flags),
        )
    })
}

/// recvmmsg(2). Returns the number of messages received. A failed call changes no header.
///
/// # Safety
/// As for [`receive_message`], for each of the headers.
#[inline]
pub(crate) unsafe fn receive_messages(
    fd: &OwnedFd,
    headers: &mut [libc::mmsghdr],
    flags: c_int,
) -> io::Result<usize> {
    // SAFETY: the headers are borrowed exclusively; the caller vouches for what they point to.
    length(unsafe {
        libc::syscall(
            libc::SYS_recvmmsg,
            c_long::from(fd.as_raw_fd()),
            headers.as_mut_ptr(),
            headers.len(),
            c_long::from(flags),
            ptr::null_mut::<libc::timespec>(),
        )
    })
}

/// sendmmsg(2). Returns the number of messages sent, at least one. The kernel does not report why it
/// sent fewer than all (net/socket.c, __sys_sendmmsg); the call fails only if its first message
/// does.
///
/// # Safety
/// As for [`send_message`], for each of the headers.
#[inline]
pub(crate) unsafe fn send_messages(
    fd: &OwnedFd,
    headers: &mut [libc::mmsghdr],
    flags: c_int,
) -> io::Result<usize> {
    // SAFETY: the kernel writes the lengths sent to the headers, which are borrowed exclusively, and
    // reads the rest; the caller vouches for what they point to.
    length(unsafe {
        libc::syscall(
            libc::SYS_sendmmsg,
            c_long::from(fd.as_raw_fd()),
            headers.as_mut_ptr(),
            headers.len(),
            c_long::from(flags),
        )
    })
}

/// Returns the errno of a failed call.
pub(crate) fn errno(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}
