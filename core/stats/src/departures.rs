//! How punctually packets left: figures of pairs and trains from the stamps of their departures
//! (S2.4 to S2.6). What says that no gap was made up: a packet whose stamp did not come is counted,
//! and the gaps next to it are absent, never interpolated.

mod pairs;
mod train;
mod trains;
mod variability;

use dwell_engine::departures::Departures;
use dwell_units::Nanos;

pub use pairs::{PairFigures, Pairs};
pub use train::{Bursts, TrainFigures};
pub use trains::Trains;
pub use variability::Variability;

/// What was asked of every train of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Bits of a packet, over its size as named: 8 s in S2's equations.
    pub bits: f64,
    /// The nominal gap in nanoseconds: that of the rate, or the mean where gaps differ; 0 in pairs.
    pub gap: f64,
    /// A packet that leaves more than this after it was due has missed its deadline; `None`: one
    /// nominal gap, because then the next one was due already; of pairs, none.
    pub deadline: Option<Nanos>,
    /// Whether due and left are on one clock. Where they are not (stamps of another host), gaps have
    /// figures, and errors of the schedule have none.
    pub same_clock: bool,
}

/// The packets of one train, or of one pair, in the order in which they were due.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// When each was due, after the start of the pattern.
    pub due: &'a [Nanos],
    /// When each left, after the same start, by its number; `None`, or beyond the end, where no stamp
    /// came.
    pub left: &'a [Option<Nanos>],
    /// Whether a clock was stepped while they were sent: stamps before and after are not comparable.
    pub stepped: bool,
}

impl Asked {
    /// The nominal rate in bit/s; `None` where there is no gap.
    pub fn rate_bps(&self) -> Option<f64> {
        rate(self.bits, self.gap)
    }

    /// What a packet may at most be late without having missed its deadline, in nanoseconds.
    pub fn deadline_ns(&self) -> f64 {
        self.deadline.map_or(self.gap, |deadline| deadline.0 as f64)
    }
}

impl<'a> Sent<'a> {
    /// Every train of a pattern, of stamps by the number of the packet: after the start of the pattern,
    /// as in [`Sent`]. No clock was stepped; who knows better sets it.
    pub fn each(
        departures: &'a Departures,
        left: &'a [Option<Nanos>],
    ) -> impl Iterator<Item = Self> {
        departures.trains().iter().map(move |train| {
            let stamped = train.start.min(left.len())..train.end.min(left.len());
            Self { due: &departures.at()[train.clone()], left: &left[stamped], stepped: false }
        })
    }
}

impl Sent<'_> {
    fn left(&self, packet: usize) -> Option<i64> {
        self.left.get(packet).copied().flatten().map(|at| at.0)
    }

    /// How many packets have a stamp.
    fn stamped(&self) -> usize {
        (0..self.due.len()).filter(|&packet| self.left(packet).is_some()).count()
    }

    /// The gap before each packet but the first, in nanoseconds: as scheduled, and as it was.
    fn gaps(&self) -> impl Iterator<Item = (i64, Option<i64>)> + '_ {
        (1..self.due.len()).map(|packet| {
            let scheduled = self.due[packet].0.saturating_sub(self.due[packet - 1].0);
            let gap = self.left(packet).zip(self.left(packet - 1));
            (scheduled, gap.map(|(to, from)| to.saturating_sub(from)))
        })
    }

    /// Actual minus intended departure of each packet with a stamp, with its number.
    fn schedule_errors(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        let due = self.due.iter().enumerate();
        due.filter_map(|(packet, due)| Some((packet, self.left(packet)?.saturating_sub(due.0))))
    }
}

/// So many bits in a gap of so many nanoseconds, per second; `None` unless the gap is above 0: two
/// stamps at once are an artefact, not a rate.
fn rate(bits: f64, gap: f64) -> Option<f64> {
    (gap > 0.0).then(|| bits * 1e9 / gap)
}

#[cfg(test)]
mod tests {
    use dwell_engine::departures::Pattern;

    use super::*;

    #[test]
    fn stamps_by_packet_number_fall_to_their_trains_and_may_end_early() {
        let pattern = Pattern::Train { count: 3, repeat: 3, gap: 10.0, pause: Some(Nanos::ZERO) };
        let departures = pattern.departures().unwrap();
        let left: Vec<_> = departures.at()[..4].iter().map(|at| Some(*at + Nanos(1))).collect();
        let trains: Vec<_> = Sent::each(&departures, &left).collect();
        assert_eq!(trains.iter().map(Sent::stamped).collect::<Vec<_>>(), [3, 1, 0]);
        assert_eq!(trains[1].due, [20, 30, 40].map(Nanos));
        for train in &trains {
            assert!(train.schedule_errors().all(|(_, error)| error == 1));
        }
    }
}
