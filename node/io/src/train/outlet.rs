//! The UDP socket that an engine has in any case: packets leave by it or, where they leave as frames,
//! it holds their port and hears the ICMP errors about them.

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

/// Asked of the kernel: more than any train holds, so that only a queueing discipline drops.
const BUFFER: c_int = 32 << 20;

/// Reading a packet takes no longer than this.
const READING: Nanos = Nanos::from_micros(1);

/// A packet is handed over so long before it is due,
const AHEAD: Nanos = Nanos::from_micros(12);

/// and none in gaps as short as this, in which some would have the time for it and others not: as they leave by another
/// call, gaps between the two would differ.
const SHORT: Nanos = Nanos::from_micros(8);

/// A cache holds lines of at least so many bytes, and the nearest one at least so many of them.
const LINE: usize = 64;
const LINES: usize = 256;

/// A connected socket, and what is known of the packets that took its keys.
pub(super) struct Outlet {
    pub(super) port: UdpPort,
    pub(super) keys: Keys,
    pub(super) stamped: bool,
    /// Which stamps were asked for.
    request: (StampRequest, bool),
    /// It is no longer known which packet takes which key.
    astray: bool,
    failure: Option<SendError>,
    warmth: Warmth,
    /// A packet that was handed over ahead lies in the socket.
    holds: bool,
}

impl Outlet {
    /// A socket that sends to `target`.
    pub(super) fn open(target: SocketAddr, options: &PortOptions) -> Result<Self, Unavailable> {
        let port = UdpPort::connect(target, options)
            .map_err(|error| Unavailable::failed("a UDP socket to the target", &error))?;
        for (force, ask) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Best effort: a smaller buffer only matters to long trains.
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

    /// The same that has packets handed over ahead ([`Self::hold`]), where that works here.
    pub(super) fn ahead(self) -> Self {
        match held::works(self.port.local_addr(), self.request.0) {
            true => Self { warmth: self.warmth.held(), ..self },
            false => self,
        }
    }

    /// One that carries no packets itself: it asks for no stamps.
    pub(super) fn silent(target: SocketAddr, options: &PortOptions) -> Result<Self, Unavailable> {
        Self::open(target, &PortOptions { stamps: StampRequest::User, ..options.clone() })
    }

    /// The address that packets leave from.
    pub(super) fn local(&self) -> SocketAddr {
        self.port.local_addr()
    }

    /// Makes room for the keys of so many packets; counts them anew where they went astray.
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

    /// A packet failed, and may have taken a key or not: no more stamps of this train are joined.
    pub(super) fn lose_keys(&mut self) {
        self.astray = true;
    }

    /// To be called before each departure, with the memory that it will be read from: uses the time that is
    /// left for whatever makes it punctual. `knock` does what the engine can do of its own to warm its path.
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
            // Of a long train the kernel keeps not all stamps, and a packet whose stamp is taken leaves its
            // memory to the next: where none were taken, one packet in ten was late by two microseconds.
            keys.take_within(room, left, &mut |limit, each| port.notices(limit, each));
        }
        warmth.before(due, manner, course, memory, || {
            // An ICMP error about an earlier packet would fail the next send call. It stays in the queue.
            let _ = socket::take_error(&port.link.fd);
            knock();
        });
        for line in memory.chunks(LINE).take(LINES) {
            black_box(line[0]);
        }
    }

    /// To be called then where one packet is due: hands it over as far as there is time, so that it only has to be
    /// let go.
    pub(super) fn hold(&mut self, manner: Manner, course: &Course<'_>, payload: &[u8]) {
        let Some((_, due)) = course.due_together() else { return };
        let is_short = course.before().is_some_and(|before| due - before <= SHORT);
        if is_short || course.wait(manner, due - AHEAD).is_none() {
            return;
        }
        let Self { port, warmth, .. } = self;
        // An ICMP error that is pending fails the first call.
        self.holds = (0..2)
            .any(|_| warmth.has_time_to_hand_over(due - monotonic()) && port.link.hold(payload));
    }

    /// Nothing that is held leaves any more.
    pub(super) fn discard(&mut self) {
        if mem::take(&mut self.holds) {
            self.port.link.discard();
        }
    }

    /// Sends the `n`th packet by a call of its own, or lets it go if it is held.
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

    /// These packets were handed over between `app` and `done`.
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

    /// What a send call that failed means for the first packet that it was to send, after `before`
    /// others for the same; `true`: it is to be made again.
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
