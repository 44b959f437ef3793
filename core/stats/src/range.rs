//! Distance from round-trip times (Ramstetter; `docs/range.md`).
//!
//! A round trip lasts `2 * distance / speed` plus the delay of both devices. Without a calibration
//! it gives an upper bound: the distance is at most `speed * RTT / 2`. A calibration measures the
//! round trip at a known distance, so that the delay of the devices cancels:
//! `distance = known distance + speed / 2 * (RTT - RTT at the known distance)`.
//!
//! Round-trip times are integer picoseconds, because steps of 802.11 FTM are 1.5625 ns.

mod digits;
mod estimators;
mod smoothed_mode;
mod speed;

use crate::hampel::scaled_deviation;

pub use digits::{metres, metres_with_error};
pub use estimators::{Estimate, Estimator, Settings};
pub use speed::{PropagationSpeed, SPEED_OF_LIGHT};

/// Confidence of all intervals of a range.
pub const RANGE_CONFIDENCE: f64 = 0.95;

/// Maximum distance from the median in scaled median absolute deviations. It removes only spikes
/// and stalls, because all estimators are robust. A narrower one would remove the second of two
/// frequent delays in some samples and not in others, and intervals would be too narrow
/// (`docs/range.md`).
const MAX_SIGMAS: f64 = 10.0;

/// Round-trip times in time order, without outliers.
///
/// ```
/// use dwell_stats::range::{PropagationSpeed, RangeRtts};
///
/// // The eight round trips that Ramstetter logged, in picoseconds.
/// let logged = [1113, 1118, 1124, 1125, 1118, 1120, 1125, 1123].map(|us| us * 1_000_000);
/// let rtts = RangeRtts::clean(&logged, 1_000.0).expect("there are values");
/// let air = PropagationSpeed::AIR;
/// assert_eq!(rtts.spread_ps(), 12_000_000);
/// assert_eq!((air.metres(rtts.spread_ps() as f64) / 100.0).round(), 18.0, "1.8 km");
/// assert_eq!(rtts.resolution_ps(), 1_000_000.0, "microsecond stamps");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RangeRtts {
    values: Vec<i64>,
    removed: usize,
    resolution_ps: f64,
}

impl RangeRtts {
    /// Removes outliers on either side: values more than 10 scaled median absolute deviations from
    /// the median of all ([`Hampel`](crate::Hampel) has the definition). `None` without values. The
    /// resolution is the largest common divisor of all differences of values, at least `finest_ps`.
    pub fn clean(values_ps: &[i64], finest_ps: f64) -> Option<Self> {
        let mut sorted = values_ps.to_vec();
        sorted.sort_unstable();
        let median = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
        let limit = MAX_SIGMAS * scaled_deviation(&sorted, median);
        let is_ordinary = |value: &&i64| value.abs_diff(median) as f64 <= limit;
        let values: Vec<i64> = values_ps.iter().filter(is_ordinary).copied().collect();
        let resolution_ps = finest_ps.max(common_step(values_ps) as f64);
        Some(Self { removed: values_ps.len() - values.len(), values, resolution_ps })
    }

    /// The values kept, in picoseconds and in time order. There is at least one.
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    /// Number of outliers removed.
    pub fn removed(&self) -> usize {
        self.removed
    }

    /// Step of the timestamps in picoseconds.
    pub fn resolution_ps(&self) -> f64 {
        self.resolution_ps
    }

    /// The smallest value.
    pub fn minimum_ps(&self) -> i64 {
        self.values.iter().copied().min().unwrap_or(0)
    }

    /// The largest value minus the smallest.
    pub fn spread_ps(&self) -> i64 {
        let largest = self.values.iter().copied().max().unwrap_or(0);
        largest.saturating_sub(self.minimum_ps())
    }

    /// Interquartile range, nearest-rank.
    pub fn quartile_spread_ps(&self) -> i64 {
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        let rank = |share: usize| sorted[(sorted.len() * share).div_ceil(4).max(1) - 1];
        rank(3).saturating_sub(rank(1))
    }

    /// Upper bound of the distance in metres, without calibration: the fastest possible speed times
    /// half the smallest round trip, with one step of the timestamps added. 0 if that is negative.
    pub fn bound_metres(&self, speed: PropagationSpeed) -> f64 {
        let longest_ps = self.minimum_ps() as f64 + self.resolution_ps;
        (speed.metres(longest_ps) * (1.0 + speed.tolerance())).max(0.0)
    }
}

/// Greatest common divisor of all differences; 0 if all values are equal.
fn common_step(values: &[i64]) -> u64 {
    let Some(&first) = values.first() else { return 0 };
    values.iter().fold(0, |step, value| greatest_common_divisor(step, value.abs_diff(first)))
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A distance with its interval, in metres. The estimate may be negative, which is an error of the
/// measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// The estimate.
    pub metres: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Distance {
    /// The longer side of the interval.
    pub fn error(&self) -> f64 {
        (self.high - self.metres).max(self.metres - self.low)
    }

    /// Combines a measurement with a calibration at a known distance.
    ///
    /// The uncertainties of both are independent and add in squares, each side separately (MOVER:
    /// Zou and Donner 2008). One step of the timestamps is added to either side, because the
    /// rounding of the two readings may differ by that much, and the tolerance of the speed widens
    /// the result. `None` if either interval is missing.
    pub fn calibrated(
        measured: &Estimate,
        calibrated: &Estimate,
        known_metres: f64,
        resolution_ps: f64,
        speed: PropagationSpeed,
    ) -> Option<Self> {
        let (low, high) = measured.interval_ps?;
        let (known_low, known_high) = calibrated.interval_ps?;
        let change = measured.rtt_ps - calibrated.rtt_ps;
        let down = (measured.rtt_ps - low).hypot(known_high - calibrated.rtt_ps) + resolution_ps;
        let up = (high - measured.rtt_ps).hypot(calibrated.rtt_ps - known_low) + resolution_ps;
        let at = |ps: f64, sign: f64| {
            let slow_or_fast = 1.0 + sign * ps.signum() * speed.tolerance();
            known_metres + speed.metres(ps) * slow_or_fast
        };
        Some(Self {
            metres: at(change, 0.0),
            low: at(change - down, -1.0),
            high: at(change + up, 1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(rtt_ps: f64, side: f64) -> Estimate {
        Estimate { rtt_ps, interval_ps: Some((rtt_ps - side, rtt_ps + side)) }
    }

    #[test]
    fn uncertainties_add_in_squares_and_steps_add_fully() {
        let speed = PropagationSpeed::from_metres_per_second(2e8).unwrap();
        let (near, far) = (estimate(1e6, 3e4), estimate(2e6, 4e4));
        let found = Distance::calibrated(&far, &near, 1.0, 0.0, speed).unwrap();
        // 1 us of round trip is 100 m; 50 ns are 5 m.
        assert!((found.metres - 101.0).abs() < 1e-9, "{found:?}");
        assert!((found.error() - 5.0).abs() < 1e-9, "{found:?}");
        let coarse = Distance::calibrated(&far, &near, 1.0, 1e4, speed).unwrap();
        assert!((coarse.error() - 6.0).abs() < 1e-9, "{coarse:?}");
        let unknown = Estimate { interval_ps: None, ..near };
        assert_eq!(Distance::calibrated(&far, &unknown, 1.0, 0.0, speed), None);
    }

    #[test]
    fn tolerance_of_the_speed_widens_the_interval() {
        let (near, far) = (estimate(1e6, 0.0), estimate(2e6, 0.0));
        let found = Distance::calibrated(&far, &near, 0.0, 0.0, PropagationSpeed::COPPER).unwrap();
        let tolerance = PropagationSpeed::COPPER.tolerance();
        assert!((found.error() / found.metres - tolerance).abs() < 1e-9, "{found:?}");
        let back = Distance::calibrated(&near, &far, 0.0, 0.0, PropagationSpeed::COPPER).unwrap();
        assert!(back.low < back.metres && back.metres < back.high, "{back:?}");
    }

    #[test]
    fn resolution_is_the_common_step_of_the_values() {
        let step = |values: &[i64]| RangeRtts::clean(values, 1.0).unwrap().resolution_ps();
        assert_eq!(step(&[1_000, 5_000, 9_000, 23_000]), 2_000.0);
        assert_eq!(step(&[7]), 1.0);
        assert_eq!(step(&[i64::MIN, i64::MAX]), u64::MAX as f64);
        assert_eq!(RangeRtts::clean(&[], 1.0), None);
    }

    #[test]
    fn spikes_are_removed_and_the_bound_includes_a_step() {
        let mut values: Vec<i64> = (0..200).map(|n| 1_000_000 + n * 37 % 100 * 1_000).collect();
        values[50] = 900_000_000;
        values[90] = 1;
        let rtts = RangeRtts::clean(&values, 1_000.0).unwrap();
        assert_eq!((rtts.removed(), rtts.minimum_ps(), rtts.spread_ps()), (2, 1_000_000, 99_000));
        let speed = PropagationSpeed::from_metres_per_second(2e8).unwrap();
        assert!((rtts.bound_metres(speed) - 100.1).abs() < 1e-6);
        let negative = RangeRtts::clean(&[-5_000], 1_000.0).unwrap();
        assert_eq!(negative.bound_metres(speed), 0.0);
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let values = [i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX];
        let rtts = RangeRtts::clean(&values, 1.0).unwrap();
        let settings = Settings::of(&rtts);
        for estimator in Estimator::ALL {
            let found = Estimate::of(&rtts, estimator, settings, 1);
            assert!(found.is_none_or(|found| found.rtt_ps.is_finite()), "{estimator:?}");
        }
        assert!(rtts.quartile_spread_ps() >= 0 && rtts.spread_ps() >= 0);
    }
}
