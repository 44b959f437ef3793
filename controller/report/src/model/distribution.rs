//! Distribution as increasing values with counts, the source of percentiles, curves and bars.

use dwell_record::series::Step;
use dwell_stats::{Quantile, independent_quantile_ranks};

/// Strictly increasing values with their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleDistribution {
    steps: Vec<Step>,
    count: u64,
}

/// Point of the cumulative distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CurvePoint {
    pub(crate) value_ns: i64,
    /// Number of samples at or below the value.
    pub(crate) up_to: u64,
    /// Number of samples at or above the value.
    pub(crate) from: u64,
}

impl SampleDistribution {
    /// Merges distributions.
    pub(crate) fn merged<'a>(parts: impl IntoIterator<Item = &'a [Step]>) -> Self {
        let mut steps: Vec<Step> = parts.into_iter().flatten().copied().collect();
        steps.retain(|step| step.count > 0);
        steps.sort_unstable_by_key(|step| step.value_ns);
        steps.dedup_by(|later, kept| {
            let same = later.value_ns == kept.value_ns;
            if same {
                kept.count = kept.count.saturating_add(later.count);
            }
            same
        });
        let count = steps.iter().fold(0, |sum: u64, step| sum.saturating_add(step.count));
        Self { steps, count }
    }

    /// Replaces the extremes by the observed ones, because steps may be bin centres.
    pub(crate) fn between(&self, min: i64, max: i64) -> Self {
        let within = |step: &Step| Step { value_ns: step.value_ns.max(min).min(max), ..*step };
        let mut steps: Vec<Step> = self.steps.iter().map(within).collect();
        let mut moved = Vec::new();
        if let Some(first) = steps.first_mut() {
            first.count -= 1;
            moved.push(Step { value_ns: min, count: 1 });
        }
        if let Some(last) = steps.iter_mut().rfind(|step| step.count > 0) {
            last.count -= 1;
            moved.push(Step { value_ns: max, count: 1 });
        }
        Self::merged([steps.as_slice(), moved.as_slice()])
    }

    pub(crate) fn as_slice(&self) -> &[Step] {
        &self.steps
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn min(&self) -> Option<i64> {
        self.steps.first().map(|step| step.value_ns)
    }

    pub(crate) fn max(&self) -> Option<i64> {
        self.steps.last().map(|step| step.value_ns)
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        let sum: f64 = self.steps.iter().map(|s| s.value_ns as f64 * s.count as f64).sum();
        (self.count > 0).then(|| sum / self.count as f64)
    }

    /// Nearest-rank percentile; `None` where the count does not support it.
    pub(crate) fn quantile(&self, quantile: Quantile) -> Option<i64> {
        self.at_rank(quantile.rank(self.count)?)
    }

    /// Confidence interval of a quantile under the assumption of independent samples, which
    /// successive delays are not. `None` with too few samples.
    pub(crate) fn interval_at(&self, quantile: Quantile, confidence: f64) -> Option<(i64, i64)> {
        let (low, high) = independent_quantile_ranks(self.count, quantile, confidence)?;
        Some((self.at_rank(low)?, self.at_rank(high)?))
    }

    /// Value at a rank, counted from 1.
    pub(crate) fn at_rank(&self, rank: u64) -> Option<i64> {
        let mut seen = 0u64;
        self.steps.iter().find_map(|step| {
            seen = seen.saturating_add(step.count);
            (seen >= rank).then_some(step.value_ns)
        })
    }

    /// Cumulative distribution in about 400 points at most, denser in the upper tail. A point is
    /// dropped if it is less than 1/200 of the samples and less than 1/24 decade of "samples above"
    /// from the previous one. The remaining points are exact.
    pub(crate) fn curve(&self) -> Vec<CurvePoint> {
        let mut points: Vec<CurvePoint> = Vec::new();
        let mut below = 0u64;
        let last = self.steps.len().saturating_sub(1);
        for (i, step) in self.steps.iter().enumerate() {
            let from = self.count.saturating_sub(below);
            let up_to = below.saturating_add(step.count);
            let far = points.last().is_none_or(|kept| {
                let linear = (up_to - kept.up_to) as f64 >= self.count as f64 / 200.0;
                linear || kept.from as f64 / from.max(1) as f64 >= 10f64.powf(1.0 / 24.0)
            });
            if far || i == last {
                points.push(CurvePoint { value_ns: step.value_ns, up_to, from });
            }
            below = up_to;
        }
        points
    }

    /// Number of values between successive edges; the last bar includes its upper edge. Values
    /// outside the edges are not counted.
    pub(crate) fn bars(&self, edges: &[f64]) -> Vec<u64> {
        let mut bars = vec![0u64; edges.len().saturating_sub(1)];
        for step in &self.steps {
            let value = step.value_ns as f64;
            let after = edges.partition_point(|edge| *edge <= value);
            let bar = if edges.last() == Some(&value) {
                after.saturating_sub(2)
            } else {
                after.wrapping_sub(1)
            };
            if let Some(bar) = bars.get_mut(bar) {
                *bar = bar.saturating_add(step.count);
            }
        }
        bars
    }
}

/// Edges of `bars` bars from `min` to `max`: logarithmic if all values are positive and span more
/// than a factor of three, else linear.
pub(crate) fn edges(min: i64, max: i64, bars: u32) -> Vec<f64> {
    let (min, max) = (min as f64, if max > min { max as f64 } else { min as f64 + 1.0 });
    let logarithmic = min > 0.0 && max / min > 3.0;
    let mut edges: Vec<f64> = (0..=bars)
        .map(|i| {
            let part = f64::from(i) / f64::from(bars);
            if logarithmic { min * (max / min).powf(part) } else { min + (max - min) * part }
        })
        .collect();
    // Exact extremes, so that rounding excludes no sample.
    if let [first, .., last] = edges.as_mut_slice() {
        (*first, *last) = (min, max);
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(values: &[(i64, u64)]) -> Vec<Step> {
        values.iter().map(|&(value_ns, count)| Step { value_ns, count }).collect()
    }

    #[test]
    fn merged_distributions_equal_one_pass() {
        let (a, b) = (steps(&[(1, 2), (5, 1)]), steps(&[(0, 1), (5, 3), (9, 0)]));
        let both = SampleDistribution::merged([a.as_slice(), b.as_slice()]);
        assert_eq!(both, SampleDistribution::merged([steps(&[(0, 1), (1, 2), (5, 4)]).as_slice()]));
        assert_eq!((both.count(), both.min(), both.max()), (7, Some(0), Some(5)));
        assert_eq!(both.mean(), Some(22.0 / 7.0));
    }

    #[test]
    fn observed_extremes_preserve_count() {
        let binned = SampleDistribution::merged([steps(&[(10, 2), (20, 5), (30, 1)]).as_slice()]);
        let wide = binned.between(9, 32);
        assert_eq!(wide.as_slice(), steps(&[(9, 1), (10, 1), (20, 5), (32, 1)]));
        assert_eq!(binned.between(11, 29).as_slice(), steps(&[(11, 2), (20, 5), (29, 1)]));
        let one = |n| SampleDistribution::merged([steps(&[(10, n)]).as_slice()]);
        assert_eq!(one(1).between(9, 9).as_slice(), steps(&[(9, 1)]));
        assert_eq!(one(3).between(9, 11).as_slice(), steps(&[(9, 1), (10, 1), (11, 1)]));
        assert_eq!(SampleDistribution::default().between(1, 2), SampleDistribution::default());
    }

    #[test]
    fn unsupported_percentile_is_none() {
        let hundred = SampleDistribution::merged([(1..=100)
            .map(|i| Step { value_ns: i, count: 1 })
            .collect::<Vec<_>>()
            .as_slice()]);
        assert_eq!(hundred.quantile(Quantile::P50), Some(50));
        assert_eq!(hundred.quantile(Quantile::P99), Some(99));
        assert_eq!(hundred.quantile(Quantile::P99_9), None);
        assert_eq!(SampleDistribution::default().quantile(Quantile::P50), None);
    }

    #[test]
    fn thinned_curve_keeps_both_ends() {
        let many: Vec<Step> = (0..100_000).map(|i| Step { value_ns: i * 7, count: 1 }).collect();
        let curve = SampleDistribution::merged([many.as_slice()]).curve();
        assert!(curve.len() <= 400, "{} points", curve.len());
        assert_eq!((curve[0].value_ns, curve[0].from), (0, 100_000));
        let last = curve[curve.len() - 1];
        assert_eq!((last.value_ns, last.up_to, last.from), (99_999 * 7, 100_000, 1));
        assert!(curve.iter().all(|point| point.up_to == point.value_ns as u64 / 7 + 1));
    }

    #[test]
    fn every_value_is_in_exactly_one_bar() {
        for (min, max) in [(3, 3), (-5, 1_000), (170_167, 3_256_449)] {
            let values: Vec<Step> = (0..500)
                .map(|i| Step { value_ns: min + (max - min) * i / 499, count: 2 })
                .collect();
            let all = SampleDistribution::merged([values.as_slice()]);
            let bars = all.bars(&edges(min, max, 60));
            assert_eq!(bars.len(), 60);
            assert_eq!(bars.iter().sum::<u64>(), all.count());
        }
    }
}
