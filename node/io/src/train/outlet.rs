//! The UDP socket that every engine has. Packets leave by it or, if they leave as frames, it binds
//! their port and receives the ICMP errors about them.

use std::hint::black_box;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;

use dwell_units::{Instant, Nanos, Realtime};
use libc::c_int;

use super::keys::Keys;
use super::warmth::Warmth;
use super::{Course, Departure, Stamping, Unavailable};
use crate::clock::{monotonic, realtime};
use crate::held;
use crate::pacer::Manner;
use crate::port::{Port, PortOptions, SendError, StampRequest};
use crate::socket;
use crate::udp::UdpPort;

/// Requested buffer size in bytes: more than any train needs, so that only a queueing discipline
/// drops packets.
const BUFFER: c_int = 32 << 20;

/// Maximum time to read a packet's memory.
const READING: Nanos = Nanos::from_micros(1);

/// Time before a departure at which its packet is corked.
const AHEAD: Nanos = Nanos::from_micros(12);

/// Maximum gap in which packets are not corked. Only some of them would have the time, and gaps
/// between corked and other packets would differ, because they leave by different calls.
const SHORT: Nanos = Nanos::from_micros(8);

/// Minimum length of a cache line in bytes, and minimum number of lines in the nearest cache.
const LINE: usize = 64;
const LINES: usize = 256;

/// A connected socket and the keys that packets took.
pub(super) struct Outlet {
    pub(super) port: UdpPort,
    pub(super) keys: Keys,
    pub(super) stamped: bool,
    /// Requested timestamps, and whether TX_SCHED is among them.
    request: (StampRequest, bool),
    /// It is unknown which packet takes which key.
    astray: bool,
    failure: Option<SendError>,
    warmth: Warmth,
    /// A corked packet is in the socket.
    holds: bool,
}

impl Outlet {
    /// Opens a socket that sends to `target`.
    pub(super) fn open(target: SocketAddr, options: &PortOptions) -> Result<Self, Unavailable> {
        let port = UdpPort::connect(target, options)
            .map_err(|error| Unavailable::failed("opening a UDP socket to the target", &error))?;
        for (force, ask) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Best effort: a smaller buffer only affects long trains.
            if socket::set(&port.link.fd, libc::SOL_SOCKET, force, BUFFER).is_err() {
                let _ = socket::set(&port.link.fd, libc::SOL_SOCKET, ask, BUFFER);
            }
        }
        let stamped = options.stamps != StampRequest::User;
        let warmth = Warmth::new(port.local_addr(), options.stamps);
        let request = (options.stamps, options.sched_stamps);
        Ok(Self {
            port,
            keys: Keys::default(),
            stamped,
            request,
            astray: false,
            failure: None,
            warmth,
            holds: false,
        })
    }

    /// Enables corking of packets ([`Self::hold`]), if it is supported here.
    pub(super) fn ahead(self) -> Self {
        match held::works(self.port.local_addr(), self.request.0) {
            true => Self { warmth: self.warmth.held(), ..self },
            false => self,
        }
    }

    /// Opens a socket that sends no packets of a train itself: it requests no timestamps.
    pub(super) fn silent(target: SocketAddr, options: &PortOptions) -> Result<Self, Unavailable> {
        Self::open(target, &PortOptions { stamps: StampRequest::User, ..options.clone() })
    }

    /// Returns the address that packets leave from.
    pub(super) fn local(&self) -> SocketAddr {
        self.port.local_addr()
    }

    /// Reserves room for the keys of `packets` packets. Restarts the kernel's key counter if keys
    /// were lost.
    pub(super) fn begin(&mut self, packets: usize) {
        self.keys.begin(packets);
        if self.astray {
            let (stamps, sched) = self.request;
            if socket::count_anew(&self.port.link.fd, stamps, sched).is_ok() {
                self.port.link.begin_keys();
                self.astray = false;
            }
        }
    }

    /// Records that a failed packet may have taken a key: no more timestamps of this train are
    /// assigned.
    pub(super) fn lose_keys(&mut self) {
        self.astray = true;
    }

    /// Uses the time left before a departure to make it punctual. To be called before each
    /// departure, with the memory of its packet. `knock` is the engine's own way of warming its
    /// path.
    pub(super) fn get_ready(
        &mut self,
        manner: Manner,
        course: &Course<'_>,
        memory: &[u8],
        left: &mut [Departure],
        mut knock: impl FnMut(),
    ) {
        let Some((_, due)) = course.due_together() else { return };
        if course.before().is_none() {
            self.warmth.begin();
        }
        let room = due - monotonic();
        if room < READING {
            return;
        }
        let Self { port, keys, warmth, .. } = self;
        if self.stamped {
            // The kernel does not keep all timestamps of a long train. Reading one also frees its
            // packet's memory for the next packet: when none were read, one packet in ten was 2 us
            // late.
            keys.take_within(room, left, &mut |limit, each| port.notices(limit, each));
        }
        warmth.before(due, manner, course, memory, || {
            // An ICMP error about an earlier packet would fail the next send call. It stays in the
            // error queue.
            let _ = socket::take_error(&port.link.fd);
            knock();
        });
        for line in memory.chunks(LINE).take(LINES) {
            black_box(line[0]);
        }
    }

    /// Corks the packet that is due next, if there is time, so that it only has to be released. To
    /// be called after [`Self::get_ready`] if only one packet is due.
    pub(super) fn hold(&mut self, manner: Manner, course: &Course<'_>, payload: &[u8]) {
        let Some((_, due)) = course.due_together() else { return };
        let is_short = course.before().is_some_and(|before| due - before <= SHORT);
        if is_short || course.wait(manner, due - AHEAD).is_none() {
            return;
        }
        let Self { port, warmth, .. } = self;
        // A pending ICMP error fails the first call.
        self.holds = (0..2)
            .any(|_| warmth.has_time_to_hand_over(due - monotonic()) && port.link.hold(payload));
    }

    /// Discards the corked packet, if any.
    pub(super) fn discard(&mut self) {
        if mem::take(&mut self.holds) {
            self.port.link.discard();
        }
    }

    /// Sends the `n`th packet by a call of its own, or releases it if it is corked.
    pub(super) fn send(&mut self, n: usize, payload: &[u8], left: &mut [Departure]) {
        let ahead = mem::take(&mut self.holds);
        let sent = if ahead { self.port.link.release() } else { self.port.send(payload) };
        match sent {
            Ok(sent) => {
                left[n].ahead = ahead;
                left[n].app = Some(sent.app);
                left[n].done = Some(realtime());
                self.keys.note(n, sent.key.filter(|_| !self.astray));
            }
            Err(error) => self.failure = Some(error),
        }
    }

    /// Records that these packets were handed over between `app` and `done`.
    pub(super) fn note(
        &mut self,
        which: Range<usize>,
        app: Instant<Realtime>,
        done: Instant<Realtime>,
        left: &mut [Departure],
    ) {
        for (n, left) in which.clone().zip(&mut left[which]) {
            left.app = Some(app);
            left.done = Some(done);
            let key = self.port.link.take_key();
            self.keys.note(n, key.filter(|_| !self.astray));
        }
    }

    /// Handles a failed send call, after `before` earlier failures for the same first packet.
    /// Returns whether the call is to be made again.
    pub(super) fn is_to_be_sent_again(&mut self, errno: c_int, before: usize) -> bool {
        match self.port.link.failed(errno, before) {
            None => true,
            Some(error) => {
                self.failure = Some(error);
                false
            }
        }
    }

    pub(super) fn collect(&mut self, left: &mut [Departure], patience: Nanos) {
        let Self { port, keys, stamped, .. } = self;
        keys.collect(left, *stamped, patience, |limit, each| port.notices(limit, each));
    }

    pub(super) fn stamping(&self) -> Stamping {
        if self.stamped { Stamping::Socket } else { Stamping::FarEnd }
    }

    pub(super) fn failure(&self) -> Option<io::Error> {
        self.failure.map(io::Error::other)
    }
}
