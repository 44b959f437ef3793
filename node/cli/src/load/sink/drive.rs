//! Receive loop of one socket. It takes no lock and writes to no file; packet events leave through
//! a bounded ring if they are needed.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dwell_io::clock::{monotonic, realtime};
use dwell_io::datagram::{Datagram, DatagramSocket, Marks};
use dwell_io::port::Wait;
use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};
use dwell_wire::id::{self, Format};
use dwell_wire::iperf2::ServerReport;
use dwell_wire::traffic::Mark;
use rtrb::Producer;

use super::flow::{Arrival, Flow};
use dwell_io::pacer::MAX_SLEEP;

/// Maximum number of flows counted separately per socket; further flows count in the totals only.
const MAX_FLOWS: usize = 4_096;

/// Event of the receive loop.
pub(super) enum SinkEvent {
    /// A new flow. Later observations refer to it by its number.
    Flow { number: u32, from: SocketAddr, to: SocketAddr },
    /// First arrival of a packet.
    Observation {
        observation: PacketObservation,
        /// Transit time, if both clocks are known to agree.
        transit: Option<Nanos>,
    },
}

/// Counters of one socket.
#[derive(Default)]
pub(super) struct SocketCounters {
    /// All packets received, including duplicates.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Bytes of the first packet, which is excluded from the rate.
    pub(super) first_bytes: u64,
    /// Packets without a sequence number.
    pub(super) unmarked: u64,
    /// Reports sent to iperf clients.
    pub(super) reports: u64,
    pub(super) first: Option<Instant<Monotonic>>,
    pub(super) last: Option<Instant<Monotonic>>,
    pub(super) flows: HashMap<(SocketAddr, u32), Flow>,
    /// Flows that were followed by another from the same port.
    pub(super) ended: Vec<Flow>,
    /// Events dropped because the ring was full.
    pub(super) dropped: u64,
    /// Packets dropped because the receive buffer was full; `None` if the kernel does not report
    /// it.
    pub(super) overflowed: Option<u64>,
    /// Whether any packet had a kernel timestamp.
    pub(super) stamped: bool,
}

impl SocketCounters {
    /// Returns all flows, current and ended.
    pub(super) fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values().chain(&self.ended)
    }
}

/// Receives on one socket.
pub(super) struct Receiver<'a> {
    pub(super) server: DatagramSocket,
    /// `None`: packet events are not needed.
    pub(super) events: Option<Producer<SinkEvent>>,
    /// Number of the next flow, shared by all sockets.
    pub(super) next_flow: &'a AtomicU32,
    pub(super) busy_poll: bool,
    /// Whether the clocks of all senders agree with this one, within a bound.
    pub(super) one_clock: bool,
    pub(super) end: Instant<Monotonic>,
    pub(super) stop: &'a AtomicBool,
}

impl Receiver<'_> {
    /// Counts packets until the end or a stop.
    pub(super) fn run(mut self) -> io::Result<SocketCounters> {
        let mut counted = SocketCounters {
            flows: HashMap::with_capacity(MAX_FLOWS),
            ended: Vec::with_capacity(MAX_FLOWS),
            ..SocketCounters::default()
        };
        let mut buffer = vec![0; 65_535];
        let wait = if self.busy_poll { Wait::No } else { Wait::AtMost(MAX_SLEEP) };
        while !self.stop.load(Ordering::Relaxed) {
            let request = self.server.receive_from(&mut buffer, wait)?;
            let now = monotonic();
            if now >= self.end {
                break;
            }
            if let Some(request) = request {
                self.take(&mut counted, &request, &buffer[..request.len], now);
            }
        }
        if self.stop.load(Ordering::Relaxed) {
            self.drain_until_stop(&mut counted, &mut buffer)?;
        }
        counted.overflowed = self.server.overflowed();
        Ok(counted)
    }

    /// Reads packets that arrived before the stop, even if this thread lags behind.
    fn drain_until_stop(
        &mut self,
        counted: &mut SocketCounters,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let (stopped, until) = (realtime(), monotonic() + Nanos::from_secs(1));
        while let Some(request) = self.server.receive_from(buffer, Wait::No)? {
            let now = monotonic();
            let arrival = request.rx.and_then(|rx| rx.kernel);
            if now >= until || arrival.is_some_and(|arrival| arrival > stopped) {
                break;
            }
            self.take(counted, &request, &buffer[..request.len], now);
        }
        Ok(())
    }

    fn take(
        &mut self,
        counted: &mut SocketCounters,
        request: &Datagram,
        payload: &[u8],
        now: Instant<Monotonic>,
    ) {
        counted.packets += 1;
        counted.bytes += payload.len() as u64;
        if counted.first.is_none() {
            counted.first = Some(now);
            counted.first_bytes = payload.len() as u64;
        }
        counted.last = Some(now);
        let rx = request.rx;
        let app = rx.map_or_else(realtime, |rx| rx.app);
        let Some(packet) = PacketId::read(payload, app) else {
            counted.unmarked += 1;
            return;
        };
        let kernel = rx.and_then(|rx| rx.kernel);
        counted.stamped |= kernel.is_some();
        let Some(peer) = &request.from else { return };
        let key = (peer.address(), packet.flow);
        let known = counted.flows.get(&key);
        if known.is_none_or(|flow| flow.fin.is_some_and(|fin| packet.begins_after(fin))) {
            if counted.flows.len() + counted.ended.len() >= MAX_FLOWS {
                return;
            }
            let number = self.next_flow.fetch_add(1, Ordering::Relaxed);
            counted.ended.extend(counted.flows.insert(key, Flow::new(number, packet.base)));
        }
        let Some(flow) = counted.flows.get_mut(&key) else { return };
        let arrival = kernel.unwrap_or(app);
        // The client repeats the FIN until it is answered; iperf2 counts the number up.
        if packet.fin && flow.fin.is_some() {
            flow.take_fin_again(payload.len());
            counted.reports += u64::from(self.answer(flow, request));
            return;
        }
        let arrived = flow.take(packet.number, payload.len(), arrival, packet.sent);
        if packet.fin {
            flow.fin = packet.sent.map(|sent| (packet.number, sent));
            counted.reports += u64::from(self.answer(flow, request));
            return;
        }
        let Some(ring) = &mut self.events else { return };
        if arrived == Arrival::Duplicate {
            return;
        }
        if !flow.announced {
            let to = self.server.local_addr();
            let to = SocketAddr::new(peer.sent_to().unwrap_or(to.ip()), to.port());
            flow.announced =
                ring.push(SinkEvent::Flow { number: flow.number, from: key.0, to }).is_ok();
        }
        let mut stamps = PointStamps::default();
        stamps.set(Point::RxApp, app);
        if let Some(kernel) = kernel {
            stamps.set(Point::RxKernel, kernel);
        }
        let size = payload.len() as u16;
        let (flow, id) = (flow.number, packet.number);
        let observation =
            PacketObservation { flow, id, size, outcome: PacketOutcome::Received, stamps };
        let near = self.one_clock || key.0.ip().is_loopback();
        let transit = packet.sent.filter(|_| near).map(|sent| arrival - sent);
        counted.dropped +=
            u64::from(ring.push(SinkEvent::Observation { observation, transit }).is_err());
    }

    /// Answers a FIN unless the reply would exceed the bytes received. Returns whether it was sent.
    fn answer(&mut self, flow: &mut Flow, request: &Datagram) -> bool {
        let due = flow.answered + ServerReport::LEN as u64;
        let Some(peer) = request.from.filter(|_| !request.to_many) else { return false };
        if flow.received_bytes() < due {
            return false;
        }
        flow.answered = due;
        let mut message = [0; ServerReport::LEN];
        flow.report().emit(&mut message);
        // If the report is lost, the client asks again.
        self.server.reply(&message, &peer, Marks::default()).is_ok()
    }
}

/// Identification that a packet carries.
struct PacketId {
    flow: u32,
    number: u64,
    /// First number of the flow.
    base: u64,
    fin: bool,
    sent: Option<Instant<Realtime>>,
}

impl PacketId {
    /// Whether the packet starts a new flow from the same port after one that ended with this FIN:
    /// it has the first number, or was sent later (the first packets were lost).
    fn begins_after(&self, (number, ended): (u64, Instant<Realtime>)) -> bool {
        let later = self.sent.is_some_and(|sent| sent > ended);
        if self.fin { later && self.number != number } else { later || self.number == self.base }
    }

    fn read(payload: &[u8], now: Instant<Realtime>) -> Option<Self> {
        let format = id::detect_clear(payload, now)?;
        match format {
            Format::Dwell => {
                let Mark { flow, seq } = Mark::parse(payload).ok()?;
                Some(Self { flow, number: seq, base: 0, fin: false, sent: None })
            }
            Format::Iperf | Format::IperfClassic => {
                let datagram = id::iperf(format, payload)?;
                let number = datagram.number();
                // Some clients start with 0.
                let base = number.min(1);
                let (fin, sent) = (datagram.is_fin(), Some(datagram.at()));
                Some(Self { flow: 0, number, base, fin, sent })
            }
            Format::Stamp | Format::Roundtrip => None,
        }
    }
}
