//! Decimated time series in bounded memory: keeps every value of a short series, every second,
//! fourth, ... of a longer one. Decimation widens intervals but does not bias them.

use crate::distribution::Quantile;
use crate::interval::{Interval, quantile_interval};

/// Maximum number of values kept.
const MAX_VALUES: usize = 1 << 15;

/// A decimated time series. Uses at most 256 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecimatedSeries {
    /// Decimation factor: the first of this many values is kept. A power of two.
    every: usize,
    /// Number of values to skip before the next one kept.
    skip: usize,
    values: Vec<i64>,
}

impl Default for DecimatedSeries {
    fn default() -> Self {
        Self { every: 1, skip: 0, values: Vec::new() }
    }
}

impl DecimatedSeries {
    /// Appends the next values of the series.
    pub fn record_all(&mut self, values: &[i64]) {
        let mut place = self.skip;
        while place < values.len() {
            self.values.push(values[place]);
            place += self.every;
            if self.values.len() == MAX_VALUES {
                self.halve();
            }
        }
        self.skip = place - values.len();
    }

    /// Appends a series recorded after this one. Spacing may be slightly uneven at the junction.
    pub fn append(&mut self, later: &Self) {
        let joined = |own: &Self| own.values.len() + later.values.len() * later.every / own.every;
        while self.every < later.every || joined(self) >= MAX_VALUES {
            self.halve();
        }
        let step = self.every / later.every;
        self.values.extend(later.values.iter().step_by(step));
        let missing = later.values.len().next_multiple_of(step) - later.values.len();
        self.skip = later.skip + missing * later.every;
    }

    /// Interval of a quantile ([`quantile_interval`]).
    pub fn interval(&self, quantile: Quantile, confidence: f64) -> Option<Interval> {
        quantile_interval(&self.values, quantile, confidence)
    }

    fn halve(&mut self) {
        if !self.values.len().is_multiple_of(2) {
            self.skip += self.every;
        }
        let mut place = 0;
        self.values.retain(|_| {
            place += 1;
            place % 2 == 1
        });
        self.every *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[i64], piece: usize) -> DecimatedSeries {
        let mut thinned = DecimatedSeries::default();
        values.chunks(piece).for_each(|piece| thinned.record_all(piece));
        thinned
    }

    #[test]
    fn short_series_is_kept_and_long_one_decimated_evenly() {
        let values: Vec<i64> = (0..100_003).collect();
        for piece in [1, 7, 4_096, 200_000] {
            assert_eq!(of(&values[..9_999], piece).values, values[..9_999]);
            let kept: Vec<i64> = values.iter().copied().step_by(4).collect();
            assert_eq!(of(&values, piece).values, kept, "pieces of {piece}");
        }
    }

    #[test]
    fn parts_of_any_length_are_joined_evenly() {
        let values: Vec<i64> = (0..150_000).collect();
        for cut in [1, 10_001, 40_003, 75_000, 149_999] {
            let mut joined = of(&values[..cut], 1_000);
            joined.append(&of(&values[cut..], 1_000));
            assert!(joined.values.len() < MAX_VALUES && joined.values.len() > MAX_VALUES / 4);
            let apart: Vec<i64> = joined.values.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let every = joined.every as i64;
            let uneven = apart.iter().filter(|apart| **apart != every).count();
            assert!(uneven <= 1 && apart.iter().all(|apart| *apart > 0), "{cut}: {uneven}");
            joined.record_all(&[1_000_000; 64]);
            let last = joined.values.iter().filter(|value| **value == 1_000_000).count();
            assert!((64 / every - 1..=64 / every + 1).contains(&(last as i64)), "{cut}: {last}");
        }
    }

    #[test]
    fn decimated_interval_contains_the_quantile() {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        let values: Vec<i64> = (0..200_000)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x >> 40) as i64
            })
            .collect();
        let all = quantile_interval(&values, Quantile::P99, 0.95).unwrap();
        let thinned = of(&values, 512).interval(Quantile::P99, 0.95).unwrap();
        assert!(thinned.low <= all.high && all.low <= thinned.high, "{thinned:?} {all:?}");
        assert!(
            thinned.high.0 - thinned.low.0 > all.high.0 - all.low.0,
            "fewer values give a wider interval"
        );
    }
}
