//! Delay of one component as a plane over packet size and rate, with the distribution around it.

use dwell_stats::{Coefficient, median, multiple_least_squares};
use serde::{Deserialize, Serialize};

use crate::quantile_function::QuantileFunction;

/// Smallest and largest value of a parameter that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Range {
    /// Range of these values; `None` without any.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        values.into_iter().fold(None, |range: Option<Self>, value| {
            let Self { min, max } = range.unwrap_or(Self { min: value, max: value });
            Some(Self { min: min.min(value), max: max.max(value) })
        })
    }

    /// Whether the value is in the range, with a tolerance for rounding.
    pub fn contains(self, value: f64) -> bool {
        let tolerance = 1e-6 * self.max.abs().max(1.0);
        (self.min - tolerance..=self.max + tolerance).contains(&value)
    }

    /// Whether the parameter varied.
    fn is_wide(self) -> bool {
        self.max > self.min
    }
}

/// Coefficient of a fit with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Estimate.
    pub value: f64,
    /// Lower end of the interval; `None` with too few trials.
    pub low: Option<f64>,
    /// Upper end of the interval; `None` with too few trials.
    pub high: Option<f64>,
    /// Whether predictions use it. A slope whose interval contains 0 is reported and not used.
    pub used: bool,
}

impl Estimate {
    fn of(coefficient: Coefficient, used: bool) -> Self {
        let Coefficient { value, interval, .. } = coefficient;
        Self { value, low: Some(interval.low), high: Some(interval.high), used }
    }

    /// An estimate without an interval.
    pub fn exact(value: f64) -> Self {
        Self { value, low: None, high: None, used: true }
    }
}

/// Delay at one level of load: intercept + size x `ns_per_byte` + rate x `ns_per_pps` + residual.
/// The plane passes through the medians of trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayFit {
    /// CPU load on the relay's node, 0 to 1.
    pub load_ratio: f64,
    /// Number of trials.
    pub trials: usize,
    /// Number of packets in the residuals.
    pub packets: usize,
    /// Sizes that were measured, in bytes of payload.
    pub size_bytes: Range,
    /// Rates that were measured, in packets per second.
    pub rate_pps: Range,
    /// Delay at size 0 and rate 0, in nanoseconds.
    pub intercept_ns: Estimate,
    /// Nanoseconds per byte of payload; `None` if the size did not vary.
    pub ns_per_byte: Option<Estimate>,
    /// Nanoseconds per packet per second; `None` if the rate did not vary.
    pub ns_per_pps: Option<Estimate>,
    /// Share of the variance of the medians explained by the plane; `None` if unknown.
    pub r_squared: Option<f64>,
    /// Share of the packets that were lost on the whole path.
    pub loss_ratio: f64,
    /// Standard deviation of the medians of trials around the plane; `None` with too few trials.
    pub trial_sd_ns: Option<f64>,
    /// Quantiles of delay minus plane, in nanoseconds.
    pub residual_ns: QuantileFunction,
}

/// Delays of one trial.
pub(crate) struct TrialDelays {
    pub(crate) size_bytes: f64,
    pub(crate) rate_pps: f64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Delays of packets in nanoseconds; not empty.
    pub(crate) delays: Vec<f64>,
}

/// A variable of the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Variable {
    Size,
    Rate,
}

impl Variable {
    fn of(self, trial: &TrialDelays) -> f64 {
        match self {
            Self::Size => trial.size_bytes,
            Self::Rate => trial.rate_pps,
        }
    }
}

impl DelayFit {
    /// Fits the trials of one level of load. `None` without delays.
    ///
    /// A trial is one observation (its median), because packets within a trial are correlated.
    /// Slopes whose interval contains 0 are removed one by one, the least significant first.
    pub(crate) fn of(trials: &[TrialDelays], load_ratio: f64, confidence: f64) -> Option<Self> {
        let size_bytes = Range::of(trials.iter().map(|trial| trial.size_bytes))?;
        let rate_pps = Range::of(trials.iter().map(|trial| trial.rate_pps))?;
        let medians: Vec<f64> =
            trials.iter().map(|trial| median(&trial.delays)).collect::<Option<_>>()?;
        let mut variables: Vec<Variable> =
            [(Variable::Size, size_bytes), (Variable::Rate, rate_pps)]
                .into_iter()
                .filter(|(_, range)| range.is_wide())
                .map(|(variable, _)| variable)
                .collect();
        let (mut ns_per_byte, mut ns_per_pps) = (None, None);
        let fit = loop {
            let point = |(trial, median): (&TrialDelays, &f64)| {
                (variables.iter().map(|variable| variable.of(trial)).collect(), *median)
            };
            let points: Vec<(Vec<f64>, f64)> = trials.iter().zip(&medians).map(point).collect();
            let Some(fit) = multiple_least_squares(&points, confidence) else {
                // Too few trials for this number of variables.
                if variables.pop().is_none() {
                    break None;
                }
                continue;
            };
            let significance = |slope: &Coefficient| {
                slope.value.abs() / slope.standard_error.max(f64::MIN_POSITIVE)
            };
            let is_unclear =
                |slope: &Coefficient| slope.interval.low <= 0.0 && slope.interval.high >= 0.0;
            let unclear =
                (0..variables.len()).filter(|j| is_unclear(&fit.slopes[*j])).min_by(|a, b| {
                    significance(&fit.slopes[*a]).total_cmp(&significance(&fit.slopes[*b]))
                });
            let mut report = |variable: Variable, slope: Coefficient, used: bool| match variable {
                Variable::Size => ns_per_byte = Some(Estimate::of(slope, used)),
                Variable::Rate => ns_per_pps = Some(Estimate::of(slope, used)),
            };
            if let Some(unclear) = unclear {
                report(variables.remove(unclear), fit.slopes[unclear], false);
                continue;
            }
            for (variable, slope) in variables.iter().zip(&fit.slopes) {
                report(*variable, *slope, true);
            }
            break Some(fit);
        };
        let (intercept_ns, r_squared) = match &fit {
            Some(fit) => (Estimate::of(fit.intercept, true), fit.r_squared),
            None => (Estimate::exact(medians.iter().sum::<f64>() / medians.len() as f64), None),
        };
        let sent: u64 = trials.iter().map(|trial| trial.sent).sum();
        let received: u64 = trials.iter().map(|trial| trial.received).sum();
        let lost = sent.saturating_sub(received);
        let mut fitted = Self {
            load_ratio,
            trials: trials.len(),
            packets: 0,
            size_bytes,
            rate_pps,
            intercept_ns,
            ns_per_byte,
            ns_per_pps,
            r_squared,
            loss_ratio: lost as f64 / sent.max(1) as f64,
            trial_sd_ns: None,
            residual_ns: QuantileFunction::constant(0.0),
        };
        let from_plane = trials.iter().zip(&medians).map(|(trial, median)| {
            (median - fitted.plane(trial.size_bytes, trial.rate_pps)).powi(2)
        });
        let squares: f64 = from_plane.sum();
        let free = trials.len().saturating_sub(1 + variables.len());
        fitted.trial_sd_ns = (free > 0).then(|| (squares / free as f64).sqrt());
        let residuals = trials.iter().flat_map(|trial| {
            let plane = fitted.plane(trial.size_bytes, trial.rate_pps);
            // Timestamps are whole nanoseconds.
            trial.delays.iter().map(move |delay| (delay - plane).round())
        });
        let residuals: Vec<f64> = residuals.collect();
        fitted.packets = residuals.len();
        fitted.residual_ns = QuantileFunction::of_samples(residuals)?;
        Some(fitted)
    }

    /// Variables that varied, but have no estimate because the trials were too few.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = &'static str> {
        let size = self.size_bytes.is_wide() && self.ns_per_byte.is_none();
        let rate = self.rate_pps.is_wide() && self.ns_per_pps.is_none();
        [("size", size), ("rate", rate)].into_iter().filter(|(_, out)| *out).map(|(name, _)| name)
    }

    /// Delay without the residual, in nanoseconds. Beyond the measured rates, the nearest one counts: a
    /// delay that falls with the rate would otherwise become 0.
    pub fn plane(&self, size_bytes: f64, rate_pps: f64) -> f64 {
        let rate_pps = rate_pps.max(self.rate_pps.min).min(self.rate_pps.max);
        let slope = |estimate: Option<Estimate>| {
            estimate.filter(|estimate| estimate.used).map_or(0.0, |estimate| estimate.value)
        };
        self.intercept_ns.value
            + slope(self.ns_per_byte) * size_bytes
            + slope(self.ns_per_pps) * rate_pps
    }

    /// Distribution of the delay in nanoseconds.
    pub fn delay(&self, size_bytes: f64, rate_pps: f64) -> QuantileFunction {
        self.residual_ns.clone().shifted(self.plane(size_bytes, rate_pps)).non_negative()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_stays_constant_beyond_the_measured_rates() {
        let fit = DelayFit {
            load_ratio: 0.0,
            trials: 6,
            packets: 600,
            size_bytes: Range { min: 100.0, max: 1_400.0 },
            rate_pps: Range { min: 200.0, max: 1_200.0 },
            intercept_ns: Estimate::exact(400_000.0),
            ns_per_byte: None,
            ns_per_pps: Some(Estimate::exact(-200.0)),
            r_squared: None,
            loss_ratio: 0.0,
            trial_sd_ns: None,
            residual_ns: QuantileFunction::constant(0.0),
        };
        let planes = [100.0, 200.0, 700.0, 1_200.0, 5_000.0].map(|rate| fit.plane(500.0, rate));
        assert_eq!(planes, [360_000.0, 360_000.0, 260_000.0, 160_000.0, 160_000.0]);
    }

    /// Trials of 3 sizes by 2 rates, repeated, whose packets are `spread` around the plane
    /// 10 us + 20 ns/B + `per_pps` x rate.
    fn trials(per_pps: f64, spread: f64) -> Vec<TrialDelays> {
        let cells = (0..24_u32).map(|i| {
            let size_bytes = [100.0, 700.0, 1_400.0][i as usize % 3];
            let rate_pps = [200.0, 1_200.0][i as usize % 2];
            // A shift of the whole trial that differs between repetitions, like noise of a trial.
            let shift = f64::from(i * 7 % 5) * 40.0 - 80.0;
            let delay = |n: u32| {
                10_000.0
                    + 20.0 * size_bytes
                    + per_pps * rate_pps
                    + shift
                    + spread * (f64::from(n * 37 % 101) / 100.0 - 0.5)
            };
            TrialDelays {
                size_bytes,
                rate_pps,
                sent: 105,
                received: 101,
                delays: (0..101).map(delay).collect(),
            }
        });
        cells.collect()
    }

    #[test]
    fn plane_and_residuals_are_recovered() {
        let fit = DelayFit::of(&trials(-2.0, 6_000.0), 0.5, 0.95).unwrap();
        let size = fit.ns_per_byte.unwrap();
        let rate = fit.ns_per_pps.unwrap();
        assert!(size.used && rate.used);
        assert!(size.low.unwrap() <= 20.0 && size.high.unwrap() >= 20.0, "{size:?}");
        assert!((size.value - 20.0).abs() < 0.1, "{size:?}");
        assert!((rate.value + 2.0).abs() < 0.1, "{rate:?}");
        assert!((fit.loss_ratio - 4.0 / 105.0).abs() < 1e-9);
        assert_eq!((fit.trials, fit.packets), (24, 24 * 101));
        // The shifts of trials are -80 to 80 ns in five steps.
        let sd = fit.trial_sd_ns.unwrap();
        assert!((50.0..75.0).contains(&sd), "{sd}");
        let delay = fit.delay(1_000.0, 500.0);
        assert!((delay.at(0.5) - 29_000.0).abs() < 150.0, "{}", delay.at(0.5));
        assert!((delay.at(0.95) - 29_000.0 - 2_700.0).abs() < 250.0, "{}", delay.at(0.95));
    }

    #[test]
    fn unclear_slope_is_reported_and_not_used() {
        let fit = DelayFit::of(&trials(0.0, 6_000.0), 0.0, 0.95).unwrap();
        let rate = fit.ns_per_pps.unwrap();
        assert!(!rate.used && rate.low.unwrap() < 0.0 && rate.high.unwrap() > 0.0, "{rate:?}");
        assert_eq!(fit.plane(700.0, 200.0), fit.plane(700.0, 1_200.0));
    }

    #[test]
    fn single_trial_has_a_delay_without_interval() {
        let fit = DelayFit::of(&trials(0.0, 10.0)[..1], 0.0, 0.95).unwrap();
        assert_eq!((fit.intercept_ns.low, fit.ns_per_byte, fit.r_squared), (None, None, None));
        assert_eq!(fit.trial_sd_ns, None);
        assert!((fit.plane(100.0, 200.0) - 11_920.0).abs() < 20.0, "{fit:?}");
        assert_eq!(DelayFit::of(&[], 0.0, 0.95), None);
    }
}
