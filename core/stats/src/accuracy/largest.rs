//! The largest rate that a sender keeps accurately.

use dwell_units::BitRate;

use super::Accuracy;

/// The largest rate such that it and every smaller one that was tried are accurate. A larger one that
/// happens to be accurate above one that is not does not count: networks are measured at all rates
/// up to their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargestRate {
    /// This one.
    Rate {
        /// The rate.
        rate: BitRate,
        /// The next one that was tried, where it cannot be told: the largest may then be that or
        /// more.
        undecided: Option<BitRate>,
    },
    /// Even the smallest rate tried is inaccurate.
    NoneTried,
    /// Of the smallest rate tried nobody can tell, or none was tried.
    CannotTell,
}

impl LargestRate {
    /// The rate, where there is one.
    pub fn rate(self) -> Option<BitRate> {
        match self {
            Self::Rate { rate, .. } => Some(rate),
            Self::NoneTried | Self::CannotTell => None,
        }
    }

    /// As results have it, in bit/s: 0 where none of the rates tried is accurate, `None` where that
    /// cannot be told.
    pub fn bps(self) -> Option<u64> {
        match self {
            Self::Rate { rate, .. } => Some(rate.0),
            Self::NoneTried => Some(0),
            Self::CannotTell => None,
        }
    }
}

/// The largest rate, of verdicts in any order. A rate that has several is as good as its worst:
/// inaccurate before cannot tell before accurate.
pub fn largest_rate(judged: impl IntoIterator<Item = (BitRate, Accuracy)>) -> LargestRate {
    let rank = |accuracy: &Accuracy| match accuracy {
        Accuracy::Inaccurate { .. } => 0,
        Accuracy::CannotTell { .. } => 1,
        Accuracy::Accurate => 2,
    };
    let mut judged: Vec<_> = judged.into_iter().collect();
    judged.sort_by_key(|(rate, accuracy)| (*rate, rank(accuracy)));
    judged.dedup_by_key(|(rate, _)| *rate);
    let good = judged.iter().take_while(|(_, accuracy)| *accuracy == Accuracy::Accurate).count();
    let next = judged.get(good).copied();
    let is_open = |(_, accuracy): &(BitRate, Accuracy)| rank(accuracy) == 1;
    match good.checked_sub(1) {
        Some(last) => LargestRate::Rate {
            rate: judged[last].0,
            undecided: next.filter(is_open).map(|(rate, _)| rate),
        },
        None if next.is_some_and(|next| !is_open(&next)) => LargestRate::NoneTried,
        None => LargestRate::CannotTell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::{Doubt, Miss};
    use crate::interval::RealInterval;

    /// Of verdicts at 1, 2, 3 ... Mbit/s: `+` accurate, `-` inaccurate, `?` cannot tell.
    fn largest(verdicts: &str) -> LargestRate {
        let share = RealInterval { low: 0.5, high: 0.5 };
        let accuracy = |c| match c {
            '+' => Accuracy::Accurate,
            '-' => Accuracy::Inaccurate { why: Miss::Rate(share) },
            _ => Accuracy::CannotTell { why: Doubt::UserStamps },
        };
        let judged =
            (1..).zip(verdicts.chars()).map(|(n, c)| (BitRate(n * 1_000_000), accuracy(c)));
        let judged: Vec<_> = judged.collect();
        let found = largest_rate(judged.iter().rev().copied());
        assert_eq!(found, largest_rate(judged), "in any order");
        found
    }

    fn at(rate: u64, undecided: Option<u64>) -> LargestRate {
        let rate = BitRate(rate * 1_000_000);
        LargestRate::Rate { rate, undecided: undecided.map(|mbit| BitRate(mbit * 1_000_000)) }
    }

    #[test]
    fn all_smaller_rates_have_to_be_accurate_too() {
        assert_eq!(largest("+++--"), at(3, None));
        assert_eq!(largest("++-++"), at(2, None));
        assert_eq!(largest("+++++"), at(5, None));
        assert_eq!(largest("-++++"), LargestRate::NoneTried);
    }

    #[test]
    fn a_rate_that_cannot_be_told_leaves_the_largest_open() {
        assert_eq!(largest("++?--"), at(2, Some(3)));
        assert_eq!(largest("++?++"), at(2, Some(3)));
        assert_eq!(largest("?+++-"), LargestRate::CannotTell);
        assert_eq!(largest("?----"), LargestRate::CannotTell);
        assert_eq!(largest(""), LargestRate::CannotTell);
    }

    #[test]
    fn results_tell_none_of_the_rates_from_cannot_tell() {
        assert_eq!((largest("-").bps(), largest("?").bps()), (Some(0), None));
        assert_eq!(
            (largest("+?").bps(), largest("+").rate()),
            (Some(1_000_000), Some(BitRate(1_000_000)))
        );
        assert_eq!(LargestRate::NoneTried.rate(), None);
    }

    #[test]
    fn a_rate_with_two_verdicts_is_as_good_as_the_worse() {
        let rate = BitRate(5);
        let miss = Accuracy::Inaccurate { why: Miss::Rate(RealInterval { low: 0.0, high: 0.0 }) };
        assert_eq!(
            largest_rate([(rate, Accuracy::Accurate), (rate, miss)]),
            LargestRate::NoneTried
        );
    }
}
