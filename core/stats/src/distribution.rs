//! Distribution of signed nanoseconds, built one value at a time in bounded memory.
//!
//! Percentiles are nearest-rank, so each is an observed value. This is exact up to
//! [`MAX_EXACT_VALUES`] values. Beyond that, values are counted in logarithmic bins of three
//! significant digits (as in HdrHistogram): a percentile is then at most 0.1 % off the observed
//! value and never outside the observed range. Count, extremes and mean are always exact. Memory: at
//! most 512 KiB exact or 900 KiB binned (half of that for delays, which are not negative).

use dwell_units::Nanos;
use pulp::{Arch, NullaryFnOnce};

use crate::log_counts::{LogBin, LogCounts};
use crate::moments::{Moments, PIECE_LEN, narrow};

/// Maximum number of values stored exactly; beyond it they are binned.
pub const MAX_EXACT_VALUES: usize = 65_536;

/// Share of values at or below a percentile, in parts per million, so that ranks are computed
/// without rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantile {
    ppm: u32,
}

dwell_units::named! {
    /// Accuracy of the percentiles of a distribution.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Resolution {
        /// Each is an observed value.
        Exact = "exact",
        /// Each is at most 0.1 % off an observed value.
        PerMille = "0.1%",
    }
}

/// Summary figures of a distribution. Figures that the number of values does not support are
/// `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Number of values.
    pub count: u64,
    /// The smallest.
    pub min: Option<Nanos>,
    /// Arithmetic mean in nanoseconds.
    pub mean: Option<f64>,
    /// Sample standard deviation (n - 1) in nanoseconds; needs two values.
    pub stddev: Option<f64>,
    /// The median.
    pub p50: Option<Nanos>,
    /// The 90th percentile.
    pub p90: Option<Nanos>,
    /// The 95th percentile.
    pub p95: Option<Nanos>,
    /// The 99th percentile.
    pub p99: Option<Nanos>,
    /// The 99.9th percentile.
    pub p99_9: Option<Nanos>,
    /// The largest.
    pub max: Option<Nanos>,
}

/// A distribution of signed nanoseconds.
///
/// ```
/// use dwell_stats::{Distribution, Quantile};
/// use dwell_units::Nanos;
///
/// let mut delays = Distribution::new();
/// (1..=200).for_each(|us| delays.record(Nanos::from_micros(us)));
/// assert_eq!(delays.percentile(Quantile::P99), Some(Nanos::from_micros(198)));
/// assert_eq!(delays.percentile(Quantile::P99_9), None, "needs 1,000 values");
/// assert_eq!(delays.figures().max, Some(Nanos::from_micros(200)));
/// ```
#[derive(Clone, Debug)]
pub struct Distribution {
    count: u64,
    min: i64,
    max: i64,
    sum: i128,
    // Welford's running mean and sum of squared differences from it.
    mean: f64,
    squares: f64,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    Exact(Vec<i64>),
    Binned(Box<Binned>),
}

/// Counts by magnitude, for each sign.
#[derive(Clone, Debug)]
struct Binned {
    below_zero: LogCounts,
    from_zero: LogCounts,
}

impl Quantile {
    /// The median.
    pub const P50: Self = Self { ppm: 500_000 };
    /// 90 %.
    pub const P90: Self = Self { ppm: 900_000 };
    /// 95 %.
    pub const P95: Self = Self { ppm: 950_000 };
    /// 99 %.
    pub const P99: Self = Self { ppm: 990_000 };
    /// 99.9 %.
    pub const P99_9: Self = Self { ppm: 999_000 };

    /// The quantile of `ppm` parts per million; `None` above 1,000,000.
    pub const fn from_ppm(ppm: u32) -> Option<Self> {
        if ppm <= 1_000_000 { Some(Self { ppm }) } else { None }
    }

    /// The share, from 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.ppm) / 1e6
    }

    /// Returns the nearest rank among `n` sorted values, counted from 1: the smallest rank with at
    /// least this share of values at or below it. `None` if n (1 - q) < 1: fewer than one value is
    /// then expected above, so the percentile would just be the maximum.
    pub fn rank(self, n: u64) -> Option<u64> {
        const ONE: u128 = 1_000_000;
        let (n, ppm) = (u128::from(n), u128::from(self.ppm));
        (n * (ONE - ppm) >= ONE).then(|| (n * ppm).div_ceil(ONE).max(1) as u64)
    }
}

impl Figures {
    /// Subtracts `base` from every value; the spread is unchanged. With the minimum delay as `base`
    /// this turns delay into PDV (RFC 5481 section 4.2). An error of 0.1 % refers to the value
    /// before subtraction.
    pub fn relative_to(self, base: Nanos) -> Self {
        let less = |value: Option<Nanos>| value.map(|v| Nanos(v.0.saturating_sub(base.0)));
        Self {
            count: self.count,
            min: less(self.min),
            mean: self.mean.map(|mean| mean - base.0 as f64),
            stddev: self.stddev,
            p50: less(self.p50),
            p90: less(self.p90),
            p95: less(self.p95),
            p99: less(self.p99),
            p99_9: less(self.p99_9),
            max: less(self.max),
        }
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

impl Distribution {
    /// Creates an empty distribution without allocating.
    pub const fn new() -> Self {
        Self {
            count: 0,
            min: i64::MAX,
            max: i64::MIN,
            sum: 0,
            mean: 0.0,
            squares: 0.0,
            values: Values::Exact(Vec::new()),
        }
    }

    /// Adds a value.
    pub fn record(&mut self, value: Nanos) {
        let value = value.0;
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += i128::from(value);
        let before = value as f64 - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value as f64 - self.mean);
        match &mut self.values {
            Values::Exact(values) if values.len() < MAX_EXACT_VALUES => values.push(value),
            values => values.binned().record(value),
        }
    }

    /// Adds many values, faster than one by one; only the last digits of [`Self::stddev`] may
    /// differ.
    pub fn record_all(&mut self, values: &[i64]) {
        Arch::new().dispatch(RecordAll { into: self, values });
    }

    #[inline(always)]
    fn record_piece(&mut self, piece: &[i64]) {
        if piece.is_empty() {
            return;
        }
        let mut room = [0; PIECE_LEN];
        let narrow = narrow(piece, &mut room);
        let moments = match narrow {
            Some(narrow) => Moments::of_narrow(narrow),
            None => Moments::of(piece),
        };
        let Moments { min, max, .. } = moments;
        self.add_moments(moments);
        match &mut self.values {
            Values::Exact(values) if values.len() + piece.len() <= MAX_EXACT_VALUES => {
                values.extend_from_slice(piece);
            }
            values => {
                let binned = values.binned();
                if let Some(narrow) = narrow {
                    binned.from_zero.record_narrow(narrow, max as i32);
                } else if min < 0 {
                    piece.iter().for_each(|&value| binned.record(value));
                } else {
                    binned.from_zero.record_all(piece, max);
                }
            }
        }
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.add_moments(Moments {
            count: other.count,
            min: other.min,
            max: other.max,
            sum: other.sum,
            mean: other.mean,
            squares: other.squares,
        });
        match (&mut self.values, &other.values) {
            (Values::Exact(own), Values::Exact(values))
                if own.len() + values.len() <= MAX_EXACT_VALUES =>
            {
                own.extend_from_slice(values);
            }
            (own, Values::Exact(values)) => {
                let binned = own.binned();
                values.iter().for_each(|&value| binned.record(value));
            }
            (own, Values::Binned(other)) => {
                let binned = own.binned();
                binned.below_zero.merge(&other.below_zero);
                binned.from_zero.merge(&other.from_zero);
            }
        }
    }

    /// Combines two sets of moments (T. F. Chan et al., 1979).
    fn add_moments(&mut self, other: Moments) {
        let (own, others) = (self.count as f64, other.count as f64);
        let (both, apart) = (own + others, other.mean - self.mean);
        self.mean += apart * (others / both);
        self.squares += other.squares + apart * apart * (own * others / both);
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value.
    pub fn min(&self) -> Option<Nanos> {
        (self.count > 0).then_some(Nanos(self.min))
    }

    /// The largest value.
    pub fn max(&self) -> Option<Nanos> {
        (self.count > 0).then_some(Nanos(self.max))
    }

    /// Arithmetic mean in nanoseconds.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Sample standard deviation (n - 1) in nanoseconds; `None` below two values.
    pub fn stddev(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).max(0.0).sqrt())
    }

    /// The nearest-rank percentile; `None` if the count does not support it (see
    /// [`Quantile::rank`]).
    pub fn percentile(&self, quantile: Quantile) -> Option<Nanos> {
        self.ranked(quantile.rank(self.count)?)
    }

    /// The value of this rank, counted from 1 at the smallest; `None` beyond the count.
    /// [`Self::resolution`] states its accuracy.
    pub fn ranked(&self, rank: u64) -> Option<Nanos> {
        if !(1..=self.count).contains(&rank) {
            return None;
        }
        let value = match &self.values {
            Values::Exact(values) => {
                let mut values = values.clone();
                *values.select_nth_unstable(rank as usize - 1).1
            }
            Values::Binned(binned) => binned.ranked(rank).clamp(self.min, self.max),
        };
        Some(Nanos(value))
    }

    /// Current accuracy of [`Self::percentile`].
    pub fn resolution(&self) -> Resolution {
        match self.values {
            Values::Exact(_) => Resolution::Exact,
            Values::Binned(_) => Resolution::PerMille,
        }
    }

    /// All figures at once.
    pub fn figures(&self) -> Figures {
        Figures {
            count: self.count,
            min: self.min(),
            mean: self.mean(),
            stddev: self.stddev(),
            p50: self.percentile(Quantile::P50),
            p90: self.percentile(Quantile::P90),
            p95: self.percentile(Quantile::P95),
            p99: self.percentile(Quantile::P99),
            p99_9: self.percentile(Quantile::P99_9),
            max: self.max(),
        }
    }

    /// Calls `each` with every value and its count, in any order; a value may occur in several
    /// calls. [`Self::resolution`] states the accuracy of the values.
    pub fn for_each(&self, mut each: impl FnMut(Nanos, u64)) {
        match &self.values {
            Values::Exact(values) => values.iter().for_each(|&value| each(Nanos(value), 1)),
            Values::Binned(binned) => {
                binned.for_each(|value, n| each(Nanos(value.clamp(self.min, self.max)), n));
            }
        }
    }
}

/// [`Distribution::record_all`] compiled for the widest vector registers of this processor; every
/// callee must be inlined.
struct RecordAll<'a> {
    into: &'a mut Distribution,
    values: &'a [i64],
}

impl NullaryFnOnce for RecordAll<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for piece in self.values.chunks(PIECE_LEN) {
            self.into.record_piece(piece);
        }
    }
}

impl Values {
    /// The bins, after moving exact values into them.
    fn binned(&mut self) -> &mut Binned {
        if let Self::Exact(values) = self {
            let mut binned = Binned::new();
            values.iter().for_each(|&value| binned.record(value));
            *self = Self::Binned(Box::new(binned));
        }
        match self {
            Self::Binned(binned) => binned,
            Self::Exact(_) => unreachable!("values were just moved into bins"),
        }
    }
}

impl Binned {
    fn new() -> Self {
        Self { below_zero: LogCounts::three_digits(), from_zero: LogCounts::three_digits() }
    }

    #[inline]
    fn record(&mut self, value: i64) {
        // i64::MIN has no positive counterpart.
        let magnitude = value.unsigned_abs().min(i64::MAX as u64);
        let counts = if value < 0 { &mut self.below_zero } else { &mut self.from_zero };
        counts.record(magnitude);
    }

    /// The value of `rank`, counted from 1 at the smallest.
    fn ranked(&self, rank: u64) -> i64 {
        let below = self.below_zero.total();
        if rank <= below {
            -self.below_zero.ranked(below - rank + 1).map_or(0, middle)
        } else {
            self.from_zero.ranked(rank - below).map_or(0, middle)
        }
    }

    fn for_each(&self, mut each: impl FnMut(i64, u64)) {
        self.below_zero.bins().for_each(|bin| each(-middle(bin), bin.count));
        self.from_zero.bins().for_each(|bin| each(middle(bin), bin.count));
    }
}

/// The value that represents a bin.
fn middle(bin: LogBin) -> i64 {
    i64::try_from(bin.middle).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUANTILES: [Quantile; 5] =
        [Quantile::P50, Quantile::P90, Quantile::P95, Quantile::P99, Quantile::P99_9];

    fn of(values: &[i64]) -> Distribution {
        let mut distribution = Distribution::new();
        values.iter().for_each(|&value| distribution.record(Nanos(value)));
        distribution
    }

    /// The definition: the smallest value with at least this share at or below it.
    fn naive_percentile(values: &[i64], quantile: Quantile) -> Option<i64> {
        let (n, q) = (values.len() as u64, u64::from(quantile.ppm));
        if n * (1_000_000 - q) < 1_000_000 {
            return None;
        }
        let at_or_below = |limit| values.iter().filter(|&&value| value <= limit).count() as u64;
        values.iter().copied().filter(|&value| at_or_below(value) * 1_000_000 >= n * q).min()
    }

    #[test]
    fn empty_distribution_has_no_figures() {
        assert_eq!(Distribution::new().figures(), Figures::default());
    }

    #[test]
    fn one_value_has_a_mean_but_no_spread_and_no_percentile() {
        let figures = of(&[7]).figures();
        assert_eq!((figures.min, figures.max), (Some(Nanos(7)), Some(Nanos(7))));
        assert_eq!((figures.mean, figures.stddev, figures.p50), (Some(7.0), None, None));
    }

    #[test]
    fn percentile_needs_one_value_expected_above_it() {
        // 0.1 and 0.001 have no exact binary form, which must not shift the limits.
        assert_eq!(Quantile::P90.rank(9), None);
        assert_eq!(Quantile::P90.rank(10), Some(9));
        assert_eq!(Quantile::P99_9.rank(999), None);
        assert_eq!(Quantile::P99_9.rank(1_000), Some(999));
        assert_eq!(Quantile::P50.rank(2), Some(1));
        assert_eq!(Quantile::from_ppm(1_000_000).unwrap().rank(u64::MAX), None);
        assert_eq!(Quantile::from_ppm(0).unwrap().rank(1), Some(1));
    }

    #[test]
    fn values_beyond_the_limit_move_into_bins_without_loss() {
        let mut distribution = of(&(0..MAX_EXACT_VALUES as i64).collect::<Vec<_>>());
        assert_eq!(distribution.resolution(), Resolution::Exact);
        distribution.record(Nanos(MAX_EXACT_VALUES as i64));
        assert_eq!(distribution.resolution(), Resolution::PerMille);
        let mut total = 0;
        distribution.for_each(|_, n| total += n);
        assert_eq!(total, MAX_EXACT_VALUES as u64 + 1);
        let p50 = distribution.percentile(Quantile::P50).unwrap().0;
        assert!((p50 - 32_768).abs() <= 33, "{p50}");
    }

    #[test]
    fn stddev_survives_a_small_spread_on_a_large_value() {
        // 1,000 s with 1 us of spread: a sum of squares would lose the spread to rounding.
        let values: Vec<_> = (0..1_000).map(|i| 1_000_000_000_000 + i % 2 * 1_000).collect();
        let stddev = of(&values).stddev().unwrap();
        assert!((stddev - 500.250_187).abs() < 1e-3, "{stddev}");
    }

    #[test]
    fn delay_variation_is_the_delay_above_its_minimum() {
        let delay = of(&[30, 10, 20, 60]).figures();
        let variation = delay.relative_to(Nanos(10));
        assert_eq!(variation, of(&[20, 0, 10, 50]).figures());
    }

    #[test]
    fn memory_is_below_a_megabyte_for_values_of_any_size() {
        let mut binned = Binned::new();
        for shift in 0..63 {
            binned.record(1 << shift);
            binned.record(-(1 << shift));
        }
        binned.record(i64::MIN);
        binned.record(i64::MAX);
        // `log_counts` tests the memory of each sign.
        assert_eq!((binned.below_zero.total(), binned.from_zero.total()), (64, 64));
        assert!(MAX_EXACT_VALUES * size_of::<i64>() <= 1 << 20);
    }

    /// Values of one to ten digits and both signs, or arbitrary ones.
    fn values(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<i64>> {
        let value = prop_oneof![
            8 => (0..10_u32, 0..10_000_000_000_i64, any::<bool>()).prop_map(|(e, v, negative)| {
                let v = v / 10_i64.pow(e);
                if negative { -v } else { v }
            }),
            1 => any::<i64>(),
        ];
        proptest::collection::vec(value, len)
    }

    proptest! {
        #[test]
        fn exact_figures_equal_the_definitions(values in values(1..400)) {
            let distribution = of(&values);
            for q in QUANTILES {
                let naive = naive_percentile(&values, q).map(Nanos);
                prop_assert_eq!(distribution.percentile(q), naive);
            }
            let n = values.len() as f64;
            let mean = values.iter().map(|&v| i128::from(v)).sum::<i128>() as f64 / n;
            prop_assert_eq!(distribution.mean(), Some(mean));
            let squares: f64 = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
            if values.len() > 1 {
                let naive = (squares / (n - 1.0)).sqrt();
                let stddev = distribution.stddev().unwrap();
                prop_assert!((stddev - naive).abs() <= naive * 1e-9 + 1e-6, "{stddev} {naive}");
            }
        }

        #[test]
        fn binned_percentiles_are_within_a_thousandth(values in values(1_000..1_400)) {
            let mut binned = Binned::new();
            values.iter().for_each(|&value| binned.record(value));
            let mut sorted = values;
            sorted.sort_unstable();
            for rank in [1, 2, 500, 900, 990, sorted.len()] {
                let (exact, got) = (sorted[rank - 1], binned.ranked(rank as u64));
                prop_assert!(got.abs_diff(exact) <= exact.unsigned_abs() / 1_000, "{exact} {got}");
            }
        }
    }

    proptest! {
        // Fewer cases, because the series are long.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn batched_and_merged_values_match_single_records(
            values in values(0..9_000),
            cut in any::<prop::sample::Index>(),
            many in any::<bool>(),
        ) {
            let values = if many { values.repeat(9) } else { values };
            let one_by_one = of(&values);
            let mut at_once = Distribution::new();
            at_once.record_all(&values);
            let (first, second) = values.split_at(cut.index(values.len() + 1));
            let mut parts = of(first);
            parts.merge(&of(second));
            for other in [at_once, parts] {
                let same = Figures { stddev: None, ..other.figures() };
                prop_assert_eq!(same, Figures { stddev: None, ..one_by_one.figures() });
                prop_assert_eq!(other.resolution(), one_by_one.resolution());
                if let (Some(a), Some(b)) = (other.stddev(), one_by_one.stddev()) {
                    prop_assert!((a - b).abs() <= b * 1e-9 + 1e-6, "{a} {b}");
                }
            }
        }
    }
}
