//! A TCP socket that answers one protocol on every connection. A connection that asks faster than
//! the limit is read more slowly, for bytes of a stream cannot be dropped, and one that does not
//! read its replies is not read either. Nothing here connects, so two reflectors never meet.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use dwell_engine::reflector::{Budget, Refusal};
use dwell_io::clock::monotonic;
use dwell_io::cpu;
use dwell_io::port::Wait;
use dwell_io::tcp::TcpConn;
use dwell_io::udp::Shutter;
use dwell_units::{Instant, Monotonic, Nanos, PacketRate};
use dwell_wire::text::{ACKNOWLEDGE, REQUEST, Splitter};

use super::Service;
use super::counters::{Counters, add};
use crate::{PlaceArgs, Scheme};

/// Connections served at the same time.
const CONNECTIONS: usize = 256;

/// When all are taken, a connection on which nothing came for this long may have to make room.
const IDLE: Nanos = Nanos::from_secs(1);

/// How long a connection that asks too fast is left alone.
const PENALTY: Nanos = Nanos::from_millis(1);

/// How long nothing is accepted after that failed: what this machine lacks (descriptors, memory)
/// comes back with time only.
const PAUSE: Nanos = Nanos::from_millis(100);

/// How connections are served.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Bound of a receive call; `None`: never wait, all are polled by one thread.
    pub(super) wait: Option<Nanos>,
    pub(super) args: PlaceArgs,
    /// Replies per second and connection.
    pub(super) limit: Option<PacketRate>,
    pub(super) stop: Arc<AtomicBool>,
}

/// See the module's documentation.
pub(super) struct TcpService {
    listener: TcpListener,
    scheme: Scheme,
    place: Place,
    counters: Arc<Counters>,
    /// Connections that are polled here.
    polled: Vec<Connection>,
    /// All connections, those with a thread of their own too.
    seats: Vec<Arc<Seat>>,
    /// Nothing is accepted before this time.
    accept_from: Option<Instant<Monotonic>>,
}

impl TcpService {
    pub(super) fn new(
        listener: TcpListener,
        scheme: Scheme,
        place: Place,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            listener,
            scheme,
            place,
            counters: Arc::clone(counters),
            polled: Vec::new(),
            seats: Vec::new(),
            accept_from: None,
        }
    }

    /// Takes a connection if one is there. None that fails ends the others.
    fn accept(&mut self) -> bool {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        if let Some(from) = self.accept_from {
            let left = from - monotonic();
            if left > Nanos::ZERO {
                if self.place.wait.is_some() {
                    thread::sleep(left.to_std());
                }
                return false;
            }
            self.accept_from = None;
        }
        match self.listener.accept() {
            Ok((stream, peer)) => {
                if self.has_room(peer.ip(), monotonic()) {
                    // A connection that is gone already is none.
                    let _ = self.serve(stream, peer);
                } else {
                    self.counters.refuse(Refusal::Limited);
                }
                true
            }
            Err(e) if matches!(e.kind(), WouldBlock | Interrupted | ConnectionAborted) => false,
            Err(_) => {
                add(&self.counters.not_accepted);
                self.accept_from = Some(monotonic() + PAUSE);
                false
            }
        }
    }

    /// Whether one more connection may be served; a neighbour that is idle makes room for it.
    fn has_room(&mut self, newcomer: IpAddr, now: Instant<Monotonic>) -> bool {
        // A seat that only this list holds is empty.
        self.seats.retain(|seat| Arc::strong_count(seat) > 1 && !seat.is_left());
        self.seats.len() < CONNECTIONS || make_room(&self.seats, newcomer, now)
    }

    fn serve(&mut self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let conn = TcpConn::new(stream, peer, self.place.wait)?;
        let limiter = self.place.limit.and_then(Budget::new);
        let seat = Arc::new(Seat::new(peer.ip(), monotonic()));
        self.seats.push(Arc::clone(&seat));
        let counters = Arc::clone(&self.counters);
        let mut connection = Connection::new(conn, self.scheme, seat, counters, limiter);
        if self.place.wait.is_none() {
            self.polled.push(connection);
            return Ok(());
        }
        let place = self.place.clone();
        thread::Builder::new().spawn(move || {
            // A CPU or a class that was allowed at the start and is not any more costs speed only.
            let _ = cpu::settle(place.args.cpu, place.args.real_time(false));
            while !place.stop.load(Ordering::Relaxed) && connection.turn().is_ok() {
                if connection.owes {
                    thread::sleep(PENALTY.to_std());
                }
            }
        })?;
        Ok(())
    }
}

impl Service for TcpService {
    /// Accepting and receiving are bounded in time.
    fn shutter(&self) -> io::Result<Option<Shutter>> {
        Ok(None)
    }

    fn turn(&mut self, _wait: Wait) -> io::Result<bool> {
        let accepted = self.accept();
        // A connection that ends is no failure of the service.
        self.polled.retain_mut(|connection| connection.turn().is_ok());
        Ok(accepted)
    }
}

/// What the listener knows of a connection.
#[derive(Debug)]
struct Seat {
    peer: IpAddr,
    /// When something last came, in nanoseconds.
    active: AtomicI64,
    /// It has to make room.
    left: AtomicBool,
}

impl Seat {
    fn new(peer: IpAddr, now: Instant<Monotonic>) -> Self {
        Self { peer, active: AtomicI64::new(now.as_nanos()), left: AtomicBool::new(false) }
    }

    fn idle(&self, now: Instant<Monotonic>) -> Nanos {
        now - Instant::from_nanos(self.active.load(Ordering::Relaxed))
    }

    fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Of the peers with the most connections, the `newcomer` counted as one more, takes the one that
/// is idle longest from its seat. Nobody leaves who was heard a moment ago.
fn make_room(seats: &[Arc<Seat>], newcomer: IpAddr, now: Instant<Monotonic>) -> bool {
    let mut held = BTreeMap::from([(newcomer, 1_usize)]);
    for seat in seats {
        *held.entry(seat.peer).or_default() += 1;
    }
    let most = held.values().copied().max().unwrap_or(0);
    let leaving = seats
        .iter()
        .filter(|seat| held.get(&seat.peer) == Some(&most) && seat.idle(now) > IDLE)
        .max_by_key(|seat| seat.idle(now));
    if let Some(seat) = leaving {
        seat.left.store(true, Ordering::Relaxed);
    }
    leaving.is_some()
}

impl Drop for Connection {
    /// A peer that went, or had to, before it read what was owed to it.
    fn drop(&mut self) {
        if self.conn.unsent() > 0 {
            add(&self.counters.send_failed);
        }
    }
}

/// One connection.
struct Connection {
    conn: TcpConn,
    /// Finds requests; plain echo has none to find.
    splitter: Option<Splitter>,
    counters: Arc<Counters>,
    buffer: Box<[u8]>,
    limiter: Option<Budget>,
    /// The last reply was beyond the limit; nothing is read until there is budget for it.
    owes: bool,
    seat: Arc<Seat>,
}

impl Connection {
    fn new(
        conn: TcpConn,
        scheme: Scheme,
        seat: Arc<Seat>,
        counters: Arc<Counters>,
        limiter: Option<Budget>,
    ) -> Self {
        let splitter = (scheme == Scheme::TextTcp).then(|| Splitter::new(REQUEST));
        // With a limit, requests are read one by one, so that it holds for each of them.
        let room = if splitter.is_some() && limiter.is_some() { REQUEST.len() } else { 65_536 };
        let buffer = vec![0; room].into_boxed_slice();
        Self { conn, splitter, counters, buffer, limiter, owes: false, seat }
    }

    /// Spends of the budget for one reply.
    fn spend(&mut self) {
        self.owes = self.limiter.as_mut().is_some_and(|limit| !limit.allows(monotonic()));
    }

    /// Answers what came; an error ends the connection.
    fn turn(&mut self) -> io::Result<()> {
        if self.seat.is_left() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        // Nothing is read while replies wait, so that they never amount to more than one reading's.
        if !self.conn.flush()? {
            return Ok(());
        }
        if self.owes {
            self.spend();
            if self.owes {
                return Ok(());
            }
        }
        let Some(len) = self.conn.receive(&mut self.buffer)? else { return Ok(()) };
        self.seat.active.store(monotonic().as_nanos(), Ordering::Relaxed);
        let Some(splitter) = &mut self.splitter else {
            add(&self.counters.requests);
            self.conn.send(&self.buffer[..len])?;
            add(&self.counters.replies);
            self.spend();
            return Ok(());
        };
        let mut answered = false;
        for byte in &self.buffer[..len] {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Instant<Monotonic> {
        Instant::from_nanos(100 * IDLE.0)
    }

    /// A peer's seat, idle for this many tenths of what is too long.
    fn seat(peer: u8, idle: i64) -> Arc<Seat> {
        let active = now() - Nanos(idle * IDLE.0 / 10);
        Arc::new(Seat::new(IpAddr::from([192, 0, 2, peer]), active))
    }

    fn left(seats: &[Arc<Seat>]) -> Vec<usize> {
        (0..seats.len()).filter(|n| seats[*n].is_left()).collect()
    }

    #[test]
    fn the_longest_idle_of_whoever_holds_most_seats_makes_room() {
        let seats = [seat(1, 99), seat(2, 11), seat(2, 15), seat(2, 3), seat(1, 90)];
        let newcomer = IpAddr::from([192, 0, 2, 9]);
        assert!(make_room(&seats, newcomer, now()));
        assert_eq!(left(&seats), [2]);
    }

    #[test]
    fn nobody_makes_room_who_was_heard_a_moment_ago() {
        let seats = [seat(1, 99), seat(2, 9), seat(2, 8)];
        assert!(!make_room(&seats, IpAddr::from([192, 0, 2, 9]), now()));
        assert!(left(&seats).is_empty());
    }

    #[test]
    fn a_peer_that_wants_one_more_than_all_others_gives_up_one_of_its_own() {
        let seats = [seat(1, 99), seat(1, 98), seat(2, 12), seat(2, 20)];
        assert!(make_room(&seats, IpAddr::from([192, 0, 2, 2]), now()));
        assert_eq!(left(&seats), [3]);
    }
}
