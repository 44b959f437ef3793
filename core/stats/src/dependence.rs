//! Variance of the mean of a time series with dependent neighbours.
//!
//! The long-run variance is estimated with equal-weighted cosines (Müller 2007; Lazarus, Lewis,
//! Stock and Watson 2018): the mean square of the first `terms` cosine transforms of the series.
//! With few terms compared with n, slow changes count fully, and the estimate has `terms` degrees
//! of freedom, which a Student t accounts for. If the slowest terms stand out even among these,
//! only they count.

use std::f64::consts::PI;

use crate::probability::{normal_quantile, student_quantile};

/// Maximum number of cells; longer series are summed into cells first. The cosines are much slower
/// than a cell: the fastest loses 2.3 % of its power, all together less than 1 %.
const MAX_CELLS: usize = 600;
/// Maximum number of terms. More gain little: Student's t with 100 degrees of freedom is within 1.3
/// % of the normal quantile.
const MAX_TERMS: f64 = 100.0;
/// Number of standard deviations by which the mean square of the slowest quarter may exceed the
/// overall mean square by chance. The standard deviation of a mean of k squares is sqrt(2 / k).
const DRIFT_SIGMAS: f64 = 2.5;

/// Variance of a series and of its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dependence {
    /// Number of values.
    pub(crate) n: usize,
    /// Variance of the values (divided by n).
    pub(crate) variance: f64,
    /// Variance of the mean, times n.
    pub(crate) long_run: f64,
    /// Degrees of freedom of `long_run`.
    pub(crate) freedom: f64,
}

impl Dependence {
    /// Analyses `n` values, `value(0)` the oldest; `None` for fewer than two.
    pub(crate) fn of(n: usize, value: impl Fn(usize) -> f64) -> Option<Self> {
        if n < 2 {
            return None;
        }
        // Relative to the first value: squares of large values would hide a small spread.
        let origin = value(0);
        let cells = n.min(MAX_CELLS);
        let edge = |cell: usize| (cell as u128 * n as u128 / cells as u128) as usize;
        let mut sums = vec![0.0; cells];
        let (mut total, mut squares) = (0.0, 0.0);
        for (cell, sum) in sums.iter_mut().enumerate() {
            for i in edge(cell)..edge(cell + 1) {
                let relative = value(i) - origin;
                *sum += relative;
                squares += relative * relative;
            }
            total += *sum;
        }
        let mean = total / n as f64;
        for (cell, sum) in sums.iter_mut().enumerate() {
            *sum -= mean * (edge(cell + 1) - edge(cell)) as f64;
        }
        let powers = cosine_powers(&sums, terms(n));
        let all = mean_of(&powers);
        let slowest = &powers[..powers.len().div_ceil(4)];
        // Slow changes beyond the resolution of the terms appear as power that still rises towards
        // the slowest terms; then only these are used.
        let drifts =
            mean_of(slowest) > all * (1.0 + DRIFT_SIGMAS * (2.0 / slowest.len() as f64).sqrt());
        let (power, freedom) =
            if drifts { (mean_of(slowest), slowest.len()) } else { (all, powers.len()) };
        let (long_run, freedom) = (power * 2.0 / n as f64, freedom as f64);
        let variance = (squares / n as f64 - mean * mean).max(0.0);
        Some(Self { n, variance, long_run, freedom })
    }

    /// Number of independent values with the same variance of the mean; above n if neighbours are
    /// negatively correlated. A constant series counts as independent.
    pub(crate) fn effective(&self) -> f64 {
        if self.variance > 0.0 && self.long_run > 0.0 {
            (self.n as f64 * self.variance / self.long_run).max(1.0)
        } else {
            self.n as f64
        }
    }

    /// Effective number reduced for the uncertainty of the long-run variance at this confidence,
    /// for use with a normal or binomial distribution. `freedom` is the degrees of freedom of that
    /// variance, at least 1.
    pub(crate) fn effective_at(&self, confidence: f64, freedom: f64) -> f64 {
        let p = 0.5 + confidence / 2.0;
        let widening = student_quantile(p, freedom.max(1.0)) / normal_quantile(p);
        self.effective() / (widening * widening)
    }
}

/// Number of independent values with the same variance of the mean as a time series; `None` for
/// fewer than two values. Above the number of values if neighbours are negatively correlated.
///
/// ```
/// let alternating: Vec<f64> = (0..1_000).map(|i| f64::from(i / 100 % 2)).collect();
/// let effective = dwell_stats::effective_sample_size(&alternating).expect("a series");
/// assert!(effective < 100.0);
/// ```
pub fn effective_sample_size(series: &[f64]) -> Option<f64> {
    Some(Dependence::of(series.len(), |i| series[i])?.effective())
}

/// Number of cosines: 0.3 n^(2/3), a compromise between including slow changes and a precise
/// variance.
fn terms(n: usize) -> usize {
    (0.3 * (n as f64).powf(2.0 / 3.0)).round().clamp(1.0, MAX_TERMS) as usize
}

/// Squares of the first `terms` cosine transforms of the cells, slowest first.
fn cosine_powers(cells: &[f64], terms: usize) -> Vec<f64> {
    let m = cells.len();
    // cos(pi j (2c + 1) / 2m) repeats after 4m steps of its integer argument.
    let turn = 4 * m;
    let cosines: Vec<f64> = (0..turn).map(|k| (PI * k as f64 / (2 * m) as f64).cos()).collect();
    let power = |j: usize| {
        let mut argument = j;
        let mut sum = 0.0;
        for cell in cells {
            sum += cell * cosines[argument];
            argument += 2 * j;
            if argument >= turn {
                argument -= turn;
            }
        }
        sum * sum
    };
    (1..=terms.min(m - 1).max(1)).map(power).collect()
}

fn mean_of(powers: &[f64]) -> f64 {
    powers.iter().sum::<f64>() / powers.len() as f64
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const SEED: u64 = 11;

    /// AR(1): `phi` times the previous value plus a uniform step of variance 1/12.
    fn ar1(n: usize, phi: f64) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        let mut value = 0.0;
        let mut next = || {
            value = phi * value + rng.random::<f64>() - 0.5;
            value
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn ar1_series_has_the_theoretical_effective_size() {
        for phi in [-0.5, 0.0, 0.5, 0.8, 0.95] {
            let series = ar1(200_000, phi);
            let found = Dependence::of(series.len(), |i| series[i]).unwrap().effective();
            let theory = 200_000.0 * (1.0 - phi) / (1.0 + phi);
            assert!((found / theory - 1.0).abs() < 0.25, "seed {SEED}, phi {phi}: {found}");
        }
    }

    #[test]
    fn cells_change_little() {
        let series = ar1(20_000, 0.8);
        let found = Dependence::of(series.len(), |i| series[i]).unwrap();
        let mean = series.iter().sum::<f64>() / series.len() as f64;
        let centred: Vec<_> = series.iter().map(|x| x - mean).collect();
        let naive =
            mean_of(&cosine_powers(&centred, terms(series.len()))) * 2.0 / series.len() as f64;
        assert!((found.long_run / naive - 1.0).abs() < 0.01, "seed {SEED}: {found:?}, {naive}");
    }

    #[test]
    fn constant_and_short_series_are_handled() {
        assert_eq!(Dependence::of(1, |_| 5.0), None);
        assert_eq!(Dependence::of(100, |_| 5.0).unwrap().effective(), 100.0);
        assert!(Dependence::of(2, |i| i as f64).unwrap().effective() >= 1.0);
    }
}
