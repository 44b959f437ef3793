//! The UDP socket that every engine has. Packets leave by it or, if they leave as frames, it binds
//! their port and receives the ICMP errors about them.

use std::hint::black_box;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;

use dwell_units::{Instant, Nanos, Realtime};
use libc::c_int;

use super::cache_warming::CacheWarmer;
use super::timestamp_ids::TimestampIds;
use super::{Departure, TrainProgress, Unavailable};
use crate::clock::{monotonic, realtime};
use crate::pacing::pacer::WaitMode;
use crate::sockets::cork;
use crate::sockets::datagram::DatagramSocket;
use crate::sockets::port::{Buffers, SendError, SocketOptions, StampRequest};
use crate::sys::sockopt;

/// Maximum time to read a packet's memory.
const MAX_READ_TIME: Nanos = Nanos::from_micros(1);

/// Time before a departure at which its packet is corked.
const CORK_LEAD: Nanos = Nanos::from_micros(12);

/// Maximum gap in which packets are not corked. Only some of them would have the time, and gaps
/// between corked and other packets would differ, because they leave by different calls.
const MAX_UNCORKED_GAP: Nanos = Nanos::from_micros(8);

/// Minimum length of a cache line in bytes, and minimum number of lines in the nearest cache.
const CACHE_LINE_LEN: usize = 64;
const CACHE_LINES: usize = 256;

/// A connected socket and the keys that packets took.
pub(super) struct TxSocket {
    pub(super) socket: DatagramSocket,
    pub(super) keys: TimestampIds,
    /// It is unknown which packet takes which key.
    keys_lost: bool,
    failure: Option<SendError>,
    cache_warmer: CacheWarmer,
    /// A corked packet is in the socket.
    has_corked: bool,
}

impl TxSocket {
    /// Opens a socket that sends to `target`.
    pub(super) fn open(target: SocketAddr, options: &SocketOptions) -> Result<Self, Unavailable> {
        // More than any train needs, so that only a queueing discipline drops packets.
        let options = SocketOptions { buffers: Buffers::Bulk, ..options.clone() };
        let socket = DatagramSocket::connect(target, &options)
            .map_err(|error| Unavailable::failed("opening a UDP socket to the target", &error))?;
        let cache_warmer = CacheWarmer::new(socket.local_addr(), options.stamps);
        Ok(Self {
            socket,
            keys: TimestampIds::default(),
            keys_lost: false,
            failure: None,
            cache_warmer,
            has_corked: false,
        })
    }

    /// Enables corking of packets ([`Self::cork`]), if it is supported here.
    pub(super) fn with_corking(self) -> Self {
        match cork::is_supported(self.socket.local_addr(), self.socket.keys.stamps()) {
            true => Self { cache_warmer: self.cache_warmer.with_corking(), ..self },
            false => self,
        }
    }

    /// Opens a socket that sends no packets of a train itself: it requests no timestamps.
    pub(super) fn silent(target: SocketAddr, options: &SocketOptions) -> Result<Self, Unavailable> {
        Self::open(target, &SocketOptions { stamps: StampRequest::User, ..options.clone() })
    }

    /// Returns the address that packets leave from.
    pub(super) fn local(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Reserves room for the keys of `packets` packets. Restarts the kernel's key counter if keys
    /// were lost.
    pub(super) fn begin(&mut self, packets: usize) {
        self.keys.begin(packets);
        if self.keys_lost {
            // Older timestamps are recognised by their time.
            let DatagramSocket { fd, keys, .. } = &mut self.socket;
            self.keys_lost = keys.restart(fd, Nanos::ZERO).is_err();
        }
    }

    /// Records that a failed packet may have taken a key: no more timestamps of this train are
    /// assigned.
    pub(super) fn lose_keys(&mut self) {
        self.keys_lost = true;
    }

    /// Uses the time left before a departure to make it punctual. To be called before each
    /// departure, with the memory of its packet. `warm_engine` warms the parts of the path that
    /// only this engine uses.
    pub(super) fn prepare_departure(
        &mut self,
        wait_mode: WaitMode,
        progress: &TrainProgress<'_>,
        memory: &[u8],
        left: &mut [Departure],
        mut warm_engine: impl FnMut(),
    ) {
        let Some((_, due)) = progress.next_due() else { return };
        if progress.before().is_none() {
            self.cache_warmer.begin();
        }
        let room = due - monotonic();
        if room < MAX_READ_TIME {
            return;
        }
        let Self { socket, keys, cache_warmer, .. } = self;
        if socket.keys.is_stamped() {
            // The kernel does not keep all timestamps of a long train. Reading one also frees its
            // packet's memory for the next packet: when none were read, one packet in ten was 2 us
            // late.
            keys.take_within(room, left, &mut |limit, each| socket.notices(limit, each));
        }
        cache_warmer.before(due, wait_mode, progress, memory, || {
            // An ICMP error about an earlier packet would fail the next send call. It stays in the
            // error queue.
            let _ = sockopt::take_error(&socket.fd);
            warm_engine();
        });
        for line in memory.chunks(CACHE_LINE_LEN).take(CACHE_LINES) {
            black_box(line[0]);
        }
    }

    /// Corks the packet that is due next, if there is time, so that it only has to be released. To
    /// be called after [`Self::prepare_departure`] if only one packet is due.
    pub(super) fn cork(
        &mut self,
        wait_mode: WaitMode,
        progress: &TrainProgress<'_>,
        payload: &[u8],
    ) {
        let Some((_, due)) = progress.next_due() else { return };
        let is_short = progress.before().is_some_and(|before| due - before <= MAX_UNCORKED_GAP);
        if is_short || progress.wait(wait_mode, due - CORK_LEAD).is_none() {
            return;
        }
        let Self { socket, cache_warmer, .. } = self;
        // A pending ICMP error fails the first call.
        self.has_corked =
            (0..2).any(|_| cache_warmer.can_cork(due - monotonic()) && socket.cork(payload));
    }

    /// Discards the corked packet, if any.
    pub(super) fn discard(&mut self) {
        if mem::take(&mut self.has_corked) {
            self.socket.discard();
        }
    }

    /// Sends the `n`th packet by a call of its own, or releases it if it is corked.
    pub(super) fn send(&mut self, n: usize, payload: &[u8], left: &mut [Departure]) {
        let ahead = mem::take(&mut self.has_corked);
        let sent = if ahead { self.socket.release() } else { self.socket.send(payload) };
        match sent {
            Ok(sent) => {
                left[n].ahead = ahead;
                left[n].app = Some(sent.app);
                left[n].done = Some(realtime());
                self.keys.note(n, sent.key.filter(|_| !self.keys_lost));
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
            let key = self.socket.keys.take();
            self.keys.note(n, key.filter(|_| !self.keys_lost));
        }
    }

    /// Handles a failed send call, after `before` earlier failures for the same first packet.
    /// Returns whether the call is to be made again.
    pub(super) fn should_retry(&mut self, errno: c_int, before: usize) -> bool {
        match self.socket.failed(errno, before) {
            None => true,
            Some(error) => {
                self.failure = Some(error);
                false
            }
        }
    }

    pub(super) fn collect(&mut self, left: &mut [Departure], timeout: Nanos) {
        let Self { socket, keys, .. } = self;
        let stamped = socket.keys.is_stamped();
        keys.collect(left, stamped, timeout, |limit, each| socket.notices(limit, each));
    }

    /// Records why a packet could not be sent.
    pub(super) fn fail(&mut self, error: SendError) {
        self.failure = Some(error);
    }

    pub(super) fn failure(&self) -> Option<io::Error> {
        self.failure.map(io::Error::other)
    }
}
