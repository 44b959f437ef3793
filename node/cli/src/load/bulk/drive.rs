//! Sending loop of the bulk transfer. It allocates nothing and takes no lock between its first and
//! last write.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_io::clock::monotonic;
use dwell_io::pacer;
use dwell_io::poller::Poller;
use dwell_io::port::Wait;
use dwell_io::tcp_info::{TcpInfo, reset_on_close, tcp_info};
use dwell_protocol::BulkJob;
use dwell_units::{Instant, Monotonic, Nanos};

/// Maximum time until a stop is noticed.
const STOP_INTERVAL: Nanos = Nanos::from_millis(50);

/// Interval at which acknowledgments are checked after the last write.
const ACK_INTERVAL: Nanos = Nanos::from_millis(1);

/// Time for data in flight after the end; then the connection is reset.
const DRAIN_TIMEOUT: Nanos = Nanos::from_millis(400);

/// Maximum lag that a paced connection makes up for; the rest is dropped.
const MAX_LAG: Nanos = Nanos::from_millis(100);

/// One connection.
#[derive(Debug)]
pub(super) struct Flow {
    /// Bytes accepted by the socket.
    pub(super) written: u64,
    /// State at the end of the measurement or at the failure.
    pub(super) info: TcpInfo,
    /// Error that ended the connection early.
    pub(super) error: Option<io::Error>,
    /// Time of the next write.
    due: Instant<Monotonic>,
    /// Whether the socket has room, as far as known.
    ready: bool,
}

impl Flow {
    /// Returns the payload bytes acknowledged by the far end; the kernel counts the SYN as one
    /// byte.
    pub(super) fn acked(&self) -> u64 {
        self.info.acked_bytes.saturating_sub(1).min(self.written)
    }
}

/// Drives all connections from one thread.
pub(super) struct Driver<'a> {
    streams: &'a [TcpStream],
    payload: &'a [u8],
    flows: Vec<Flow>,
    poller: Poller,
    /// Nanoseconds per byte at the rate of one connection; `None`: unpaced.
    byte_time: Option<f64>,
    /// Bytes left to write on all connections together.
    left: u64,
    duration: Nanos,
    busy_poll: bool,
    stop: &'a AtomicBool,
    elapsed: Nanos,
}

/// Result of the loop.
pub(super) struct Finished {
    pub(super) flows: Vec<Flow>,
    pub(super) elapsed: Nanos,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        job: &BulkJob,
        streams: &'a [TcpStream],
        payload: &'a [u8],
        stop: &'a AtomicBool,
    ) -> io::Result<Self> {
        let mut poller = Poller::new(64)?;
        for (token, stream) in (0..).zip(streams) {
            poller.add_stream(stream, token)?;
        }
        let now = monotonic();
        let flow = |_: &TcpStream| Flow {
            written: 0,
            info: TcpInfo::default(),
            error: None,
            due: now,
            ready: true,
        };
        Ok(Self {
            flows: streams.iter().map(flow).collect(),
            streams,
            payload,
            poller,
            byte_time: job.rate.map(|rate| 8e9 * f64::from(job.flows) / rate.0 as f64),
            left: job.bytes.map_or(u64::MAX, |bytes| bytes.0),
            duration: job.duration.unwrap_or(Nanos::MAX),
            busy_poll: job.place.busy_poll,
            stop,
            elapsed: Nanos::ZERO,
        })
    }

    /// Sends until everything is acknowledged, the duration is over, all connections failed, or a
    /// stop.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let start = monotonic();
        let end = start.saturating_add(self.duration);
        self.stagger(start);
        while !self.is_over(end) && self.left > 0 {
            let next = self.write_due();
            self.wait(next)?;
        }
        while self.left == 0 && !self.is_over(end) && self.has_unacked() {
            self.wait(Some(monotonic() + ACK_INTERVAL))?;
        }
        self.elapsed = monotonic() - start;
        for (flow, stream) in self.flows.iter_mut().zip(self.streams) {
            if flow.error.is_none() {
                flow.info = tcp_info(stream).unwrap_or(flow.info);
            }
        }
        self.drain();
        Ok(())
    }

    /// Returns the state of all connections.
    pub(super) fn finish(self) -> Finished {
        Finished { flows: self.flows, elapsed: self.elapsed }
    }

    /// Spreads the first writes of paced connections evenly over one gap.
    fn stagger(&mut self, start: Instant<Monotonic>) {
        let gap = self.byte_time.unwrap_or(0.0) * self.payload.len() as f64;
        let count = self.flows.len().max(1) as f64;
        for (n, flow) in self.flows.iter_mut().enumerate() {
            flow.due = start + Nanos((gap * n as f64 / count) as i64);
        }
    }

    fn is_over(&self, end: Instant<Monotonic>) -> bool {
        self.stop.load(Ordering::Relaxed)
            || monotonic() >= end
            || self.flows.iter().all(|flow| flow.error.is_some())
    }

    /// Writes once on every connection that is due and has room; returns the time of the next
    /// write, if any connection has room.
    fn write_due(&mut self) -> Option<Instant<Monotonic>> {
        let now = monotonic();
        let mut next: Option<Instant<Monotonic>> = None;
        for (flow, mut stream) in self.flows.iter_mut().zip(self.streams) {
            if flow.error.is_some() || !flow.ready || self.left == 0 {
                continue;
            }
            if flow.due <= now {
                let len = self.left.min(self.payload.len() as u64) as usize;
                match stream.write(&self.payload[..len]) {
                    Ok(written) => {
                        flow.written += written as u64;
                        self.left -= written as u64;
                        let gap = self.byte_time.unwrap_or(0.0) * written as f64;
                        let earliest = now - MAX_LAG;
                        flow.due = flow.due.max(earliest) + Nanos(gap as i64);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => flow.ready = false,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => fail(flow, stream, error),
                }
            }
            if flow.ready && flow.error.is_none() {
                next = Some(next.map_or(flow.due, |next| next.min(flow.due)));
            }
        }
        next
    }

    /// Waits until a connection has room or closes, or until `next`.
    fn wait(&mut self, next: Option<Instant<Monotonic>>) -> io::Result<()> {
        let left = next.map_or(STOP_INTERVAL, |next| (next - monotonic()).min(STOP_INTERVAL));
        let wait =
            if self.busy_poll || left <= Nanos::ZERO { Wait::No } else { Wait::AtMost(left) };
        let ready = self.poller.wait(wait)?;
        for n in 0..ready {
            let event = self.poller.ready(n);
            let number = event.token as usize;
            let (flow, stream) = (&mut self.flows[number], &self.streams[number]);
            flow.ready |= event.writable;
            if event.closed && flow.error.is_none() {
                let error = stream.take_error().ok().flatten();
                let closed = || io::Error::other("the far end closed the connection");
                fail(flow, stream, error.unwrap_or_else(closed));
            }
        }
        Ok(())
    }

    fn has_unacked(&self) -> bool {
        let open = self.flows.iter().zip(self.streams).filter(|(flow, _)| flow.error.is_none());
        open.filter_map(|(_, stream)| tcp_info(stream).ok())
            .any(|info| info.unacked_segments > 0 || info.unsent_bytes > 0)
    }

    /// Closes all connections: in order if the remaining data arrives soon, otherwise by a reset,
    /// so that nothing is sent after the end.
    fn drain(&mut self) {
        for (flow, stream) in self.flows.iter().zip(self.streams) {
            if flow.error.is_none() {
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
        let until = monotonic() + DRAIN_TIMEOUT;
        while self.has_unacked() && monotonic() < until {
            pacer::sleep_until(monotonic() + ACK_INTERVAL);
        }
        if self.has_unacked() {
            self.streams.iter().for_each(|stream| drop(reset_on_close(stream)));
        }
    }
}

/// Marks a connection as failed.
fn fail(flow: &mut Flow, stream: &TcpStream, error: io::Error) {
    flow.info = tcp_info(stream).unwrap_or(flow.info);
    flow.error = Some(error);
}
