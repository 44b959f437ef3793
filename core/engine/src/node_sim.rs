//! A microcontroller as a server of the request/acknowledge exchange: a coarse clock, reads that wait
//! for their time-out, a main loop that visits its sockets, a slow console and few sockets.
//!
//! The caller owns the sockets and the clock. It passes in what arrives, asks [`NodeSim::wake`] how
//! long to wait, and sends the replies of [`NodeSim::due`]. `docs/node-sim.md` describes the model.

mod settings;

use std::collections::BTreeMap;

use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::text::{REQUEST, WordScanner, is};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

pub use settings::{MAX_SOCKETS, NodeSettings};

/// Maximum number of requests that wait for their reply; further ones are dropped.
const MAX_PENDING: usize = 65_536;

/// A connection of the node, which finds requests in its stream.
#[derive(Debug)]
pub struct NodeStream(WordScanner);

/// When a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeArrival {
    /// In the socket.
    pub arrived: Instant<Monotonic>,
    /// In the program that simulates the node, which cannot read it earlier.
    pub received: Instant<Monotonic>,
}

/// A reply to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeReply<P> {
    /// Where the request came from.
    pub to: P,
    /// Arrival of the request.
    pub arrived: Instant<Monotonic>,
    /// When the node began to read the request.
    pub read: Instant<Monotonic>,
    /// When the reply is due.
    pub due: Instant<Monotonic>,
}

/// Counters of a simulated node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Requests received.
    pub requests: u64,
    /// Messages, or pieces of a stream, that contain something else than requests.
    pub malformed: u64,
    /// Connections refused because all sockets were taken.
    pub refused_connections: u64,
    /// Requests dropped because too many were pending.
    pub dropped: u64,
}

/// See the module documentation. `P` identifies the socket and peer of a request.
#[derive(Debug)]
pub struct NodeSim<P> {
    settings: NodeSettings,
    /// Zero of the node's clock.
    boot: Instant<Monotonic>,
    random: Xoshiro256PlusPlus,
    /// A request occupies the node until then.
    busy_until: Instant<Monotonic>,
    connections: usize,
    /// Replies by due time, then by order of arrival.
    pending: BTreeMap<(Instant<Monotonic>, u64), NodeReply<P>>,
    counts: NodeCounts,
}

/// Transport of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Datagram,
    Stream,
}

impl<P> NodeSim<P> {
    /// Creates a node whose clock starts at `boot`. Equal seeds and arrivals give equal delays.
    pub fn new(settings: NodeSettings, boot: Instant<Monotonic>, seed: u64) -> Self {
        Self {
            settings,
            boot,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            busy_until: boot,
            connections: 0,
            pending: BTreeMap::new(),
            counts: NodeCounts::default(),
        }
    }

    /// Accepts a connection; `None` if all sockets are taken.
    pub fn open(&mut self) -> Option<NodeStream> {
        if self.connections >= self.settings.sockets {
            self.counts.refused_connections += 1;
            return None;
        }
        self.connections += 1;
        Some(NodeStream(WordScanner::new(REQUEST)))
    }

    /// Frees the socket of a connection. Its pending replies stay due.
    pub fn close(&mut self, stream: NodeStream) {
        let NodeStream(_) = stream;
        self.connections -= 1;
    }

    /// Counters so far.
    pub fn counts(&self) -> NodeCounts {
        self.counts
    }

    /// Time of the next reply.
    pub fn wake(&self) -> Option<Instant<Monotonic>> {
        self.pending.first_key_value().map(|((due, _), _)| *due)
    }

    /// Returns the next reply if it is due.
    pub fn due(&mut self, now: Instant<Monotonic>) -> Option<NodeReply<P>> {
        self.wake().filter(|due| *due <= now)?;
        self.pending.pop_first().map(|(_, reply)| reply)
    }

    /// Handles a datagram.
    pub fn receive_datagram(&mut self, from: P, message: &[u8], at: NodeArrival) {
        if is(REQUEST, message) {
            self.request(from, Transport::Datagram, at);
        } else {
            self.counts.malformed += 1;
        }
    }

    fn request(&mut self, from: P, transport: Transport, at: NodeArrival) {
        self.counts.requests += 1;
        if self.pending.len() >= MAX_PENDING {
            self.counts.dropped += 1;
            return;
        }
        let arrived = at.arrived;
        let (read, done) = self.serve(transport, at);
        let due = arrived + self.on_clock(arrived, done);
        let read = arrived + self.on_clock(arrived, read);
        let reply = NodeReply { to: from, arrived, read, due };
        self.pending.insert((due, self.counts.requests), reply);
    }

    /// Returns when the node reads a request, and when it has the reply.
    fn serve(
        &mut self,
        transport: Transport,
        at: NodeArrival,
    ) -> (Instant<Monotonic>, Instant<Monotonic>) {
        let mut draw = || self.random.random::<f64>();
        let (visit, print, service, repeat) = (draw(), draw(), draw(), draw());
        let NodeSettings { loop_time, print_delay, service_time, read_timeout, .. } = self.settings;
        let is_stream = transport == Transport::Stream;
        // The node waits in the read of its only connection and does not visit others.
        let waits_in_read = is_stream && self.connections <= 1 && read_timeout > Nanos::ZERO;
        let visited = if waits_in_read { at.arrived } else { at.arrived + loop_time.at(visit) };
        let read = visited.max(self.busy_until).max(at.received);
        self.busy_until = read + service_time.at(service);
        let is_repeated = waits_in_read && repeat < self.settings.repeated_reads;
        let timeout = match (is_stream, is_repeated) {
            (false, _) => Nanos::ZERO,
            (true, false) => read_timeout,
            (true, true) => read_timeout.saturating_mul(2),
        };
        // The console prints from its buffer while the node waits in a read.
        (read, self.busy_until + print_delay.at(print).max(timeout))
    }

    /// Returns the time between two instants on the node's clock: the difference of two readings, each
    /// in whole ticks.
    fn on_clock(&self, start: Instant<Monotonic>, end: Instant<Monotonic>) -> Nanos {
        let tick = self.settings.clock_tick.0;
        if tick <= 0 {
            return end - start;
        }
        let reading = |at: Instant<Monotonic>| (at - self.boot).0.div_euclid(tick);
        Nanos((reading(end) - reading(start)) * tick)
    }
}

impl<P: Clone> NodeSim<P> {
    /// Handles bytes of a connection.
    pub fn receive_stream(
        &mut self,
        from: &P,
        stream: &mut NodeStream,
        bytes: &[u8],
        at: NodeArrival,
    ) {
        for byte in bytes {
            if stream.0.take(*byte) {
                self.request(from.clone(), Transport::Stream, at);
            }
        }
        if stream.0.strays > 0 {
            self.counts.malformed += 1;
            stream.0.strays = 0;
        }
    }
}

#[cfg(test)]
mod tests;
