//! A TCP socket that answers one protocol on every connection, with one thread for all of them. A
//! connection above the rate limit is read more slowly, because stream bytes cannot be dropped. A
//! connection that does not read its replies is not read either. The reflector never connects, so
//! two reflectors cannot form a loop.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use dwell_engine::protocol::StreamReply;
use dwell_engine::reflector::{Budget, RateLimits, Refusal};
use dwell_io::clock::monotonic;
use dwell_io::gate::Shutter;
use dwell_io::poller::{Interest, Poller};
use dwell_io::port::Wait;
use dwell_io::tcp::{self, TcpConn, TimedReceive};
use dwell_units::{Instant, Monotonic, Nanos};
use dwell_wire::text::{ACKNOWLEDGE, REQUEST, WordScanner};

use super::counters::{Counters, add};
use super::slots::{self, Slot};
use super::{STOP_CHECK_INTERVAL, Service};

/// Maximum number of connections at the same time.
const MAX_CONNECTIONS: usize = 256;

/// Maximum number of bytes per read. Also bounds the replies buffered for a connection that does
/// not read them.
const READ_LEN: usize = 16_384;

/// Maximum number of reads of one connection per turn.
const READ_BATCH: usize = 4;

/// Size of a connection's kernel buffers, each way; room for the largest probe.
const SOCKET_BUFFER: i32 = 128 << 10;

/// Polling interval for connections above the rate limit.
const LIMITED_INTERVAL: Nanos = Nanos::from_millis(1);

/// Pause after a failed accept: the missing resource (descriptors, memory) needs time.
const ACCEPT_PAUSE: Nanos = STOP_CHECK_INTERVAL;

/// Poller token of the listener; a connection's token is its index.
const LISTENER: u64 = u64::MAX;

/// See the module documentation.
pub(super) struct TcpService {
    listener: TcpListener,
    reply: StreamReply,
    /// Replies per second and connection.
    limit: Option<RateLimits>,
    counters: Arc<Counters>,
    /// Waits for the sockets; `None` if all are polled in turn.
    poller: Option<Poller>,
    connections: Vec<Option<Connection>>,
    /// All slots from this index on are free.
    end: usize,
    /// Connections above the rate limit, by index.
    limited: Vec<usize>,
    /// Data of the last read, of any connection.
    buffer: Box<[u8]>,
    /// Buffer of timestamps, if the times of requests in the socket are recorded.
    control: Option<TimedReceive>,
    /// Nothing is accepted before this time.
    accept_from: Option<Instant<Monotonic>>,
}

impl TcpService {
    /// Listens on `address`.
    pub(super) fn listen(
        address: SocketAddr,
        reply: StreamReply,
        limit: Option<RateLimits>,
        busy_poll: bool,
        counters: &Arc<Counters>,
    ) -> io::Result<Self> {
        let listener = tcp::listen(address, None)?;
        tcp::limit_buffers(&listener, SOCKET_BUFFER)?;
        let control = match reply {
            StreamReply::Acknowledge if tcp::stamp_arrivals(&listener)? => Some(Default::default()),
            StreamReply::Acknowledge | StreamReply::Echo => None,
        };
        let poller = match busy_poll {
            true => None,
            false => {
                let mut poller = Poller::new(MAX_CONNECTIONS)?;
                poller.add(&listener, LISTENER)?;
                poller.tick(STOP_CHECK_INTERVAL)?;
                Some(poller)
            }
        };
        Ok(Self {
            listener,
            reply,
            limit,
            counters: Arc::clone(counters),
            poller,
            connections: (0..MAX_CONNECTIONS).map(|_| None).collect(),
            end: 0,
            limited: Vec::with_capacity(MAX_CONNECTIONS),
            buffer: vec![0; READ_LEN].into_boxed_slice(),
            control,
            accept_from: None,
        })
    }

    /// Accepts a connection if there is one. A failure does not affect the others.
    fn accept(&mut self) -> bool {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        match self.listener.accept() {
            Ok((stream, peer)) => {
                let now = monotonic();
                match self.free_slot(peer, now) {
                    // The connection may already be closed.
                    Some(index) => drop(self.serve(index, stream, peer, now)),
                    None => self.counters.refuse(Refusal::Limited),
                }
                true
            }
            Err(e) if matches!(e.kind(), WouldBlock | Interrupted | ConnectionAborted) => false,
            Err(_) => {
                add(&self.counters.not_accepted);
                self.accept_from = Some(monotonic() + ACCEPT_PAUSE);
                self.watch_listener(Interest::Ended);
                false
            }
        }
    }

    /// Resumes accepting after the pause that follows a failure. Returns whether accepting is
    /// allowed.
    fn may_accept(&mut self) -> bool {
        if self.accept_from.is_some_and(|from| monotonic() < from) {
            return false;
        }
        if self.accept_from.take().is_some() {
            self.watch_listener(Interest::Readable);
        }
        true
    }

    fn watch_listener(&mut self, interest: Interest) {
        if let Some(poller) = &mut self.poller {
            // On failure, waits return immediately until accepting works again.
            let _ = poller.change(&self.listener, LISTENER, interest);
        }
    }

    /// Returns a slot for one more connection. If all are taken, another connection may be closed.
    fn free_slot(&mut self, newcomer: SocketAddr, now: Instant<Monotonic>) -> Option<usize> {
        if let Some(free) = self.connections.iter().position(Option::is_none) {
            return Some(free);
        }
        let taken = self.connections.iter().enumerate();
        let taken: Vec<_> =
            taken.filter_map(|(index, open)| Some((index, open.as_ref()?.slot))).collect();
        let index = slots::slot_to_close(&taken, newcomer.ip(), now)?;
        self.connections[index] = None;
        Some(index)
    }

    fn serve(
        &mut self,
        index: usize,
        stream: TcpStream,
        peer: SocketAddr,
        now: Instant<Monotonic>,
    ) -> io::Result<()> {
        let conn = TcpConn::new(stream, peer, None)?;
        if let Some(poller) = &mut self.poller {
            poller.add(&conn, index as u64)?;
        }
        let budget = self.limit.and_then(|limits| Budget::new(limits.of(peer.ip())));
        let counters = Arc::clone(&self.counters);
        let slot = Slot::new(peer.ip(), now);
        self.connections[index] = Some(Connection::new(conn, self.reply, slot, counters, budget));
        self.end = self.end.max(index + 1);
        Ok(())
    }

    /// Serves one connection. The end of a connection is not a failure of the service.
    fn turn_of(&mut self, index: usize, ended: bool) {
        let Some(Some(open)) = self.connections.get_mut(index) else { return };
        // The peer no longer receives replies, and its remaining data is ignored.
        let is_over = ended && open.interest != Interest::Readable;
        let stays = !is_over
            && open.turn(&mut self.buffer, self.control.as_mut()).is_ok()
            && self.poller.as_mut().is_none_or(|poller| open.follow(poller, index).is_ok());
        let waits = self.poller.is_some() && open.is_over_limit;
        if stays && waits && !self.limited.contains(&index) {
            self.limited.push(index);
        }
        if !stays {
            self.connections[index] = None;
            while self.end > 0 && self.connections[self.end - 1].is_none() {
                self.end -= 1;
            }
        }
    }

    /// Waits, and serves the ready sockets. Returns whether there were any.
    fn serve_ready(&mut self) -> io::Result<bool> {
        let Some(poller) = &mut self.poller else { return Ok(false) };
        let wait =
            if self.limited.is_empty() { Wait::Forever } else { Wait::AtMost(LIMITED_INTERVAL) };
        let ready = poller.wait(wait)?;
        for n in 0..ready {
            let Some(ready) = self.poller.as_ref().map(|poller| poller.ready(n)) else { break };
            match ready.token {
                LISTENER => _ = self.may_accept() && self.accept(),
                index => self.turn_of(index as usize, ready.ended),
            }
        }
        self.may_accept();
        for n in (0..self.limited.len()).rev() {
            let index = self.limited[n];
            self.turn_of(index, false);
            if self.connections[index].as_ref().is_none_or(|open| !open.is_over_limit) {
                self.limited.swap_remove(n);
            }
        }
        Ok(ready > 0)
    }
}

impl Service for TcpService {
    /// All waits are bounded.
    fn shutter(&self) -> io::Result<Option<Shutter>> {
        Ok(None)
    }

    fn turn(&mut self, _wait: Wait) -> io::Result<bool> {
        if self.poller.is_some() {
            return self.serve_ready();
        }
        let accepted = self.may_accept() && self.accept();
        for index in 0..self.end {
            self.turn_of(index, false);
        }
        Ok(accepted)
    }
}

/// One connection.
struct Connection {
    conn: TcpConn,
    /// Finds requests; unused for plain echo.
    splitter: Option<WordScanner>,
    counters: Arc<Counters>,
    budget: Option<Budget>,
    /// The last reply exceeded the limit; nothing is read until the budget covers it.
    is_over_limit: bool,
    slot: Slot,
    /// Events that the socket is polled for.
    interest: Interest,
}

impl Connection {
    fn new(
        conn: TcpConn,
        reply: StreamReply,
        slot: Slot,
        counters: Arc<Counters>,
        budget: Option<Budget>,
    ) -> Self {
        let splitter = match reply {
            StreamReply::Echo => None,
            StreamReply::Acknowledge => Some(WordScanner::new(REQUEST)),
        };
        let interest = Interest::Readable;
        Self { conn, splitter, counters, budget, is_over_limit: false, slot, interest }
    }

    /// Updates the polled events to what the connection waits for.
    fn follow(&mut self, poller: &mut Poller, index: usize) -> io::Result<()> {
        let interest = match (self.conn.unsent(), self.is_over_limit) {
            (0, false) => Interest::Readable,
            (0, true) => Interest::Ended,
            (1.., _) => Interest::Writable,
        };
        if interest != self.interest {
            poller.change(&self.conn, index as u64, interest)?;
            self.interest = interest;
        }
        Ok(())
    }

    /// Spends the budget of one reply.
    fn spend(&mut self) {
        self.is_over_limit = self.budget.as_mut().is_some_and(|budget| !budget.allows(monotonic()));
    }

    /// Answers pending requests; an error ends the connection.
    fn turn(
        &mut self,
        buffer: &mut [u8],
        mut control: Option<&mut TimedReceive>,
    ) -> io::Result<()> {
        // With a limit, requests are read one at a time, so that it applies to each.
        let buffer = match (&self.splitter, &self.budget) {
            (Some(_), Some(_)) => &mut buffer[..REQUEST.len()],
            _ => buffer,
        };
        for _ in 0..READ_BATCH {
            // Read nothing while replies are pending, so that these never exceed one read.
            if !self.conn.flush()? {
                return Ok(());
            }
            if self.is_over_limit {
                self.spend();
                if self.is_over_limit {
                    return Ok(());
                }
            }
            let Some(len) = self.receive(buffer, control.as_deref_mut())? else { return Ok(()) };
            self.slot.touch(monotonic());
            self.answer(&buffer[..len])?;
            if len < buffer.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Receives available data; records its time in the socket if `control` is given.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        control: Option<&mut TimedReceive>,
    ) -> io::Result<Option<usize>> {
        let Some(control) = control else { return self.conn.receive(buffer) };
        let received = self.conn.receive_timed(buffer, control)?;
        received.iter().for_each(|(_, rx)| self.counters.record_lag(rx));
        Ok(received.map(|(len, _)| len))
    }

    fn answer(&mut self, received: &[u8]) -> io::Result<()> {
        let Some(splitter) = &mut self.splitter else {
            add(&self.counters.requests);
            self.conn.send(received)?;
            add(&self.counters.replies);
            self.spend();
            return Ok(());
        };
        let mut answered = false;
        for byte in received {
            if splitter.take(*byte) {
                add(&self.counters.requests);
                self.conn.send(ACKNOWLEDGE)?;
                add(&self.counters.replies);
                answered = true;
            }
        }
        if splitter.strays > 0 {
            self.counters.refuse(Refusal::Malformed);
            splitter.strays = 0;
        }
        if answered {
            self.spend();
        }
        Ok(())
    }
}

impl Drop for Connection {
    /// Counts a connection that ended before its peer read all replies.
    fn drop(&mut self) {
        if self.conn.unsent() > 0 {
            add(&self.counters.send_failed);
        }
    }
}
