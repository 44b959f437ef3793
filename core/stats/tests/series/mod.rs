//! Realistic delay series: skewed, positive and autocorrelated.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Median delay of the series in nanoseconds.
pub(crate) const MEDIAN: f64 = 280_000.0;
/// Standard deviation of the logarithm; the 99th percentile is then 3.2 times the median.
pub(crate) const SIGMA: f64 = 0.5;

/// `n` delays whose logarithm is a normal AR(1) process with coefficient `phi`; 0 makes them
/// independent.
pub(crate) fn delays(seed: u64, n: usize, phi: f64) -> Vec<i64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
    let fresh = (1.0 - phi * phi).sqrt();
    let mut state = normal();
    let mut next = || {
        let delay = MEDIAN * (SIGMA * state).exp();
        state = phi * state + fresh * normal();
        delay as i64
    };
    (0..n).map(|_| next()).collect()
}
