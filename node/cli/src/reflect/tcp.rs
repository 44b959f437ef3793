//! A TCP socket that answers one protocol on every connection. A connection that asks faster than
//! the limit is read more slowly, for bytes of a stream cannot be dropped; nothing here connects,
//! so two reflectors never meet.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use dwell_engine::reflector::{Limiter, Refusal};
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

/// Connections served at the same time; more are closed at once.
const CONNECTIONS: usize = 256;

/// When all are taken, one that was idle for this long makes room.
const IDLE: Nanos = Nanos::from_secs(60);

/// How long a connection that asks too fast is left alone.
const PENALTY: Nanos = Nanos::from_millis(1);

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
    /// Connections that have a thread.
    threads: Arc<AtomicUsize>,
}

impl TcpService {
    pub(super) fn new(
        listener: TcpListener,
        scheme: Scheme,
        place: Place,
        counters: &Arc<Counters>,
    ) -> Self {
        let counters = Arc::clone(counters);
        Self { listener, scheme, place, counters, polled: Vec::new(), threads: Arc::default() }
    }

    fn accept(&mut self) -> io::Result<bool> {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        let (stream, peer) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if matches!(e.kind(), WouldBlock | Interrupted | ConnectionAborted) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if self.polled.len() + self.threads.load(Ordering::Relaxed) >= CONNECTIONS {
            return Ok(true);
        }
        let Ok(conn) = TcpConn::new(stream, peer, self.place.wait) else { return Ok(true) };
        let limiter = self.place.limit.and_then(Limiter::new);
        let mut connection =
            Connection::new(conn, self.scheme, Arc::clone(&self.counters), limiter);
        if self.place.wait.is_none() {
            self.polled.push(connection);
            return Ok(true);
        }
        let (threads, place) = (Arc::clone(&self.threads), self.place.clone());
        threads.fetch_add(1, Ordering::Relaxed);
        thread::spawn(move || {
            // A CPU or a class that was allowed at the start and is not any more costs speed only.
            let _ = cpu::settle(place.args.cpu, place.args.real_time(false));
            while !place.stop.load(Ordering::Relaxed) && connection.turn().is_ok() {
                let full = threads.load(Ordering::Relaxed) >= CONNECTIONS;
                if full && monotonic() - connection.active > IDLE {
                    break;
                }
                if connection.owes {
                    thread::sleep(PENALTY.to_std());
                }
            }
            threads.fetch_sub(1, Ordering::Relaxed);
        });
        Ok(true)
    }
}

impl Service for TcpService {
    /// Accepting and receiving are bounded in time.
    fn shutter(&self) -> io::Result<Option<Shutter>> {
        Ok(None)
    }

    fn turn(&mut self, _wait: Wait) -> io::Result<bool> {
        let accepted = self.accept()?;
        // A connection that ends is no failure of the service.
        let full = self.polled.len() >= CONNECTIONS;
        let now = monotonic();
        self.polled.retain_mut(|connection| {
            connection.turn().is_ok() && !(full && now - connection.active > IDLE)
        });
        Ok(accepted)
    }
}

/// One connection.
struct Connection {
    conn: TcpConn,
    /// Finds requests; plain echo has none to find.
    splitter: Option<Splitter>,
    counters: Arc<Counters>,
    buffer: Box<[u8]>,
    limiter: Option<Limiter>,
    /// The last reply was beyond the limit; nothing is read until there is budget for it.
    owes: bool,
    /// When something last came.
    active: Instant<Monotonic>,
}

impl Connection {
    fn new(
        conn: TcpConn,
        scheme: Scheme,
        counters: Arc<Counters>,
        limiter: Option<Limiter>,
    ) -> Self {
        let splitter = (scheme == Scheme::TextTcp).then(|| Splitter::new(REQUEST));
        // With a limit, requests are read one by one, so that it holds for each of them.
        let room = if splitter.is_some() && limiter.is_some() { REQUEST.len() } else { 65_536 };
        let buffer = vec![0; room].into_boxed_slice();
        Self { conn, splitter, counters, buffer, limiter, owes: false, active: monotonic() }
    }

    /// Spends of the budget for one reply.
    fn spend(&mut self) {
        let peer = self.conn.peer;
        self.owes = self.limiter.as_mut().is_some_and(|limit| !limit.allows(peer, monotonic()));
    }

    /// Answers what came; an error ends the connection.
    fn turn(&mut self) -> io::Result<()> {
        if self.owes {
            self.spend();
            if self.owes {
                return Ok(());
            }
        }
        let Some(len) = self.conn.receive(&mut self.buffer)? else { return Ok(()) };
        self.active = monotonic();
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
