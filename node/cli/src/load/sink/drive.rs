//! The loop that receives on one socket. Takes no lock and writes to no file; what it learns of
//! packets leaves through a bounded ring, if anybody wants to know.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dwell_engine::passage::{Fate, Passage, Point, PointStamps};
use dwell_io::clock::{monotonic, realtime};
use dwell_io::port::Wait;
use dwell_io::udp::{Marks, Request, UdpServer};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};
use dwell_wire::id::{self, Format};
use dwell_wire::iperf2::ServerReport;
use dwell_wire::traffic::Mark;
use rtrb::Producer;

use super::flow::{Arrived, Flow};
use dwell_io::pacer::NAP;

/// Flows counted apart on one socket; packets of more are counted in the totals only.
const FLOWS: usize = 4_096;

/// What leaves the loop.
pub(super) enum Told {
    /// Passages from now on name this flow.
    Flow { name: u32, from: SocketAddr, to: SocketAddr },
    /// A packet came for the first time.
    Passage {
        passage: Passage,
        /// Its time on the way, where both clocks are one.
        transit: Option<Nanos>,
    },
}

/// What came on one socket.
#[derive(Default)]
pub(super) struct Counted {
    /// All that came, repeats included.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Bytes of the first packet: a rate is over the time since it came, without it.
    pub(super) first_bytes: u64,
    /// Packets that tell no number.
    pub(super) unmarked: u64,
    /// Reports that iperf clients were sent.
    pub(super) reports: u64,
    pub(super) first: Option<Instant<Monotonic>>,
    pub(super) last: Option<Instant<Monotonic>>,
    pub(super) flows: HashMap<(SocketAddr, u32), Flow>,
    /// Flows after which another came from the same port.
    pub(super) ended: Vec<Flow>,
    /// Notes that found the ring full.
    pub(super) dropped: u64,
    /// Packets that found no room in the socket, as far as the kernel tells.
    pub(super) overflowed: Option<u64>,
    /// Kernel stamps came.
    pub(super) stamped: bool,
}

impl Counted {
    /// Every flow that came.
    pub(super) fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values().chain(&self.ended)
    }
}

/// See the module's documentation.
pub(super) struct Receiver<'a> {
    pub(super) server: UdpServer,
    /// `None`: nobody wants to know of packets.
    pub(super) told: Option<Producer<Told>>,
    /// The next flow's name, shared by all sockets.
    pub(super) names: &'a AtomicU32,
    pub(super) busy_poll: bool,
    /// The clocks of all senders are known to be this one's, within a bound.
    pub(super) one_clock: bool,
    pub(super) end: Instant<Monotonic>,
    pub(super) stop: &'a AtomicBool,
}

impl Receiver<'_> {
    /// Counts until the end or a stop.
    pub(super) fn run(mut self) -> io::Result<Counted> {
        let mut counted = Counted {
            flows: HashMap::with_capacity(FLOWS),
            ended: Vec::with_capacity(FLOWS),
            ..Counted::default()
        };
        let mut buffer = vec![0; 65_535];
        let wait = if self.busy_poll { Wait::No } else { Wait::AtMost(NAP) };
        while !self.stop.load(Ordering::Relaxed) {
            let request = self.server.receive(&mut buffer, wait)?;
            let now = monotonic();
            if now >= self.end {
                break;
            }
            if let Some(request) = request {
                self.take(&mut counted, &request, &buffer[..request.len], now);
            }
        }
        if self.stop.load(Ordering::Relaxed) {
            self.take_what_came(&mut counted, &mut buffer)?;
        }
        counted.overflowed = self.server.overflowed();
        Ok(counted)
    }

    /// What had come before the stop and was not read yet, however far behind this thread is.
    fn take_what_came(&mut self, counted: &mut Counted, buffer: &mut [u8]) -> io::Result<()> {
        let (stopped, until) = (realtime(), monotonic() + Nanos::from_secs(1));
        while let Some(request) = self.server.receive(buffer, Wait::No)? {
            let now = monotonic();
            let came = request.rx.and_then(|rx| rx.kernel);
            if now >= until || came.is_some_and(|came| came > stopped) {
                break;
            }
            self.take(counted, &request, &buffer[..request.len], now);
        }
        Ok(())
    }

    fn take(
        &mut self,
        counted: &mut Counted,
        request: &Request,
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
        let Some(told) = Numbered::read(payload, app) else {
            counted.unmarked += 1;
            return;
        };
        let kernel = rx.and_then(|rx| rx.kernel);
        counted.stamped |= kernel.is_some();
        let key = (request.from, told.flow);
        let known = counted.flows.get(&key);
        if known.is_none_or(|flow| flow.fin.is_some_and(|fin| told.begins_after(fin))) {
            if counted.flows.len() + counted.ended.len() >= FLOWS {
                return;
            }
            let name = self.names.fetch_add(1, Ordering::Relaxed);
            counted.ended.extend(counted.flows.insert(key, Flow::new(name, told.base)));
        }
        let Some(flow) = counted.flows.get_mut(&key) else { return };
        let came = kernel.unwrap_or(app);
        // Said again until it is answered; iperf2 numbers it on then.
        if told.fin && flow.fin.is_some() {
            flow.take_fin_again(payload.len());
            counted.reports += u64::from(self.answer(flow, request));
            return;
        }
        let arrived = flow.take(told.number, payload.len(), came, told.sent);
        if told.fin {
            flow.fin = told.sent.map(|sent| (told.number, sent));
            counted.reports += u64::from(self.answer(flow, request));
            return;
        }
        let Some(ring) = &mut self.told else { return };
        if arrived == Arrived::Again {
            return;
        }
        if !flow.announced {
            let to = self.server.local_addr();
            let to = SocketAddr::new(request.to.unwrap_or(to.ip()), to.port());
            flow.announced = ring.push(Told::Flow { name: flow.name, from: key.0, to }).is_ok();
        }
        let mut stamps = PointStamps::default();
        stamps.set(Point::RxApp, app);
        if let Some(kernel) = kernel {
            stamps.set(Point::RxKernel, kernel);
        }
        let size = payload.len() as u16;
        let (flow, id) = (flow.name, told.number);
        let passage = Passage { flow, id, size, fate: Fate::Received, stamps };
        let near = self.one_clock || key.0.ip().is_loopback();
        let transit = told.sent.filter(|_| near).map(|sent| came - sent);
        counted.dropped += u64::from(ring.push(Told::Passage { passage, transit }).is_err());
    }

    /// Answers a FIN. Nobody is sent more than came from there. Returns whether it was answered.
    fn answer(&mut self, flow: &mut Flow, request: &Request) -> bool {
        let due = flow.answered + ServerReport::LEN as u64;
        if request.to_many || flow.heard() < due {
            return false;
        }
        flow.answered = due;
        let mut message = [0; ServerReport::LEN];
        flow.report().emit(&mut message);
        // One that does not get there is asked for again.
        self.server.reply(&message, request, Marks::default()).is_ok()
    }
}

/// What a packet says of itself.
struct Numbered {
    flow: u32,
    number: u64,
    /// The first number of a flow.
    base: u64,
    fin: bool,
    sent: Option<Instant<Realtime>>,
}

impl Numbered {
    /// Whether it is of a flow that began, from the same port, after one that ended with this FIN:
    /// it is a first packet, or was sent later (its first ones were lost).
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
                // Some clients begin with 0.
                let base = number.min(1);
                let (fin, sent) = (datagram.is_fin(), Some(datagram.at()));
                Some(Self { flow: 0, number, base, fin, sent })
            }
            Format::Stamp | Format::Roundtrip => None,
        }
    }
}
