//! Departure accuracy: statistics of packet pairs and trains from departure timestamps (Mok 2015,
//! S2.4 to S2.6). A packet without a timestamp is counted, and its adjacent gaps are missing, never
//! interpolated.

mod pairs;
mod train;
mod trains;
mod variability;

use dwell_units::Nanos;

pub use pairs::{PairFigures, Pairs};
pub use train::{Bursts, TrainFigures};
pub use trains::Trains;
pub use variability::Variability;

/// Parameters requested for every train of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainRequest {
    /// Bits of a packet at its nominal size: 8 s in the equations of Mok 2015.
    pub bits: f64,
    /// Nominal gap in nanoseconds: from the rate, or the mean of varying gaps; 0 for pairs.
    pub gap: f64,
    /// Maximum lateness of a departure. `None` means one nominal gap, because the next packet is
    /// due by then; pairs then have no deadline.
    pub deadline: Option<Nanos>,
    /// Whether due times and departures are on the same clock. If not (timestamps of another host),
    /// gaps are available but schedule errors are not.
    pub same_clock: bool,
}

/// The packets of one train or pair, in the order of their due times.
#[derive(Clone, Copy, Debug)]
pub struct TrainDepartures<'a> {
    /// Due time of each packet, relative to the start of the pattern.
    pub due: &'a [Nanos],
    /// Departure time of each packet by its index, relative to the same start; `None`, or beyond
    /// the end, if it has no timestamp.
    pub left: &'a [Option<Nanos>],
    /// Whether a clock was stepped during sending, so that timestamps before and after are not
    /// comparable.
    pub stepped: bool,
}

impl TrainRequest {
    /// Nominal rate in bit/s; `None` without a gap.
    pub fn rate_bps(&self) -> Option<f64> {
        rate(self.bits, self.gap)
    }

    /// Maximum lateness that meets the deadline, in nanoseconds.
    pub fn deadline_ns(&self) -> f64 {
        self.deadline.map_or(self.gap, |deadline| deadline.0 as f64)
    }
}

impl TrainDepartures<'_> {
    fn left(&self, packet: usize) -> Option<i64> {
        self.left.get(packet).copied().flatten().map(|at| at.0)
    }

    /// Number of packets with a timestamp.
    fn stamped(&self) -> usize {
        (0..self.due.len()).filter(|&packet| self.left(packet).is_some()).count()
    }

    /// Scheduled and actual gap before each packet except the first, in nanoseconds.
    fn gaps(&self) -> impl Iterator<Item = (i64, Option<i64>)> + '_ {
        (1..self.due.len()).map(|packet| {
            let scheduled = self.due[packet].0.saturating_sub(self.due[packet - 1].0);
            let gap = self.left(packet).zip(self.left(packet - 1));
            (scheduled, gap.map(|(to, from)| to.saturating_sub(from)))
        })
    }

    /// Actual minus scheduled departure of each packet with a timestamp, with its index.
    fn schedule_errors(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        let due = self.due.iter().enumerate();
        due.filter_map(|(packet, due)| Some((packet, self.left(packet)?.saturating_sub(due.0))))
    }
}

/// Rate in bit/s of `bits` per `gap` nanoseconds; `None` unless the gap is positive, because equal
/// timestamps are an artefact, not a rate.
fn rate(bits: f64, gap: f64) -> Option<f64> {
    (gap > 0.0).then(|| bits * 1e9 / gap)
}
