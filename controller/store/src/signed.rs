//! Histograms of values of either sign, and their encoding in the catalogue (HdrHistogram V2).

use dwell_record::series::Step;
use dwell_stats::{Distribution, LogBin, LogCounts};
use dwell_units::Nanos;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

/// Precision of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digits {
    /// Within 1 %.
    Two,
    /// Within 0.1 %.
    Three,
}

/// A histogram of values of either sign.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    above: LogCounts,
    below: LogCounts,
    digits: Digits,
}

impl Signed {
    pub(crate) fn new(digits: Digits) -> Self {
        Self { above: digits.counts(), below: digits.counts(), digits }
    }

    /// Converts a distribution, with three digits.
    pub(crate) fn of(distribution: &Distribution) -> Self {
        let mut all = Self::new(Digits::Three);
        distribution.for_each(|Nanos(value), n| {
            let to = if value < 0 { &mut all.below } else { &mut all.above };
            to.add(value.unsigned_abs().min(i64::MAX as u64), n);
        });
        all
    }

    #[cfg(test)]
    pub(crate) fn record(&mut self, value: i64) {
        self.record_all(&[value], value, value);
    }

    /// Counts values, all of which are between `min` and `max`.
    pub(crate) fn record_all(&mut self, values: &[i64], min: i64, max: i64) {
        if min >= 0 {
            self.above.record_all(values, max);
            return;
        }
        for value in values {
            let magnitude = value.unsigned_abs().min(i64::MAX as u64);
            let to = if *value < 0 { &mut self.below } else { &mut self.above };
            to.record(magnitude);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.above.merge(&other.above);
        self.below.merge(&other.below);
    }

    pub(crate) fn count(&self) -> u64 {
        self.above.total() + self.below.total()
    }

    /// Returns the values in rising order with their counts.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> {
        let step = |sign: i64| {
            move |bin: LogBin| Step {
                value_ns: sign * i64::try_from(bin.middle).unwrap_or(i64::MAX),
                count: bin.count,
            }
        };
        self.below.bins().rev().map(step(-1)).chain(self.above.bins().map(step(1)))
    }

    /// Returns the nearest-rank percentile; `None` if there are too few values.
    pub(crate) fn percentile(&self, ppm: u64) -> Option<i64> {
        let n = self.count();
        if n.saturating_mul(ppm.min(1_000_000 - ppm)) < 1_000_000 {
            return None;
        }
        let rank = (u128::from(n) * u128::from(ppm)).div_ceil(1_000_000) as u64;
        let mut seen = 0;
        self.steps().find_map(|step| {
            seen += step.count;
            (seen >= rank).then_some(step.value_ns)
        })
    }

    /// Returns the encoded non-negative values, and the negative ones if there are any.
    pub(crate) fn to_bytes(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let bytes = |counts| self.digits.bytes(counts);
        (bytes(&self.above), (self.below.total() > 0).then(|| bytes(&self.below)))
    }

    /// Returns `None` if the bytes are not a histogram.
    pub(crate) fn from_bytes(above: &[u8], below: Option<&[u8]>, digits: Digits) -> Option<Self> {
        let read = |bytes: &[u8]| {
            let histogram: Histogram<u64> =
                Deserializer::new().deserialize(&mut &bytes[..]).ok()?;
            let mut counts = digits.counts();
            for bin in histogram.iter_recorded() {
                counts.add(bin.value_iterated_to(), bin.count_at_value());
            }
            Some(counts)
        };
        let below = below.map_or_else(|| Some(digits.counts()), read)?;
        Some(Self { above: read(above)?, below, digits })
    }
}

impl Digits {
    fn counts(self) -> LogCounts {
        match self {
            Self::Two => LogCounts::two_digits(),
            Self::Three => LogCounts::three_digits(),
        }
    }

    fn bytes(self, counts: &LogCounts) -> Vec<u8> {
        let digits = match self {
            Self::Two => 2,
            Self::Three => 3,
        };
        let mut histogram = Histogram::<u64>::new(digits).expect("digits are within 0..=5");
        for bin in counts.bins() {
            histogram
                .record_n(bin.lowest, bin.count)
                .expect("an automatically growing histogram takes any i64");
        }
        let mut out = Vec::new();
        V2Serializer::new()
            .serialize(&histogram, &mut out)
            .expect("writing to a vector cannot fail");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_of_a_distribution_equals_direct_counts() {
        for count in [7, 65_536, 200_000_i64] {
            let values: Vec<i64> =
                (0..count).map(|n| (n * n * 7_919 - 900_000) >> (n % 20)).collect();
            let mut distribution = Distribution::new();
            distribution.record_all(&values);
            let mut signed = Signed::new(Digits::Three);
            values.iter().for_each(|value| signed.record(*value));
            let steps = |signed: &Signed| signed.steps().collect::<Vec<_>>();
            assert_eq!(steps(&Signed::of(&distribution)), steps(&signed), "{count}");
        }
    }

    #[test]
    fn signed_values_survive_encoding() {
        let mut signed = Signed::new(Digits::Three);
        [-5_000_000, -3, 0, 7, 1_234_567, i64::MAX, i64::MIN]
            .into_iter()
            .for_each(|value| signed.record(value));
        let (above, below) = signed.to_bytes();
        let read = Signed::from_bytes(&above, below.as_deref(), Digits::Three).unwrap();
        assert_eq!(read.steps().collect::<Vec<_>>(), signed.steps().collect::<Vec<_>>());
        assert!(Signed::from_bytes(&above[..9], None, Digits::Three).is_none());
    }
}
