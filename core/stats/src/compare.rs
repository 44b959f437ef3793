//! Comparison of two series of delays: shifts of quantiles with their intervals, the rank-sum test,
//! and "cannot tell" where the samples do not support a verdict.
//!
//! All verdicts of one comparison share its error probability of 5 % (Bonferroni): with three
//! quantiles, each of the four verdicts (the rank-sum test is the fourth) gets 1.25 %. Two runs of
//! the same condition are then reported as different, in any verdict, in less than 5 % of
//! comparisons.
//!
//! This covers only variation within the runs. Differences between runs of the same condition, such
//! as another thread placement, are invisible to statistics of single runs: repeat and interleave
//! them.

use dwell_units::Nanos;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::bootstrap::Blocks;
use crate::distribution::Quantile;
use crate::interval::RealInterval;
use crate::percentile::percentiles;
use crate::probability::{is_confidence, normal_quantile, student_quantile};
use crate::quantile_interval;
use crate::rank_test::{RankTest, mann_whitney};
use crate::shift::Shift;

/// Minimum number of bootstrap draws for an interval.
const MIN_DRAWS: usize = 200;

/// Settings of a comparison.
///
/// ```
/// use dwell_stats::{Compare, Shift};
/// use dwell_units::Nanos;
///
/// let idle: Vec<i64> = (0..2_000).map(|n| 20_000 + n * 7_919 % 1_000).collect();
/// let loaded: Vec<i64> = idle.iter().map(|delay| delay + 300).collect();
/// let comparison = Compare::default().series(&idle, &loaded);
/// let median = comparison.quantiles[0];
/// assert_eq!(median.difference, Some(Nanos(300)));
/// assert_eq!(median.shift, Shift::Rises);
///
/// let few = Compare::default().series(&idle[..5], &loaded[..5]);
/// assert_eq!(few.quantiles[0].shift, Shift::CannotTell);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Compare {
    /// Quantiles to compare.
    pub quantiles: Vec<Quantile>,
    /// Joint confidence of all verdicts, between 0 and 1.
    pub confidence: f64,
    /// Number of bootstrap draws of each series; intervals need at least 200.
    pub draws: usize,
    /// Seed of the draws.
    pub seed: u64,
}

/// Comparison of B with the baseline A.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// In the requested order.
    pub quantiles: Vec<QuantileShift>,
    /// Rank-sum test; `None` if either series has fewer than two samples.
    pub ranks: Option<RankTest>,
    /// Confidence of each single interval and verdict.
    pub confidence_each: f64,
}

/// Shift of one quantile. Values that the number of samples does not support are `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantileShift {
    /// The quantile.
    pub quantile: Quantile,
    /// Its value in A.
    pub baseline: Option<Nanos>,
    /// Its value in B.
    pub other: Option<Nanos>,
    /// B - A.
    pub difference: Option<Nanos>,
    /// Interval of the true B - A; `None` if order statistics do not bracket the quantile in A or
    /// B.
    pub interval: Option<NanosInterval>,
    /// B - A in percent of A; also `None` if A is not positive or B is negative.
    pub percent: Option<f64>,
    /// Interval of the true percentage, never below -100 %; an unbounded end is infinite.
    pub percent_interval: Option<RealInterval>,
    /// Verdict of `interval`; cannot tell without an interval.
    pub shift: Shift,
}

/// An interval of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NanosInterval {
    /// Lower end.
    pub low: Nanos,
    /// Upper end.
    pub high: Nanos,
}

impl Default for Compare {
    /// The median, the 90th and the 99th percentile at 95 % confidence, 1,000 draws, seed 1.
    fn default() -> Self {
        let quantiles = vec![Quantile::P50, Quantile::P90, Quantile::P99];
        Self { quantiles, confidence: 0.95, draws: 1_000, seed: 1 }
    }
}

impl Compare {
    /// Compares two series of delays, each in time order. Linear in their length, except for
    /// sorting each once.
    pub fn series(&self, a: &[i64], b: &[i64]) -> Comparison {
        let confidence_each = 1.0 - (1.0 - self.confidence) / (self.quantiles.len() + 1) as f64;
        let mut quantiles = self.estimates(a, b);
        if is_confidence(confidence_each) {
            self.judge(a, b, confidence_each, &mut quantiles);
        }
        Comparison { quantiles, ranks: mann_whitney(a, b, confidence_each), confidence_each }
    }

    fn estimates(&self, a: &[i64], b: &[i64]) -> Vec<QuantileShift> {
        let of_a = percentiles(a, &self.quantiles);
        let of_b = percentiles(b, &self.quantiles);
        let pairs = self.quantiles.iter().zip(of_a.into_iter().zip(of_b));
        let shift = |(&quantile, (baseline, other)): (_, (Option<Nanos>, Option<Nanos>))| {
            let pair = baseline.zip(other);
            QuantileShift {
                quantile,
                baseline,
                other,
                difference: pair.map(|(a, b)| Nanos(b.0.saturating_sub(a.0))),
                interval: None,
                percent: pair.and_then(|(a, b)| percent(a.0, b.0)),
                percent_interval: None,
                shift: Shift::CannotTell,
            }
        };
        pairs.map(shift).collect()
    }

    /// Adds intervals and verdicts to the quantiles that are bracketed in both series.
    fn judge(&self, a: &[i64], b: &[i64], confidence: f64, shifts: &mut [QuantileShift]) {
        let brackets = |values, quantile| quantile_interval(values, quantile, confidence).is_some();
        let bracketed: Vec<_> = shifts
            .iter_mut()
            .filter(|shift| brackets(a, shift.quantile) && brackets(b, shift.quantile))
            .collect();
        let quantiles: Vec<_> = bracketed.iter().map(|shift| shift.quantile).collect();
        if quantiles.is_empty() || self.draws < MIN_DRAWS {
            return;
        }
        let (Some(of_a), Some(of_b)) = (Blocks::of(a, &quantiles), Blocks::of(b, &quantiles))
        else {
            return;
        };
        let mut draws = vec![Vec::with_capacity(self.draws); quantiles.len()];
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        for _ in 0..self.draws {
            let drawn_a = of_a.quantiles(of_a.draw(&mut rng));
            let drawn_b = of_b.quantiles(of_b.draw(&mut rng));
            for (draws, pair) in draws.iter_mut().zip(drawn_a.zip(drawn_b)) {
                draws.push(pair);
            }
        }
        let spread = Spread::of(of_a.count().min(of_b.count()), confidence);
        let largest = a.iter().max().copied().unwrap_or_default();
        for (shift, draws) in bracketed.into_iter().zip(draws) {
            shift.add(&draws, spread, largest);
        }
    }
}

impl QuantileShift {
    /// Adds the intervals and the verdict from the draws; `largest` is the maximum of A.
    fn add(&mut self, draws: &[(i64, i64)], spread: Spread, largest: i64) {
        let Some(difference) = self.difference else { return };
        let mut differences: Vec<_> =
            draws.iter().map(|(a, b)| b.saturating_sub(*a) as f64).collect();
        let interval = spread.around(difference.0 as f64, &mut differences);
        let (low, high) = (Nanos(interval.low.floor() as i64), Nanos(interval.high.ceil() as i64));
        // If B has no negative value, the difference cannot fall below -max(A).
        let is_delay = draws.iter().all(|(_, b)| *b >= 0) && largest >= 0;
        let low = if is_delay { low.max(Nanos(-largest)) } else { low };
        self.interval = Some(NanosInterval { low, high });
        self.shift = Shift::of(low.0, high.0);
        self.percent_interval = self.percent_interval(draws, spread);
    }

    /// By the logarithm of the ratio if all draws are positive. Otherwise in percent, limited to
    /// -100 %, the largest possible decrease of a non-negative value.
    fn percent_interval(&self, draws: &[(i64, i64)], spread: Spread) -> Option<RealInterval> {
        let percents: Option<Vec<_>> = draws.iter().map(|&(a, b)| percent(a, b)).collect();
        let (centre, mut percents) = (self.percent?, percents?);
        let log = |percent: f64| (percent / 100.0).ln_1p();
        if centre > -100.0 && percents.iter().all(|percent| *percent > -100.0) {
            percents.iter_mut().for_each(|percent| *percent = log(*percent));
            let RealInterval { low, high } = spread.around(log(centre), &mut percents);
            return Some(RealInterval { low: low.exp_m1() * 100.0, high: high.exp_m1() * 100.0 });
        }
        let RealInterval { low, high } = spread.around(centre, &mut percents);
        Some(RealInterval { low: low.max(-100.0), high })
    }
}

/// Percentile interval of bootstrap draws, widened around the estimate for the number of blocks.
/// Few blocks underestimate the spread, and the size of that error is unknown; Student's t and n /
/// (n - 1) compensate for both.
#[derive(Clone, Copy)]
struct Spread {
    tail: f64,
    widening: f64,
}

impl Spread {
    fn of(blocks: usize, confidence: f64) -> Self {
        let (p, freedom) = (0.5 + confidence / 2.0, blocks as f64 - 1.0);
        let widening =
            student_quantile(p, freedom) / normal_quantile(p) * (blocks as f64 / freedom).sqrt();
        Self { tail: (1.0 - confidence) / 2.0, widening }
    }

    fn around(self, estimate: f64, draws: &mut [f64]) -> RealInterval {
        let outside = (self.tail * draws.len() as f64).floor() as usize;
        draws.sort_unstable_by(f64::total_cmp);
        let (low, high) = (draws[outside], draws[draws.len() - 1 - outside]);
        RealInterval {
            low: estimate - self.widening * (estimate - low).max(0.0),
            high: estimate + self.widening * (high - estimate).max(0.0),
        }
    }
}

fn percent(a: i64, b: i64) -> Option<f64> {
    (a > 0 && b >= 0).then(|| (b as f64 / a as f64 - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::RngExt;

    use super::*;

    const SEED: u64 = 21;

    fn random(n: usize, from: i64, to: i64) -> Vec<i64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED ^ n as u64);
        (0..n).map(|_| rng.random_range(from..to)).collect()
    }

    #[test]
    fn swapping_the_series_swaps_the_verdicts() {
        let (a, b) = (random(1_500, 1_000, 2_000), random(1_700, 1_200, 2_400));
        let there = Compare::default().series(&a, &b);
        let back = Compare::default().series(&b, &a);
        for (there, back) in there.quantiles.iter().zip(&back.quantiles) {
            assert_eq!((there.shift, back.shift), (Shift::Rises, Shift::Falls), "seed {SEED}");
            assert_eq!(there.difference.unwrap().0, -back.difference.unwrap().0);
        }
        assert_eq!(there.ranks.unwrap().shift, Shift::Rises);
        assert_eq!(back.ranks.unwrap().shift, Shift::Falls);
        assert!((there.confidence_each - 0.9875).abs() < 1e-12);
    }

    #[test]
    fn series_does_not_differ_from_itself() {
        let a = random(3_000, 1_000, 2_000);
        let found = Compare::default().series(&a, &a);
        for shift in found.quantiles {
            assert_eq!((shift.difference, shift.percent), (Some(Nanos(0)), Some(0.0)));
            let interval = shift.interval.unwrap();
            assert!(interval.low.0 < 0 && interval.high.0 > 0, "seed {SEED}: {shift:?}");
            assert_eq!(shift.shift, Shift::CannotTell);
        }
    }

    #[test]
    fn unsupported_quantiles_have_no_interval() {
        let (few, many) = (random(60, 1_000, 2_000), random(4_000, 5_000, 6_000));
        for shift in Compare::default().series(&few, &many).quantiles {
            assert_eq!((shift.interval, shift.shift), (None, Shift::CannotTell));
        }
        let empty = Compare::default().series(&[], &many);
        assert_eq!((empty.ranks, empty.quantiles[0].difference), (None, None));
        assert_eq!(Compare::default().series(&[], &[]).ranks, None);
        let tail = Compare::default().series(&random(300, 1_000, 2_000), &many);
        let verdicts: Vec<_> = tail.quantiles.iter().map(|shift| shift.shift).collect();
        assert_eq!(verdicts, [Shift::Rises, Shift::Rises, Shift::CannotTell], "seed {SEED}");
    }

    #[test]
    fn non_positive_values_have_no_percentage() {
        let (a, b) = (random(1_000, -500, 500), random(1_000, 1_500, 2_500));
        let found = Compare::default().series(&a, &b);
        let median = found.quantiles[0];
        assert_eq!((median.percent_interval, median.shift), (None, Shift::Rises));
    }

    #[test]
    fn same_seed_gives_the_same_interval() {
        let (a, b) = (random(900, 0, 10_000), random(901, 0, 10_000));
        let compare = |seed| Compare { seed, ..Compare::default() }.series(&a, &b);
        assert_eq!(compare(SEED), compare(SEED));
        assert_ne!(compare(SEED).quantiles, compare(SEED + 1).quantiles);
    }

    proptest! {
        #[test]
        fn delay_intervals_are_never_below_minus_100_percent(
            a in proptest::collection::vec(prop_oneof![0..3_i64, 1..1_000_000_i64], 150..300),
            b in proptest::collection::vec(prop_oneof![0..3_i64, 1..1_000_000_i64], 150..300),
            faster in prop_oneof![Just(1), Just(1_000)],
        ) {
            let b: Vec<i64> = b.iter().map(|value| value / faster).collect();
            let compare = Compare { draws: 200, ..Compare::default() };
            for shift in compare.series(&a, &b).quantiles {
                if let (Some(interval), Some(percent)) = (shift.percent_interval, shift.percent) {
                    let grain = 1e-6 * (1.0 + percent.abs());
                    prop_assert!(interval.low >= -100.0, "{shift:?}");
                    prop_assert!(interval.low <= percent + grain, "{shift:?}");
                    prop_assert!(interval.high >= percent - grain, "{shift:?}");
                }
                if let Some(interval) = shift.interval {
                    prop_assert!(-interval.low.0 <= *a.iter().max().unwrap(), "{shift:?}");
                }
            }
        }

        #[test]
        fn any_series_are_compared_without_panic(
            a in proptest::collection::vec(prop_oneof![any::<i64>(), 0..3_i64], 0..300),
            b in proptest::collection::vec(prop_oneof![any::<i64>(), 0..3_i64], 0..300),
            confidence in prop_oneof![0.5..1.0, Just(0.0), Just(1.0), Just(f64::NAN), Just(7.0)],
        ) {
            let compare = Compare { confidence, draws: 200, ..Compare::default() };
            let found = compare.series(&a, &b);
            prop_assert_eq!(found.quantiles.len(), 3);
            for shift in found.quantiles {
                if let (Some(interval), Some(difference)) = (shift.interval, shift.difference) {
                    prop_assert!(interval.low <= difference && difference <= interval.high);
                }
            }
        }
    }
}
