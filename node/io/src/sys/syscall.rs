//! Socket calls of timing loops as raw system calls. The C library's wrappers are cancellation
//! points, which in a multi-threaded process cost two locked instructions each: some 80 ns per
//! round trip (glibc 2.36, `SYSCALL_CANCEL`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_int, c_long};

use super::address::RawAddress;

/// Converts a return value: a length, or -1 with errno.
fn length(returned: c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

/// send(2).
#[inline]
pub(crate) fn send(fd: &OwnedFd, message: &[u8], flags: c_int) -> io::Result<usize> {
    // SAFETY: the kernel reads `message.len()` bytes of `message`; no address is given.
    length(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            c_long::from(fd.as_raw_fd()),
            message.as_ptr(),
            message.len(),
            c_long::from(flags),
            std::ptr::null::<u8>(),
            0_usize,
        )
    })
}

/// sendto(2).
#[inline]
pub(crate) fn send_to(
    fd: &OwnedFd,
    message: &[u8],
    flags: c_int,
    to: &RawAddress,
) -> io::Result<usize> {
    // SAFETY: the kernel reads `message.len()` bytes of `message` and `to.len` bytes of address,
    // which `to` holds.
    length(unsafe {
        libc::syscall(
            libc::SYS_sendto,
            c_long::from(fd.as_raw_fd()),
            message.as_ptr(),
            message.len(),
            c_long::from(flags),
            to.as_ptr(),
            to.len as usize,
        )
    })
}

/// recv(2).
#[inline]
pub(crate) fn receive(fd: &OwnedFd, buffer: &mut [u8], flags: c_int) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`, borrowed exclusively; no
    // address is requested.
    length(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            c_long::from(fd.as_raw_fd()),
            buffer.as_mut_ptr(),
            buffer.len(),
            c_long::from(flags),
            std::ptr::null_mut::<u8>(),
            std::ptr::null_mut::<u8>(),
        )
    })
}

/// recvfrom(2).
#[inline]
pub(crate) fn receive_from(
    fd: &OwnedFd,
    buffer: &mut [u8],
    from: &mut RawAddress,
    flags: c_int,
) -> io::Result<usize> {
    let mut len = RawAddress::STORAGE_LEN;
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer` and at most `len` bytes
    // of address to `from`, which has that much room; all are borrowed exclusively.
    let received = length(unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            c_long::from(fd.as_raw_fd()),
            buffer.as_mut_ptr(),
            buffer.len(),
            c_long::from(flags),
            from.as_mut_ptr(),
            &raw mut len,
        )
    })?;
    // The kernel returns the full length of the address even if it truncated it.
    from.len = len.min(RawAddress::STORAGE_LEN);
    Ok(received)
}

/// recvmsg(2).
///
/// # Safety
/// Every pointer in `header` points to memory of the stated length that outlives the call and is
/// borrowed exclusively.
#[inline]
pub(crate) unsafe fn receive_message(
    fd: &OwnedFd,
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

/// Returns the errno of a failed call.
pub(crate) fn errno(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}
