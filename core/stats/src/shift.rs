//! The verdict on a difference.

/// Which way a figure has moved from the baseline, as far as the samples can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shift {
    /// It is higher.
    Rises,
    /// It is lower.
    Falls,
    /// The samples do not tell; they may not differ.
    CannotTell,
}

impl Shift {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rises => "rises",
            Self::Falls => "falls",
            Self::CannotTell => "cannot-tell",
        }
    }

    /// The verdict of an interval of the difference: it tells only if 0 is not in it.
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
    fn an_interval_that_touches_zero_tells_nothing() {
        let cases = [(1, 5, Shift::Rises), (-5, -1, Shift::Falls), (0, 5, Shift::CannotTell)];
        for (low, high, expected) in cases.into_iter().chain([(-5, 0, Shift::CannotTell)]) {
            assert_eq!(Shift::of(low, high), expected);
        }
    }
}
