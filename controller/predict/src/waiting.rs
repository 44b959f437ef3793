//! Waiting behind packets of other flows.

use crate::quantile_function::QuantileFunction;

/// Largest utilisation for which a waiting time is computed.
const MAX_UTILISATION: f64 = 0.999;

/// Waiting time in nanoseconds of a packet that finds a server (a node or a link direction) busy
/// with packets of other flows for the share `utilisation` of the time. `service` is the mean of the
/// squares of their service times by the mean of these, in nanoseconds: the service time, if all are
/// equal.
///
/// The packet waits with probability `utilisation`. Its mean wait is that of a queue with random
/// arrivals, utilisation x service / (2 (1 - utilisation)) (M/G/1, by Pollaczek and Khinchine), and
/// the time of a packet that waits is taken as exponential.
pub fn waiting_time(utilisation: f64, service: f64) -> QuantileFunction {
    let (share, mean) = share_and_mean(utilisation, service);
    if share == 0.0 {
        return QuantileFunction::constant(0.0);
    }
    QuantileFunction::zero_or_exponential(share, mean)
}

/// Mean, variance and quantile of [`waiting_time`].
pub(crate) fn waiting_moments(utilisation: f64, service: f64, probability: f64) -> [f64; 3] {
    let (share, mean) = share_and_mean(utilisation, service);
    let rest = 1.0 - probability;
    let quantile = if rest < share { mean * (share / rest).ln() } else { 0.0 };
    [share * mean, share * (2.0 - share) * mean * mean, quantile]
}

/// Share of the packets that wait, and the mean wait of these.
fn share_and_mean(utilisation: f64, service: f64) -> (f64, f64) {
    let utilisation = utilisation.clamp(0.0, MAX_UTILISATION);
    if utilisation == 0.0 || service <= 0.0 {
        return (0.0, 0.0);
    }
    (utilisation, service / (2.0 * (1.0 - utilisation)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_wait_is_that_of_a_queue_with_constant_service() {
        for (utilisation, mean) in [(0.0, 0.0), (0.5, 500.0), (0.8, 2_000.0)] {
            let wait = waiting_time(utilisation, 1_000.0);
            assert!((wait.mean() - mean).abs() <= 0.03 * mean, "{utilisation}: {}", wait.mean());
            assert_eq!(wait.min(), 0.0);
            let [mean, variance, p95] = waiting_moments(utilisation, 1_000.0, 0.95);
            let is_near = |a: f64, b: f64| (a - b).abs() <= 0.05 * b;
            assert!(is_near(wait.mean(), mean) && is_near(wait.variance(), variance), "{wait:?}");
            assert!(is_near(wait.at(0.95), p95), "{} and {p95}", wait.at(0.95));
        }
    }
}
