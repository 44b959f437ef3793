//! Verdict on whether a sender keeps a rate accurately. Mok 2015 gives no tolerance for it.
//!
//! Accurate means: the median rate over trains is within tolerance of the requested rate, and the
//! median over trains of each train's 95th percentile of |gap - scheduled gap| is within its
//! tolerance. Both are equivalence tests on a distribution-free interval of the median (order
//! statistics), which assumes only that trains are independent. An interval entirely within
//! tolerance gives `accurate`, one entirely outside gives `inaccurate`, and any other gives
//! `cannot-tell`. A sender whose true median is exactly at a limit is called accurate with a
//! probability of at most (1 - confidence) / 2.

mod largest;
mod verdict_text;

use std::fmt;

use dwell_sample::TimestampSource;

use crate::departures::TrainRequest;
use crate::distribution::Quantile;
use crate::interval::{RealInterval, independent_quantile_ranks};

pub use largest::{LargestRate, largest_rate};
pub use verdict_text::{EngineRate, best_engines, card_sentence, sentence, verdict_lines};

/// Tolerances and confidence of the verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Maximum deviation of the rate, as a share of the requested rate.
    pub rate: f64,
    /// Maximum 95th percentile of |gap error| of a train, as a share of the nominal gap.
    pub gap: f64,
    /// Minimum number of trains for a verdict.
    pub trains: usize,
    /// The confidence of the interval of each median.
    pub confidence: f64,
}

/// Accuracy figures of one train. The ends of an interval are equal if every packet has a
/// timestamp; otherwise the interval covers every possible value of the missing ones. Failed trains
/// and lost timestamps therefore never improve a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainAccuracy {
    /// The rate in bit/s.
    pub rate_bps: RealInterval,
    /// The 95th percentile of |gap - scheduled gap| in nanoseconds.
    pub gap_error_p95: RealInterval,
}

/// Verdict on one sender at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accuracy {
    /// Rate and gaps are within tolerance.
    Accurate,
    /// The rate or the gaps are outside their tolerance.
    Inaccurate {
        /// The violated tolerance.
        why: ToleranceViolation,
    },
    /// These trains support no verdict.
    CannotTell {
        /// Reason.
        why: NoVerdictReason,
    },
}

/// The tolerance that an inaccurate sender violates; displayed as a clause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToleranceViolation {
    /// The rate, as a share of the requested rate.
    Rate(RealInterval),
    /// The gaps, as a share of the nominal gap.
    Gaps(RealInterval),
}

/// Reason for a missing verdict; displayed as a clause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoVerdictReason {
    /// Only user-space timestamps are available; they miss delays in the kernel.
    UserStamps,
    /// Packets bypass the rate limit of the egress path or are timestamped before it, so departures
    /// do not show the rate on the link.
    LimitUnseen,
    /// Too few trains.
    FewTrains {
        /// Trains available.
        trains: usize,
        /// Trains required.
        least: usize,
    },
    /// This number of trains cannot bracket a median at the requested confidence.
    NoInterval,
    /// Too many trains failed, lack timestamps or are too short for a 95th percentile.
    Incomplete {
        /// Number of such trains.
        trains: usize,
        /// Number of all trains.
        of: usize,
    },
    /// The rate interval crosses a tolerance limit; as a share of the requested rate.
    Rate(RealInterval),
    /// The gap interval crosses the tolerance limit; as a share of the nominal gap.
    Gaps(RealInterval),
}

/// A verdict and its basis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccuracyJudgement {
    /// The verdict.
    pub accuracy: Accuracy,
    /// Number of trains judged.
    pub trains: usize,
    /// Interval of the median rate in bit/s; `None` if unavailable.
    pub rate_bps: Option<RealInterval>,
    /// Interval of the median of the 95th percentile of |gap error|, in nanoseconds.
    pub gap_error_p95: Option<RealInterval>,
}

/// Position of an interval relative to the tolerance.
enum ToleranceFit {
    Within,
    Outside,
    Across,
}

impl TrainAccuracy {
    /// Returns whether both figures have a finite upper bound.
    fn is_known(&self) -> bool {
        (self.rate_bps.high + self.gap_error_p95.high).is_finite()
    }
}

impl Default for Tolerance {
    /// 5 % of the rate, 10 % of the gap, 20 trains, 95 % confidence.
    fn default() -> Self {
        Self { rate: 0.05, gap: 0.10, trains: 20, confidence: 0.95 }
    }
}

impl Tolerance {
    /// Judges the trains of one sender at one rate; `source` is the source of their timestamps.
    pub fn judge(
        &self,
        asked: &TrainRequest,
        source: TimestampSource,
        trains: &[TrainAccuracy],
    ) -> AccuracyJudgement {
        let ranks = independent_quantile_ranks(trains.len() as u64, Quantile::P50, self.confidence);
        let of = |value: fn(&TrainAccuracy) -> RealInterval| Some(median(trains, ranks?, value));
        let rate_bps = of(|train| train.rate_bps);
        let gap_error_p95 = of(|train| train.gap_error_p95);
        let why_not = if source == TimestampSource::User {
            Some(NoVerdictReason::UserStamps)
        } else if trains.len() < self.trains {
            Some(NoVerdictReason::FewTrains { trains: trains.len(), least: self.trains })
        } else {
            None
        };
        let accuracy = match (why_not, rate_bps.zip(gap_error_p95)) {
            (Some(why), _) => Accuracy::CannotTell { why },
            (None, None) => Accuracy::CannotTell { why: NoVerdictReason::NoInterval },
            (None, Some((rate, gaps))) => {
                let nominal = asked.rate_bps().unwrap_or(f64::NAN);
                match self.decide(share_of(rate, nominal), share_of(gaps, asked.gap)) {
                    Accuracy::CannotTell { .. } if !(rate.high + gaps.high).is_finite() => {
                        let open = trains.iter().filter(|train| !train.is_known()).count();
                        let why = NoVerdictReason::Incomplete { trains: open, of: trains.len() };
                        Accuracy::CannotTell { why }
                    }
                    decided => decided,
                }
            }
        };
        AccuracyJudgement { accuracy, trains: trains.len(), rate_bps, gap_error_p95 }
    }

    /// Verdict from the intervals of rate and gaps, as shares of the requested values.
    fn decide(&self, rate: RealInterval, gaps: RealInterval) -> Accuracy {
        // A limit itself belongs to neither side: values are whole nanoseconds, and many may lie
        // exactly on it.
        let off = |share: f64| share - 1.0;
        let rate_is = if -self.rate < off(rate.low) && off(rate.high) < self.rate {
            ToleranceFit::Within
        } else if off(rate.high) < -self.rate || self.rate < off(rate.low) {
            ToleranceFit::Outside
        } else {
            ToleranceFit::Across
        };
        let gaps_are = if gaps.high < self.gap {
            ToleranceFit::Within
        } else if self.gap < gaps.low {
            ToleranceFit::Outside
        } else {
            ToleranceFit::Across
        };
        match (rate_is, gaps_are) {
            (ToleranceFit::Outside, _) => {
                Accuracy::Inaccurate { why: ToleranceViolation::Rate(rate) }
            }
            (_, ToleranceFit::Outside) => {
                Accuracy::Inaccurate { why: ToleranceViolation::Gaps(gaps) }
            }
            (ToleranceFit::Across, _) => Accuracy::CannotTell { why: NoVerdictReason::Rate(rate) },
            (_, ToleranceFit::Across) => Accuracy::CannotTell { why: NoVerdictReason::Gaps(gaps) },
            (ToleranceFit::Within, ToleranceFit::Within) => Accuracy::Accurate,
        }
    }
}

impl fmt::Display for Tolerance {
    /// The definition in one sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "accurate: at least {} trains, median rate within {} of the requested rate, median p95 of \
             |gap error| below {} of the gap, both with {} confidence",
            self.trains,
            Percent(self.rate),
            Percent(self.gap),
            Percent(self.confidence)
        )
    }
}

impl Accuracy {
    /// Name in results.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accurate => "accurate",
            Self::Inaccurate { .. } => "inaccurate",
            Self::CannotTell { .. } => "cannot-tell",
        }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accurate => f.write_str("accurate"),
            Self::Inaccurate { why } => write!(f, "inaccurate: {why}"),
            Self::CannotTell { why } => write!(f, "cannot tell: {why}"),
        }
    }
}

impl fmt::Display for ToleranceViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "the rate is {} of the requested rate", Between(*rate)),
            Self::Gaps(gaps) => write!(f, "gaps are off by {} of the nominal gap", Between(*gaps)),
        }
    }
}

impl fmt::Display for NoVerdictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserStamps => f.write_str("only user-space timestamps are available"),
            Self::LimitUnseen => f.write_str("a rate limit on the egress path is not visible"),
            Self::FewTrains { trains, least } => {
                write!(f, "{trains} trains, at least {least} needed")
            }
            Self::NoInterval => f.write_str("too few trains for this confidence"),
            Self::Incomplete { trains, of } => {
                write!(
                    f,
                    "{trains} of {of} trains failed, lack timestamps or are too short for a p95"
                )
            }
            Self::Rate(rate) => {
                write!(f, "the rate may be {} of the requested rate", Between(*rate))
            }
            Self::Gaps(gaps) => {
                write!(f, "gaps may be off by {} of the nominal gap", Between(*gaps))
            }
        }
    }
}

/// A share in percent, rounded to one decimal.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", (self.0 * 1_000.0).round() / 10.0)
    }
}

/// An interval of shares.
struct Between(RealInterval);

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = [self.0.low, self.0.high].map(|end| Percent(end).to_string());
        match low == high {
            true => f.write_str(&low),
            false => write!(f, "{low} to {high}"),
        }
    }
}

/// Interval of the median between two ranks: the lower end from the lower bounds of the values, the
/// upper end from their upper bounds.
fn median(
    trains: &[TrainAccuracy],
    (low, high): (u64, u64),
    value: fn(&TrainAccuracy) -> RealInterval,
) -> RealInterval {
    let ranked = |end: fn(RealInterval) -> f64, rank: u64| {
        let mut ends: Vec<f64> = trains.iter().map(|train| end(value(train))).collect();
        *ends.select_nth_unstable_by(rank as usize - 1, f64::total_cmp).1
    };
    RealInterval { low: ranked(|span| span.low, low), high: ranked(|span| span.high, high) }
}

fn share_of(interval: RealInterval, whole: f64) -> RealInterval {
    RealInterval { low: interval.low / whole, high: interval.high / whole }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1,250 B at 100 Mbit/s.
    const REQUEST: TrainRequest =
        TrainRequest { bits: 1e4, gap: 1e5, deadline: None, same_clock: true };

    fn train(rate: f64, gap_error: f64) -> TrainAccuracy {
        let exactly = |value| RealInterval { low: value, high: value };
        TrainAccuracy { rate_bps: exactly(rate * 1e8), gap_error_p95: exactly(gap_error * 1e5) }
    }

    fn unknown() -> TrainAccuracy {
        let anything = RealInterval { low: 0.0, high: f64::INFINITY };
        TrainAccuracy { rate_bps: anything, gap_error_p95: anything }
    }

    fn judge(trains: &[TrainAccuracy]) -> Accuracy {
        Tolerance::default().judge(&REQUEST, TimestampSource::KernelSw, trains).accuracy
    }

    fn level(accuracy: Accuracy) -> u8 {
        match accuracy {
            Accuracy::Inaccurate { .. } => 0,
            Accuracy::CannotTell { .. } => 1,
            Accuracy::Accurate => 2,
        }
    }

    #[test]
    fn senders_far_from_the_limit_get_a_clear_verdict() {
        assert_eq!(judge(&[train(1.01, 0.02); 20]), Accuracy::Accurate);
        let slow = judge(&[train(0.9, 0.02); 20]);
        assert_eq!(slow.to_string(), "inaccurate: the rate is 90 % of the requested rate");
        assert_eq!(judge(&[train(1.06, 0.0); 20]).name(), "inaccurate");
        let uneven = judge(&[train(1.0, 0.5); 20]);
        assert_eq!(uneven.to_string(), "inaccurate: gaps are off by 50 % of the nominal gap");
    }

    #[test]
    fn median_exactly_at_a_limit_is_undecided() {
        assert_eq!(level(judge(&[train(1.0, 0.1); 100])), 1);
        let rates = Tolerance { rate: 0.5, ..Tolerance::default() };
        for rate in [0.5, 1.5] {
            let found = rates.judge(&REQUEST, TimestampSource::KernelSw, &[train(rate, 0.0); 100]);
            assert_eq!(level(found.accuracy), 1);
        }
    }

    #[test]
    fn interval_across_a_limit_is_undecided() {
        let mixed: Vec<_> = (0..20).map(|n| train(1.0, if n < 12 { 0.05 } else { 0.3 })).collect();
        assert_eq!(
            judge(&mixed).to_string(),
            "cannot tell: gaps may be off by 5 % to 30 % of the nominal gap"
        );
        // Ranks 6 and 15 of 20: five outliers change nothing.
        let good: Vec<_> = (0..20).map(|n| train(1.0, if n < 15 { 0.05 } else { 0.3 })).collect();
        assert_eq!(judge(&good), Accuracy::Accurate);
    }

    #[test]
    fn few_trains_or_user_timestamps_give_no_verdict() {
        assert_eq!(
            judge(&[train(1.0, 0.0); 19]).to_string(),
            "cannot tell: 19 trains, at least 20 needed"
        );
        for error in [0.0, 0.9] {
            let trains = [train(1.0, error); 40];
            let found = Tolerance::default().judge(&REQUEST, TimestampSource::User, &trains);
            assert_eq!(found.accuracy, Accuracy::CannotTell { why: NoVerdictReason::UserStamps });
            assert!(found.rate_bps.is_some(), "figures are shown without a verdict");
        }
        let few = Tolerance { trains: 3, ..Tolerance::default() };
        let found = few.judge(&REQUEST, TimestampSource::Hw, &[train(1.0, 0.0); 5]);
        assert_eq!(found.accuracy, Accuracy::CannotTell { why: NoVerdictReason::NoInterval });
        assert_eq!((found.rate_bps, judge(&[]).name()), (None, "cannot-tell"));
    }

    #[test]
    fn missing_timestamps_prevent_a_verdict() {
        let with = |n: usize, of: TrainAccuracy| {
            let known = std::iter::repeat_n(of, 20 - n);
            known.chain(std::iter::repeat_n(unknown(), n)).collect::<Vec<_>>()
        };
        assert_eq!(judge(&with(5, train(1.0, 0.05))), Accuracy::Accurate);
        assert_eq!(
            judge(&with(6, train(1.0, 0.05))).to_string(),
            "cannot tell: 6 of 20 trains failed, lack timestamps or are too short for a p95"
        );
        assert_eq!(level(judge(&with(5, train(1.0, 0.5)))), 0);
        assert_eq!(level(judge(&with(6, train(1.0, 0.5)))), 1);
    }

    #[test]
    fn definition_is_printed_with_its_numbers() {
        assert_eq!(
            Tolerance::default().to_string(),
            "accurate: at least 20 trains, median rate within 5 % of the requested rate, median p95 of \
             |gap error| below 10 % of the gap, both with 95 % confidence"
        );
    }

    #[test]
    fn request_without_gap_gives_no_verdict() {
        let pairs = TrainRequest { gap: 0.0, ..REQUEST };
        let found =
            Tolerance::default().judge(&pairs, TimestampSource::KernelSw, &[train(1.0, 0.0); 30]);
        assert_eq!(found.accuracy.name(), "cannot-tell");
    }

    proptest! {
        #[test]
        fn worse_trains_never_improve_the_verdict(
            base in proptest::collection::vec((0.8..1.2, 0.0..0.3, 0.0..0.2, 0.0..0.2), 20..60),
        ) {
            let before: Vec<_> = base.iter().map(|&(rate, gap, ..)| train(rate, gap)).collect();
            let worse = |&(rate, gap, slower, wider): &(f64, f64, f64, f64)| {
                train(if rate > 1.0 { rate + slower } else { rate - slower }, gap + wider)
            };
            let after: Vec<_> = base.iter().map(worse).collect();
            prop_assert!(level(judge(&after)) <= level(judge(&before)));
        }

        #[test]
        fn lost_timestamps_never_reverse_a_verdict(
            base in proptest::collection::vec((0.9..1.1, 0.0..0.2, any::<bool>()), 20..60),
        ) {
            let all: Vec<_> = base.iter().map(|&(rate, gap, _)| train(rate, gap)).collect();
            let kept = |&(rate, gap, lost): &(f64, f64, bool)| match lost {
                true => unknown(),
                false => train(rate, gap),
            };
            let kept: Vec<_> = base.iter().map(kept).collect();
            let (all, kept) = (level(judge(&all)), level(judge(&kept)));
            prop_assert!(kept == all || kept == 1, "{all} {kept}");
        }
    }
}
