//! Frames by AF_XDP (Documentation/networking/af_xdp.rst) in copy mode: built ahead in memory that
//! the kernel copies from, queued by descriptors, handed over by a call without data. They pass
//! neither the queueing discipline nor taps, and are not timestamped at this end.

use std::mem;
use std::ops::Range;
use std::os::fd::OwnedFd;

use dwell_units::Nanos;
use libc::c_int;

use super::frame_route::FrameRoute;
use super::tx_socket::TxSocket;
use super::{Departure, Engine, Numbers, Payloads, TrainProgress, TrainSenderConfig, Unavailable};
use crate::bpf::xsk_socket::{self, Ring};
use crate::clock::{monotonic, realtime};
use crate::pacing::pacer::WaitMode;
use crate::sockets::port::SendError;
use crate::sockets::socket_error::send_error;
use crate::sys::mapping::Mapping;
use crate::sys::{sockopt, syscall};

/// Maximum number of packets in a train. The number of ring entries is a power of two, whose limit
/// differs between kernels.
const MAX_TRAIN_LEN: usize = 1 << 15;

/// Chunk sizes that every kernel accepts; a frame must fit into one chunk.
const CHUNK_LENS: [usize; 2] = [2_048, 4_096];

/// Time-out for calls that wake the kernel, which may fail briefly while the driver's queue is
/// full.
const WAKEUP_TIMEOUT: Nanos = Nanos::from_millis(1);

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
pub(super) fn open(config: TrainSenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
    let TrainSenderConfig { target, options, payloads, max_packets, .. } = config;
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
    let fd = xsk_socket::open()
        .map_err(failed("opening an AF_XDP socket (needs root or CAP_NET_RAW)"))?;
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
    xsk_socket::register(&fd, &frames, chunk).map_err(memory)?;
    let rings = failed("creating the rings of an AF_XDP socket");
    for (name, entries) in [
        (libc::XDP_TX_RING, entries),
        (libc::XDP_UMEM_COMPLETION_RING, entries),
        (libc::XDP_UMEM_FILL_RING, 1),
    ] {
        sockopt::set(&fd, libc::SOL_XDP, name, entries as c_int).map_err(rings)?;
    }
    let offsets = xsk_socket::offsets(&fd).map_err(rings)?;
    let ring = |from: u64, at, entries, entry| Ring::map(&fd, from as i64, at, entries, entry);
    let descriptor = mem::size_of::<libc::xdp_desc>();
    let place = mem::size_of::<u64>();
    let tx = ring(libc::XDP_PGOFF_TX_RING as u64, &offsets.tx, entries, descriptor);
    let completed = ring(libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, entries, place);
    let fill = ring(libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, 1, place);
    let (tx, completed, fill) =
        (tx.map_err(rings)?, completed.map_err(rings)?, fill.map_err(rings)?);
    xsk_socket::bind_when_free(&fd, route.interface.index).map_err(|error| {
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
                self.tx_socket.fail(send_error(errno));
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
