//! Timing loop of a sender. It allocates nothing, takes no lock and writes to no file between its
//! first and last packet; events leave through a bounded ring.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_engine::schedule::Schedule;
use dwell_io::clock::{monotonic, realtime};
use dwell_io::datagram::DatagramSocket;
use dwell_io::port::Notice;
use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps};
use dwell_units::{Instant, Monotonic, Nanos, Realtime};
use rtrb::Producer;

use super::fin::Ending;
use super::payload::Payload;
use super::unstamped_packets::UnstampedPackets;
use dwell_io::pacer::{self, WaitMode, WaitStep};

/// Lead time before the first packet, so that it is paced like all others. There is no warm-up
/// packet: the numbers of an iperf flow start with 1.
const START_LEAD: Nanos = Nanos::from_millis(5);

/// Minimum time before the next departure to read the error queue.
const MIN_SLACK: Nanos = Nanos::from_micros(30);

/// Number of packets waiting for timestamps at which the error queue is always read.
const MAX_PENDING_STAMPS: usize = 64;

/// Minimum interval between reads of the error queue.
const ERROR_QUEUE_INTERVAL: Nanos = Nanos::from_micros(20);

/// Error queue entries read per call.
const ERROR_QUEUE_BATCH: usize = 32;

/// Time-out for timestamps after the last packet.
const STAMP_TIMEOUT: Nanos = Nanos::from_millis(500);

/// Event of the timing loop.
pub(super) enum TrafficEvent {
    /// A packet was sent.
    Departure {
        flow: u32,
        /// Actual minus intended send time.
        error: Nanos,
        app: Instant<Realtime>,
    },
    /// All timestamps of a packet are known or given up.
    Observation(PacketObservation),
}

/// A flow of packets.
pub(super) struct Flow {
    pub(super) port: DatagramSocket,
    pub(super) schedule: Schedule,
    /// Packets sent.
    pub(super) packets: u64,
    /// Packets that wait for timestamps; `None`: timestamps are not needed.
    pub(super) unstamped: Option<UnstampedPackets>,
}

/// Counters of the timing loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) packets: u64,
    pub(super) failed: u64,
    /// Time from the first departure to the one after the last, so that every gap counts.
    pub(super) elapsed: Nanos,
    /// Events dropped because the ring was full.
    pub(super) dropped: u64,
    /// ICMP errors received.
    pub(super) refused: u64,
}

/// State of the timing loop.
pub(super) struct Driver<'a> {
    pub(super) flows: Vec<Flow>,
    pub(super) payload: Payload,
    pub(super) wait_mode: WaitMode,
    pub(super) count: Option<u64>,
    pub(super) duration: Option<Nanos>,
    pub(super) stop: &'a AtomicBool,
    pub(super) events: Producer<TrafficEvent>,
    pub(super) sent: Sent,
    /// End of flows.
    pub(super) ending: Ending,
}

impl Driver<'_> {
    /// Sends until done or stopped.
    pub(super) fn run(&mut self) {
        let mut due = BinaryHeap::with_capacity(self.flows.len());
        let start = monotonic() + START_LEAD;
        let end = start.saturating_add(self.duration.unwrap_or(Nanos::MAX));
        for (n, flow) in self.flows.iter_mut().enumerate() {
            due.extend(flow.schedule.next().map(|at| Reverse((start + at, n))));
        }
        let mut over = None;
        let mut last = 0;
        while let Some(Reverse((at, n))) = due.pop() {
            if self.count.is_some_and(|count| self.sent.packets + self.sent.failed >= count) {
                over = Some(at);
                break;
            }
            // If the loop lags, the clock decides the end, not the schedule.
            if !self.rest_until(at.min(end), last) || at >= end || monotonic() >= end {
                break;
            }
            self.send(n, at);
            last = n;
            due.extend(self.flows[n].schedule.next().map(|next| Reverse((start + next, n))));
        }
        self.sent.elapsed = over.unwrap_or_else(monotonic) - start;
        self.ending.of(&mut self.flows, &mut self.payload, self.stop);
        self.collect();
    }

    fn send(&mut self, n: usize, intended: Instant<Monotonic>) {
        let Self { flows, payload, events, sent: so_far, .. } = self;
        let flow = &mut flows[n];
        let error = monotonic() - intended;
        let (message, id) = payload.packet(n as u32, flow.packets, realtime());
        let outcome = flow.port.send(message);
        let done = realtime();
        // A packet that was not sent gets no number; the far end would count it as lost.
        let Ok(departure) = outcome else {
            so_far.failed += 1;
            return;
        };
        flow.packets += 1;
        so_far.packets += 1;
        let mut push = push_to(events, &mut so_far.dropped);
        push(TrafficEvent::Departure { flow: n as u32, error, app: departure.app });
        let Some(unstamped) = &mut flow.unstamped else { return };
        let mut stamps = PointStamps::default();
        stamps.set(Point::TxApp, departure.app);
        stamps.set(Point::TxAppDone, done);
        let size = message.len() as u16;
        let observation =
            PacketObservation { flow: n as u32, id, size, outcome: PacketOutcome::Sent, stamps };
        let complete = match departure.key {
            Some(key) => unstamped.push(key, observation),
            None => Some(observation),
        };
        complete.map(TrafficEvent::Observation).into_iter().for_each(push);
    }

    /// Waits until `at` and reads the error queue of the flow that sent last; returns `false` on a
    /// stop.
    fn rest_until(&mut self, at: Instant<Monotonic>, last: usize) -> bool {
        let mut next_read = monotonic();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let now = monotonic();
            let waiting = self.flows[last].unstamped.as_ref().map_or(0, UnstampedPackets::waiting);
            let idle = waiting > 0 && at - now > MIN_SLACK;
            if next_read <= now && (idle || waiting >= MAX_PENDING_STAMPS) {
                self.take_notices(last);
                next_read = now + ERROR_QUEUE_INTERVAL;
                continue;
            }
            match self.wait_mode.rest(now, at) {
                WaitStep::Due => return true,
                WaitStep::Spin => std::hint::spin_loop(),
                WaitStep::Sleep(until) => pacer::sleep_until(until),
            }
        }
    }

    /// Reads up to [`ERROR_QUEUE_BATCH`] entries of a flow's error queue; returns their number.
    fn take_notices(&mut self, n: usize) -> usize {
        let Self { flows, events, sent, .. } = self;
        let Flow { port, unstamped, .. } = &mut flows[n];
        let Sent { dropped, refused, .. } = sent;
        let mut taken = 0;
        port.notices(ERROR_QUEUE_BATCH, &mut |notice| {
            taken += 1;
            match notice {
                Notice::TxStamp { key, stamp } => {
                    let complete = unstamped.as_mut().and_then(|packets| packets.stamp(key, stamp));
                    complete
                        .map(TrafficEvent::Observation)
                        .into_iter()
                        .for_each(push_to(events, dropped));
                }
                Notice::Error { .. } => *refused += 1,
            }
        });
        taken
    }

    /// Waits for outstanding timestamps, then reports packets without them.
    fn collect(&mut self) {
        let until = monotonic() + STAMP_TIMEOUT;
        loop {
            for n in 0..self.flows.len() {
                while self.take_notices(n) == ERROR_QUEUE_BATCH {}
            }
            let waiting =
                |flow: &Flow| flow.unstamped.as_ref().is_some_and(|packets| packets.waiting() > 0);
            if !self.flows.iter().any(waiting) || monotonic() >= until {
                break;
            }
            pacer::sleep_until(monotonic() + Nanos::from_millis(1));
        }
        let Self { flows, events, sent, .. } = self;
        for unstamped in flows.iter_mut().filter_map(|flow| flow.unstamped.as_mut()) {
            unstamped.give_up(|observation| {
                push_to(events, &mut sent.dropped)(TrafficEvent::Observation(observation))
            });
        }
    }
}

/// Returns a closure that puts events into the ring and counts those that do not fit.
fn push_to<'a>(
    events: &'a mut Producer<TrafficEvent>,
    dropped: &'a mut u64,
) -> impl FnMut(TrafficEvent) + use<'a> {
    |event| *dropped += u64::from(events.push(event).is_err())
}
