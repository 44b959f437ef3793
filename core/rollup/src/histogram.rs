//! Histogram of delays with the one layout that all records share, so that any two merge exactly.
//!
//! The layout is that of an HdrHistogram with two significant digits and a resolution of one
//! nanosecond: magnitudes up to 255 ns have a bin each, every doubling above has 128 bins, so a bin is
//! at most 0.8 % wide. Negative values, which one-way delays between two clocks may have, use the bins
//! of their magnitude, mirrored.

use std::collections::TryReserveError;

use dwell_units::Nanos;

use crate::bytes::{Reader, put_signed, put_unsigned};

/// Largest magnitude that is a delay: one hour. A larger difference of two clocks is not one.
pub const MAX_DELAY: Nanos = Nanos::from_secs(3_600);

/// Number of bins per doubling, as a power of two.
const HALF_BITS: u32 = 7;

/// Magnitudes below have a bin each.
const LINEAR_LIMIT: u64 = 2 << HALF_BITS;

/// Number of bins by which the memory of a histogram grows.
const BIN_BATCH: usize = 32;

/// Number of the bin of [`MAX_DELAY`].
const MAX_PLACE: i16 = place(MAX_DELAY.0 as u64);

/// Counts of delays in bins. Only bins that are not empty take memory.
///
/// ```
/// use dwell_rollup::Histogram;
/// use dwell_units::Nanos;
///
/// let mut delays = Histogram::new();
/// delays.record(Nanos::from_micros(250));
/// let mut others = Histogram::new();
/// others.record(Nanos::from_millis(3));
/// delays.merge(&others);
/// assert_eq!(delays.total(), 2);
/// let slow = delays.ranked(2).unwrap();
/// assert!(slow.low <= Nanos::from_millis(3) && Nanos::from_millis(3) <= slow.high);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Bins that are not empty, in ascending order.
    bins: Vec<PackedBin>,
    total: u64,
}

/// Number and count of a bin in 8 bytes, as a node holds many: the number, with its sign bit inverted,
/// and a count of 48 bits, which saturates. Sorts by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedBin(u64);

impl PackedBin {
    const COUNT_BITS: u32 = 48;
    const MAX_COUNT: u64 = (1 << Self::COUNT_BITS) - 1;

    fn new(place: i16, count: u64) -> Self {
        let place = u64::from(place as u16 ^ 0x8000);
        Self(place << Self::COUNT_BITS | count.min(Self::MAX_COUNT))
    }

    const fn place(self) -> i16 {
        ((self.0 >> Self::COUNT_BITS) as u16 ^ 0x8000) as i16
    }

    const fn count(self) -> u64 {
        self.0 & Self::MAX_COUNT
    }

    fn add(&mut self, count: u64) {
        *self = Self::new(self.place(), self.count().saturating_add(count));
    }
}

/// A bin that is not empty. Both bounds belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Smallest value.
    pub low: Nanos,
    /// Largest value.
    pub high: Nanos,
    /// Number of values.
    pub count: u64,
}

/// Number of the bin of a magnitude of at most [`MAX_DELAY`].
const fn place(magnitude: u64) -> i16 {
    if magnitude < LINEAR_LIMIT {
        return magnitude as i16;
    }
    let shift = magnitude.ilog2() - HALF_BITS;
    (((shift as u64) << HALF_BITS) + (magnitude >> shift)) as i16
}

/// Smallest and largest magnitude in a bin.
const fn magnitudes(place: u16) -> (u64, u64) {
    let place = place as u64;
    if place < LINEAR_LIMIT {
        return (place, place);
    }
    let shift = (place >> HALF_BITS) - 1;
    let low = (place - (shift << HALF_BITS)) << shift;
    (low, low + (1 << shift) - 1)
}

impl Bin {
    fn of(bin: PackedBin) -> Self {
        let (place, count) = (bin.place(), bin.count());
        let (low, high) = magnitudes(place.unsigned_abs());
        let (low, high) = (low as i64, high as i64);
        let (low, high) = if place < 0 { (-high, -low) } else { (low, high) };
        Self { low: Nanos(low), high: Nanos(high), count }
    }
}

impl Histogram {
    /// Creates an empty histogram without allocating.
    pub const fn new() -> Self {
        Self { bins: Vec::new(), total: 0 }
    }

    /// Counts a value. Returns whether its magnitude is at most [`MAX_DELAY`]; others are not counted.
    pub fn record(&mut self, value: Nanos) -> bool {
        let magnitude = value.0.unsigned_abs();
        if magnitude > MAX_DELAY.0 as u64 {
            return false;
        }
        let place = if value.0 < 0 { -place(magnitude) } else { place(magnitude) };
        match self.bins.binary_search_by_key(&place, |bin| bin.place()) {
            Ok(at) => self.bins[at].add(1),
            Err(at) => {
                if self.bins.len() == self.bins.capacity() {
                    self.bins.reserve_exact(BIN_BATCH);
                }
                self.bins.insert(at, PackedBin::new(place, 1));
            }
        }
        self.total = self.total.saturating_add(1);
        true
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        let mut merged = Vec::with_capacity(self.bins.len().max(other.bins.len()));
        let (mut ours, mut theirs) = (&self.bins[..], &other.bins[..]);
        while let ([a, rest @ ..], [b, left @ ..]) = (ours, theirs) {
            match a.place().cmp(&b.place()) {
                std::cmp::Ordering::Less => {
                    merged.push(*a);
                    ours = rest;
                }
                std::cmp::Ordering::Greater => {
                    merged.push(*b);
                    theirs = left;
                }
                std::cmp::Ordering::Equal => {
                    let mut both = *a;
                    both.add(b.count());
                    merged.push(both);
                    (ours, theirs) = (rest, left);
                }
            }
        }
        merged.extend_from_slice(ours);
        merged.extend_from_slice(theirs);
        self.bins = merged;
        self.total = self.total.saturating_add(other.total);
    }

    /// Number of values.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The bins that are not empty, in ascending order.
    pub fn bins(&self) -> impl Iterator<Item = Bin> {
        self.bins.iter().copied().map(Bin::of)
    }

    /// The bin of the value of a rank, counted from 1 in ascending order; `None` beyond the total.
    pub fn ranked(&self, rank: u64) -> Option<Bin> {
        let mut passed = 0_u64;
        let bin = self.bins.iter().copied().find(|bin| {
            passed = passed.saturating_add(bin.count());
            passed >= rank
        });
        bin.filter(|_| rank > 0).map(Bin::of)
    }

    /// Appends the encoding: number of bins, then per bin the difference of its number from that of the
    /// bin before and its count.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_unsigned(out, self.bins.len() as u64);
        let mut before = 0;
        for bin in &self.bins {
            put_signed(out, i64::from(bin.place()) - i64::from(before));
            put_unsigned(out, bin.count());
            before = bin.place();
        }
    }

    /// Decodes a histogram; `None` for bytes that are not one.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let len = usize::try_from(reader.unsigned()?).ok()?;
        // Two bytes per bin at least, so no length can demand more memory than its record has.
        if len > reader.0.len() / 2 {
            return None;
        }
        let mut histogram = Self::with_room(len).ok()?;
        let mut before = None;
        for _ in 0..len {
            let step = reader.signed()?;
            let place = i16::try_from(step.checked_add(before.unwrap_or(0).into())?).ok()?;
            let is_next = before.is_none_or(|before| before < place);
            let count = reader.unsigned()?;
            if !is_next
                || place.unsigned_abs() > MAX_PLACE as u16
                || !(1..=PackedBin::MAX_COUNT).contains(&count)
            {
                return None;
            }
            histogram.total = histogram.total.checked_add(count)?;
            histogram.bins.push(PackedBin::new(place, count));
            before = Some(place);
        }
        Some(histogram)
    }

    fn with_room(len: usize) -> Result<Self, TryReserveError> {
        let mut bins = Vec::new();
        bins.try_reserve_exact(len)?;
        Ok(Self { bins, total: 0 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(values: &[i64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| assert!(histogram.record(Nanos(*value))));
        histogram
    }

    fn delays() -> impl Strategy<Value = Vec<i64>> {
        let magnitude = (0..42_u32).prop_flat_map(|bits| 0..=(1_i64 << bits).min(MAX_DELAY.0));
        let value =
            (magnitude, any::<bool>()).prop_map(|(m, negative)| if negative { -m } else { m });
        prop::collection::vec(value, 0..200)
    }

    #[test]
    fn bounds_of_a_bin_are_those_of_an_hdr_histogram() {
        let hdr =
            hdrhistogram::Histogram::<u64>::new_with_bounds(1, MAX_DELAY.0 as u64, 2).unwrap();
        for bits in 0..42 {
            for offset in [-1_i64, 0, 1, 77] {
                let value = ((1_i64 << bits) + offset).clamp(0, MAX_DELAY.0);
                let bin = histogram(&[value]).ranked(1).unwrap();
                assert_eq!(bin.low.0 as u64, hdr.lowest_equivalent(value as u64), "{value}");
                assert_eq!(bin.high.0 as u64, hdr.highest_equivalent(value as u64), "{value}");
            }
        }
    }

    #[test]
    fn values_beyond_an_hour_are_refused() {
        let mut histogram = Histogram::new();
        assert!(histogram.record(MAX_DELAY) && histogram.record(-MAX_DELAY));
        for value in [MAX_DELAY.0 + 1, -MAX_DELAY.0 - 1, i64::MAX, i64::MIN] {
            assert!(!histogram.record(Nanos(value)), "{value}");
        }
        assert_eq!(histogram.total(), 2);
    }

    #[test]
    fn invalid_encodings_are_refused() {
        // Zero count; bins out of order; a bin beyond the last; a length without bins.
        for bytes in [&[1, 2, 0][..], &[2, 2, 1, 0, 1], &[1, 0xff, 0xff, 3, 1], &[200, 1, 2, 1]] {
            assert_eq!(Histogram::decode(&mut Reader(bytes)), None, "{bytes:?}");
        }
        assert_eq!(Histogram::decode(&mut Reader(&[0])), Some(Histogram::new()));
    }

    proptest! {
        #[test]
        fn merging_equals_recording_all_values(a in delays(), b in delays()) {
            let mut merged = histogram(&a);
            merged.merge(&histogram(&b));
            prop_assert_eq!(merged, histogram(&[a, b].concat()));
        }

        #[test]
        fn encoding_round_trips(values in delays()) {
            let before = histogram(&values);
            let mut out = Vec::new();
            before.encode(&mut out);
            let mut reader = Reader(&out);
            prop_assert_eq!(Histogram::decode(&mut reader), Some(before));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn ranked_bin_contains_the_value_of_the_rank(values in delays()) {
            let histogram = histogram(&values);
            let mut sorted = values;
            sorted.sort_unstable();
            for (rank, value) in (1..).zip(&sorted) {
                let bin = histogram.ranked(rank).unwrap();
                prop_assert!(bin.low.0 <= *value && *value <= bin.high.0);
            }
            prop_assert_eq!(histogram.ranked(sorted.len() as u64 + 1), None);
            prop_assert_eq!(histogram.ranked(0), None);
        }
    }
}
