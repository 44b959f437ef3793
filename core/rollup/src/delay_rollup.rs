//! Distribution of one delay in one interval: exact count, extremes and sum, and a histogram.

use dwell_stats::Quantile;
use dwell_units::Nanos;

use crate::bytes::{Reader, put_i64, put_signed};
use crate::histogram::{Bin, Histogram};

/// Delays of one metric. Two of them merge exactly.
///
/// ```
/// use dwell_rollup::DelayRollup;
/// use dwell_stats::Quantile;
/// use dwell_units::Nanos;
///
/// let mut rtt = DelayRollup::default();
/// (1..=100).for_each(|ms| assert!(rtt.record(Nanos::from_millis(ms))));
/// assert_eq!(rtt.max(), Some(Nanos::from_millis(100)));
/// let p99 = rtt.quantile(Quantile::P99).expect("100 values support the 99th percentile");
/// assert!(p99.low <= Nanos::from_millis(99) && Nanos::from_millis(99) <= p99.high);
/// assert_eq!(rtt.quantile(Quantile::P99_9), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayRollup {
    min: i64,
    max: i64,
    sum: i128,
    histogram: Histogram,
}

impl DelayRollup {
    /// Adds a delay. Returns whether its magnitude is at most [`crate::MAX_DELAY`]; others are not
    /// counted.
    pub fn record(&mut self, delay: Nanos) -> bool {
        if !self.histogram.record(delay) {
            return false;
        }
        let is_first = self.count() == 1;
        self.min = if is_first { delay.0 } else { self.min.min(delay.0) };
        self.max = if is_first { delay.0 } else { self.max.max(delay.0) };
        self.sum += i128::from(delay.0);
        true
    }

    /// Adds all delays of another interval.
    pub fn merge(&mut self, other: &Self) {
        if other.count() == 0 {
            return;
        }
        let is_empty = self.count() == 0;
        self.min = if is_empty { other.min } else { self.min.min(other.min) };
        self.max = if is_empty { other.max } else { self.max.max(other.max) };
        self.sum += other.sum;
        self.histogram.merge(&other.histogram);
    }

    /// Number of delays.
    pub const fn count(&self) -> u64 {
        self.histogram.total()
    }

    /// The smallest, exact.
    pub fn min(&self) -> Option<Nanos> {
        (self.count() > 0).then_some(Nanos(self.min))
    }

    /// The largest, exact.
    pub fn max(&self) -> Option<Nanos> {
        (self.count() > 0).then_some(Nanos(self.max))
    }

    /// Sum in nanoseconds.
    pub const fn sum_ns(&self) -> i128 {
        self.sum
    }

    /// Arithmetic mean in nanoseconds.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum as f64 / self.count() as f64)
    }

    /// The distribution.
    pub const fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// The bin with a percentile (nearest rank), within the extremes; `None` if the number of values
    /// does not support it ([`Quantile::rank`]).
    pub fn quantile(&self, quantile: Quantile) -> Option<Bin> {
        let bin = self.histogram.ranked(quantile.rank(self.count())?)?;
        Some(Bin { low: bin.low.max(Nanos(self.min)), high: bin.high.min(Nanos(self.max)), ..bin })
    }

    /// The encoding, for a column of a store.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Decodes [`Self::to_bytes`]; `None` for bytes that are not its result.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let decoded = Self::decode(&mut reader)?;
        reader.is_empty().then_some(decoded)
    }

    /// Appends the encoding: histogram, then minimum, maximum and sum unless it is empty.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.histogram.encode(out);
        if self.count() == 0 {
            return;
        }
        put_signed(out, self.min);
        put_signed(out, self.max);
        put_i64(out, self.sum as i64);
        put_i64(out, (self.sum >> 64) as i64);
    }

    /// Decodes; `None` for bytes that are no distribution: extremes lie in the outermost bins, and the
    /// sum between what they allow.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let histogram = Histogram::decode(reader)?;
        if histogram.total() == 0 {
            return Some(Self::default());
        }
        let (min, max) = (reader.signed()?, reader.signed()?);
        let low = reader.i64()? as u64;
        let sum = i128::from(reader.i64()?) << 64 | i128::from(low);
        let (first, last) = (histogram.bins().next()?, histogram.bins().last()?);
        let holds = |bin: Bin, value: i64| bin.low.0 <= value && value <= bin.high.0;
        let count = i128::from(histogram.total());
        let is_consistent = holds(first, min)
            && holds(last, max)
            && min <= max
            && count * i128::from(min) <= sum
            && sum <= count * i128::from(max);
        is_consistent.then_some(Self { min, max, sum, histogram })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rollup(values: &[i64]) -> DelayRollup {
        let mut rollup = DelayRollup::default();
        values.iter().for_each(|value| assert!(rollup.record(Nanos(*value))));
        rollup
    }

    fn delays() -> impl Strategy<Value = Vec<i64>> {
        prop::collection::vec(-2_000_000_000_i64..3_000_000_000, 0..100)
    }

    proptest! {
        #[test]
        fn merged_intervals_equal_one_interval(a in delays(), b in delays()) {
            let mut merged = rollup(&a);
            merged.merge(&rollup(&b));
            let all = [a, b].concat();
            prop_assert_eq!(merged.min().map(|min| min.0), all.iter().copied().min());
            prop_assert_eq!(merged.max().map(|max| max.0), all.iter().copied().max());
            prop_assert_eq!(merged.sum_ns(), all.iter().map(|v| i128::from(*v)).sum::<i128>());
            prop_assert_eq!(&merged, &rollup(&all));
            prop_assert_eq!(DelayRollup::from_bytes(&merged.to_bytes()), Some(merged));
        }
    }

    #[test]
    fn percentiles_stay_within_the_extremes() {
        let same = rollup(&[1_000_003; 10]);
        let median = same.quantile(Quantile::P50).unwrap();
        assert_eq!((median.low.0, median.high.0, median.count), (1_000_003, 1_000_003, 10));
        assert_eq!(same.quantile(Quantile::P99), None);
        assert_eq!(DelayRollup::default().quantile(Quantile::P50), None);
    }

    #[test]
    fn impossible_extremes_and_sums_are_refused() {
        let bytes = rollup(&[100, 200]).to_bytes();
        assert!(DelayRollup::from_bytes(&bytes).is_some());
        let mut beyond = rollup(&[100, 200]);
        for (min, max, sum) in [(99, 200, 300), (100, 201, 300), (100, 200, 401), (100, 200, -1)] {
            (beyond.min, beyond.max, beyond.sum) = (min, max, sum);
            assert_eq!(DelayRollup::from_bytes(&beyond.to_bytes()), None, "{min} {max} {sum}");
        }
        assert_eq!(DelayRollup::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }
}
