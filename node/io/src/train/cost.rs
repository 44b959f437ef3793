//! What something costs that is done before a departure, so that it is left out where it would make the
//! departure late.

use std::mem;

use dwell_units::Nanos;

/// It takes a good part of what is left where that is less than so many times what it costs.
const MARGIN: i64 = 2;

/// What it costs in this train. In the next one that is learnt anew: a bad moment does not end all of this.
pub(super) struct Cost {
    /// It is never done with less time left than that.
    at_least: Nanos,
    /// The first of a train finds the way cold (a datagram to ourselves took 50 to 80 us, and others 5), which tells
    /// nothing of the others.
    first_is_past: bool,
    /// Of the others, as one that took longer may have been held up.
    least: Option<Nanos>,
}

impl Cost {
    pub(super) const fn new(at_least: Nanos) -> Self {
        Self { at_least, first_is_past: false, least: None }
    }

    /// Another train begins.
    pub(super) fn begin(&mut self) {
        *self = Self::new(self.at_least);
    }

    /// It was done often enough to tell what it costs.
    pub(super) const fn is_known(&self) -> bool {
        self.least.is_some()
    }

    /// Whether so much is left that it can be done, as far as is known.
    pub(super) fn fits(&self, left: Nanos) -> bool {
        left >= self.at_least.max(Nanos(self.least.map_or(0, |least| least.0 * MARGIN)))
    }

    /// It took so long.
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
    fn nothing_is_done_where_there_is_not_twice_the_time_that_it_takes() {
        let mut cost = Cost::new(Nanos::from_micros(6));
        let fits = |cost: &Cost, left| cost.fits(Nanos::from_micros(left));
        assert!(fits(&cost, 6) && !fits(&cost, 5), "nothing is known");
        cost.learn(Nanos::from_micros(355));
        assert!(fits(&cost, 6) && !cost.is_known(), "the first tells nothing");
        cost.learn(Nanos::from_micros(40));
        assert!(cost.is_known());
        assert!(fits(&cost, 80) && !fits(&cost, 79));
        cost.learn(Nanos::from_micros(20));
        cost.learn(Nanos::from_micros(90));
        assert!(fits(&cost, 40) && !fits(&cost, 39), "one that took longer was held up");
        cost.begin();
        assert!(fits(&cost, 6) && !cost.is_known(), "in another train nothing is known");
    }
}
