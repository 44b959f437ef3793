//! Counts of magnitudes in logarithmic bins, identical to an HdrHistogram with a resolution of one
//! nanosecond, so that either converts to the other without loss. Counts whole pieces of narrow
//! values at once, on which the speed of a scan depends (docs/performance.md). The catalogue and
//! exports have the form of an HdrHistogram.

/// Counts of magnitudes to two or three significant digits. Memory grows with the logarithm of the
/// largest: at most 440 KiB for three digits, 58 KiB for two.
///
/// ```
/// use dwell_stats::LogCounts;
///
/// let mut delays = LogCounts::three_digits();
/// delays.record_all(&[21_300, 21_700, 88_000], 88_000);
/// delays.record(1_418_300);
/// assert_eq!(delays.total(), 4);
/// let largest = delays.ranked(4).expect("four values").middle;
/// assert!(largest.abs_diff(1_418_300) <= 1_418_300 / 1_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCounts {
    counts: Vec<u64>,
    total: u64,
    /// log2 of the number of bins per doubling.
    bits: u32,
}

/// A non-empty bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBin {
    /// Smallest magnitude in the bin.
    pub lowest: u64,
    /// Middle magnitude, which represents the bin.
    pub middle: u64,
    /// Number of values.
    pub count: u64,
}

impl LogCounts {
    /// Bins at most 1 % wide; allocates nothing until a value is counted.
    pub const fn two_digits() -> Self {
        Self { counts: Vec::new(), total: 0, bits: 7 }
    }

    /// Bins at most 0.1 % wide.
    pub const fn three_digits() -> Self {
        Self { counts: Vec::new(), total: 0, bits: 10 }
    }

    /// Counts a magnitude.
    #[inline]
    pub fn record(&mut self, magnitude: u64) {
        self.add(magnitude, 1);
    }

    /// Counts a magnitude `n` times.
    #[inline]
    pub fn add(&mut self, magnitude: u64, n: u64) {
        let place = self.place(magnitude);
        if place >= self.counts.len() {
            self.grow(place);
        }
        self.counts[place] += n;
        self.total += n;
    }

    /// Counts values between 0 and `max`.
    ///
    /// # Panics
    /// If a value is far outside this range.
    pub fn record_all(&mut self, values: &[i64], max: i64) {
        let bits = self.bits;
        if i32::try_from(max).is_ok() {
            self.record_places(values, max as u64, |value| narrow_place(bits, *value as i32));
        } else {
            self.record_places(values, max as u64, |value| place(bits, *value as u64) as u32);
        }
    }

    /// [`Self::record_all`] for narrow values.
    #[inline(always)]
    pub(crate) fn record_narrow(&mut self, values: &[i32], max: i32) {
        let bits = self.bits;
        self.record_places(values, max as u64, |value| narrow_place(bits, *value));
    }

    #[inline(always)]
    fn record_places<T>(&mut self, values: &[T], max: u64, place: impl Fn(&T) -> u32) {
        let last = self.place(max);
        if last >= self.counts.len() {
            self.grow(last);
        }
        self.total += values.len() as u64;
        let counts = &mut self.counts[..=last];
        let mut places = [0; PIECE_LEN];
        for piece in values.chunks(PIECE_LEN) {
            // All places first, because a processor computes several at a time.
            for (to, value) in places.iter_mut().zip(piece) {
                *to = place(value);
            }
            for place in &places[..piece.len()] {
                counts[*place as usize] += 1;
            }
        }
    }

    /// Adds the counts of `other`.
    ///
    /// # Panics
    /// If `other` has a different number of digits.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.bits, other.bits, "both have the same number of digits");
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *own += theirs;
        }
        self.total += other.total;
    }

    /// Number of values counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The non-empty bins, by increasing magnitude.
    pub fn bins(&self) -> impl DoubleEndedIterator<Item = LogBin> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(place, &count)| {
            let shift = (place >> self.bits).saturating_sub(1);
            let lowest = ((place - (shift << self.bits)) as u64) << shift;
            LogBin { lowest, middle: lowest + (1 << shift >> 1), count }
        })
    }

    /// The bin of `rank`, counted from 1 at the smallest magnitude; `None` beyond the last.
    pub fn ranked(&self, rank: u64) -> Option<LogBin> {
        let mut seen = 0;
        self.bins().find(|bin| {
            seen += bin.count;
            seen >= rank
        })
    }

    #[inline]
    fn place(&self, magnitude: u64) -> usize {
        place(self.bits, magnitude)
    }

    #[cold]
    fn grow(&mut self, place: usize) {
        self.counts.resize(((place >> self.bits) + 1) << self.bits, 0);
    }
}

/// Values per piece: few enough for the places to stay in the L1 cache.
const PIECE_LEN: usize = 512;

/// Index of a magnitude: linear for two doublings of `bits`, then each doubling halves the
/// resolution.
#[inline]
fn place(bits: u32, magnitude: u64) -> usize {
    let exact = (2 << bits) - 1;
    let shift = 63 - (magnitude | exact).leading_zeros() - bits;
    ((shift as usize) << bits) + (magnitude >> shift) as usize
}

/// The same for values below 2^31. The bits of a double contain the index: the exponent and the
/// digits after the first.
#[inline(always)]
fn narrow_place(bits: u32, magnitude: i32) -> u32 {
    const EXPONENT_BIAS: u32 = 1_023;
    let above = (f64::from(magnitude).to_bits() >> (52 - bits)) as u32;
    let place = above.wrapping_sub((EXPONENT_BIAS + bits - 1) << bits);
    if magnitude < 1 << bits { magnitude as u32 } else { place }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn narrow_and_wide_values_have_equal_places() {
        for bits in [7, 10] {
            let edges = (0..31).flat_map(|shift| [1_i64 << shift, (1 << shift) - 1]);
            for edge in edges.chain([i64::from(i32::MAX)]) {
                for value in edge.saturating_sub(2).max(0)..=(edge + 2).min(i32::MAX.into()) {
                    let expected = place(bits, value as u64);
                    assert_eq!(narrow_place(bits, value as i32) as usize, expected, "{value}");
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded_for_any_values() {
        for (mut counts, limit) in [(LogCounts::two_digits(), 58), (LogCounts::three_digits(), 440)]
        {
            counts.record(0);
            counts.record(u64::MAX);
            assert!(counts.counts.len() * size_of::<u64>() <= limit << 10);
            assert_eq!(counts.bins().map(|bin| bin.count).sum::<u64>(), 2);
        }
    }

    proptest! {
        #[test]
        fn batched_counts_match_single_records(
            values in proptest::collection::vec((0..63_u32, any::<u64>()), 1..1_200),
            min_shift in 0..63_u32,
        ) {
            let values: Vec<i64> =
                values.iter().map(|(shift, value)| (value >> 1 >> shift.max(&min_shift)) as i64).collect();
            let max = *values.iter().max().unwrap();
            for mut one_by_one in [LogCounts::two_digits(), LogCounts::three_digits()] {
                let mut at_once = one_by_one.clone();
                at_once.record_all(&values, max);
                values.iter().for_each(|value| one_by_one.record(*value as u64));
                prop_assert_eq!(at_once, one_by_one);
            }
        }

        #[test]
        fn bins_match_an_hdr_histogram(
            values in proptest::collection::vec((0..63_u32, any::<u64>()), 1..200),
        ) {
            for (digits, mut counts) in
                [(2, LogCounts::two_digits()), (3, LogCounts::three_digits())]
            {
                let mut histogram = Histogram::<u64>::new(digits).unwrap();
                for &(shift, value) in &values {
                    let value = value >> 1 >> shift;
                    histogram.record(value).unwrap();
                    counts.record(value);
                }
                let expected: Vec<_> = histogram
                    .iter_recorded()
                    .map(|bin| {
                        let value = bin.value_iterated_to();
                        (
                            histogram.lowest_equivalent(value),
                            histogram.median_equivalent(value),
                            bin.count_at_value(),
                        )
                    })
                    .collect();
                let got: Vec<_> =
                    counts.bins().map(|bin| (bin.lowest, bin.middle, bin.count)).collect();
                prop_assert_eq!(got, expected);
            }
        }
    }
}
