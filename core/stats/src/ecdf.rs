//! Points of distribution functions for plots: limited in number, with the tail preserved.

use dwell_units::Nanos;

/// A point of the empirical distribution function and its complement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcdfPoint {
    /// An observed value.
    pub value: Nanos,
    /// The share of values at or below it.
    pub at_or_below: f64,
    /// The share of values above it; 0 only at the maximum.
    pub above: f64,
}

/// A point of the percentile plot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PercentilePoint {
    /// The share q.
    pub share: f64,
    /// 1 - q without the rounding error of a subtraction; at least 1/n.
    pub above: f64,
    /// The nearest-rank percentile q.
    pub value: Nanos,
}

/// Sorted values with their cumulative counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CumulativeCounts {
    values: Vec<i64>,
    // Number of values at or below the value of the same index.
    ranks: Vec<u64>,
}

impl CumulativeCounts {
    /// Builds the steps from values with counts in any order; values may repeat, and counts may be
    /// 0. A sum of counts that overflows saturates.
    pub fn new(counts: impl IntoIterator<Item = (Nanos, u64)>) -> Self {
        let mut counts: Vec<_> = counts.into_iter().filter(|&(_, count)| count > 0).collect();
        counts.sort_unstable_by_key(|&(value, _)| value);
        counts.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            same
        });
        let mut rank = 0_u64;
        let mut rise = |&(_, count): &(Nanos, u64)| {
            rank = rank.saturating_add(count);
            rank
        };
        let ranks = counts.iter().map(&mut rise).collect();
        Self { values: counts.into_iter().map(|(value, _)| value.0).collect(), ranks }
    }

    /// Builds the steps from values in any order.
    pub fn of(values: &[i64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        Self::new(sorted.chunk_by(|a, b| a == b).map(|same| (Nanos(same[0]), same.len() as u64)))
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.ranks.last().copied().unwrap_or(0)
    }

    /// At most `limit` (at least 2) points of the distribution function, from the smallest value to
    /// the largest. If there are more steps, half of the points are spaced evenly in the share at
    /// or below, and half evenly in the logarithm of the share above, so that every decade of the
    /// tail keeps its shape. Each point is exact.
    pub fn ecdf(&self, limit: usize) -> Vec<EcdfPoint> {
        let n = self.count();
        let point = |i: usize| EcdfPoint {
            value: Nanos(self.values[i]),
            at_or_below: self.ranks[i] as f64 / n as f64,
            above: (n - self.ranks[i]) as f64 / n as f64,
        };
        let steps = self.values.len();
        if steps <= limit.max(2) {
            return (0..steps).map(point).collect();
        }
        let inner = limit.max(2) - 2;
        let linear = spaced(inner.div_ceil(2)).map(|share| (share * n as f64) as u64);
        let tail = spaced(inner / 2).map(|share| n - (n as f64).powf(1.0 - share).round() as u64);
        let ranked = linear.chain(tail).map(|rank| self.step_of(rank));
        let mut chosen: Vec<_> = ranked.chain([0, steps - 1]).collect();
        chosen.sort_unstable();
        chosen.dedup();
        chosen.into_iter().map(point).collect()
    }

    /// At most `limit` points of the percentile plot, with 1 - q evenly spaced on a logarithmic
    /// axis from 1 down to the last one supported by the number of values, n (1 - q) = 1.
    pub fn percentile_plot(&self, limit: usize) -> Vec<PercentilePoint> {
        let n = self.count();
        if n == 0 {
            return Vec::new();
        }
        let gaps = limit.max(2) - 1;
        let above = (0..=gaps).map(|i| (n as f64).powf(1.0 - i as f64 / gaps as f64).round());
        let mut above: Vec<_> = above.map(|above| above as u64).collect();
        above.dedup();
        let point = |above: u64| PercentilePoint {
            share: (n - above) as f64 / n as f64,
            above: above as f64 / n as f64,
            value: Nanos(self.values[self.step_of((n - above).max(1))]),
        };
        above.into_iter().map(point).collect()
    }

    /// The first step with at least `rank` values at or below it.
    fn step_of(&self, rank: u64) -> usize {
        self.ranks.partition_point(|&up_to| up_to < rank).min(self.ranks.len() - 1)
    }
}

/// `points` evenly spaced numbers strictly between 0 and 1.
fn spaced(points: usize) -> impl Iterator<Item = f64> {
    (1..=points).map(move |i| i as f64 / (points + 1) as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Quantile, percentile};

    #[test]
    fn few_points_keep_every_decade_of_the_tail() {
        let values: Vec<i64> = (1..=1_000_000).collect();
        let points = CumulativeCounts::of(&values).ecdf(100);
        assert!(points.len() <= 100 && points.len() > 90, "{}", points.len());
        for decade in [1e-5, 1e-4, 1e-3, 1e-2, 1e-1] {
            let within =
                points.iter().filter(|p| p.above > decade && p.above <= decade * 10.0).count();
            assert!(within >= 7, "{within} points from {decade}");
        }
        assert_eq!((points[0].value, points[points.len() - 1].value), (Nanos(1), Nanos(1_000_000)));
    }

    #[test]
    fn no_values_give_no_points() {
        assert_eq!(CumulativeCounts::of(&[]).ecdf(10), []);
        assert_eq!(CumulativeCounts::of(&[]).percentile_plot(10), []);
        assert_eq!(CumulativeCounts::of(&[3]).percentile_plot(10).len(), 1);
    }

    proptest! {
        #[test]
        fn points_are_exact_and_bounded_in_number(
            values in proptest::collection::vec(-100..100_i64, 1..400),
            limit in 0..60_usize,
        ) {
            let n = values.len();
            let count = |test: &dyn Fn(i64) -> bool| values.iter().filter(|&&v| test(v)).count();
            let points = CumulativeCounts::of(&values).ecdf(limit);
            prop_assert!(points.len() <= limit.max(2));
            prop_assert_eq!(points[0].value.0, *values.iter().min().unwrap());
            prop_assert_eq!(points[points.len() - 1].value.0, *values.iter().max().unwrap());
            prop_assert!(points.windows(2).all(|pair| pair[0].value < pair[1].value));
            for point in points {
                let value = point.value.0;
                prop_assert_eq!(point.at_or_below, count(&|v| v <= value) as f64 / n as f64);
                prop_assert_eq!(point.above, count(&|v| v > value) as f64 / n as f64);
            }
        }

        #[test]
        fn steps_of_counts_match_steps_of_repeated_values(
            counts in proptest::collection::vec((-10..10_i64, 0..5_u64), 0..30),
        ) {
            let repeated: Vec<i64> =
                counts.iter().flat_map(|&(value, n)| (0..n).map(move |_| value)).collect();
            let counted = CumulativeCounts::new(counts.into_iter().map(|(value, n)| (Nanos(value), n)));
            prop_assert_eq!(counted, CumulativeCounts::of(&repeated));
        }

        #[test]
        fn percentile_points_are_nearest_rank_and_supported_by_n(
            values in proptest::collection::vec(-100..100_i64, 1..300),
            limit in 0..60_usize,
        ) {
            let points = CumulativeCounts::of(&values).percentile_plot(limit);
            prop_assert!(points.len() <= limit.max(2));
            prop_assert!(points.windows(2).all(|pair| pair[0].share < pair[1].share));
            for point in points {
                prop_assert!(point.above * values.len() as f64 >= 1.0 - 1e-9);
                // Shares finer than parts per million are rounded up within the same rank.
                let quantile = Quantile::from_ppm((point.share * 1e6).floor() as u32).unwrap();
                prop_assert_eq!(percentile(&values, quantile), Some(point.value));
            }
        }
    }
}
