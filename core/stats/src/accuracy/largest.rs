//! The largest rate that a sender keeps accurately.

use dwell_units::BitRate;

use super::Accuracy;

/// The largest rate for which it and every smaller tested rate are accurate. An accurate rate above
/// an inaccurate one does not count, because a network has to be measured at every rate up to its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargestRate {
    /// A rate.
    Rate {
        /// The largest accurate rate.
        rate: BitRate,
        /// The next larger tested rate if it has no verdict; the largest rate may then be that or
        /// higher.
        undecided: Option<BitRate>,
    },
    /// The smallest tested rate is inaccurate.
    NoneTried,
    /// The smallest tested rate has no verdict, or no rate was tested.
    CannotTell,
}

impl LargestRate {
    /// The rate, if there is one.
    pub fn rate(self) -> Option<BitRate> {
        match self {
            Self::Rate { rate, .. } => Some(rate),
            Self::NoneTried | Self::CannotTell => None,
        }
    }

    /// Value in results, in bit/s: 0 if no tested rate is accurate, `None` if it is undecided.
    pub fn bps(self) -> Option<u64> {
        match self {
            Self::Rate { rate, .. } => Some(rate.0),
            Self::NoneTried => Some(0),
            Self::CannotTell => None,
        }
    }
}

/// Returns the largest rate from verdicts in any order. A rate with several verdicts takes its
/// worst one: inaccurate, then cannot tell, then accurate.
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
    use crate::accuracy::{NoVerdictReason, ToleranceViolation};
    use crate::interval::RealInterval;

    /// Verdicts at 1, 2, 3 ... Mbit/s: `+` accurate, `-` inaccurate, `?` cannot tell.
    fn largest(verdicts: &str) -> LargestRate {
        let share = RealInterval { low: 0.5, high: 0.5 };
        let accuracy = |c| match c {
            '+' => Accuracy::Accurate,
            '-' => Accuracy::Inaccurate { why: ToleranceViolation::Rate(share) },
            _ => Accuracy::CannotTell { why: NoVerdictReason::UserStamps },
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
    fn largest_rate_needs_all_smaller_rates_accurate() {
        assert_eq!(largest("+++--"), at(3, None));
        assert_eq!(largest("++-++"), at(2, None));
        assert_eq!(largest("+++++"), at(5, None));
        assert_eq!(largest("-++++"), LargestRate::NoneTried);
    }

    #[test]
    fn undecided_rate_leaves_the_largest_open() {
        assert_eq!(largest("++?--"), at(2, Some(3)));
        assert_eq!(largest("++?++"), at(2, Some(3)));
        assert_eq!(largest("?+++-"), LargestRate::CannotTell);
        assert_eq!(largest("?----"), LargestRate::CannotTell);
        assert_eq!(largest(""), LargestRate::CannotTell);
    }

    #[test]
    fn result_separates_no_rate_from_undecided() {
        assert_eq!((largest("-").bps(), largest("?").bps()), (Some(0), None));
        assert_eq!(
            (largest("+?").bps(), largest("+").rate()),
            (Some(1_000_000), Some(BitRate(1_000_000)))
        );
        assert_eq!(LargestRate::NoneTried.rate(), None);
    }

    #[test]
    fn rate_with_two_verdicts_takes_the_worse() {
        let rate = BitRate(5);
        let miss = Accuracy::Inaccurate {
            why: ToleranceViolation::Rate(RealInterval { low: 0.0, high: 0.0 }),
        };
        assert_eq!(
            largest_rate([(rate, Accuracy::Accurate), (rate, miss)]),
            LargestRate::NoneTried
        );
    }
}
