//! What something costs that is done before a departure only if there is time for it.

use dwell_units::Nanos;

/// It is never thought to take less.
const FAST: Nanos = Nanos(300);

/// What took longer counts for so many times as long as the time before at most: the machine may have been
/// elsewhere.
const DEARER: i64 = 2;

/// What is too dear for the time there is is thought to be cheaper by this part every time: it may have
/// been so only once.
const FORGETS: i64 = 128;

/// How long it takes, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost(Option<Nanos>);

impl Cost {
    /// How long it is thought to take; `first` before it was done once.
    pub(super) fn or(self, first: Nanos) -> Nanos {
        self.0.unwrap_or(first)
    }

    /// It took so long.
    pub(super) fn learn(&mut self, took: Nanos) {
        let most = self.0.map_or(took, |cost| Nanos(cost.0 * DEARER));
        self.0 = Some(took.min(most).max(FAST));
    }

    /// It was left out for what it costs.
    pub(super) fn forget(&mut self) {
        self.0 = self.0.map(|cost| Nanos(cost.0 - cost.0 / FORGETS).max(FAST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_learned_and_a_stall_is_forgotten() {
        let mut cost = Cost::default();
        assert_eq!(cost.or(Nanos(7)), Nanos(7));
        let mut after = |took| {
            cost.learn(Nanos(took));
            cost.or(Nanos::ZERO).0
        };
        assert_eq!(after(6_000), 6_000, "a slow machine");
        assert_eq!([after(800), after(10)], [800, FAST.0]);
        assert_eq!([after(3_000_000), after(3_000_000)], [2 * FAST.0, 4 * FAST.0]);
        let skipped = (0..).take_while(|_| {
            cost.forget();
            cost.or(Nanos::ZERO) > Nanos(1_000)
        });
        assert!((10..40).contains(&skipped.count()));
    }
}
