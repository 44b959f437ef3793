//! Timing loop: sends train after train and collects timestamps during the pauses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use dwell_engine::departures::{Departures, LEAD_IN_PACKETS, lead_in};
use dwell_io::clock::{self, monotonic};
use dwell_io::pacer::{self, MAX_SLEEP, sleep_until};
use dwell_io::train::{Departure, Numbers, TrainProgress, TrainSender};
use dwell_stats::departures::TrainDepartures;
use dwell_units::{Instant, Monotonic, Nanos, Pairing, Realtime};

/// Minimum time to prepare a train before its first packet is due.
const PREPARE_TIME: Nanos = Nanos::from_micros(500);

/// Time-out for the timestamps of a train. Waiting delays the next train, which a slow queue would
/// delay anyway.
const STAMP_TIMEOUT: Nanos = Nanos::from_millis(500);

/// First number of packets that are not counted.
pub(super) const FIRST_UNCOUNTED_ID: u64 = 1 << 63;

/// Maximum length of a warm-up train.
const MAX_WARM_UP_PACKETS: usize = 50;
const MAX_WARM_UP_TIME: Nanos = Nanos::from_millis(100);

/// A train that was sent.
pub(super) struct Train {
    /// Index in the pattern; `None` for warm-up.
    pub(super) number: Option<usize>,
    /// Due time of the first packet.
    pub(super) start: Instant<Monotonic>,
    /// Clock reading before the first packet.
    pub(super) bridge: Pairing,
    /// Whether a clock was stepped while the train was sent.
    pub(super) stepped: bool,
    /// Its packets in order of their due times.
    pub(super) left: Vec<Departure>,
}

/// Instants of a train, relative to the due time of its first packet.
pub(super) struct OnSchedule {
    due: Vec<Nanos>,
    left: Vec<Option<Nanos>>,
    stepped: bool,
}

impl OnSchedule {
    pub(super) fn sent(&self) -> TrainDepartures<'_> {
        TrainDepartures { due: &self.due, left: &self.left, stepped: self.stepped }
    }
}

impl Train {
    /// Returns the departures relative to the schedule; `stamp` selects the timestamp of the packet
    /// at this index. `None` for warm-up.
    pub(super) fn on_schedule(
        &self,
        departures: &Departures,
        mut stamp: impl FnMut(usize, &Departure) -> Option<Instant<Realtime>>,
    ) -> Option<OnSchedule> {
        let at = &departures.at()[departures.trains()[self.number?].clone()];
        let start = self.bridge.to_real(self.start);
        let left = self.left.iter().take(at.len()).enumerate();
        let left: Vec<_> = left.map(|(n, left)| stamp(n, left).map(|at| at - start)).collect();
        let due = at[..left.len()].iter().map(|due| *due - at[0]).collect();
        Some(OnSchedule { due, left, stepped: self.stepped })
    }
}

/// Sends trains from one thread.
pub(super) struct Driver<'a> {
    pub(super) sender: TrainSender,
    pub(super) departures: &'a Departures,
    /// Number of lead-in packets before each train.
    pub(super) lead_in: usize,
    /// Number of the first packet.
    pub(super) first: u64,
    pub(super) warm_up: u32,
    pub(super) stop: &'a AtomicBool,
    pub(super) sent_trains: mpsc::Sender<Train>,
}

/// Returns the number of a train's first packet. One number is left out between trains, so that
/// neighbouring numbers belong to one train.
pub(super) fn first_id(departures: &Departures, train: usize) -> u64 {
    (departures.trains()[train].start + train) as u64
}

impl Driver<'_> {
    /// Sends until done, or until a stop between two trains.
    pub(super) fn run(mut self) -> TrainSender {
        pacer::measure();
        let trains = self.departures.trains();
        for n in 0..self.warm_up {
            let packets = trains.first().map_or(0, std::iter::ExactSizeIterator::len);
            let first = FIRST_UNCOUNTED_ID + u64::from(n) * (packets as u64 + 1);
            if self.send(None, 0, first, monotonic()).is_none() {
                return self.sender;
            }
        }
        // Times are absolute within a train; a delayed train shifts the following ones.
        let mut base = monotonic();
        for (number, packets) in trains.iter().enumerate() {
            let planned = base + self.departures.at()[packets.start];
            let first = self.first + first_id(self.departures, number);
            match self.send(Some(number), number, first, planned) {
                Some(start) => base = base + (start - planned),
                None => break,
            }
        }
        self.sender
    }

    /// Sends one train at `planned` or as soon as it is prepared; returns the due time of its first
    /// packet, or `None` if stopped before.
    fn send(
        &mut self,
        number: Option<usize>,
        like: usize,
        first: u64,
        planned: Instant<Monotonic>,
    ) -> Option<Instant<Monotonic>> {
        let mut at = &self.departures.at()[self.departures.trains()[like].clone()];
        if number.is_none() {
            let enough = at
                .iter()
                .take(MAX_WARM_UP_PACKETS)
                .take_while(|due| **due - at[0] <= MAX_WARM_UP_TIME);
            at = &at[..enough.count()];
        }
        let lead_in = lead_in(at);
        let lead_in = &lead_in[LEAD_IN_PACKETS - self.lead_in..];
        let numbers = Numbers::new(first, at.len()).led_by(lead_in.len());
        self.sender.prepare(numbers);
        let mut left = vec![Departure::default(); numbers.len()];
        let mut due = Vec::with_capacity(numbers.len());
        let bridge = clock::pair();
        let ahead = lead_in.first().map_or(Nanos::ZERO, |first| at[0] - *first);
        let start = planned.max(monotonic() + PREPARE_TIME + ahead);
        due.extend(lead_in.iter().chain(at).map(|due| start + (*due - at[0])));
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if start - monotonic() <= MAX_SLEEP {
                break;
            }
            sleep_until((start - MAX_SLEEP).min(monotonic() + MAX_SLEEP));
        }
        self.sender.send(TrainProgress::new(&due, self.stop).led_by(lead_in.len()), &mut left);
        if self.stop.load(Ordering::Relaxed) {
            // A train that was cut short consists of the packets sent.
            let sent = left.iter().rposition(|left| left.app.is_some()).map_or(0, |last| last + 1);
            left.truncate(sent);
        }
        self.sender.collect(&mut left, STAMP_TIMEOUT);
        left.drain(..lead_in.len().min(left.len()));
        let stepped = bridge.step_until(&clock::pair()).is_some();
        // Sending fails only if the recorder has failed.
        self.sent_trains
            .send(Train { number, start, bridge, stepped, left })
            .is_ok()
            .then_some(start)
    }
}
