//! TCP part of a sink: one thread receives on all connections of a listener and counts bytes.
//! Memory is bounded by [`MAX_CONNECTIONS`] connections and [`MAX_ROWS`] rows.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_io::clock::monotonic;
use dwell_io::poller::Poller;
use dwell_io::port::Wait;
use dwell_io::tcp;
use dwell_units::{Instant, Monotonic, Nanos};

/// Maximum number of simultaneous connections.
const MAX_CONNECTIONS: usize = 1_024;

/// Maximum number of connections listed in the result.
const MAX_ROWS: usize = 256;

/// Idle time after which a connection is closed to admit a new one.
const MIN_EVICTION_IDLE: Nanos = Nanos::from_secs(10);

/// Maximum time until a stop is noticed.
const STOP_INTERVAL: Nanos = Nanos::from_millis(50);

/// Pause after a failed accept (no descriptors or memory).
const ACCEPT_PAUSE: Nanos = Nanos::from_millis(100);

/// Size of a read buffer.
const READ_LEN: usize = 256 << 10;

/// Reads of one connection before the next is served.
const READ_BATCH: usize = 4;

/// The token of the listener.
const LISTENER_TOKEN: u64 = u64::MAX;

/// Counters of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) peer: SocketAddr,
    pub(super) bytes: u64,
    /// Time from accept to the last byte.
    pub(super) duration: Nanos,
}

impl Row {
    /// Returns the mean rate in bit/s; `None` without a duration.
    pub(super) fn rate_bps(&self) -> Option<f64> {
        let seconds = self.duration.as_secs_f64();
        (seconds > 0.0).then(|| self.bytes as f64 * 8.0 / seconds)
    }
}

/// Counters of one listener.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) connections: u64,
    pub(super) bytes: u64,
    /// Connections closed at once because [`MAX_CONNECTIONS`] were open.
    pub(super) refused: u64,
    /// Connections that ended with an error instead of a regular close.
    pub(super) reset: u64,
    pub(super) first: Option<Instant<Monotonic>>,
    pub(super) last: Option<Instant<Monotonic>>,
    /// The first [`MAX_ROWS`] connections.
    pub(super) rows: Vec<Row>,
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    accepted: Instant<Monotonic>,
    last: Instant<Monotonic>,
    bytes: u64,
}

/// Receives on all connections of one listener.
pub(super) struct TcpSink<'a> {
    listener: TcpListener,
    poller: Poller,
    slots: Vec<Option<Connection>>,
    received: Received,
    accept_from: Option<Instant<Monotonic>>,
    busy_poll: bool,
    end: Instant<Monotonic>,
    stop: &'a AtomicBool,
}

impl<'a> TcpSink<'a> {
    pub(super) fn new(
        listener: TcpListener,
        busy_poll: bool,
        end: Instant<Monotonic>,
        stop: &'a AtomicBool,
    ) -> io::Result<Self> {
        let mut poller = Poller::new(64)?;
        poller.add(&listener, LISTENER_TOKEN)?;
        Ok(Self {
            listener,
            poller,
            slots: Vec::with_capacity(MAX_CONNECTIONS),
            received: Received { rows: Vec::with_capacity(MAX_ROWS), ..Received::default() },
            accept_from: None,
            busy_poll,
            end,
            stop,
        })
    }

    /// Receives until the end or a stop.
    pub(super) fn run(mut self) -> io::Result<Received> {
        let mut buffer = vec![0; READ_LEN];
        let wait = if self.busy_poll { Wait::No } else { Wait::AtMost(STOP_INTERVAL) };
        while !self.stop.load(Ordering::Relaxed) && monotonic() < self.end {
            let ready = self.poller.wait(wait)?;
            for n in 0..ready {
                match self.poller.ready(n).token {
                    LISTENER_TOKEN => self.accept(),
                    slot => self.read(slot as usize, &mut buffer),
                }
            }
        }
        for slot in 0..self.slots.len() {
            self.close(slot);
        }
        Ok(self.received)
    }

    fn accept(&mut self) {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        let now = monotonic();
        if self.accept_from.is_some_and(|from| now < from) {
            // The listener stays readable; without this pause the loop would spin.
            dwell_io::pacer::sleep_until(now + Nanos::from_millis(1));
            return;
        }
        self.accept_from = None;
        match self.listener.accept() {
            // Dropping a connection that cannot be served closes it.
            Ok((stream, peer)) => match self.free_slot(now) {
                Some(slot) => {
                    let _ = self.serve(slot, stream, peer, now);
                }
                None => self.received.refused += 1,
            },
            Err(e) if matches!(e.kind(), WouldBlock | Interrupted | ConnectionAborted) => {}
            Err(_) => self.accept_from = Some(now + ACCEPT_PAUSE),
        }
    }

    /// Returns a free slot, if necessary by closing an idle connection.
    fn free_slot(&mut self, now: Instant<Monotonic>) -> Option<usize> {
        if let Some(free) = self.slots.iter().position(Option::is_none) {
            return Some(free);
        }
        if self.slots.len() < MAX_CONNECTIONS {
            self.slots.push(None);
            return Some(self.slots.len() - 1);
        }
        let idle = self.slots.iter().enumerate();
        let idle = idle.filter_map(|(slot, one)| Some((one.as_ref()?.last, slot))).min()?;
        let (last, slot) = idle;
        (now - last >= MIN_EVICTION_IDLE).then(|| {
            self.close(slot);
            slot
        })
    }

    fn serve(
        &mut self,
        slot: usize,
        stream: TcpStream,
        peer: SocketAddr,
        now: Instant<Monotonic>,
    ) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        tcp::enable_keepalive(&stream)?;
        self.poller.add(&stream, slot as u64)?;
        self.received.connections += 1;
        self.received.first.get_or_insert(now);
        self.slots[slot] = Some(Connection { stream, peer, accepted: now, last: now, bytes: 0 });
        Ok(())
    }

    fn read(&mut self, slot: usize, buffer: &mut [u8]) {
        let Some(Some(connection)) = self.slots.get_mut(slot) else { return };
        for _ in 0..READ_BATCH {
            match connection.stream.read(buffer) {
                Ok(0) => return self.close(slot),
                Ok(len) => {
                    connection.bytes += len as u64;
                    connection.last = monotonic();
                    self.received.bytes += len as u64;
                    self.received.last = Some(connection.last);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.received.reset += 1;
                    return self.close(slot);
                }
            }
        }
    }

    /// Closes a connection and stores its row.
    fn close(&mut self, slot: usize) {
        let Some(connection) = self.slots[slot].take() else { return };
        if self.received.rows.len() < MAX_ROWS {
            self.received.rows.push(Row {
                peer: connection.peer,
                bytes: connection.bytes,
                duration: connection.last - connection.accepted,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use super::*;

    #[test]
    fn bytes_are_counted_per_connection_and_in_total() {
        let listener = tcp::listen("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        let received = thread::scope(|scope| {
            let end = monotonic() + Nanos::from_secs(20);
            let sink = TcpSink::new(listener, false, end, &stop).unwrap();
            let sink = scope.spawn(|| sink.run().unwrap());
            // Stays open and sends nothing until the sink closes it.
            let _silent = TcpStream::connect(address).unwrap();
            for bytes in [10_usize, 3_000_000] {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(&vec![1; bytes]).unwrap();
                drop(stream);
            }
            while !has_read_all(address) {
                assert!(monotonic() < end, "the sink reads everything in time");
                thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            sink.join().unwrap()
        });
        assert_eq!((received.connections, received.bytes, received.reset), (3, 3_000_010, 0));
        let mut bytes: Vec<_> = received.rows.iter().map(|row| row.bytes).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, [0, 10, 3_000_000]);
    }

    /// Whether the sink has read both finished connections: their sockets have left the kernel's
    /// table.
    fn has_read_all(address: SocketAddr) -> bool {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let port = format!(":{:04X} ", address.port());
        // The sink's end of a connection, in CLOSE_WAIT (08): data or the end is unread.
        let is_open = |line: &&str| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().is_some_and(|local| format!("{local} ").ends_with(&port));
            local && fields.nth(1).is_some_and(|state| state == "08" || state == "01")
        };
        // The silent connection remains.
        table.lines().filter(is_open).count() == 1
    }
}
