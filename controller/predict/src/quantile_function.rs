//! Distribution of a delay as a piecewise linear quantile function.

use serde::{Deserialize, Serialize};

/// Probabilities at which samples are summarised: every percent, and the upper tail.
fn probabilities() -> impl Iterator<Item = f64> {
    const TAIL: [f64; 5] = [0.995, 0.998, 0.999, 0.999_9, 1.0];
    (0..100).map(|percent| f64::from(percent) / 100.0).chain(TAIL)
}

/// Quantiles of a delay in nanoseconds, linear between its points. Values may be negative if they
/// are residuals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(f64, f64)>", into = "Vec<(f64, f64)>")]
pub struct QuantileFunction {
    /// (probability, value), both ascending; the first probability is 0 and the last is 1.
    points: Vec<(f64, f64)>,
}

impl TryFrom<Vec<(f64, f64)>> for QuantileFunction {
    type Error = String;

    fn try_from(points: Vec<(f64, f64)>) -> Result<Self, String> {
        let is_ascending = points.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1);
        let is_finite = points.iter().all(|(p, value)| p.is_finite() && value.is_finite());
        match (points.first(), points.last()) {
            (Some((0.0, _)), Some((1.0, _))) if is_ascending && is_finite => Ok(Self { points }),
            _ => Err("quantiles are pairs of probability and value, both ascending, from \
                      probability 0 to 1"
                .into()),
        }
    }
}

impl From<QuantileFunction> for Vec<(f64, f64)> {
    fn from(quantiles: QuantileFunction) -> Self {
        quantiles.points
    }
}

impl QuantileFunction {
    /// A delay that never varies.
    pub fn constant(value: f64) -> Self {
        Self { points: vec![(0.0, value), (1.0, value)] }
    }

    /// Distribution of samples: nearest-rank percentiles, minimum and maximum. `None` without
    /// samples, or if one is not finite.
    pub fn of_samples(mut samples: Vec<f64>) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|value| !value.is_finite()) {
            return None;
        }
        samples.sort_unstable_by(f64::total_cmp);
        let n = samples.len() as f64;
        let value = |p: f64| {
            let rank = (p * n).ceil().clamp(1.0, n) as usize;
            (p, samples[rank - 1])
        };
        Some(Self { points: probabilities().map(value).collect() })
    }

    /// Smallest value.
    pub fn min(&self) -> f64 {
        self.points[0].1
    }

    /// Largest value.
    pub fn max(&self) -> f64 {
        self.points[self.points.len() - 1].1
    }

    /// Value below which the share `p` of the delays lies; `p` is limited to 0..=1.
    pub fn at(&self, p: f64) -> f64 {
        let next = self.points.partition_point(|(probability, _)| *probability < p);
        let Some(&(p1, v1)) = self.points.get(next) else { return self.max() };
        if next == 0 {
            return v1;
        }
        let (p0, v0) = self.points[next - 1];
        if p1 > p0 { v0 + (v1 - v0) * (p - p0) / (p1 - p0) } else { v1 }
    }

    /// Mean.
    pub fn mean(&self) -> f64 {
        self.segments().map(|(share, low, high)| share * (low + high) / 2.0).sum()
    }

    /// Variance.
    pub fn variance(&self) -> f64 {
        let mean = self.mean();
        let segment = |(share, low, high): (f64, f64, f64)| {
            let (low, high) = (low - mean, high - mean);
            share * (low * low + low * high + high * high) / 3.0
        };
        self.segments().map(segment).sum()
    }

    /// The same distribution, later by `shift`.
    #[must_use]
    pub fn shifted(mut self, shift: f64) -> Self {
        self.points.iter_mut().for_each(|(_, value)| *value += shift);
        self
    }

    /// The same distribution with negative values replaced by 0.
    #[must_use]
    pub fn non_negative(mut self) -> Self {
        self.points.iter_mut().for_each(|(_, value)| *value = value.max(0.0));
        self
    }

    /// Distribution between this one (`weight` 0) and `other` (1), by interpolating quantiles.
    pub fn blended(&self, other: &Self, weight: f64) -> Self {
        let mut probabilities: Vec<f64> =
            self.points.iter().chain(&other.points).map(|(p, _)| *p).collect();
        probabilities.sort_unstable_by(f64::total_cmp);
        probabilities.dedup();
        let value = |p: f64| (p, (1.0 - weight) * self.at(p) + weight * other.at(p));
        Self { points: probabilities.into_iter().map(value).collect() }
    }

    /// Distribution in which the value is 0 with probability `1 - share`, and otherwise exponential
    /// with this mean. The tail is cut where its probability is a millionth.
    pub(crate) fn zero_or_exponential(share: f64, mean: f64) -> Self {
        const MAX_PROBABILITY: f64 = 1.0 - 1e-6;
        let share = share.clamp(0.0, 1.0);
        let mut points = vec![(0.0, 0.0), (1.0 - share, 0.0)];
        let inner = probabilities().skip(1).map(|p| p.min(MAX_PROBABILITY));
        points.extend(inner.map(|p| (1.0 - share + share * p, -mean * (1.0 - p).ln())));
        if let Some(last) = points.last_mut() {
            last.0 = 1.0;
        }
        Self { points }
    }

    /// Segments as (share of the probability, lowest value, highest value).
    pub(crate) fn segments(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        self.points.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[0].1, pair[1].1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform() -> QuantileFunction {
        QuantileFunction { points: vec![(0.0, 10.0), (1.0, 22.0)] }
    }

    #[test]
    fn uniform_distribution_has_its_moments() {
        let delay = uniform();
        assert_eq!((delay.min(), delay.max(), delay.at(0.25)), (10.0, 22.0, 13.0));
        assert_eq!((delay.mean(), delay.variance()), (16.0, 12.0));
        let shifted = delay.clone().shifted(-15.0);
        assert_eq!((shifted.mean(), shifted.min()), (1.0, -5.0));
        assert_eq!(shifted.non_negative().min(), 0.0);
        assert_eq!(delay.blended(&QuantileFunction::constant(0.0), 0.5).mean(), 8.0);
    }

    #[test]
    fn samples_keep_extremes_and_percentiles() {
        let samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let delay = QuantileFunction::of_samples(samples).unwrap();
        assert_eq!(
            (delay.min(), delay.at(0.5), delay.at(0.95), delay.max()),
            (1.0, 500.0, 950.0, 1e3)
        );
        assert!((delay.mean() - 500.5).abs() < 6.0, "{}", delay.mean());
        assert_eq!(QuantileFunction::of_samples(Vec::new()), None);
        assert_eq!(QuantileFunction::of_samples(vec![f64::NAN]), None);
    }

    #[test]
    fn exponential_part_has_the_requested_mean() {
        let delay = QuantileFunction::zero_or_exponential(0.4, 100.0);
        assert_eq!((delay.at(0.0), delay.at(0.59)), (0.0, 0.0));
        assert!((delay.mean() - 40.0).abs() < 1.0, "{}", delay.mean());
        let p90 = 100.0 * (0.4_f64 / 0.1).ln();
        assert!((delay.at(0.9) - p90).abs() < 1.0, "{}", delay.at(0.9));
        assert_eq!(QuantileFunction::zero_or_exponential(0.0, 100.0).mean(), 0.0);
    }

    #[test]
    fn unordered_or_incomplete_quantiles_are_refused() {
        for text in ["[]", "[[0,1]]", "[[0,2],[1,1]]", "[[0.1,1],[1,2]]", "[[0,1],[0.9,2]]"] {
            assert!(serde_json::from_str::<QuantileFunction>(text).is_err(), "{text}");
        }
        let text = serde_json::to_string(&uniform()).unwrap();
        assert_eq!(serde_json::from_str::<QuantileFunction>(&text).unwrap(), uniform());
    }
}
