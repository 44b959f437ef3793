//! Frames built ahead in a ring shared with the kernel (packet(7), PACKET_TX_RING). A departure
//! sets the status of a frame and makes a call without data.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use dwell_units::Nanos;
use libc::c_int;

use super::frame_route::FrameRoute;
use super::packet_tap;
use super::timestamp_ids::TimestampIds;
use super::tx_socket::TxSocket;
use super::{Departure, Engine, Numbers, Payloads, TrainProgress, TrainSenderConfig, Unavailable};
use crate::clock::{monotonic, realtime};
use crate::pacing::pacer::{WaitMode, sleep_until};
use crate::sockets::port::SendError;
use crate::sockets::socket_error::send_error;
use crate::sys::control::ControlBuffer;
use crate::sys::mapping::Mapping;
use crate::sys::{sockopt, syscall};
use crate::timestamps::{self, KeyCounter};

/// Requested buffer size in bytes: more than any train needs, so that only a queueing discipline
/// drops packets.
const BUFFER_LEN: c_int = 32 << 20;

/// Bytes in front of a frame (net/packet/af_packet.c, `tpacket_parse_header`): the length of the
/// header without the address after it.
const HEADER_LEN: usize = mem::size_of::<libc::tpacket2_hdr>();

/// Size of a block of the ring's memory in bytes, a multiple of any page size.
const BLOCK_LEN: usize = 1 << 16;

/// Time-out for a free slot. By then the frames of the last train have left or wait in a queueing
/// discipline.
const SLOT_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Number of trains that the ring holds. The kernel does not copy frames: over a veth the far end's
/// program reads a packet from this ring, where a later train eventually overwrites it.
const RING_TRAINS: usize = 4;

/// Maximum number of retries for a frame that found no room.
const MAX_RETRIES: usize = 4;

/// A sender that sleeps, then spins, and hands over prepared frames.
struct PacketRing {
    /// Holds the port and receives ICMP errors.
    tx_socket: TxSocket,
    payloads: Payloads,
    route: FrameRoute,
    fd: OwnedFd,
    control: Box<ControlBuffer>,
    ring: Ring,
    longest: usize,
    keys: TimestampIds,
    counter: KeyCounter,
    /// The slot of the train's first frame.
    first: usize,
    packets: usize,
    /// Frames of this train that were given up; later ones move up.
    given_up: usize,
}

/// Opens a sender. If its packets bypass the queueing discipline, taps on this machine do not see
/// them. Timestamps are those requested, if the driver takes them.
///
/// # Errors
/// No CAP_NET_RAW; an interface that is not Ethernet; packets that exceed its MTU; or a next hop
/// that does not answer.
pub(super) fn open(config: TrainSenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
    let TrainSenderConfig { target, options, payloads, max_packets, bypass_qdisc } = config;
    let failed =
        |error| Unavailable::failed("opening a packet socket (needs root or CAP_NET_RAW)", &error);
    let fd = packet_tap::open(libc::SOCK_RAW).map_err(failed)?;
    let tx_socket = TxSocket::silent(target, options)?;
    let route = FrameRoute::find(tx_socket.local(), target, options, payloads.len())?;
    if bypass_qdisc {
        sockopt::set(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1 as c_int)
            .map_err(|error| Unavailable::failed("bypassing the queueing discipline", &error))?;
    }
    sockopt::enlarge_send_buffer(&fd, BUFFER_LEN);
    // The queue of timestamps counts as received data.
    sockopt::enlarge_receive_buffer(&fd, BUFFER_LEN);
    let frame = route.frame.overhead() + payloads.len();
    let ring = Ring::new(&fd, frame, max_packets.saturating_mul(RING_TRAINS))
        .map_err(|error| Unavailable::failed("creating a transmit ring", &error))?;
    packet_tap::bind(&fd, route.interface.index, 0).map_err(failed)?;
    let stamps = timestamps::request(&fd, options.stamps, options.tx_stamps).map_err(failed)?;
    Ok(Box::new(PacketRing {
        tx_socket,
        payloads,
        route,
        fd,
        control: ControlBuffer::new(),
        ring,
        longest: max_packets,
        keys: TimestampIds::default(),
        counter: KeyCounter::new(stamps, options.tx_stamps),
        first: 0,
        packets: 0,
        given_up: 0,
    }))
}

impl PacketRing {
    fn hand_over(&mut self, which: Range<usize>, left: &mut [Departure]) {
        for n in which.clone() {
            let (place, built) = (self.first + n - self.given_up, self.first + n);
            if place != built {
                self.ring.move_up(built, place);
            }
            self.ring.status(place).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        }
        let mut rest = which;
        let mut failed = 0;
        while !rest.is_empty() {
            let app = realtime();
            let errno =
                syscall::send(&self.fd, &[], libc::MSG_DONTWAIT).err().map(|e| syscall::errno(&e));
            let done = realtime();
            while let Some(left) = left.get_mut(rest.start).filter(|_| !rest.is_empty()) {
                let place = self.ring.status(self.first + rest.start - self.given_up);
                if place.load(Ordering::Acquire) == libc::TP_STATUS_SEND_REQUEST {
                    break;
                }
                (left.app, left.done) = (Some(app), Some(done));
                self.keys.note(rest.start, self.counter.take());
                rest.start += 1;
                failed = 0;
            }
            if rest.is_empty() {
                return;
            }
            let errno = errno.unwrap_or(libc::EAGAIN);
            self.counter.skip_if_taken(errno);
            failed += 1;
            if failed > MAX_RETRIES {
                self.give_up(&mut rest, errno);
                failed = 0;
            }
        }
    }

    /// Gives up a frame. The kernel continues at the frame that it could not send, so the next one
    /// takes its place.
    fn give_up(&mut self, rest: &mut Range<usize>, errno: c_int) {
        self.tx_socket.fail(send_error(errno));
        let slots =
            (self.first + rest.start - self.given_up)..(self.first + rest.end - self.given_up);
        for slot in slots.clone().skip(1) {
            self.ring.move_up(slot, slot - 1);
        }
        let last = self.ring.status(slots.end - 1);
        last.store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        rest.start += 1;
        self.given_up += 1;
    }
}

impl Engine for PacketRing {
    fn prepare(&mut self, numbers: Numbers) {
        self.first += self.packets - self.given_up;
        self.given_up = 0;
        self.packets = 0;
        self.payloads.prepare(numbers);
        let packets = numbers.len();
        self.keys.begin(packets);
        self.tx_socket.keys.begin(0);
        if packets > self.longest {
            self.tx_socket.fail(SendError::Full);
            return;
        }
        for n in 0..packets {
            if !self.ring.is_free(self.first + n) {
                self.tx_socket.fail(SendError::Full);
                return;
            }
            let (payloads, route) = (&self.payloads, &self.route);
            self.ring.fill(self.first + n, |frame| route.frame.emit(payloads.at(n), frame));
            self.packets = n + 1;
        }
    }

    fn send(&mut self, progress: TrainProgress<'_>, left: &mut [Departure]) {
        let mut progress = progress.limited(self.packets);
        // Packets that are not sent leave no gap in the ring.
        self.packets = progress.packets();
        while let Some((which, _)) = progress.next_due() {
            let Self { tx_socket, ring, fd, control, keys, counter, .. } = self;
            // A call that finds nothing to send.
            let warm_engine = || drop(syscall::send(fd, &[], libc::MSG_DONTWAIT));
            let memory = ring.frame(self.first + which.start);
            if counter.is_stamped()
                && let Some((_, due)) = progress.next_due()
            {
                keys.take_within(due - monotonic(), left, &mut |limit, each| {
                    timestamps::notices(fd, control, limit, each);
                });
            }
            tx_socket.prepare_departure(WaitMode::SleepSpin, &progress, memory, left, warm_engine);
            let Some(which) = progress.next(WaitMode::SleepSpin) else { return };
            self.hand_over(which, left);
        }
    }

    fn collect(&mut self, left: &mut [Departure], timeout: Nanos) {
        self.tx_socket.collect(&mut [], Nanos::ZERO);
        let Self { fd, control, keys, counter, .. } = self;
        keys.collect(left, counter.is_stamped(), timeout, |limit, each| {
            timestamps::notices(fd, control, limit, each);
        });
    }

    fn tx_socket(&mut self) -> &mut TxSocket {
        &mut self.tx_socket
    }
}

/// Memory shared with the kernel: slots of one length, each with a header and a frame. Slot numbers
/// keep counting and wrap.
struct Ring {
    memory: Mapping,
    slot: usize,
    slots: usize,
    frame: usize,
}

impl Ring {
    /// Creates at least `packets` slots for frames of `frame` bytes.
    fn new(fd: &OwnedFd, frame: usize, packets: usize) -> io::Result<Self> {
        let slot = (HEADER_LEN + frame).next_power_of_two();
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let per_block = BLOCK_LEN / slot;
        let blocks =
            packets.max(1).div_ceil(Some(per_block).filter(|n| *n > 0).ok_or_else(invalid)?);
        let bytes = blocks.checked_mul(BLOCK_LEN).ok_or_else(invalid)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_LEN as u32,
            tp_block_nr: u32::try_from(blocks).map_err(|_| invalid())?,
            tp_frame_size: slot as u32,
            tp_frame_nr: u32::try_from(blocks * per_block).map_err(|_| invalid())?,
        };
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        sockopt::set(fd, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        sockopt::set(fd, libc::SOL_PACKET, libc::PACKET_TX_RING, request)?;
        let memory = Mapping::shared(fd, 0, bytes)?;
        Ok(Self { memory, slot, slots: blocks * per_block, frame })
    }

    fn at(&self, slot: usize) -> NonNull<u8> {
        self.memory.place(slot % self.slots * self.slot, self.slot)
    }

    /// Returns the first word of a slot: its status, which names its owner.
    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: slots are aligned to 16 bytes and begin with `tp_status`, which kernel and
        // program both access as one word; the mapping lives as long as this value.
        unsafe { AtomicU32::from_ptr(self.at(slot).as_ptr().cast()) }
    }

    /// Waits until the program owns a slot; `false` after a time-out.
    fn is_free(&self, slot: usize) -> bool {
        let until = monotonic() + SLOT_TIMEOUT;
        // The upper bits are about timestamps.
        const IN_KERNEL: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
        while self.status(slot).load(Ordering::Acquire) & IN_KERNEL != 0 {
            if monotonic() >= until {
                return false;
            }
            sleep_until(monotonic() + super::timestamp_ids::POLL_INTERVAL);
        }
        true
    }

    /// Returns the frame in a slot that the program owns.
    fn frame(&self, slot: usize) -> &[u8] {
        let at = self.at(slot).as_ptr();
        // SAFETY: as in `fill`; nothing writes to it while it is borrowed with `self`.
        unsafe { std::slice::from_raw_parts(at.add(HEADER_LEN), self.frame) }
    }

    /// Writes a frame to a slot that the program owns.
    fn fill(&mut self, slot: usize, write: impl FnOnce(&mut [u8])) {
        let at = self.at(slot).as_ptr();
        // SAFETY: the program owns the slot (its status says so, or this train has not handed it
        // over). It has room for a header and a frame, and is borrowed exclusively with `self`.
        let frame = unsafe {
            let head = at.cast::<libc::tpacket2_hdr>();
            (&raw mut (*head).tp_len).write(self.frame as u32);
            std::slice::from_raw_parts_mut(at.add(HEADER_LEN), self.frame)
        };
        write(frame);
    }

    /// Moves the frame of slot `from` to slot `to`, with its status; `from` becomes free.
    fn move_up(&mut self, from: usize, to: usize) {
        let (source, target) = (self.at(from), self.at(to));
        // SAFETY: the program owns both slots, which have room for a frame. They differ, because
        // frames move by less than a ring.
        unsafe {
            let len =
                (&raw mut (*target.as_ptr().cast::<libc::tpacket2_hdr>()).tp_len).cast::<u32>();
            len.write(self.frame as u32);
            std::ptr::copy_nonoverlapping(
                source.add(HEADER_LEN).as_ptr(),
                target.add(HEADER_LEN).as_ptr(),
                self.frame,
            );
        }
        let status = self.status(from).swap(libc::TP_STATUS_AVAILABLE, Ordering::AcqRel);
        self.status(to).store(status, Ordering::Release);
    }
}
