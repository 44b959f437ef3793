//! Waiting behind packets of other flows.

use crate::quantile_function::QuantileFunction;

/// Largest utilisation for which a waiting time is computed.
const MAX_UTILISATION: f64 = 0.999;

/// Waiting time in nanoseconds of a packet that finds a server (a node or a link direction) busy
/// with packets of other flows for the share `utilisation` of the time, each for `service`
/// nanoseconds.
///
/// The packet waits with probability `utilisation`. Its mean wait is that of a queue with random
/// arrivals and constant service, utilisation x service / (2 (1 - utilisation)) (M/D/1, by Pollaczek
/// and Khinchine), and the time of a packet that waits is taken as exponential.
pub fn waiting_time(utilisation: f64, service: f64) -> QuantileFunction {
    let utilisation = utilisation.clamp(0.0, MAX_UTILISATION);
    if utilisation == 0.0 || service <= 0.0 {
        return QuantileFunction::constant(0.0);
    }
    QuantileFunction::zero_or_exponential(utilisation, service / (2.0 * (1.0 - utilisation)))
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
        }
    }
}
