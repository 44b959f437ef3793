//! Frames by AF_XDP (Documentation/networking/af_xdp.rst) in copy mode: built ahead in memory that
//! the kernel copies from, queued by descriptors, handed over by a call without data. They pass
//! neither the queueing discipline nor taps, and are not timestamped at this end.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use dwell_units::Nanos;
use libc::c_int;

use super::frame_route::FrameRoute;
use super::mapping::Mapping;
use super::tx_socket::TxSocket;
use super::{Departure, Engine, Numbers, Payloads, SenderConfig, TrainProgress, Unavailable};
use crate::clock::{monotonic, realtime};
use crate::pacer::{WaitMode, sleep_until};
use crate::port::SendError;
use crate::socket;
use crate::syscall;

/// Maximum number of packets in a train. The number of ring entries is a power of two, whose limit
/// differs between kernels.
const MAX_TRAIN_LEN: usize = 1 << 15;

/// Chunk sizes that every kernel accepts; a frame must fit into one chunk.
const CHUNK_LENS: [usize; 2] = [2_048, 4_096];

/// Time-out for calls that wake the kernel, which may fail briefly while the driver's queue is
/// full.
const WAKEUP_TIMEOUT: Nanos = Nanos::from_millis(1);

/// Time-out for a queue to become free after its socket was closed.
const QUEUE_RELEASE_TIMEOUT: Nanos = Nanos::from_secs(1);

/// A sender that sleeps, then spins, and makes the kernel copy prepared frames.
struct Xsk {
    /// Holds the port and receives ICMP errors.
    tx_socket: TxSocket,
    payloads: Payloads,
    route: FrameRoute,
    fd: OwnedFd,
    frames: Mapping,
    chunk: usize,
    /// Descriptors of frames to send.
    tx: Ring,
    /// Offsets of frames that were sent.
    completed: Ring,
    /// The kernel requires this ring even if nothing is received.
    _fill: Ring,
    packets: usize,
    /// Number of packets that the kernel has taken.
    taken: usize,
}

/// Opens a sender through queue 0 of the outgoing interface.
///
/// # Errors
/// A 32-bit program; no CAP_NET_RAW; a kernel without AF_XDP; a queue that another program uses; an
/// interface that is not Ethernet; packets that exceed its MTU or a page; or a next hop that does
/// not answer.
pub(super) fn open(config: SenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
    let SenderConfig { target, options, payloads, max_packets, .. } = config;
    if cfg!(not(target_pointer_width = "64")) {
        // The rings are mapped at offsets that a 32-bit program cannot express.
        return Err(Unavailable::because("AF_XDP needs a 64-bit program"));
    }
    if max_packets > MAX_TRAIN_LEN {
        let why = format!(
            "trains of {max_packets} packets are too long for AF_XDP; the maximum is {MAX_TRAIN_LEN}"
        );
        return Err(Unavailable::because(why));
    }
    let failed = |what: &'static str| move |error| Unavailable::failed(what, &error);
    let fd =
        open_socket().map_err(failed("opening an AF_XDP socket (needs root or CAP_NET_RAW)"))?;
    let tx_socket = TxSocket::silent(target, options)?;
    let route = FrameRoute::find(tx_socket.local(), target, options, payloads.len())?;
    let frame = route.frame.overhead() + payloads.len();
    let chunk = CHUNK_LENS.into_iter().find(|chunk| frame <= *chunk).ok_or_else(|| {
        Unavailable::because(format!(
            "frames of {frame} bytes are too long; the maximum is {}",
            CHUNK_LENS[1]
        ))
    })?;
    let entries = max_packets.max(1).next_power_of_two();
    let memory = failed("registering memory with an AF_XDP socket");
    let frames = Mapping::own(entries * chunk).map_err(memory)?;
    register(&fd, &frames, chunk).map_err(memory)?;
    let rings = failed("creating the rings of an AF_XDP socket");
    for (name, entries) in [
        (libc::XDP_TX_RING, entries),
        (libc::XDP_UMEM_COMPLETION_RING, entries),
        (libc::XDP_UMEM_FILL_RING, 1),
    ] {
        socket::set(&fd, libc::SOL_XDP, name, entries as c_int).map_err(rings)?;
    }
    let offsets = offsets(&fd).map_err(rings)?;
    let ring = |from: u64, at, entries, entry| Ring::map(&fd, from as i64, at, entries, entry);
    let descriptor = mem::size_of::<libc::xdp_desc>();
    let place = mem::size_of::<u64>();
    let tx = ring(libc::XDP_PGOFF_TX_RING as u64, &offsets.tx, entries, descriptor);
    let completed = ring(libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, entries, place);
    let fill = ring(libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, 1, place);
    let (tx, completed, fill) =
        (tx.map_err(rings)?, completed.map_err(rings)?, fill.map_err(rings)?);
    bind_when_free(&fd, route.interface.index).map_err(|error| {
        let name = &route.interface.name;
        Unavailable::failed(&format!("binding an AF_XDP socket to queue 0 of {name}"), &error)
    })?;
    Ok(Box::new(Xsk {
        tx_socket,
        payloads,
        route,
        fd,
        frames,
        chunk,
        tx,
        completed,
        _fill: fill,
        packets: 0,
        taken: 0,
    }))
}

impl Xsk {
    /// Hands frames over. Frames that the kernel does not take at once are taken by a later call:
    /// the kernel remembers the end of the ring, so nothing can be withdrawn.
    fn hand_over(&mut self, which: Range<usize>, left: &mut [Departure]) {
        self.tx.produce(which.len() as u32);
        let until = monotonic() + WAKEUP_TIMEOUT;
        loop {
            let app = realtime();
            let kicked = syscall::send(&self.fd, &[], libc::MSG_DONTWAIT);
            let done = realtime();
            let taken = which.end.saturating_sub(self.tx.pending() as usize);
            for left in left.iter_mut().take(taken).skip(self.taken) {
                (left.app, left.done) = (Some(app), Some(done));
            }
            self.taken = self.taken.max(taken);
            if self.taken == which.end {
                return;
            }
            if monotonic() >= until {
                let errno = kicked.err().map_or(libc::EAGAIN, |error| syscall::errno(&error));
                self.tx_socket.fail(socket::send_error(errno));
                return;
            }
            self.completed.consume_all();
        }
    }

    /// Whether the ring of frames to send is empty, after some calls that wake the kernel.
    fn is_idle(&self) -> bool {
        let until = monotonic() + WAKEUP_TIMEOUT;
        while self.tx.pending() > 0 {
            self.completed.consume_all();
            let _ = syscall::send(&self.fd, &[], libc::MSG_DONTWAIT);
            if monotonic() >= until {
                return false;
            }
        }
        true
    }
}

impl Engine for Xsk {
    fn prepare(&mut self, numbers: Numbers) {
        self.payloads.prepare(numbers);
        let packets = numbers.len();
        self.tx_socket.keys.begin(0);
        self.completed.consume_all();
        (self.packets, self.taken) = (0, 0);
        if packets > self.tx.entries as usize || !self.is_idle() {
            self.tx_socket.fail(SendError::Full);
            return;
        }
        self.packets = packets;
        let len = self.route.frame.overhead() + self.payloads.len();
        for n in 0..packets {
            let at = n * self.chunk;
            let place = self.frames.place(at, len).as_ptr();
            // SAFETY: the kernel has copied the last train from this memory. `place` has checked
            // that it is mapped, and it is borrowed exclusively with `self`.
            let frame = unsafe { std::slice::from_raw_parts_mut(place, len) };
            self.route.frame.emit(self.payloads.at(n), frame);
            let descriptor = libc::xdp_desc { addr: at as u64, len: len as u32, options: 0 };
            self.tx.write(n as u32, descriptor);
        }
    }

    fn send(&mut self, progress: TrainProgress<'_>, left: &mut [Departure]) {
        let mut progress = progress.limited(self.packets);
        let len = self.route.frame.overhead() + self.payloads.len();
        while let Some((which, _)) = progress.next_due() {
            let Self { tx_socket, frames, fd, chunk, .. } = self;
            // A call that finds nothing to send.
            let warm_engine = || drop(syscall::send(fd, &[], libc::MSG_DONTWAIT));
            let memory = (which.len() - 1) * *chunk + len;
            let place = frames.place(which.start * *chunk, memory).as_ptr();
            // SAFETY: `place` has checked that the memory is mapped; the kernel only reads it.
            let memory = unsafe { std::slice::from_raw_parts(place, memory) };
            tx_socket.prepare_departure(WaitMode::SleepSpin, &progress, memory, left, warm_engine);
            let Some(which) = progress.next(WaitMode::SleepSpin) else { return };
            self.hand_over(which, left);
        }
    }

    fn collect(&mut self, _left: &mut [Departure], _timeout: Nanos) {
        self.tx_socket.collect(&mut [], Nanos::ZERO);
    }

    fn tx_socket(&mut self) -> &mut TxSocket {
        &mut self.tx_socket
    }
}

/// A ring with one producer and one consumer: counters that wrap, and a power of two of entries.
struct Ring {
    memory: Mapping,
    producer: usize,
    consumer: usize,
    entry: usize,
    size: usize,
    entries: u32,
}

impl Ring {
    fn map(
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
    fn pending(&self) -> u32 {
        let produced = self.counter(self.producer).load(Ordering::Relaxed);
        produced.wrapping_sub(self.counter(self.consumer).load(Ordering::Acquire))
    }

    /// Writes the entry that is to be produced after `ahead` others.
    fn write<T: Copy>(&mut self, ahead: u32, value: T) {
        assert_eq!(mem::size_of::<T>(), self.size);
        let next = self.counter(self.producer).load(Ordering::Relaxed).wrapping_add(ahead);
        let at = self.entry + (next & (self.entries - 1)) as usize * self.size;
        let place = self.memory.place(at, self.size);
        // SAFETY: the place is mapped and has the size and the alignment of `T`; the consumer does
        // not read it before it is produced.
        unsafe { place.as_ptr().cast::<T>().write(value) };
    }

    /// Hands `entries` entries to the consumer.
    fn produce(&self, entries: u32) {
        self.counter(self.producer).fetch_add(entries, Ordering::Release);
    }

    /// Returns all entries to the producer.
    fn consume_all(&self) {
        let produced = self.counter(self.producer).load(Ordering::Acquire);
        self.counter(self.consumer).store(produced, Ordering::Release);
    }
}

fn open_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket() takes plain integers.
    let fd = socket::check(unsafe {
        libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0)
    })?;
    // SAFETY: `fd` was just created, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers the memory that the kernel takes frames from.
fn register(fd: &OwnedFd, frames: &Mapping, chunk: usize) -> io::Result<()> {
    let memory = libc::xdp_umem_reg {
        addr: frames.place(0, 0).as_ptr().addr() as u64,
        len: frames.bytes() as u64,
        chunk_size: chunk as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    socket::set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, memory)
}

/// Returns where counters and entries are in the rings.
fn offsets(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain data for which all zeros is valid.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&offsets) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `offsets`, and the length to `len`.
    socket::check(unsafe {
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
fn bind_when_free(fd: &OwnedFd, interface: u32) -> io::Result<()> {
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
    socket::check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}
