//! Line fits, such as delay against packet size (Miya 2020, S0.16): least squares, and the
//! Theil-Sen estimator, which tolerates a fifth of outliers.
//!
//! Points are (x, y) in any units; with bytes and nanoseconds the intercept is in nanoseconds and
//! the slope in nanoseconds per byte. Intervals assume independent residuals. If residuals are
//! dependent, fit the percentiles of the cells instead of their samples.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::seq::index::sample;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::interval::RealInterval;
use crate::probability::{is_confidence, normal_quantile, student_quantile};

/// Maximum number of points of the robust fit (2 million pairs); beyond it, a random subset is
/// used.
pub const MAX_ROBUST_POINTS: usize = 2_000;

/// Coefficient of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coefficient {
    /// The estimate.
    pub value: f64,
    /// Its standard error.
    pub standard_error: f64,
    /// Interval of the true value, by Student's t with n - 2 degrees of freedom.
    pub interval: RealInterval,
}

/// Least-squares line: y = intercept + slope x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineFit {
    /// Number of points.
    pub count: usize,
    /// y at x = 0.
    pub intercept: Coefficient,
    /// y per x.
    pub slope: Coefficient,
    /// Share of the variance of y explained by the line; `None` if y does not vary.
    pub r_squared: Option<f64>,
    /// Standard deviation of the residuals (n - 2).
    pub residual_stddev: f64,
    mean_x: f64,
    /// Sum of squared deviations of x from its mean.
    square_x: f64,
    /// Student's t at the requested confidence.
    student: f64,
}

/// The median of all slopes between two points, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustFit {
    /// The median slope.
    pub slope: f64,
    /// Interval of the true slope, from the distribution of Kendall's S corrected for ties (Sen
    /// 1968); `None` if the slopes do not bracket it.
    pub slope_interval: Option<RealInterval>,
}

impl LineFit {
    /// y of the line at x.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept.value + self.slope.value * x
    }

    /// Half the width of the confidence interval of the line (not of single points) at x.
    pub fn margin_at(&self, x: f64) -> f64 {
        let share = 1.0 / self.count as f64 + (x - self.mean_x).powi(2) / self.square_x;
        self.student * self.residual_stddev * share.sqrt()
    }
}

/// Least squares of points (group, x, y) with a separate offset for each group (analysis of
/// covariance). The slope is the one within groups, the line passes through the mean of all points,
/// and R2 is the share of the variance within groups. Also returns the points in order, with the
/// group offsets removed. Degrees of freedom are n minus one per group minus one for the slope.
///
/// One group is ordinary least squares. `None` without degrees of freedom, if x does not vary within
/// any group, if a point is not finite, or if the confidence is not between 0 and 1.
///
/// ```
/// use dwell_stats::grouped_least_squares;
///
/// // Delay in us by packet size in bytes, in an idle group and a loaded one.
/// let points = [
///     (0, 100.0, 12.0), (0, 500.0, 20.0), (0, 900.0, 28.0),
///     (1, 100.0, 32.0), (1, 500.0, 40.0), (1, 900.0, 48.0),
/// ];
/// let (line, without_offsets) = grouped_least_squares(&points, 0.95).expect("three sizes");
/// assert!((line.slope.value - 0.02).abs() < 1e-9);
/// // Without the offset of their groups, the delays at 100 bytes are equal.
/// assert!((without_offsets[0].1 - without_offsets[3].1).abs() < 1e-9);
/// ```
pub fn grouped_least_squares(
    points: &[(usize, f64, f64)],
    confidence: f64,
) -> Option<(LineFit, Vec<(f64, f64)>)> {
    let count = points.len();
    if !points.iter().all(|(_, x, y)| x.is_finite() && y.is_finite()) || !is_confidence(confidence)
    {
        return None;
    }
    let mut groups: BTreeMap<usize, (f64, f64, f64)> = BTreeMap::new();
    for (group, x, y) in points {
        let sums = groups.entry(*group).or_default();
        *sums = (sums.0 + 1.0, sums.1 + x, sums.2 + y);
    }
    let freedom = count.checked_sub(groups.len() + 1).filter(|&left| left > 0)? as f64;
    let n = count as f64;
    let mean_x = groups.values().map(|sums| sums.1).sum::<f64>() / n;
    let mean_y = groups.values().map(|sums| sums.2).sum::<f64>() / n;
    let within = |(group, x, y): &(usize, f64, f64)| {
        let (n, sum_x, sum_y) = groups[group];
        (x - sum_x / n, y - sum_y / n)
    };
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in points.iter().map(within) {
        xx += x * x;
        xy += x * y;
        yy += y * y;
    }
    if xx <= 0.0 || !xx.is_finite() {
        return None;
    }
    let slope = xy / xx;
    let left_over: Vec<f64> = points.iter().map(within).map(|(x, y)| y - slope * x).collect();
    let squares: f64 = left_over.iter().map(|rest| rest * rest).sum();
    let residual_stddev = (squares / freedom).sqrt();
    let student = student_quantile(0.5 + confidence / 2.0, freedom);
    let coefficient = |value: f64, standard_error: f64| {
        let margin = student * standard_error;
        let interval = RealInterval { low: value - margin, high: value + margin };
        Coefficient { value, standard_error, interval }
    };
    let intercept_error = residual_stddev * (1.0 / n + mean_x * mean_x / xx).sqrt();
    let fit = LineFit {
        count,
        intercept: coefficient(mean_y - slope * mean_x, intercept_error),
        slope: coefficient(slope, residual_stddev / xx.sqrt()),
        r_squared: (yy > 0.0).then(|| (1.0 - squares / yy).clamp(0.0, 1.0)),
        residual_stddev,
        mean_x,
        square_x: xx,
        student,
    };
    let centred = points.iter().zip(left_over).map(|(&(_, x, _), rest)| (x, fit.at(x) + rest));
    Some((fit, centred.collect()))
}

/// Theil-Sen line. Above [`MAX_ROBUST_POINTS`] points a random subset drawn with `seed` is used,
/// which widens the interval. `None` with fewer than three points, if x does not vary, if a point
/// is not finite, or if the confidence is not between 0 and 1.
///
/// ```
/// use dwell_stats::theil_sen;
///
/// // Delay in us by packet size in bytes, with one outlier.
/// let points = [(100.0, 12.0), (500.0, 20.0), (900.0, 28.0), (1_300.0, 90.0), (1_500.0, 40.0)];
/// let line = theil_sen(&points, 0.95, 1).expect("five sizes");
/// assert!((line.slope - 0.02).abs() < 1e-9);
/// ```
pub fn theil_sen(points: &[(f64, f64)], confidence: f64, seed: u64) -> Option<RobustFit> {
    if points.len() < 3 || !all_finite(points) || !is_confidence(confidence) {
        return None;
    }
    let mut points = subset(points, seed);
    let mut slopes = Vec::with_capacity(points.len() * (points.len() - 1) / 2);
    for (i, a) in points.iter().enumerate() {
        let sloped = points[i + 1..].iter().filter(|b| b.0 != a.0);
        slopes.extend(sloped.map(|b| (b.1 - a.1) / (b.0 - a.0)));
    }
    if slopes.is_empty() {
        return None;
    }
    let slope = median(&mut slopes);
    let spread = normal_quantile(0.5 + confidence / 2.0) * kendall_variance(&mut points).sqrt();
    let pairs = slopes.len() as f64;
    let low = ((pairs - spread) / 2.0).floor();
    let high = ((pairs + spread) / 2.0).ceil() + 1.0;
    let slope_interval = (low >= 1.0 && high <= pairs).then(|| RealInterval {
        low: ranked(&mut slopes, low as usize),
        high: ranked(&mut slopes, high as usize),
    });
    Some(RobustFit { slope, slope_interval })
}

fn all_finite(points: &[(f64, f64)]) -> bool {
    points.iter().all(|(x, y)| x.is_finite() && y.is_finite())
}

fn subset(points: &[(f64, f64)], seed: u64) -> Vec<(f64, f64)> {
    if points.len() <= MAX_ROBUST_POINTS {
        return points.to_vec();
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    sample(&mut rng, points.len(), MAX_ROBUST_POINTS).iter().map(|i| points[i]).collect()
}

/// Variance of Kendall's S for independent x and y, corrected for ties in both (Kendall 1970,
/// chapter 4). Reorders the points.
fn kendall_variance(points: &mut [(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    points.sort_unstable_by(|a, b| a.1.total_cmp(&b.1));
    let y: Vec<_> = points.chunk_by(|a, b| a.1 == b.1).map(|tied| tied.len() as f64).collect();
    points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let x: Vec<_> = points.chunk_by(|a, b| a.0 == b.0).map(|tied| tied.len() as f64).collect();
    let sum = |ties: &[f64], term: fn(f64) -> f64| ties.iter().map(|&t| term(t)).sum::<f64>();
    let scattered = |t: f64| t * (t - 1.0) * (2.0 * t + 5.0);
    let triples = |t: f64| t * (t - 1.0) * (t - 2.0);
    let pairs = |t: f64| t * (t - 1.0);
    (scattered(n) - sum(&x, scattered) - sum(&y, scattered)) / 18.0
        + sum(&x, triples) * sum(&y, triples) / (9.0 * triples(n))
        + sum(&x, pairs) * sum(&y, pairs) / (2.0 * pairs(n))
}

fn ranked(values: &mut [f64], rank: usize) -> f64 {
    *values.select_nth_unstable_by(rank - 1, f64::total_cmp).1
}

/// The median; the mean of the middle two if the count is even.
fn median(values: &mut [f64]) -> f64 {
    let n = values.len();
    let upper = ranked(values, n / 2 + 1);
    if n % 2 == 1 { upper } else { (ranked(values, n / 2) + upper) / 2.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEED: u64 = 5;

    fn least_squares(points: &[(f64, f64)], confidence: f64) -> Option<LineFit> {
        let grouped: Vec<_> = points.iter().map(|&(x, y)| (0, x, y)).collect();
        Some(grouped_least_squares(&grouped, confidence)?.0)
    }

    fn close(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= 1e-6 * expected.abs().max(1e-3)
    }

    #[test]
    fn least_squares_matches_nist_norris() {
        let y = [
            0.1, 338.8, 118.1, 888.0, 9.2, 228.1, 668.5, 998.5, 449.1, 778.9, 559.2, 0.3, 0.1,
            778.1, 668.8, 339.3, 448.9, 10.8, 557.7, 228.3, 998.0, 888.8, 119.6, 0.3, 0.6, 557.6,
            339.3, 888.0, 998.5, 778.9, 10.2, 117.6, 228.9, 668.4, 449.2, 0.2,
        ];
        let x = [
            0.2, 337.4, 118.2, 884.6, 10.1, 226.5, 666.3, 996.3, 448.6, 777.0, 558.2, 0.4, 0.6,
            775.5, 666.9, 338.0, 447.5, 11.6, 556.0, 228.1, 995.8, 887.6, 120.2, 0.3, 0.3, 556.8,
            339.1, 887.2, 999.0, 779.0, 11.1, 118.3, 229.2, 669.1, 448.9, 0.5,
        ];
        let points: Vec<_> = x.into_iter().zip(y).collect();
        let fit = least_squares(&points, 0.95).unwrap();
        assert!(close(fit.intercept.value, -0.262_323_073_774_029), "{fit:?}");
        assert!(close(fit.slope.value, 1.002_116_818_020_45), "{fit:?}");
        assert!(close(fit.intercept.standard_error, 0.232_818_234_301_152), "{fit:?}");
        assert!(close(fit.slope.standard_error, 0.000_429_796_848_199_937), "{fit:?}");
        assert!(close(fit.residual_stddev, 0.884_796_396_144_373), "{fit:?}");
        assert!(close(fit.r_squared.unwrap(), 0.999_993_745_883_712), "{fit:?}");
        // 2.0322 is Student's t with 34 degrees of freedom at 97.5 %.
        let margin = (fit.slope.interval.high - fit.slope.interval.low) / 2.0;
        assert!((margin / fit.slope.standard_error - 2.032_245).abs() < 1e-5, "{fit:?}");
    }

    #[test]
    fn small_fit_matches_the_interval_computed_by_hand() {
        // The residuals' squares sum to 2.4, so s = sqrt(0.8); half width = 3.18245 s / sqrt(10).
        let points = [(1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 4.0), (5.0, 5.0)];
        let fit = least_squares(&points, 0.95).unwrap();
        assert!(close(fit.intercept.value, 2.2) && close(fit.slope.value, 0.6), "{fit:?}");
        assert!(close(fit.r_squared.unwrap(), 0.6), "{fit:?}");
        assert!((fit.slope.interval.high - 0.6 - 0.900_13).abs() < 1e-4, "{fit:?}");
        assert!(close(fit.margin_at(0.0), fit.intercept.interval.high - fit.intercept.value));
        assert!(close(fit.margin_at(3.0), 3.182_446 * (0.8_f64 / 5.0).sqrt()), "{fit:?}");
    }

    #[test]
    fn group_offsets_do_not_hide_a_common_slope() {
        // Two groups 1,000 apart, one measured at high x: plain least squares yields -200.
        let points = [
            (0, 1.0, 1_001.0),
            (0, 2.0, 1_002.1),
            (0, 3.0, 1_002.9),
            (1, 6.0, 6.0),
            (1, 7.0, 7.1),
            (1, 8.0, 7.9),
        ];
        let (fit, centred) = grouped_least_squares(&points, 0.95).unwrap();
        assert!(close(fit.slope.value, 0.95), "{fit:?}");
        assert!(fit.slope.interval.high < 1.25, "{fit:?}");
        assert!(centred.iter().all(|(x, y)| (y - fit.at(*x)).abs() < 0.2), "{centred:?}");
        let one: Vec<_> = points[..3].iter().map(|&(_, x, y)| (7, x, y)).collect();
        let (_, same) = grouped_least_squares(&one, 0.95).unwrap();
        assert!(same.iter().zip(&one).all(|((_, y), (_, _, as_given))| close(*y, *as_given)));
        // Two points of one group leave no degree of freedom.
        assert_eq!(grouped_least_squares(&points[..2], 0.95), None);
    }

    #[test]
    fn robust_line_tolerates_a_fifth_of_outliers() {
        let delay = |i: usize| {
            let (x, is_outlier) = ((100 * (1 + i % 14)) as f64, i.is_multiple_of(5) && i % 14 > 9);
            (x, 8_000.0 + 12.5 * x + (i % 7) as f64 + if is_outlier { 5e6 } else { 0.0 })
        };
        let points: Vec<_> = (0..700).map(delay).collect();
        let robust = theil_sen(&points, 0.95, SEED).unwrap();
        assert!((robust.slope - 12.5).abs() < 0.05, "{robust:?}");
        assert!(least_squares(&points, 0.95).unwrap().slope.value > 100.0);
    }

    #[test]
    fn slope_interval_matches_sens_example() {
        // Of 21 slopes of 7 points, S selects the 4th and the 18th at 93 %.
        let x = [1.0, 2.0, 3.0, 4.0, 10.0, 12.0, 18.0];
        let y = [9.0, 15.0, 19.0, 20.0, 45.0, 55.0, 78.0];
        let points: Vec<_> = x.into_iter().zip(y).collect();
        let fit = theil_sen(&points, 0.93, SEED).unwrap();
        assert_eq!(fit.slope, 4.0);
        let interval = fit.slope_interval.unwrap();
        assert_eq!((interval.low, interval.high), (26.0 / 7.0, 35.0 / 8.0), "{fit:?}");
    }

    #[test]
    fn many_points_are_sampled_by_seed_and_few_are_not() {
        let points: Vec<_> =
            (0..100_000).map(|i| (f64::from(i % 14), f64::from(3 * (i % 14) + i % 11))).collect();
        let fit = theil_sen(&points, 0.95, SEED).unwrap();
        assert_eq!(subset(&points, SEED).len(), MAX_ROBUST_POINTS);
        assert_eq!(theil_sen(&points, 0.95, SEED), Some(fit), "seed {SEED}");
        assert!((fit.slope - 3.0).abs() < 0.1, "seed {SEED}: {fit:?}");
    }

    #[test]
    fn degenerate_points_have_no_fit() {
        let cases: [&[(f64, f64)]; 4] = [
            &[],
            &[(1.0, 1.0), (2.0, 2.0)],
            &[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)],
            &[(1.0, 1.0), (2.0, f64::NAN), (3.0, 3.0)],
        ];
        for points in cases {
            assert_eq!(least_squares(points, 0.95), None);
            assert_eq!(theil_sen(points, 0.95, SEED), None);
        }
        let flat = least_squares(&[(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)], 0.95).unwrap();
        assert_eq!((flat.slope.value, flat.r_squared), (0.0, None));
    }

    proptest! {
        #[test]
        fn both_fits_scale_with_the_units(
            points in proptest::collection::vec((0..15_i32, -1_000..1_000_i32), 5..60),
        ) {
            let points: Vec<_> =
                points.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).collect();
            let moved: Vec<_> = points.iter().map(|(x, y)| (x * 4.0 + 3.0, y * 8.0 - 5.0)).collect();
            if let Some(fit) = least_squares(&points, 0.9) {
                let found = least_squares(&moved, 0.9).unwrap();
                prop_assert!((found.slope.value - fit.slope.value * 2.0).abs() < 1e-6);
                prop_assert!((found.slope.interval.low - fit.slope.interval.low * 2.0).abs() < 1e-6);
                prop_assert!((found.r_squared.unwrap_or(0.0) - fit.r_squared.unwrap_or(0.0)).abs() < 1e-6);
            }
            if let Some(fit) = theil_sen(&points, 0.9, SEED) {
                let found = theil_sen(&moved, 0.9, SEED).unwrap();
                prop_assert!((found.slope - fit.slope * 2.0).abs() < 1e-6);
            }
        }

        #[test]
        fn robust_slope_is_the_median_of_all_slopes(
            points in proptest::collection::vec((0..9_i32, -99..99_i32), 3..40),
        ) {
            let points: Vec<_> =
                points.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).collect();
            let mut slopes = Vec::new();
            for a in &points {
                // Both orders of each pair give every slope twice, with the same median.
                slopes.extend(
                    points.iter().filter(|b| a.0 != b.0).map(|b| (b.1 - a.1) / (b.0 - a.0)),
                );
            }
            slopes.sort_by(f64::total_cmp);
            let half = slopes.len() / 2;
            let naive = (half > 0).then(|| (slopes[half - 1] + slopes[half]) / 2.0);
            let found = theil_sen(&points, 0.95, SEED).map(|fit| fit.slope);
            prop_assert_eq!(found.is_some(), naive.is_some());
            if let (Some(found), Some(naive)) = (found, naive) {
                prop_assert!((found - naive).abs() < 1e-9, "{} for {}", found, naive);
            }
        }

        #[test]
        fn kendall_variance_without_ties_is_uncorrected(n in 3..60_usize) {
            let mut points: Vec<_> = (0..n).map(|i| (i as f64, (i * 37 % 61) as f64)).collect();
            let m = n as f64;
            let plain = m * (m - 1.0) * (2.0 * m + 5.0) / 18.0;
            prop_assert!((kendall_variance(&mut points) - plain).abs() < 1e-6);
        }
    }
}
