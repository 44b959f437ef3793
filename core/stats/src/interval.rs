//! Confidence intervals of a quantile and a share.
//!
//! Neighbouring delays are correlated, so n of them carry less information than n independent ones.
//! Intervals of a series first estimate the effective number of independent samples (`dependence`).
//! Only [`independent_quantile_ranks`] and [`share_interval`] assume independence.
//! `docs/statistics.md` lists the coverage found by simulation.

use dwell_units::Nanos;

use crate::dependence::Dependence;
use crate::distribution::Quantile;
use crate::probability::{binomial_at_most, is_confidence, normal_quantile};

/// Interval of a population quantile at the requested confidence; both ends are observed values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: Nanos,
    /// Upper end.
    pub high: Nanos,
    /// Effective number of independent samples for this quantile; at most their number.
    pub effective_n: f64,
}

/// Interval of a share or a coefficient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RealInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Interval of a quantile of a stationary series in time order, whose neighbours may be dependent:
/// order statistics at the binomial ranks of the effective number of samples. That number comes
/// from the long-run variance of "this sample is at or below the quantile".
///
/// `None` if order statistics do not bracket the quantile at this confidence, or if the confidence
/// is not between 0 and 1. Linear in the number of samples.
///
/// ```
/// use dwell_stats::{Quantile, quantile_interval};
/// use dwell_units::Nanos;
///
/// let delays: Vec<i64> = (0..1_000).map(|n| 20_000 + n * 7_919 % 1_000).collect();
/// let median = quantile_interval(&delays, Quantile::P50, 0.95).expect("1,000 values bracket it");
/// assert!(median.low < Nanos(20_500) && Nanos(20_500) < median.high);
/// assert_eq!(quantile_interval(&delays[..100], Quantile::P99, 0.95), None, "too few values");
/// ```
pub fn quantile_interval(values: &[i64], quantile: Quantile, confidence: f64) -> Option<Interval> {
    let n = values.len();
    let rank = quantile.rank(n as u64)?;
    if !is_confidence(confidence) {
        return None;
    }
    let mut sorted = values.to_vec();
    let estimate = *sorted.select_nth_unstable(rank as usize - 1).1;
    let below = Dependence::of(n, |i| share_below(values[i], estimate))?;
    let (low, high) = effective_ranks(&below, quantile.share(), confidence)?;
    let (up_to, &mut high, _) = sorted.select_nth_unstable(high - 1);
    let low = if low <= up_to.len() { *up_to.select_nth_unstable(low - 1).1 } else { high };
    let effective_n = below.effective().min(n as f64);
    Some(Interval { low: Nanos(low), high: Nanos(high), effective_n })
}

/// Ranks, from 1, that bracket the quantile of n independent samples in any order: exact order
/// statistics of the binomial distribution. `None` as for [`quantile_interval`].
pub fn independent_quantile_ranks(
    n: u64,
    quantile: Quantile,
    confidence: f64,
) -> Option<(u64, u64)> {
    if n == 0 || !is_confidence(confidence) {
        return None;
    }
    exact_ranks(n, quantile.share(), confidence)
}

/// Wilson score interval of a share such as a loss ratio, with `hits` among `trials` independent
/// trials. `None` without trials or with more hits than trials.
///
/// ```
/// use dwell_stats::share_interval;
///
/// let loss = share_interval(0, 300, 0.95).expect("there are trials");
/// assert!(loss.low == 0.0 && loss.high < 0.013, "no loss among 300 is not 0 %");
/// ```
pub fn share_interval(hits: u64, trials: u64, confidence: f64) -> Option<RealInterval> {
    if trials == 0 || hits > trials || !is_confidence(confidence) {
        return None;
    }
    let z = normal_quantile(0.5 + confidence / 2.0);
    Some(wilson(hits as f64 / trials as f64, trials as f64, z))
}

/// 1 below the threshold, 0 above, and 0.5 at it, so that a frequent value counts equally for both
/// sides.
pub(crate) fn share_below(value: i64, threshold: i64) -> f64 {
    f64::from(u8::from(value < threshold) + u8::from(value <= threshold)) / 2.0
}

fn wilson(share: f64, n: f64, z: f64) -> RealInterval {
    let square = z * z / n;
    let centre = (share + square / 2.0) / (1.0 + square);
    let half = (share * (1.0 - share) * square + square * square / 4.0).sqrt() / (1.0 + square);
    RealInterval { low: (centre - half).max(0.0), high: (centre + half).min(1.0) }
}

/// Closest ranks, from 1, that bracket the quantile: the number of samples below the quantile is
/// less than the lower rank, or at least the upper rank, each with a probability of at most half of
/// (1 - confidence).
fn exact_ranks(n: u64, share: f64, confidence: f64) -> Option<(u64, u64)> {
    let tail = (1.0 - confidence) / 2.0;
    let at_most = |k: u64| binomial_at_most(k as f64, n as f64, share);
    // First k too likely to be reached from below, and first k unlikely to be exceeded.
    let low = first(n, |k| at_most(k) > tail);
    let high = first(n, |k| 1.0 - at_most(k) <= tail) + 1;
    (low >= 1 && high <= n).then_some((low, high))
}

/// The same for an effective number of samples, which is fractional. The beta distribution
/// interpolates the binomial one between integers, shifted by half a count towards the middle, so
/// that average coverage equals the confidence instead of exceeding it.
///
/// `None` if even the smallest and the largest of the effective samples do not reach the
/// confidence. An end that lies outside only due to the uncertainty of the effective number is the
/// extreme.
fn effective_ranks(below: &Dependence, share: f64, confidence: f64) -> Option<(usize, usize)> {
    let tail = (1.0 - confidence) / 2.0;
    let m = below.effective();
    let all_on_one_side = binomial_at_most(0.0, m, share) + binomial_at_most(0.0, m, 1.0 - share);
    if all_on_one_side > 2.0 * tail {
        return None;
    }
    // The number of independent occurrences of the rarer side limits how well its clustering is
    // known.
    let freedom = below.freedom.min(m * share.min(1.0 - share));
    let m = below.effective_at(confidence, freedom);
    let at_most = |k: f64| binomial_at_most(k - 0.5, m, share);
    let low = root(0.0, m, |k| at_most(k) - tail) / m;
    let high = root(0.0, m, |k| at_most(k) - (1.0 - tail)) / m;
    let n = below.n as f64;
    let (low, high) = ((low * n + 0.5).floor().max(1.0), (high * n + 0.5).ceil().min(n));
    Some((low as usize, high as usize))
}

/// Smallest of 0..n that satisfies a monotonic condition; n if none does.
fn first(n: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Root of an increasing function.
fn root(mut low: f64, mut high: f64, rising: impl Fn(f64) -> f64) -> f64 {
    while high - low > 1e-6 * high {
        let middle = (low + high) / 2.0;
        if rising(middle) < 0.0 { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const SEED: u64 = 3;

    /// Probability that between `low` and `high - 1` of `n` values are below the quantile.
    fn covered(n: usize, share: f64, low: usize, high: usize) -> f64 {
        // In logarithms: a share near 1 to the power of n may underflow.
        let mut term = n as f64 * (1.0 - share).ln();
        let mut sum = 0.0;
        for k in 0..high {
            sum += if k >= low { term.exp() } else { 0.0 };
            term += ((n - k) as f64 / (k + 1) as f64 * share / (1.0 - share)).ln();
        }
        sum
    }

    #[test]
    fn coverage_is_computed_despite_underflow() {
        // Expected values summed in integer arithmetic.
        let known = [(194, 0.978304, 189, 0.246898025), (199, 0.98, 195, 0.367209448)];
        for (n, share, below, expected) in known {
            assert!((covered(n, share, 0, below) - expected).abs() < 1e-6, "{n}, {share}");
        }
    }

    #[test]
    fn median_ranks_match_published_tables() {
        let table = [(5, None), (6, Some((1, 6))), (10, Some((2, 9))), (25, Some((8, 18)))];
        for (n, expected) in table.into_iter().chain([(100, Some((40, 61)))]) {
            assert_eq!(independent_quantile_ranks(n, Quantile::P50, 0.95), expected, "n {n}");
        }
    }

    #[test]
    fn unbracketed_quantile_has_no_interval() {
        let values: Vec<i64> = (0..50).collect();
        assert_eq!(independent_quantile_ranks(50, Quantile::P95, 0.95), None);
        assert_eq!(quantile_interval(&values, Quantile::P95, 0.95), None);
        assert_eq!(quantile_interval(&[], Quantile::P50, 0.95), None);
        assert_eq!(quantile_interval(&[1, 2, 3], Quantile::P50, 0.95), None);
        assert_eq!(quantile_interval(&values, Quantile::P50, 1.0), None);
        assert_eq!(quantile_interval(&values, Quantile::P50, f64::NAN), None);
    }

    #[test]
    fn constant_series_has_an_interval_without_width() {
        let found = quantile_interval(&[7; 200], Quantile::P90, 0.95).unwrap();
        assert_eq!(found, Interval { low: Nanos(7), high: Nanos(7), effective_n: 200.0 });
    }

    #[test]
    fn repeated_samples_count_once() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let single: Vec<i64> = (0..400).map(|_| rng.random_range(0..1_000_000)).collect();
        let repeated: Vec<i64> = single.iter().flat_map(|&v| [v; 10]).collect();
        let found = quantile_interval(&repeated, Quantile::P50, 0.95).unwrap();
        assert!((200.0..800.0).contains(&found.effective_n), "seed {SEED}: {found:?}");
    }

    #[test]
    fn share_interval_matches_published_wilson_intervals() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20.
        for (hits, trials, low, high) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)]
        {
            let found = share_interval(hits, trials, 0.95).unwrap();
            assert!(
                (found.low - low).abs() < 1e-4 && (found.high - high).abs() < 1e-4,
                "{found:?}"
            );
        }
        assert_eq!(share_interval(0, 0, 0.95), None);
        assert_eq!(share_interval(2, 1, 0.95), None);
    }

    proptest! {
        #[test]
        fn exact_ranks_are_the_closest_with_this_confidence(
            n in 1..200_usize, ppm in 20_000..980_000_u32, confidence in 0.5..0.99,
        ) {
            let quantile = Quantile::from_ppm(ppm).unwrap();
            let share = quantile.share();
            let tail = (1.0 - confidence) / 2.0 + 1e-9;
            if let Some((low, high)) = independent_quantile_ranks(n as u64, quantile, confidence) {
                let (low, high) = (low as usize, high as usize);
                prop_assert!(covered(n, share, low, high) >= confidence - 1e-9);
                prop_assert!(covered(n, share, 0, low) <= tail);
                prop_assert!(covered(n, share, 0, low + 1) > tail - 2e-9);
                prop_assert!(covered(n, share, high, n + 1) <= tail);
                prop_assert!(covered(n, share, high - 1, n + 1) > tail - 2e-9);
            } else {
                prop_assert!(covered(n, share, 0, 1) > tail - 2e-9
                    || covered(n, share, n, n + 1) > tail - 2e-9);
            }
        }

        #[test]
        fn interval_contains_estimate_and_grows_with_confidence(
            values in proptest::collection::vec(-1_000..1_000_i64, 40..400),
            ppm in 200_000..800_000_u32,
        ) {
            let quantile = Quantile::from_ppm(ppm).unwrap();
            let estimate = crate::percentile(&values, quantile).unwrap();
            let intervals = [0.5, 0.8, 0.95].map(|c| quantile_interval(&values, quantile, c));
            for interval in intervals.into_iter().flatten() {
                prop_assert!(interval.low <= estimate && estimate <= interval.high);
                prop_assert!(interval.effective_n <= values.len() as f64);
            }
            for pair in intervals.windows(2) {
                if let (Some(narrow), Some(wide)) = (pair[0], pair[1]) {
                    prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
                }
            }
        }
    }
}
