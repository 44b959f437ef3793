//! AF_XDP sockets (Documentation/networking/af_xdp.rst) in copy mode: their rings, and the memory of
//! their frames. Needs neither libbpf nor a program.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use dwell_units::Nanos;

use crate::clock::{monotonic, sleep_until};
use crate::sys::mapping::Mapping;
use crate::sys::{sockopt, syscall};

/// Time-out for a queue to become free after its socket was closed.
const QUEUE_RELEASE_TIMEOUT: Nanos = Nanos::from_secs(1);

/// A ring with one producer and one consumer: counters that wrap, and a power of two of entries.
pub(crate) struct Ring {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    entry: usize,
    size: usize,
    pub(crate) entries: u32,
}

impl Ring {
    /// Maps a ring at offset `from` of the socket, with `entries` entries of `size` bytes.
    pub(crate) fn map(
        fd: &OwnedFd,
        from: i64,
        at: &libc::xdp_ring_offset,
        entries: usize,
        size: usize,
    ) -> io::Result<Self> {
        let place = |at: u64| usize::try_from(at).map_err(io::Error::other);
        let entry = place(at.desc)?;
        let memory = Mapping::shared(fd, from, entry + entries * size)?;
        let (producer, consumer) = (place(at.producer)?, place(at.consumer)?);
        Ok(Self { memory, producer, consumer, entry, size, entries: entries as u32 })
    }

    fn counter(&self, at: usize) -> &AtomicU32 {
        // SAFETY: by the kernel's offsets an aligned 32-bit counter is there, which the kernel also
        // accesses only as one word. The mapping lives as long as this value.
        unsafe { AtomicU32::from_ptr(self.memory.place(at, 4).as_ptr().cast()) }
    }

    /// Returns the number of entries that the consumer has not taken.
    pub(crate) fn pending(&self) -> u32 {
        let produced = self.counter(self.producer).load(Ordering::Relaxed);
        produced.wrapping_sub(self.counter(self.consumer).load(Ordering::Acquire))
    }

    /// Writes the entry that is to be produced after `ahead` others.
    pub(crate) fn write<T: Copy>(&mut self, ahead: u32, value: T) {
        assert_eq!(mem::size_of::<T>(), self.size);
        let next = self.counter(self.producer).load(Ordering::Relaxed).wrapping_add(ahead);
        let at = self.entry + (next & (self.entries - 1)) as usize * self.size;
        let place = self.memory.place(at, self.size);
        // SAFETY: the place is mapped and has the size and the alignment of `T`; the consumer does
        // not read it before it is produced.
        unsafe { place.as_ptr().cast::<T>().write(value) };
    }

    /// Hands `entries` entries to the consumer.
    pub(crate) fn produce(&self, entries: u32) {
        self.counter(self.producer).fetch_add(entries, Ordering::Release);
    }

    /// Returns all entries to the producer.
    pub(crate) fn consume_all(&self) {
        let produced = self.counter(self.producer).load(Ordering::Acquire);
        self.counter(self.consumer).store(produced, Ordering::Release);
    }
}

/// Opens an AF_XDP socket.
pub(crate) fn open() -> io::Result<OwnedFd> {
    // SAFETY: socket() takes plain integers.
    let fd = sockopt::check(unsafe {
        libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0)
    })?;
    // SAFETY: `fd` was just created, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers the memory that the kernel takes frames from.
pub(crate) fn register(fd: &OwnedFd, frames: &Mapping, chunk: usize) -> io::Result<()> {
    let memory = libc::xdp_umem_reg {
        addr: frames.place(0, 0).as_ptr().addr() as u64,
        len: frames.bytes() as u64,
        chunk_size: chunk as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    sockopt::set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, memory)
}

/// Returns where counters and entries are in the rings.
pub(crate) fn offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain data for which all zeros is valid.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&offsets) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `offsets`, and the length to `len`.
    sockopt::check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &mut len,
        )
    })?;
    // Before Linux 5.4 the structure was shorter and had another meaning.
    if len as usize == mem::size_of_val(&offsets) { Ok(offsets) } else { Err(unsupported()) }
}

fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

/// Waits briefly if the queue belongs to another socket: the kernel takes time to close one.
pub(crate) fn bind_when_free(fd: &OwnedFd, interface: u32) -> io::Result<()> {
    let until = monotonic() + QUEUE_RELEASE_TIMEOUT;
    loop {
        match bind(fd, interface) {
            Err(error) if syscall::errno(&error) == libc::EBUSY && monotonic() < until => {
                sleep_until(monotonic() + Nanos::from_millis(5));
            }
            bound => return bound,
        }
    }
}

/// Binds the socket to queue 0 of an interface, in copy mode.
fn bind(fd: &OwnedFd, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let len = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of `address`, which outlives the call.
    sockopt::check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
        .map(drop)
}
