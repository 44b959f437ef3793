//! Distribution functions used by intervals and tests.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::beta::beta_reg;

/// Maximum variance for the exact calculation. Above it the continued fraction of the incomplete
/// beta function does not converge within its step limit, and the approximation is accurate to
/// 0.0005.
const MAX_EXACT_VARIANCE: f64 = 300.0;

/// Quantile of the standard normal distribution for `p` between 0 and 1.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

/// Quantile of Student's t with `freedom` degrees (at least 1) for `p` between 0 and 1.
pub(crate) fn student_quantile(p: f64, freedom: f64) -> f64 {
    student(freedom).inverse_cdf(p)
}

/// Two-sided tail probability of Student's t.
pub(crate) fn student_two_sided(t: f64, freedom: f64) -> f64 {
    2.0 * student(freedom).sf(t.abs())
}

/// Probability of at most `k` hits in `n` independent trials with probability `p` between 0 and 1.
/// `k`, from -1 to `n`, and `n` may be fractional.
pub(crate) fn binomial_at_most(k: f64, n: f64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    if k <= -1.0 {
        return 0.0;
    }
    if n * p * (1.0 - p) > MAX_EXACT_VARIANCE {
        camp_paulson(k, n, p)
    } else {
        beta_reg(n - k, k + 1.0, 1.0 - p)
    }
}

/// Approximation of Camp and Paulson (1951); error at most 0.007 / standard deviation.
fn camp_paulson(k: f64, n: f64, p: f64) -> f64 {
    let (a, b) = (1.0 / (9.0 * (n - k)), 1.0 / (9.0 * (k + 1.0)));
    let root = ((k + 1.0) * (1.0 - p) / ((n - k) * p)).cbrt();
    let z = ((1.0 - b) * root - (1.0 - a)) / (b * root * root + a).sqrt();
    Normal::standard().cdf(z)
}

/// Returns whether a confidence is strictly between 0 and 1.
pub(crate) fn is_confidence(confidence: f64) -> bool {
    confidence > 0.0 && confidence < 1.0
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).expect("at least one degree of freedom")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_printed_tables() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959_964), (0.995, 2.575_829), (0.025, -1.959_964)] {
            assert!((normal_quantile(p) - z).abs() < 1e-5, "{p}");
        }
        for (freedom, t) in [(1.0, 12.706_2), (5.0, 2.570_58), (25.0, 2.059_54), (200.0, 1.971_9)] {
            assert!((student_quantile(0.975, freedom) - t).abs() < 1e-3, "{freedom}");
            assert!((student_two_sided(t, freedom) - 0.05).abs() < 1e-4, "{freedom}");
        }
    }

    #[test]
    fn binomial_probabilities_equal_their_sum_term_by_term() {
        for (n, p) in
            [(1_u32, 0.5), (20, 0.1), (60, 0.95), (1_000, 0.5), (30_000, 0.99), (1_500, 0.4)]
        {
            let close = if f64::from(n) * p * (1.0 - p) > MAX_EXACT_VARIANCE { 5e-4 } else { 1e-9 };
            // In logarithms, because the first term may underflow.
            let mut term = f64::from(n) * f64::ln(1.0 - p);
            let mut sum = 0.0;
            for k in 0..=n {
                sum += term.exp();
                let found = binomial_at_most(f64::from(k), f64::from(n), p);
                assert!((found - sum).abs() < close, "{k} of {n} at {p}: {found} for {sum}");
                term += (f64::from(n - k) / f64::from(k + 1) * p / (1.0 - p)).ln();
            }
        }
    }
}
