//! Verdict on a difference.

dwell_units::named! {
    /// Direction in which a figure differs from the baseline.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Shift {
        /// Higher.
        Rises = "rises",
        /// Lower.
        Falls = "falls",
        /// The samples do not show a difference.
        CannotTell = "cannot-tell",
    }
}

impl Shift {
    /// Verdict of the interval of a difference: significant only if it excludes 0.
    pub(crate) fn of<T: PartialOrd + Default>(low: T, high: T) -> Self {
        if low > T::default() {
            Self::Rises
        } else if high < T::default() {
            Self::Falls
        } else {
            Self::CannotTell
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_touching_zero_gives_no_verdict() {
        let cases = [(1, 5, Shift::Rises), (-5, -1, Shift::Falls), (0, 5, Shift::CannotTell)];
        for (low, high, expected) in cases.into_iter().chain([(-5, 0, Shift::CannotTell)]) {
            assert_eq!(Shift::of(low, high), expected);
        }
    }
}
