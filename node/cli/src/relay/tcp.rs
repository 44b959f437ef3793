//! A relay of TCP connections: for each of them a thread for either direction, bounded in number.
//! What is stamped is a piece of the stream as it was read; only the program's own clock tells of
//! those, for the kernel stamps segments.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use dwell_engine::passage::{Fate, Passage, Point, PointStamps};
use dwell_engine::relay::records::{Opened, RecordOpener, RecordSealer, StreamError};
use dwell_engine::relay::salts::{Salts, UsedSalts};
use dwell_engine::relay::stream::StreamWork;
use dwell_io::clock::{monotonic, realtime};
use dwell_io::cpu;
use dwell_io::datagram::is_short;
use dwell_plan::RelayJob;
use dwell_units::{Instant, Monotonic, Nanos, Realtime};

use super::counts::{Counts, Ended, Unserved};
use super::plan::{Plan, StreamCipher, Way};
use super::record::{NewFlow, News};
use crate::PlaceArgs;

/// A stop is obeyed within this time.
const NAP: Nanos = Nanos::from_millis(100);

/// How long a far end may take to accept a connection.
const CONNECTING: Nanos = Nanos::from_secs(3);

/// When all seats are taken, a connection that was idle for longer makes room.
const RESTING: Nanos = Nanos::from_secs(60);

/// While it is being connected, a connection is not idle.
const NOT_YET: i64 = i64::MAX;

/// The longest piece.
const PIECE: usize = 32 * 1024;

/// What the threads share.
struct Shared<'a> {
    plan: &'a Plan,
    place: PlaceArgs,
    news: SyncSender<News>,
    ring_dropped: &'a AtomicU64,
    stop: &'a AtomicBool,
    ways: [Counters; 2],
    /// Salts for what this relay seals.
    salts: Mutex<Salts>,
    /// Salts of the streams that this relay has opened.
    used: Mutex<UsedSalts>,
    /// No thread takes the lock while its connection is open.
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

/// What the listener knows of a connection.
struct Seat {
    /// When something last came either way.
    active: AtomicI64,
    /// It has to go: it was idle for too long, or makes room.
    left: AtomicBool,
}

impl Seat {
    fn new() -> Arc<Self> {
        Arc::new(Self { active: AtomicI64::new(NOT_YET), left: AtomicBool::new(false) })
    }

    /// Something moves.
    fn touch(&self) {
        self.active.store(monotonic().as_nanos(), Ordering::Relaxed);
    }

    fn idle(&self, now: Instant<Monotonic>) -> Nanos {
        now - Instant::from_nanos(self.active.load(Ordering::Relaxed))
    }
}

/// Listens.
pub(super) fn listen(plan: &Plan) -> io::Result<TcpListener> {
    dwell_io::tcp::listen(plan.listen, Some(NAP))
}

/// Relays until stopped.
pub(super) fn run(
    listener: &TcpListener,
    plan: &Plan,
    job: &RelayJob,
    news: SyncSender<News>,
    ring_dropped: &AtomicU64,
    stop: &AtomicBool,
) -> Ended {
    let shared = Shared {
        plan,
        place: job.place.into(),
        news,
        ring_dropped,
        stop,
        ways: Default::default(),
        salts: Mutex::new(plan.salts(plan.sealing_way())),
        used: Mutex::default(),
        unserved: Mutex::default(),
    };
    let most = plan.flows as usize;
    let mut counts = Counts::default();
    thread::scope(|scope| {
        let mut seats: Vec<Arc<Seat>> = Vec::with_capacity(most);
        let mut number = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            let accepted = listener.accept();
            clear(&mut seats, plan.idle, &mut counts);
            let (client, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // What is short (descriptors, memory) comes back with time only.
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) {
                        shared.unserved().here.note(error);
                        thread::sleep(NAP.to_std());
                    }
                    continue;
                }
            };
            if seats.len() >= most && !make_room(&mut seats, &mut counts) {
                shared.unserved().no_seat += 1;
                continue;
            }
            let seat = Seat::new();
            seats.push(Arc::clone(&seat));
            counts.flows.opened += 1;
            let (shared, flow) = (&shared, number);
            number = number.wrapping_add(2);
            let started = thread::Builder::new().spawn_scoped(scope, move || {
                serve(shared, client, peer, flow, &seat);
            });
            if let Err(error) = started {
                shared.unserved().here.note(error);
            }
        }
    });
    for (traffic, counters) in counts.ways.iter_mut().zip(&shared.ways) {
        traffic.received = counters.received.load(Ordering::Relaxed);
        traffic.relayed = counters.relayed.load(Ordering::Relaxed);
        traffic.bytes = counters.bytes.load(Ordering::Relaxed);
        traffic.send_failed = counters.send_failed.load(Ordering::Relaxed);
        traffic.unauthentic = counters.unauthentic.load(Ordering::Relaxed);
        traffic.replayed = counters.replayed.load(Ordering::Relaxed);
        traffic.truncated = counters.truncated.load(Ordering::Relaxed);
    }
    counts.unserved = shared.unserved.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ended { counts, failure: None }
}

/// Takes from their seats those who left, and those who were idle for too long.
fn clear(seats: &mut Vec<Arc<Seat>>, idle: Nanos, counts: &mut Counts) {
    let now = monotonic();
    seats.retain(|seat| {
        // A seat that only this list holds is empty.
        let taken = Arc::strong_count(seat) > 1;
        let expired = taken && seat.idle(now) > idle;
        if expired {
            seat.left.store(true, Ordering::Relaxed);
            counts.flows.expired += 1;
        }
        taken && !expired
    });
}

/// Takes the connection that was idle for longest from its seat, if that is long enough.
fn make_room(seats: &mut Vec<Arc<Seat>>, counts: &mut Counts) -> bool {
    let now = monotonic();
    let longest = (0..seats.len()).max_by_key(|n| seats[*n].idle(now));
    let Some(longest) = longest.filter(|n| seats[*n].idle(now) > RESTING) else { return false };
    seats.swap_remove(longest).left.store(true, Ordering::Relaxed);
    counts.flows.evicted += 1;
    true
}

/// Serves one connection to its end, or notes why it cannot be served.
fn serve(shared: &Shared<'_>, client: TcpStream, peer: SocketAddr, flow: u32, seat: &Seat) {
    match TcpStream::connect_timeout(&shared.plan.to, CONNECTING.to_std()) {
        Ok(far) => {
            if let Err(error) = carry(shared, client, far, peer, flow, seat) {
                shared.unserved().here.note(error);
            }
        }
        Err(error) if is_short(&error) => shared.unserved().here.note(error),
        Err(error) => shared.unserved().refused.note(error),
    }
}

/// Carries what comes either way until both have ended. An error: it could not begin.
fn carry(
    shared: &Shared<'_>,
    client: TcpStream,
    far: TcpStream,
    peer: SocketAddr,
    flow: u32,
    seat: &Seat,
) -> io::Result<()> {
    seat.touch();
    for stream in [&client, &far] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(NAP.to_std()))?;
        stream.set_write_timeout(Some(NAP.to_std()))?;
    }
    let (listen, out) = (client.local_addr()?, far.local_addr()?);
    let new = NewFlow { number: flow, client: peer, listen, out, to: shared.plan.to };
    shared.tell(News::Flow(new));
    let direction = |way, from, to| Direction { shared, way, flow, seat, from, to };
    let (there, back) =
        (direction(Way::Forward, &client, &far), direction(Way::Backward, &far, &client));
    thread::scope(|scope| {
        // Without a second thread it is no connection.
        let back = thread::Builder::new().spawn_scoped(scope, || back.run())?;
        there.run();
        let _ = back.join();
        Ok(())
    })
}

/// One direction of a connection.
struct Direction<'a> {
    shared: &'a Shared<'a>,
    way: Way,
    flow: u32,
    seat: &'a Seat,
    from: &'a TcpStream,
    to: &'a TcpStream,
}

impl Direction<'_> {
    /// Sends on what comes, to its end, and then that end; what fails ends both directions.
    fn run(&self) {
        let place = self.shared.place;
        // A CPU that was allowed at the start and is not any more costs speed only.
        let _ = cpu::settle(place.cpu, place.real_time(false));
        let ended = match self.pump() {
            Ok(()) => self.to.shutdown(Shutdown::Write),
            Err(error) if error.get_ref().is_some_and(|error| error.is::<StreamError>()) => {
                self.reset();
                Ok(())
            }
            // The other direction is told too, and first sends on what it has already taken.
            Err(_) if self.go_on().is_err() => Ok(()),
            Err(_) => self.from.shutdown(Shutdown::Both).and(self.to.shutdown(Shutdown::Both)),
        };
        // A peer that went first.
        let _ = ended;
    }

    fn pump(&self) -> io::Result<()> {
        match self.shared.plan.stream_cipher(self.way) {
            StreamCipher::Unauthenticated(work) => self.pump_unauthenticated(work),
            StreamCipher::Seal(sealer) => self.pump_sealed(sealer),
            StreamCipher::Open(opener) => {
                self.pump_opened(opener).map_err(|error| self.note(error))
            }
        }
    }

    fn pump_unauthenticated(&self, mut work: StreamWork) -> io::Result<()> {
        let mut buffer = vec![0; PIECE].into_boxed_slice();
        for id in 0.. {
            let (len, came) = self.receive(&mut buffer)?;
            if len == 0 {
                return Ok(());
            }
            let pieces = work.work(&mut buffer[..len]);
            self.deliver(id, len, came, &pieces)?;
        }
        Ok(())
    }

    /// One record for each piece, and one for the end of the stream.
    fn pump_sealed(&self, mut sealer: RecordSealer) -> io::Result<()> {
        let draw = || lock(&self.shared.salts).draw();
        for id in 0.. {
            let (len, came) = self.receive(sealer.room())?;
            if len == 0 {
                break;
            }
            let sealed = sealer.seal(len, draw);
            self.deliver(id, len, came, &[sealed])?;
        }
        self.send(sealer.end(draw))
    }

    /// Delivers whole records that authenticate, and nothing else.
    fn pump_opened(&self, mut opener: RecordOpener) -> io::Result<()> {
        let mut claim = |salt| lock(&self.shared.used).claim(salt);
        let mut id = 0;
        loop {
            let (len, came) = self.receive(opener.room())?;
            opener.received(len);
            loop {
                match opener.next(&mut claim).map_err(io::Error::other)? {
                    Opened::Data(payload, size) => self.deliver(id, size, came, &[payload])?,
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

    /// Receives some bytes, none at the end; returns how many, and when.
    fn receive(&self, room: &mut [u8]) -> io::Result<(usize, Instant<Realtime>)> {
        self.go_on()?;
        let len = self.patiently(|| (&mut &*self.from).read(room))?;
        let came = realtime();
        if len > 0 {
            self.seat.touch();
        }
        Ok((len, came))
    }

    /// Sends on a piece that was received as `len` bytes, and reports its passage.
    fn deliver(
        &self,
        id: u64,
        len: usize,
        came: Instant<Realtime>,
        pieces: &[&[u8]],
    ) -> io::Result<()> {
        let counters = &self.shared.ways[self.way as usize];
        counters.received.fetch_add(1, Ordering::Relaxed);
        let before = realtime();
        let sent = pieces.iter().try_for_each(|piece| self.send(piece));
        let after = realtime();
        let mut stamps = PointStamps::default();
        stamps.set(Point::RxApp, came);
        stamps.set(Point::TxApp, before);
        stamps.set(Point::TxAppDone, after);
        let flow = self.flow + self.way as u32;
        let fate = if sent.is_ok() { Fate::Sent } else { Fate::Dropped };
        let size = u16::try_from(len).unwrap_or(u16::MAX);
        self.shared.tell(News::Passage(Passage { flow, id, size, fate, stamps }));
        if sent.is_err() {
            counters.send_failed.fetch_add(1, Ordering::Relaxed);
            return sent;
        }
        counters.relayed.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Counts the reason for which a stream must not be delivered any further.
    fn note(&self, error: io::Error) -> io::Error {
        let counters = &self.shared.ways[self.way as usize];
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

    /// Ends both directions so that either peer sees a reset, not the end of a complete stream.
    fn reset(&self) {
        for stream in [self.from, self.to] {
            // A closed connection has nothing to reset.
            let _ = dwell_io::tcp::reset_on_close(stream);
        }
        self.seat.left.store(true, Ordering::Relaxed);
    }

    fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.patiently(|| (&mut &*self.to).write(bytes))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => bytes = &bytes[sent..],
            }
            if !bytes.is_empty() {
                // Slow, but it moves; and a peer that takes little by little keeps nothing going.
                self.seat.touch();
                self.go_on()?;
            }
        }
        Ok(())
    }

    /// An error when it is to end.
    fn go_on(&self) -> io::Result<()> {
        let left = self.seat.left.load(Ordering::Relaxed);
        if left || self.shared.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Tries again whatever only took too long, until it is to stop.
    fn patiently(&self, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        loop {
            match call() {
                Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => {
                    self.go_on()?;
                }
                done => return done,
            }
        }
    }
}

/// Locks what no thread leaves in an invalid state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared<'_> {
    fn unserved(&self) -> MutexGuard<'_, Unserved> {
        lock(&self.unserved)
    }

    /// Never waits: what finds no room is counted.
    fn tell(&self, news: News) {
        if self.news.try_send(news).is_err() {
            self.ring_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
