//! Exact nearest-rank percentiles of a slice, for callers that hold all samples.

use dwell_units::Nanos;

use crate::distribution::Quantile;

/// The nearest-rank percentile of values in any order; `None` if their number does not support it
/// ([`Quantile::rank`]). Copies the values; linear in their number.
///
/// ```
/// use dwell_stats::{Quantile, percentile};
/// use dwell_units::Nanos;
///
/// assert_eq!(percentile(&[30, 10, 20], Quantile::P50), Some(Nanos(20)));
/// assert_eq!(percentile(&[30, 10, 20], Quantile::P90), None, "needs 10 values");
/// ```
pub fn percentile(values: &[i64], quantile: Quantile) -> Option<Nanos> {
    let rank = quantile.rank(values.len() as u64)?;
    Some(Nanos(ranked(&mut values.to_vec(), rank as usize)))
}

/// Several percentiles of the same values, in the requested order; sorts a copy once.
///
/// ```
/// use dwell_stats::{Quantile, percentiles};
/// use dwell_units::Nanos;
///
/// let delays: Vec<i64> = (1..=100).rev().collect();
/// let found = percentiles(&delays, &[Quantile::P99, Quantile::P50, Quantile::P99_9]);
/// assert_eq!(found, [Some(Nanos(99)), Some(Nanos(50)), None]);
/// ```
pub fn percentiles(values: &[i64], quantiles: &[Quantile]) -> Vec<Option<Nanos>> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    quantiles.iter().map(|&quantile| percentile_of_sorted(&sorted, quantile)).collect()
}

/// The nearest-rank percentile of sorted values.
pub fn percentile_of_sorted(sorted: &[i64], quantile: Quantile) -> Option<Nanos> {
    let rank = quantile.rank(sorted.len() as u64)?;
    Some(Nanos(sorted[rank as usize - 1]))
}

/// The nearest-rank median of values in any order, even of a single one; `None` if empty.
pub fn median(values: &[f64]) -> Option<f64> {
    let rank = values.len().div_ceil(2).checked_sub(1)?;
    Some(*values.to_vec().select_nth_unstable_by(rank, f64::total_cmp).1)
}

/// The value of `rank`, counted from 1; reorders the values.
pub(crate) fn ranked(values: &mut [i64], rank: usize) -> i64 {
    *values.select_nth_unstable(rank - 1).1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn median_of_two_values_is_the_lower_one() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[2.0, 1.0]), Some(1.0));
        assert_eq!((median(&[7.0]), median(&[])), (Some(7.0), None));
    }

    proptest! {
        #[test]
        fn percentile_matches_its_definition(
            values in proptest::collection::vec(-50..50_i64, 0..200),
            ppm in 0..=1_000_000_u32,
        ) {
            let quantile = Quantile::from_ppm(ppm).unwrap();
            let n = values.len() as u64;
            let at_or_below = |x: i64| values.iter().filter(|&&v| v <= x).count() as u64;
            let naive = values
                .iter()
                .copied()
                .filter(|&x| at_or_below(x) * 1_000_000 >= n * u64::from(ppm))
                .min()
                .filter(|_| n * u64::from(1_000_000 - ppm) >= 1_000_000)
                .map(Nanos);
            prop_assert_eq!(percentile(&values, quantile), naive);
            prop_assert_eq!(percentiles(&values, &[quantile, quantile]), vec![naive, naive]);
        }
    }
}
