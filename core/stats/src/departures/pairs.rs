//! Packet pairs (Mok 2015, S2.4): the gap between two packets and the capacity it can measure.

use dwell_units::Nanos;

use super::{TrainDepartures, TrainRequest, rate};
use crate::distribution::{Distribution, Figures};

/// Accumulates the figures of pairs one by one, in bounded memory.
#[derive(Clone, Debug)]
pub struct Pairs {
    asked: TrainRequest,
    gaps: Distribution,
    schedule_error: Distribution,
    missed: u64,
    merged: u64,
    reordered: u64,
    unstamped: u64,
    discarded: u64,
}

/// Figures of all pairs. Each pair counts exactly once: with a gap, merged, reordered, unstamped or
/// discarded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairFigures {
    /// The positive gaps g = t2 - t1 (Mok 2015, S2.6).
    pub gap: Figures,
    /// Actual minus scheduled departure of first packets; empty if the clocks differ. The second
    /// packet is due with the first, so its lateness is the gap.
    pub schedule_error: Figures,
    /// First packets that missed their deadline ([`TrainRequest::deadline`]). `None` if the clocks
    /// differ or no deadline was given, because a pair has no nominal gap.
    pub missed: Option<u64>,
    /// 8 s / g in bit/s for the smallest gap: the largest capacity that the sender can measure.
    pub capacity_bps: Option<f64>,
    /// 8 s / g in bit/s for the median gap: the capacity that it typically measures.
    pub capacity_median_bps: Option<f64>,
    /// Pairs with equal timestamps: both packets were timestamped as one (segmentation offload) or
    /// the clock is too coarse. They do not mean an unlimited capacity.
    pub merged: u64,
    /// Pairs whose second packet left first.
    pub reordered: u64,
    /// Pairs with a missing timestamp.
    pub unstamped: u64,
    /// Pairs during which a clock was stepped.
    pub discarded: u64,
}

impl Pairs {
    /// Creates an empty accumulator.
    pub fn new(asked: &TrainRequest) -> Self {
        Self {
            asked: *asked,
            gaps: Distribution::new(),
            schedule_error: Distribution::new(),
            missed: 0,
            merged: 0,
            reordered: 0,
            unstamped: 0,
            discarded: 0,
        }
    }

    /// Adds a pair: the first two packets of `pair`.
    pub fn record(&mut self, pair: &TrainDepartures) {
        if pair.stepped {
            self.discarded += 1;
            return;
        }
        let errors = pair.schedule_errors().filter(|_| self.asked.same_clock);
        for (_, error) in errors.take_while(|(packet, _)| *packet == 0) {
            self.schedule_error.record(Nanos(error));
            self.missed += u64::from(error as f64 > self.asked.deadline_ns());
        }
        match pair.gaps().next().and_then(|(_, gap)| gap) {
            None => self.unstamped += 1,
            Some(0) => self.merged += 1,
            Some(gap) if gap < 0 => self.reordered += 1,
            Some(gap) => self.gaps.record(Nanos(gap)),
        }
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> PairFigures {
        let gap = self.gaps.figures();
        let capacity = |gap: Option<Nanos>| rate(self.asked.bits, gap?.0 as f64);
        PairFigures {
            gap,
            schedule_error: self.schedule_error.figures(),
            missed: self.asked.deadline.filter(|_| self.asked.same_clock).map(|_| self.missed),
            capacity_bps: capacity(gap.min),
            capacity_median_bps: capacity(gap.p50),
            merged: self.merged,
            reordered: self.reordered,
            unstamped: self.unstamped,
            discarded: self.discarded,
        }
    }

    /// Number of unknown values of this metric due to missing timestamps. Schedule errors across
    /// two clocks are not counted.
    pub fn unknown(&self, metric: &str) -> u64 {
        let pairs = self.gaps.count() + self.merged + self.reordered + self.unstamped;
        match metric {
            "gap" => self.unstamped,
            "schedule_error" if self.asked.same_clock => {
                pairs.saturating_sub(self.schedule_error.count())
            }
            _ => 0,
        }
    }

    /// The distribution of a metric: `gap` or `schedule_error`.
    pub fn distribution(&self, metric: &str) -> Option<&Distribution> {
        match metric {
            "gap" => Some(&self.gaps),
            "schedule_error" => Some(&self.schedule_error),
            _ => None,
        }
    }

    /// The distribution of gaps, for plots.
    pub fn gaps(&self) -> &Distribution {
        &self.gaps
    }
}

impl PairFigures {
    /// Scalar results by name; `None` if unavailable.
    pub fn values(&self) -> [(&'static str, Option<f64>); 8] {
        let count = |n: u64| Some(n as f64);
        [
            ("min_gap_ns", self.gap.min.map(|gap| gap.0 as f64)),
            ("capacity_bps", self.capacity_bps),
            ("capacity_median_bps", self.capacity_median_bps),
            ("missed_deadlines", self.missed.map(|missed| missed as f64)),
            ("merged_pairs", count(self.merged)),
            ("reordered_pairs", count(self.reordered)),
            ("unstamped_pairs", count(self.unstamped)),
            ("discarded_pairs", count(self.discarded)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REQUEST: TrainRequest =
        TrainRequest { bits: 1_600.0, gap: 0.0, deadline: None, same_clock: true };

    fn of(stamps: &[[Option<i64>; 2]]) -> PairFigures {
        let mut pairs = Pairs::new(&REQUEST);
        for pair in stamps {
            let left = pair.map(|at| at.map(Nanos));
            pairs.record(&TrainDepartures { due: &[Nanos(0); 2], left: &left, stepped: false });
        }
        pairs.figures()
    }

    #[test]
    fn smallest_gap_determines_the_capacity() {
        let found = of(&[[5, 1_605], [0, 800], [7, 1_007]].map(|pair| pair.map(Some)));
        assert_eq!((found.gap.min, found.gap.p50), (Some(Nanos(800)), Some(Nanos(1_000))));
        // 200 B in 800 ns are 2 Gbit/s.
        assert_eq!(found.capacity_bps, Some(2e9));
        assert_eq!(found.capacity_median_bps, Some(1.6e9));
    }

    #[test]
    fn zero_gap_gives_no_capacity() {
        let found = of(&[[Some(3), Some(3)]; 25]);
        assert_eq!((found.merged, found.gap.count), (25, 0));
        assert_eq!((found.capacity_bps, found.capacity_median_bps), (None, None));
        assert_eq!(found.values()[0], ("min_gap_ns", None));
    }

    #[test]
    fn only_first_packet_of_a_pair_misses_its_deadline() {
        let asked = TrainRequest { deadline: Some(Nanos(1_000)), ..REQUEST };
        let take = |asked: &TrainRequest| {
            let mut pairs = Pairs::new(asked);
            for left in [[Some(40), Some(90)], [None, Some(9_000)], [Some(1_001), None]] {
                let left = left.map(|at| at.map(Nanos));
                pairs.record(&TrainDepartures { due: &[Nanos(0); 2], left: &left, stepped: false });
            }
            pairs.figures()
        };
        let found = take(&asked);
        let errors = found.schedule_error;
        assert_eq!(
            (errors.count, errors.min, errors.max),
            (2, Some(Nanos(40)), Some(Nanos(1_001)))
        );
        assert_eq!((found.missed, found.gap.max), (Some(1), Some(Nanos(50))));
        assert_eq!(take(&REQUEST).missed, None, "no deadline, and no gap to be one");
        let elsewhere = take(&TrainRequest { same_clock: false, ..asked });
        assert_eq!((elsewhere.schedule_error.count, elsewhere.missed), (0, None));
    }

    #[test]
    fn clock_step_discards_the_pair() {
        let mut pairs = Pairs::new(&REQUEST);
        let left = [Some(Nanos(1)), Some(Nanos(9))];
        pairs.record(&TrainDepartures { due: &[Nanos(0); 2], left: &left, stepped: true });
        assert_eq!((pairs.figures().discarded, pairs.figures().gap.count), (1, 0));
    }

    proptest! {
        #[test]
        fn pair_counts_once_and_smallest_gap_is_observed(
            pairs in proptest::collection::vec(
                [proptest::option::of(-50..50_i64), proptest::option::of(-50..50_i64)], 0..60,
            ),
        ) {
            let found = of(&pairs);
            let gaps: Vec<i64> =
                pairs.iter().filter_map(|pair| Some(pair[1]? - pair[0]?)).collect();
            let least = gaps.iter().copied().filter(|gap| *gap > 0).min();
            prop_assert_eq!(found.gap.min.map(|gap| gap.0), least);
            prop_assert_eq!(found.unstamped as usize, pairs.len() - gaps.len());
            let all = found.gap.count + found.merged + found.reordered + found.unstamped;
            prop_assert_eq!(all as usize, pairs.len());
            prop_assert!(found.capacity_bps.is_none_or(f64::is_finite));
        }
    }
}
