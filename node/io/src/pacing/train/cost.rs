//! Cost of work before a departure, which is skipped where it would make the departure late.

use std::mem;

use dwell_units::Nanos;

/// Work is skipped if less than this many times its cost is left.
const COST_FACTOR: i64 = 2;

/// Cost of the work in the current train. Each train learns it anew, so that one bad moment does
/// not affect the rest.
pub(super) struct Cost {
    /// Minimum time left for the work, whatever its cost.
    at_least: Nanos,
    /// The first run in a train finds the caches cold (a datagram to ourselves took 50 to 80 us,
    /// others 5), so its cost does not count.
    first_is_past: bool,
    /// Minimum of the later runs; a longer one may have been interrupted.
    least: Option<Nanos>,
}

impl Cost {
    pub(super) const fn new(at_least: Nanos) -> Self {
        Self { at_least, first_is_past: false, least: None }
    }

    /// Starts a new train.
    pub(super) fn begin(&mut self) {
        *self = Self::new(self.at_least);
    }

    /// Whether the cost is known.
    pub(super) const fn is_known(&self) -> bool {
        self.least.is_some()
    }

    /// Whether the work fits into `left`, as far as is known.
    pub(super) fn fits(&self, left: Nanos) -> bool {
        left >= self.at_least.max(Nanos(self.least.map_or(0, |least| least.0 * COST_FACTOR)))
    }

    /// Records how long a run took.
    pub(super) fn learn(&mut self, took: Nanos) {
        if mem::replace(&mut self.first_is_past, true) {
            self.least = Some(self.least.map_or(took, |least| least.min(took)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_skipped_without_twice_its_cost_left() {
        let mut cost = Cost::new(Nanos::from_micros(6));
        let fits = |cost: &Cost, left| cost.fits(Nanos::from_micros(left));
        assert!(fits(&cost, 6) && !fits(&cost, 5), "the cost is unknown");
        cost.learn(Nanos::from_micros(355));
        assert!(fits(&cost, 6) && !cost.is_known(), "the first run does not count");
        cost.learn(Nanos::from_micros(40));
        assert!(cost.is_known());
        assert!(fits(&cost, 80) && !fits(&cost, 79));
        cost.learn(Nanos::from_micros(20));
        cost.learn(Nanos::from_micros(90));
        assert!(fits(&cost, 40) && !fits(&cost, 39), "a longer run was interrupted");
        cost.begin();
        assert!(fits(&cost, 6) && !cost.is_known(), "the cost is unknown in a new train");
    }
}
