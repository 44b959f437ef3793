//! Memory that the kernel and the program share.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// A mapping, aligned to a page.
#[derive(Debug)]
pub(crate) struct Mapping {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to this value and to the kernel, on any thread; the unsafe code of
// this value's owner is responsible for access to it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the memory that `fd` shares at `offset`.
    pub(crate) fn shared(fd: &OwnedFd, offset: i64, bytes: usize) -> io::Result<Self> {
        Self::map(libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset, bytes)
    }

    /// Maps private memory.
    pub(crate) fn own(bytes: usize) -> io::Result<Self> {
        Self::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0, bytes)
    }

    fn map(flags: libc::c_int, fd: libc::c_int, offset: i64, bytes: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { memory, bytes })
    }

    /// Returns the place of byte `at`.
    ///
    /// # Panics
    /// If fewer than `len` bytes are mapped from there on.
    pub(crate) fn place(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.bytes), "within the mapping");
        // SAFETY: the sum is at most the length of the mapping.
        unsafe { self.memory.add(at) }
    }

    /// Returns the length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing outlives this value that
        // refers to it.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
