//! Delays as they come: skewed, positive, and each like the one before it.

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Typical delay of the series, in nanoseconds: its median.
pub(crate) const MEDIAN: f64 = 280_000.0;
/// The spread of the logarithm; with it the 99th percentile is 3.2 times the median.
pub(crate) const SIGMA: f64 = 0.5;

/// `n` delays whose logarithm is a normal AR(1) series: `phi` of the value before and the rest new.
/// 0 makes them independent.
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
