//! Relay of TCP connections, with one thread per direction and a limit on connections. Timestamps
//! belong to single reads of the stream and come from user space only, as the kernel timestamps
//! segments.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use dwell_engine::relay::salts::{Salts, UsedSalts};
use dwell_engine::relay::stream_ctr::StreamTransform;
use dwell_engine::relay::stream_gcm::{Opened, RecordOpener, RecordSealer, StreamError};
use dwell_io::clock::{monotonic, realtime};
use dwell_io::cpu;
use dwell_io::datagram::is_out_of_resources;
use dwell_protocol::{RelayJob, ThreadPlacement};
use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use super::counts::{Counts, FinalState, Unserved};
use super::record::{NewFlow, RelayEvent};
use super::setup::{FlowDirection, RelaySetup, StreamCipher};
use crate::placement;

/// Maximum delay until a stop takes effect.
const STOP_INTERVAL: Nanos = Nanos::from_millis(100);

/// Connect time-out towards the far end.
const CONNECT_TIMEOUT: Nanos = Nanos::from_secs(3);

/// Minimum idle time of a connection that is closed to admit a new one.
const MIN_EVICTION_IDLE: Nanos = Nanos::from_secs(60);

/// Activity time of a connection that is still connecting: never idle.
const NEVER_IDLE: i64 = i64::MAX;

/// Maximum length of one read.
const READ_LEN: usize = 32 * 1024;

/// State that the threads share.
struct Shared<'a> {
    setup: &'a RelaySetup,
    place: ThreadPlacement,
    events: SyncSender<RelayEvent>,
    ring_dropped: &'a AtomicU64,
    stop: &'a AtomicBool,
    directions: [Counters; 2],
    /// Salts for encrypting.
    salts: Mutex<Salts>,
    /// Salts of the streams decrypted here.
    used: Mutex<UsedSalts>,
    /// Not locked by any thread while its connection is open.
    unserved: Mutex<Unserved>,
}

#[derive(Default)]
struct Counters {
    received: AtomicU64,
    relayed: AtomicU64,
    bytes: AtomicU64,
    send_failed: AtomicU64,
    unauthentic: AtomicU64,
    replayed: AtomicU64,
    truncated: AtomicU64,
}

/// State of a connection, shared with the listening thread.
struct ConnectionState {
    /// Time of the last activity in either direction.
    active: AtomicI64,
    /// Set when the connection must close: idle for too long, or evicted.
    closing: AtomicBool,
}

impl ConnectionState {
    fn new() -> Arc<Self> {
        Arc::new(Self { active: AtomicI64::new(NEVER_IDLE), closing: AtomicBool::new(false) })
    }

    /// Notes activity.
    fn touch(&self) {
        self.active.store(monotonic().as_nanos(), Ordering::Relaxed);
    }

    fn idle(&self, now: Instant<Monotonic>) -> Nanos {
        now - Instant::from_nanos(self.active.load(Ordering::Relaxed))
    }
}

/// Opens the listening socket.
pub(super) fn listen(setup: &RelaySetup) -> io::Result<TcpListener> {
    dwell_io::tcp::listen(setup.listen, Some(STOP_INTERVAL))
}

/// Relays until stopped.
pub(super) fn run(
    listener: &TcpListener,
    setup: &RelaySetup,
    job: &RelayJob,
    events: SyncSender<RelayEvent>,
    ring_dropped: &AtomicU64,
    stop: &AtomicBool,
) -> FinalState {
    let shared = Shared {
        setup,
        place: job.place,
        events,
        ring_dropped,
        stop,
        directions: Default::default(),
        salts: Mutex::new(setup.salts(setup.sealing_direction())),
        used: Mutex::default(),
        unserved: Mutex::default(),
    };
    let max_connections = setup.flows as usize;
    let mut counts = Counts::default();
    thread::scope(|scope| {
        let mut connections: Vec<Arc<ConnectionState>> = Vec::with_capacity(max_connections);
        let mut number = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            let accepted = listener.accept();
            clear(&mut connections, setup.idle, &mut counts);
            let (client, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Descriptors or memory are short: retry later.
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) {
                        shared.unserved().here.note(error);
                        thread::sleep(STOP_INTERVAL.to_std());
                    }
                    continue;
                }
            };
            if connections.len() >= max_connections && !evict_idle(&mut connections, &mut counts) {
                shared.unserved().limit_reached += 1;
                continue;
            }
            let connection = ConnectionState::new();
            connections.push(Arc::clone(&connection));
            counts.flows.opened += 1;
            let (shared, flow) = (&shared, number);
            number = number.wrapping_add(2);
            let started = thread::Builder::new().spawn_scoped(scope, move || {
                serve(shared, client, peer, flow, &connection);
            });
            if let Err(error) = started {
                shared.unserved().here.note(error);
            }
        }
    });
    for (traffic, counters) in counts.directions.iter_mut().zip(&shared.directions) {
        traffic.received = counters.received.load(Ordering::Relaxed);
        traffic.relayed = counters.relayed.load(Ordering::Relaxed);
        traffic.bytes = counters.bytes.load(Ordering::Relaxed);
        traffic.send_failed = counters.send_failed.load(Ordering::Relaxed);
        traffic.unauthentic = counters.unauthentic.load(Ordering::Relaxed);
        traffic.replayed = counters.replayed.load(Ordering::Relaxed);
        traffic.truncated = counters.truncated.load(Ordering::Relaxed);
    }
    counts.unserved = shared.unserved.into_inner().unwrap_or_else(PoisonError::into_inner);
    FinalState { counts, failure: None }
}

/// Removes finished and expired connections.
fn clear(connections: &mut Vec<Arc<ConnectionState>>, idle: Nanos, counts: &mut Counts) {
    let now = monotonic();
    connections.retain(|connection| {
        // The connection's threads have ended: only this list holds the reference.
        let is_open = Arc::strong_count(connection) > 1;
        let expired = is_open && connection.idle(now) > idle;
        if expired {
            connection.closing.store(true, Ordering::Relaxed);
            counts.flows.expired += 1;
        }
        is_open && !expired
    });
}

/// Evicts the connection that was idle for longest, if it was idle for long enough.
fn evict_idle(connections: &mut Vec<Arc<ConnectionState>>, counts: &mut Counts) -> bool {
    let now = monotonic();
    let longest = (0..connections.len()).max_by_key(|n| connections[*n].idle(now));
    let Some(longest) = longest.filter(|n| connections[*n].idle(now) > MIN_EVICTION_IDLE) else {
        return false;
    };
    connections.swap_remove(longest).closing.store(true, Ordering::Relaxed);
    counts.flows.evicted += 1;
    true
}

/// Serves one connection to its end, or counts why it could not be served.
fn serve(
    shared: &Shared<'_>,
    client: TcpStream,
    peer: SocketAddr,
    flow: u32,
    connection: &ConnectionState,
) {
    match TcpStream::connect_timeout(&shared.setup.to, CONNECT_TIMEOUT.to_std()) {
        Ok(far) => {
            if let Err(error) = relay_both_ways(shared, client, far, peer, flow, connection) {
                shared.unserved().here.note(error);
            }
        }
        Err(error) if is_out_of_resources(&error) => shared.unserved().here.note(error),
        Err(error) => shared.unserved().refused.note(error),
    }
}

/// Relays both directions until both have ended. Fails if it could not start.
fn relay_both_ways(
    shared: &Shared<'_>,
    client: TcpStream,
    far: TcpStream,
    peer: SocketAddr,
    flow: u32,
    connection: &ConnectionState,
) -> io::Result<()> {
    connection.touch();
    for stream in [&client, &far] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STOP_INTERVAL.to_std()))?;
        stream.set_write_timeout(Some(STOP_INTERVAL.to_std()))?;
    }
    let (listen, out) = (client.local_addr()?, far.local_addr()?);
    let new = NewFlow { number: flow, client: peer, listen, out, to: shared.setup.to };
    shared.push_event(RelayEvent::Flow(new));
    let of = |direction, from, to| Direction { shared, direction, flow, connection, from, to };
    let (forward, backward) =
        (of(FlowDirection::Forward, &client, &far), of(FlowDirection::Backward, &far, &client));
    thread::scope(|scope| {
        // A connection needs both threads.
        let backward = thread::Builder::new().spawn_scoped(scope, || backward.run())?;
        forward.run();
        let _ = backward.join();
        Ok(())
    })
}

/// One direction of a connection.
struct Direction<'a> {
    shared: &'a Shared<'a>,
    direction: FlowDirection,
    flow: u32,
    connection: &'a ConnectionState,
    from: &'a TcpStream,
    to: &'a TcpStream,
}

impl Direction<'_> {
    /// Relays to the end of the stream and shuts the far side down; an error ends both directions.
    fn run(&self) {
        let place = self.shared.place;
        // If the CPU is no longer allowed, relaying is only slower.
        let _ = cpu::place_thread(place.cpu, placement::real_time(&place, false));
        let ended = match self.pump() {
            Ok(()) => self.to.shutdown(Shutdown::Write),
            Err(error) if error.get_ref().is_some_and(|error| error.is::<StreamError>()) => {
                self.reset();
                Ok(())
            }
            // The other direction sees the stop too and first sends its remaining data.
            Err(_) if self.check_running().is_err() => Ok(()),
            Err(_) => self.from.shutdown(Shutdown::Both).and(self.to.shutdown(Shutdown::Both)),
        };
        // The peer may have closed first.
        let _ = ended;
    }

    fn pump(&self) -> io::Result<()> {
        match self.shared.setup.stream_cipher(self.direction) {
            StreamCipher::Unauthenticated(work) => self.pump_unauthenticated(work),
            StreamCipher::Seal(sealer) => self.pump_sealed(sealer),
            StreamCipher::Open(opener) => {
                self.pump_opened(opener).map_err(|error| self.note(error))
            }
        }
    }

    fn pump_unauthenticated(&self, mut work: StreamTransform) -> io::Result<()> {
        let mut buffer = vec![0; READ_LEN].into_boxed_slice();
        for id in 0.. {
            let (len, received_at) = self.receive(&mut buffer)?;
            if len == 0 {
                return Ok(());
            }
            let pieces = work.work(&mut buffer[..len]);
            self.deliver(id, len, received_at, &pieces)?;
        }
        Ok(())
    }

    /// Sends one record per read, and one for the end of the stream.
    fn pump_sealed(&self, mut sealer: RecordSealer) -> io::Result<()> {
        let draw = || lock(&self.shared.salts).draw();
        for id in 0.. {
            let (len, received_at) = self.receive(sealer.room())?;
            if len == 0 {
                break;
            }
            let sealed = sealer.seal(len, draw);
            self.deliver(id, len, received_at, &[sealed])?;
        }
        self.send(sealer.end(draw))
    }

    /// Delivers only complete, authenticated records.
    fn pump_opened(&self, mut opener: RecordOpener) -> io::Result<()> {
        let mut claim = |salt| lock(&self.shared.used).claim(salt);
        let mut id = 0;
        loop {
            let (len, received_at) = self.receive(opener.room())?;
            opener.received(len);
            loop {
                match opener.next(&mut claim).map_err(io::Error::other)? {
                    Opened::Data(payload, size) => {
                        self.deliver(id, size, received_at, &[payload])?
                    }
                    Opened::End => return Ok(()),
                    Opened::Incomplete => break,
                }
                id += 1;
            }
            if len == 0 {
                return opener.finish().map_err(io::Error::other);
            }
        }
    }

    /// Receives bytes; returns their number, 0 at the end of the stream, and the time.
    fn receive(&self, room: &mut [u8]) -> io::Result<(usize, Instant<Realtime>)> {
        self.check_running()?;
        let len = self.retry_timeouts(|| (&mut &*self.from).read(room))?;
        let received_at = realtime();
        if len > 0 {
            self.connection.touch();
        }
        Ok((len, received_at))
    }

    /// Sends data received as `len` bytes and reports the observation.
    fn deliver(
        &self,
        id: u64,
        len: usize,
        received_at: Instant<Realtime>,
        pieces: &[&[u8]],
    ) -> io::Result<()> {
        let counters = &self.shared.directions[self.direction as usize];
        counters.received.fetch_add(1, Ordering::Relaxed);
        let before = realtime();
        let sent = pieces.iter().try_for_each(|piece| self.send(piece));
        let after = realtime();
        let mut stamps = PointStamps::default();
        stamps.set(Point::RxApp, received_at);
        stamps.set(Point::TxApp, before);
        stamps.set(Point::TxAppDone, after);
        let flow = self.flow + self.direction as u32;
        let outcome = if sent.is_ok() { PacketOutcome::Sent } else { PacketOutcome::Dropped };
        let size = u16::try_from(len).unwrap_or(u16::MAX);
        self.shared.push_event(RelayEvent::Observation(PacketObservation {
            flow,
            id,
            size,
            outcome,
            stamps,
        }));
        if sent.is_err() {
            counters.send_failed.fetch_add(1, Ordering::Relaxed);
            return sent;
        }
        counters.relayed.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Counts the reason why a stream is cut off.
    fn note(&self, error: io::Error) -> io::Error {
        let counters = &self.shared.directions[self.direction as usize];
        let reason = error.get_ref().and_then(|error| error.downcast_ref());
        let counter = match reason {
            Some(StreamError::Unauthentic) => &counters.unauthentic,
            Some(StreamError::Replayed) => &counters.replayed,
            Some(StreamError::Truncated) => &counters.truncated,
            None => return error,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        error
    }

    /// Ends both directions so that the peers see a reset, not the regular end of a stream.
    fn reset(&self) {
        for stream in [self.from, self.to] {
            // A closed connection cannot be reset.
            let _ = dwell_io::tcp::reset_on_close(stream);
        }
        self.connection.closing.store(true, Ordering::Relaxed);
    }

    fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.retry_timeouts(|| (&mut &*self.to).write(bytes))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => bytes = &bytes[sent..],
            }
            if !bytes.is_empty() {
                // Progress counts as activity, but a slow reader must not prevent a stop.
                self.connection.touch();
                self.check_running()?;
            }
        }
        Ok(())
    }

    /// Returns an error if the connection must end.
    fn check_running(&self) -> io::Result<()> {
        let closing = self.connection.closing.load(Ordering::Relaxed);
        if closing || self.shared.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Retries calls that timed out, until the connection must end.
    fn retry_timeouts(&self, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        loop {
            match call() {
                Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => {
                    self.check_running()?;
                }
                done => return done,
            }
        }
    }
}

/// Locks a mutex whose data stays valid even if a thread panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared<'_> {
    fn unserved(&self) -> MutexGuard<'_, Unserved> {
        lock(&self.unserved)
    }

    /// Never blocks: events that do not fit are counted.
    fn push_event(&self, event: RelayEvent) {
        if self.events.try_send(event).is_err() {
            self.ring_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
