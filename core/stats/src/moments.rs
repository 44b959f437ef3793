//! Count, extremes, mean and squared deviations of a piece of values, vectorised.

/// Maximum number of values per piece: few enough to stay in the L1 cache and for a sum of narrow
/// values to be exact in floating point.
pub(crate) const PIECE_LEN: usize = 2_048;

/// Moments of a set of values.
pub(crate) struct Moments {
    pub(crate) count: u64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) sum: i128,
    pub(crate) mean: f64,
    /// Sum of squared deviations from the mean.
    pub(crate) squares: f64,
}

impl Moments {
    /// Moments of 1 to [`PIECE_LEN`] values.
    pub(crate) fn of(values: &[i64]) -> Self {
        let n = values.len() as f64;
        let (min, max) = range_of(values);
        let sum = sum(values, min, max);
        let mean = sum as f64 / n;
        let squares = if max.abs_diff(min) <= i32::MAX as u64 {
            let above = (sum - i128::from(min) * values.len() as i128) as f64 / n;
            squares(values, |value| f64::from((value - min) as i32) - above)
        } else {
            squares(values, |value| value as f64 - mean)
        };
        Self { count: values.len() as u64, min, max, sum, mean, squares }
    }

    /// Moments of narrow values in integer arithmetic, which is exact and vectorises on every
    /// processor. Values are taken relative to the first, which keeps squares of similar values
    /// small.
    #[inline(always)]
    pub(crate) fn of_narrow(values: &[i32]) -> Self {
        /// Bits of a difference for which the sum of [`PIECE_LEN`] squares fits into 63 bits.
        const MAX_DIFFERENCE_BITS: u32 = 26;
        let Some(&first) = values.first() else { return Self::of(&[]) };
        let (mut min, mut max) = (first, first);
        let (mut sum, mut squares) = (0, 0_i64);
        // A loop instead of closures, which would not be inlined for wider registers.
        for &value in values {
            min = min.min(value);
            max = max.max(value);
            let apart = i64::from(value.wrapping_sub(first));
            sum += apart;
            squares = squares.wrapping_add(apart * apart);
        }
        let n = values.len() as i128;
        let mean = f64::from(first) + sum as f64 / n as f64;
        let squares = if max.abs_diff(min) >> MAX_DIFFERENCE_BITS == 0 {
            (n * i128::from(squares) - i128::from(sum) * i128::from(sum)) as f64 / n as f64
        } else {
            self::squares(values, |value| f64::from(value) - mean)
        };
        Self {
            count: values.len() as u64,
            min: min.into(),
            max: max.into(),
            sum: n * i128::from(first) + i128::from(sum),
            mean,
            squares,
        }
    }
}

/// Number of parallel sums: a single one would wait for each addition.
const LANES: usize = 4;

/// Smallest and largest value; `(i64::MAX, i64::MIN)` without values, so that any value widens the
/// range.
pub fn extremes(values: &[i64]) -> (i64, i64) {
    if values.is_empty() || !is_narrow(values) {
        return range_of(values);
    }
    let wider =
        |(min, max): (i32, i32), value: &i64| (min.min(*value as i32), max.max(*value as i32));
    let (min, max) = values.iter().fold((i32::MAX, i32::MIN), wider);
    (min.into(), max.into())
}

fn range_of(values: &[i64]) -> (i64, i64) {
    let wider = |(min, max): (i64, i64), value: &i64| (min.min(*value), max.max(*value));
    values.iter().fold((i64::MAX, i64::MIN), wider)
}

/// Returns whether all values are between 0 and `i32::MAX`.
fn is_narrow(values: &[i64]) -> bool {
    is_narrow_of(values.iter().fold(0, |bits, value| bits | value))
}

/// [`is_narrow`] for the bitwise OR of all values.
fn is_narrow_of(bits: i64) -> bool {
    (0..=i32::MAX.into()).contains(&bits)
}

/// Converts values to 32 bits, so that a vector instruction handles twice as many; `None` if a
/// value is not narrow or `room` is too short.
#[inline(always)]
pub(crate) fn narrow<'r>(values: &[i64], room: &'r mut [i32]) -> Option<&'r [i32]> {
    let narrow = room.get_mut(..values.len())?;
    let mut bits = 0;
    for (narrow, value) in narrow.iter_mut().zip(values) {
        bits |= value;
        *narrow = *value as i32;
    }
    is_narrow_of(bits).then_some(narrow)
}

fn squares<T: Copy>(values: &[T], from_mean: impl Fn(T) -> f64) -> f64 {
    let mut sums = [0.0; LANES];
    let lanes = values.chunks_exact(LANES);
    let rest = lanes.remainder();
    for lanes in lanes {
        for (sum, value) in sums.iter_mut().zip(lanes) {
            *sum += from_mean(*value).powi(2);
        }
    }
    rest.iter().for_each(|value| sums[0] += from_mean(*value).powi(2));
    sums.iter().sum()
}

/// Sum of the values. 64 bits are enough if the values, between `min` and `max`, are few and small.
fn sum(values: &[i64], min: i64, max: i64) -> i128 {
    const MAX_SUMMABLE: i64 = i64::MAX / PIECE_LEN as i64;
    if min > -MAX_SUMMABLE && max < MAX_SUMMABLE {
        values.iter().sum::<i64>().into()
    } else {
        values.iter().map(|value| i128::from(*value)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn extremes_of_no_values_are_an_inverted_range() {
        assert_eq!(extremes(&[]), (i64::MAX, i64::MIN));
        assert_eq!(extremes(&[7, 5]), (5, 7));
        assert_eq!(extremes(&[-1, i64::MAX]), (-1, i64::MAX));
    }

    #[test]
    fn squares_of_widest_near_values_do_not_overflow() {
        for far in [(1 << 26) - 1, 1 << 26, i32::MAX] {
            let mut narrow = [far; PIECE_LEN];
            narrow[0] = 0;
            let wide: Vec<i64> = narrow.iter().map(|value| i64::from(*value)).collect();
            let (found, expected) = (Moments::of_narrow(&narrow), Moments::of(&wide));
            let off = (found.squares - expected.squares).abs();
            assert!(off <= expected.squares * 1e-12, "{far}: {off}");
        }
    }

    proptest! {
        #[test]
        fn narrow_moments_match_general_moments(
            (first, base) in prop_oneof![
                (0..=i32::MAX, 0..i32::MAX - 1_000_000),
                (0..i32::MAX - 1_000_000).prop_map(|base| (base, base)),
            ],
            spread in 1..1_000_000,
            noise in proptest::collection::vec(any::<u32>(), 0..PIECE_LEN),
        ) {
            let others = noise.iter().map(|noise| base + (noise % spread as u32) as i32);
            let narrow: Vec<i32> = std::iter::once(first).chain(others).collect();
            let wide: Vec<i64> = narrow.iter().map(|value| i64::from(*value)).collect();
            let (found, expected) = (Moments::of_narrow(&narrow), Moments::of(&wide));
            prop_assert_eq!(
                (found.count, found.min, found.max, found.sum),
                (expected.count, expected.min, expected.max, expected.sum)
            );
            prop_assert!((found.mean - expected.mean).abs() <= expected.mean.abs() * 1e-12 + 1e-6);
            let (a, b) = (found.squares, expected.squares);
            prop_assert!((a - b).abs() <= b * 1e-10 + 1e-6, "{} {}", a, b);
        }
    }
}
