//! Times between attempts.

use std::time::Duration;

use rand::RngExt as _;

/// Longest time between attempts.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Times between attempts, from about a second to about a minute. They are random, so that the nodes of
/// a fleet do not return to a restarted server at the same moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Time until the next attempt after another failure.
    pub(crate) fn delay(&mut self) -> Duration {
        let delay = Duration::from_secs(1 << self.failures.min(6)).min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        delay.mul_f64(rand::rng().random_range(0.5..1.0))
    }

    /// An attempt succeeded.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_minute() {
        let mut backoff = Backoff::default();
        for max in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let delay = backoff.delay();
            let max = Duration::from_secs(max);
            assert!(max / 2 <= delay && delay <= max, "{delay:?}");
        }
        backoff.reset();
        assert!(backoff.delay() <= Duration::from_secs(1));
    }
}
