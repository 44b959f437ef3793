//! Hampel filter: finds samples far from their neighbourhood (Miya 2020, S0.11, Fig 4b-d).
//!
//! A sample is an outlier if it is more than `sigmas` scaled median absolute deviations from the
//! median of its window: itself and up to `half_window` neighbours on either side. The factor
//! 1.4826 scales the deviation to the standard deviation of a normal distribution.
//!
//! - Median and deviation are nearest-rank, so the lower middle of an even window.
//! - At the ends of the series the window is truncated, not mirrored.
//! - A deviation of 0 means that more than half of the window is one value, as with a coarse clock.
//!   Every other value would then be an outlier. The mean absolute deviation, scaled by 1.2533, is
//!   used instead: a single spike is still an outlier, a value shared by much of the window is
//!   not. A window of equal values has no outliers.

/// Parameters of the filter.
///
/// ```
/// use dwell_stats::{Hampel, OutlierClass};
///
/// let mut delays: Vec<i64> = (0..200).map(|n| 20_000 + n * 37 % 100).collect();
/// delays[120] = 90_000;
/// let classes = Hampel::default().judge(&delays);
/// assert_eq!(classes.iter().position(|class| *class == OutlierClass::Upper), Some(120));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hampel {
    /// Number of neighbours on either side.
    pub half_window: usize,
    /// Maximum distance in scaled deviations.
    pub sigmas: f64,
}

/// Position of a sample relative to its neighbourhood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutlierClass {
    /// Within the limits.
    Ordinary,
    /// Above the limits: a spike.
    Upper,
    /// Below the limits.
    Lower,
}

impl Default for Hampel {
    /// 3 sigmas as in Miya 2020 (S0.11) and 50 neighbours on either side, which the paper leaves
    /// open: half a second at its 200 packets/s. Spikes of up to 50 samples are outliers; slower
    /// changes, such as of load, are not.
    fn default() -> Self {
        Self { half_window: 50, sigmas: 3.0 }
    }
}

impl Hampel {
    /// Judges each sample, in time order. Linear in the number of samples and slowly growing with
    /// the window: 10 million samples take about a second.
    pub fn judge(&self, values: &[i64]) -> Vec<OutlierClass> {
        let n = values.len();
        let mut window = Window {
            sorted: Vec::with_capacity(n.min(self.half_window.saturating_mul(2).saturating_add(1))),
        };
        let mut entered = 0;
        let mut judge = |i: usize| {
            while entered < n && entered - i.min(entered) <= self.half_window {
                window.insert(values[entered]);
                entered += 1;
            }
            let class = self.classify(&window.sorted, values[i]);
            if let Some(oldest) = i.checked_sub(self.half_window) {
                window.remove(values[oldest]);
            }
            class
        };
        (0..n).map(&mut judge).collect()
    }

    /// Judges one sample, `values[at]`, among `values`.
    ///
    /// # Panics
    /// If `at` is out of range.
    pub fn judge_one(&self, values: &[i64], at: usize) -> OutlierClass {
        let to = at.saturating_add(self.half_window).saturating_add(1).min(values.len());
        let mut window = values[at.saturating_sub(self.half_window)..to].to_vec();
        window.sort_unstable();
        self.classify(&window, values[at])
    }

    fn classify(&self, sorted: &[i64], value: i64) -> OutlierClass {
        let median = sorted[(sorted.len() - 1) / 2];
        if value == median {
            return OutlierClass::Ordinary;
        }
        let scale = scaled_deviation(sorted, median);
        if value.abs_diff(median) as f64 <= self.sigmas * scale {
            OutlierClass::Ordinary
        } else if value > median {
            OutlierClass::Upper
        } else {
            OutlierClass::Lower
        }
    }
}

/// The samples of a window, sorted.
struct Window {
    sorted: Vec<i64>,
}

impl Window {
    fn insert(&mut self, value: i64) {
        let at = self.sorted.partition_point(|&other| other < value);
        self.sorted.insert(at, value);
    }

    fn remove(&mut self, value: i64) {
        let at = self.sorted.partition_point(|&other| other < value);
        self.sorted.remove(at);
    }
}

/// Median deviation from `median`, the lower middle of `sorted`, scaled to the standard deviation of
/// a normal distribution; the scaled mean deviation if it is 0.
pub(crate) fn scaled_deviation(sorted: &[i64], median: i64) -> f64 {
    match median_deviation(sorted, median) {
        0 => 1.253_3 * mean_deviation(sorted, median),
        deviation => 1.482_6 * deviation as f64,
    }
}

/// Nearest-rank median of the distances to `median`, the lower middle of `sorted`. Distances
/// increase to the right of it and, read backwards, to the left; a binary search finds the middle
/// of both sequences combined.
fn median_deviation(sorted: &[i64], median: i64) -> u64 {
    let middle = (sorted.len() - 1) / 2;
    let (left, right) = (&sorted[..middle], &sorted[middle..]);
    let rank = middle + 1;
    // Smallest number of distances to take from the right so that none of them exceeds the next one
    // on the left; of `rank` in total, `rank - taken` come from the left.
    let (mut low, mut high) = (1, rank.min(right.len()));
    while low < high {
        let taken = low + (high - low) / 2;
        let from_left = rank - taken;
        let left_distance = median.abs_diff(left[left.len() - from_left]);
        if right[taken].abs_diff(median) < left_distance { low = taken + 1 } else { high = taken }
    }
    let right_distance = right[low - 1].abs_diff(median);
    let left_distance = match rank - low {
        0 => 0,
        from_left => median.abs_diff(left[left.len() - from_left]),
    };
    right_distance.max(left_distance)
}

fn mean_deviation(sorted: &[i64], median: i64) -> f64 {
    let sum: f64 = sorted.iter().map(|value| value.abs_diff(median) as f64).sum();
    sum / sorted.len() as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, evaluated window by window.
    fn naive(filter: Hampel, values: &[i64]) -> Vec<OutlierClass> {
        let middle = |mut values: Vec<u64>| {
            values.sort_unstable();
            values[(values.len() - 1) / 2]
        };
        let judge = |i: usize| {
            let from = i.saturating_sub(filter.half_window);
            let to = i.saturating_add(filter.half_window).min(values.len() - 1);
            let mut window = values[from..=to].to_vec();
            window.sort_unstable();
            let median = window[(window.len() - 1) / 2];
            let distances: Vec<_> = window.iter().map(|value| value.abs_diff(median)).collect();
            let mean = distances.iter().map(|&d| d as f64).sum::<f64>() / window.len() as f64;
            let mad = middle(distances);
            let scale = if mad == 0 { 1.253_3 * mean } else { 1.482_6 * mad as f64 };
            let far = values[i].abs_diff(median) as f64 > filter.sigmas * scale;
            match (far, values[i] > median) {
                (false, _) => OutlierClass::Ordinary,
                (true, true) => OutlierClass::Upper,
                (true, false) => OutlierClass::Lower,
            }
        };
        (0..values.len()).map(judge).collect()
    }

    #[test]
    fn spikes_are_outliers_and_level_changes_are_not() {
        let mut values: Vec<i64> = (0..400).map(|i| 1_000 + (i * 37) % 50).collect();
        values[200..].iter_mut().for_each(|value| *value += 10_000);
        values[100] = 5_000;
        values[300] = 20;
        let found = Hampel::default().judge(&values);
        assert_eq!((found[100], found[300]), (OutlierClass::Upper, OutlierClass::Lower));
        let ordinary = found.iter().filter(|&&s| s == OutlierClass::Ordinary).count();
        // At a level change, up to half a window belongs to the other level.
        assert_eq!(ordinary, 398, "{found:?}");
    }

    #[test]
    fn coarse_clock_spike_is_outlier_and_next_tick_is_not() {
        let mut values = vec![100; 300];
        values.iter_mut().step_by(3).for_each(|value| *value = 101);
        values[150] = 900;
        let found = Hampel::default().judge(&values);
        let outliers: Vec<_> = (0..300).filter(|&i| found[i] != OutlierClass::Ordinary).collect();
        assert_eq!(outliers, [150]);
        assert_eq!(Hampel::default().judge(&[7; 9]), [OutlierClass::Ordinary; 9]);
        assert_eq!(Hampel::default().judge(&[]), []);
    }

    proptest! {
        #[test]
        fn sliding_window_matches_the_definition(
            values in proptest::collection::vec(
                prop_oneof![6 => 0..20_i64, 3 => -1_000..1_000_i64, 1 => any::<i64>()], 0..150,
            ),
            half_window in prop_oneof![0..12_usize, Just(200), Just(usize::MAX)],
            sigmas in prop_oneof![Just(3.0), Just(0.0), 0.5..6.0],
        ) {
            let filter = Hampel { half_window, sigmas };
            prop_assert_eq!(filter.judge(&values), naive(filter, &values));
            let one_by_one: Vec<_> =
                (0..values.len()).map(|at| filter.judge_one(&values, at)).collect();
            prop_assert_eq!(one_by_one, naive(filter, &values));
        }
    }
}
