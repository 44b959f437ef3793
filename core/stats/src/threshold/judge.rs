//! Judgement of a measurement by a threshold.

use std::fmt;

use dwell_units::{Nanos, Ratio};

use super::share::{exceeds, sufficient_probes};
use super::{Condition, Decision, Field, Operator, ProbeShare, Threshold};
use crate::distribution::{Distribution, Quantile};
use crate::probability::student_quantile;
use crate::round_trip::Packets;

/// Confidence of each verdict.
const CONFIDENCE: f64 = 0.95;

/// Data that a threshold is judged by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// Counts of probe states; `None` if probes were not counted.
    pub packets: Option<Packets>,
    /// Values of the threshold's metric; `None` without values.
    pub values: Option<Values<'a>>,
    /// RFC 3550 jitter in nanoseconds.
    pub jitter: Option<f64>,
    /// Time-out after which a reply is late, for messages.
    pub timeout: Option<Nanos>,
    /// Reason why no limit on `values` can be decided, independent of the values; `None` if they
    /// are usable.
    pub unusable: Option<&'static str>,
}

/// Values of one metric.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// Values of the received probes.
    pub distribution: &'a Distribution,
    /// Subtracted from each value: for PDV, the minimum delay.
    pub base: Nanos,
    /// Late and lost probes: they rank above every received one.
    pub missing: u64,
}

/// Result of judging a measurement by a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdVerdict {
    /// The condition does not hold.
    Pass(Observed),
    /// The condition holds.
    Fail(Observed),
    /// Undecided.
    CannotTell(UndecidedReason),
}

/// The judged value; displayed with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Observed {
    /// A time in nanoseconds.
    Nanos(f64),
    /// A share, between 0 and 1.
    Share(f64),
    /// The rank is among the late and lost probes: longer than the time-out, if known.
    BeyondTimeout(Option<Nanos>),
    /// Number of probes beyond the limit, if there are too few probes for the percentile itself.
    Count {
        /// Probes beyond the limit.
        beyond: u64,
        /// All probes.
        probes: u64,
    },
}

/// Reason for a missing verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UndecidedReason {
    /// There is no value to judge.
    NoValue,
    /// A single value has no interval.
    SingleValue,
    /// The values do not represent the limited quantity, for this reason.
    Unusable(&'static str),
    /// The limit lies between the 95 % bounds, or there are too few probes for one.
    TooFew {
        /// Probes beyond the limit.
        beyond: u64,
        /// All probes.
        probes: u64,
        /// Number of probes that would decide with the same share; `None` if no number would.
        sufficient_probes: Option<u64>,
    },
    /// The limit lies between the one-sided 95 % bounds of a mean, in nanoseconds.
    Inside {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
    /// Late or lost probes, which this figure excludes, could change the verdict.
    Missing(u64),
}

impl Threshold {
    /// Judges a measurement. A limit on a change is never decided here.
    pub fn judge(&self, evidence: &Evidence<'_>) -> ThresholdVerdict {
        let operator = self.operator;
        match &self.condition {
            Condition::Delay(delay, limit) => {
                if let Some(why) = evidence.unusable {
                    return ThresholdVerdict::CannotTell(UndecidedReason::Unusable(why));
                }
                let Some(values) = evidence.values else {
                    return ThresholdVerdict::CannotTell(UndecidedReason::NoValue);
                };
                values.judge(operator, delay.field, *limit, evidence.timeout)
            }
            Condition::Jitter(limit) => {
                // RFC 3550 defines jitter over arrivals: it excludes lost probes but would include
                // late ones.
                let late = evidence.packets.map_or(0, |packets| packets.late);
                judge_figure(operator, evidence.jitter, limit.0 as f64, late)
            }
            Condition::Share(fate, limit) => {
                let Some(packets) = evidence.packets.filter(|packets| packets.sent() > 0) else {
                    return ThresholdVerdict::CannotTell(UndecidedReason::NoValue);
                };
                fate.judge(operator, packets, *limit)
            }
            Condition::Change(..) => ThresholdVerdict::CannotTell(UndecidedReason::NoValue),
        }
    }
}

impl ProbeShare {
    fn judge(self, operator: Operator, packets: Packets, limit: Ratio) -> ThresholdVerdict {
        let hits = match self {
            Self::Loss => packets.lost + packets.late,
            Self::Lost => packets.lost,
            Self::Late => packets.late,
        };
        let (probes, allowed) = (packets.sent(), limit.as_f64());
        let share = hits as f64 / probes as f64;
        // No number of probes proves a share of exactly 0 or 1, so such a limit applies to these
        // probes only.
        if limit == Ratio::ZERO || limit == Ratio::ONE {
            return verdict_of(operator.holds(share, allowed), Observed::Share(share));
        }
        match exceeds(hits, probes, allowed) {
            Some(exceeds) => verdict_of(exceeds == operator.is_upper(), Observed::Share(share)),
            None => undecided(hits, probes, allowed),
        }
    }
}

impl Values<'_> {
    fn judge(
        &self,
        operator: Operator,
        field: Field,
        limit: Nanos,
        timeout: Option<Nanos>,
    ) -> ThresholdVerdict {
        let probes = self.distribution.count() + self.missing;
        if probes == 0 {
            return ThresholdVerdict::CannotTell(UndecidedReason::NoValue);
        }
        let at = |value: Nanos| value.0.saturating_sub(self.base.0) as f64;
        let nanos = limit.0 as f64;
        // Extremes refer to these probes only.
        let extreme = |value: Option<Nanos>| match value {
            Some(value) => verdict_of(operator.holds(at(value), nanos), Observed::Nanos(at(value))),
            None => verdict_of(operator.is_upper(), Observed::BeyondTimeout(timeout)),
        };
        match (field, field.quantile()) {
            (_, Some(quantile)) => self.judge_quantile(operator, quantile, limit, timeout),
            (Field::Max, _) => extreme(self.distribution.max().filter(|_| self.missing == 0)),
            (Field::Min, _) => extreme(self.distribution.min()),
            (Field::Mean, _) => self.judge_mean(operator, nanos),
            _ => judge_figure(operator, self.distribution.stddev(), nanos, self.missing),
        }
    }

    /// The q-quantile exceeds the limit if more than 1 - q of the probes do.
    fn judge_quantile(
        &self,
        operator: Operator,
        quantile: Quantile,
        limit: Nanos,
        timeout: Option<Nanos>,
    ) -> ThresholdVerdict {
        let inclusive = matches!(operator, Operator::AtLeast | Operator::Below);
        let mut beyond = self.missing;
        self.distribution.for_each(|value, count| {
            let value = value.0.saturating_sub(self.base.0);
            if value > limit.0 || (inclusive && value == limit.0) {
                beyond += count;
            }
        });
        let received = self.distribution.count();
        let (probes, allowed) = (received + self.missing, 1.0 - quantile.share());
        let Some(exceeds) = exceeds(beyond, probes, allowed) else {
            return undecided(beyond, probes, allowed);
        };
        let observed = match quantile.rank(probes) {
            Some(rank) if rank <= received => {
                let value = self.distribution.ranked(rank).map_or(0, |value| value.0);
                Observed::Nanos(value.saturating_sub(self.base.0) as f64)
            }
            Some(_) => Observed::BeyondTimeout(timeout),
            None => Observed::Count { beyond, probes },
        };
        verdict_of(exceeds == operator.is_upper(), observed)
    }

    fn judge_mean(&self, operator: Operator, limit: f64) -> ThresholdVerdict {
        let values = self.distribution;
        let Some((mean, stddev)) = values.mean().zip(values.stddev()) else {
            return match values.count() {
                1 => ThresholdVerdict::CannotTell(UndecidedReason::SingleValue),
                _ => judge_figure(operator, None, limit, self.missing),
            };
        };
        let n = values.count() as f64;
        let margin = student_quantile(CONFIDENCE, n - 1.0) * stddev / n.sqrt();
        let mean = mean - self.base.0 as f64;
        let (low, high) = (mean - margin, mean + margin);
        match operator.decide((low, high), limit) {
            Decision::CannotTell => {
                ThresholdVerdict::CannotTell(UndecidedReason::Inside { low, high })
            }
            decided => judge_lower_bound(operator, decided == Decision::Holds, mean, self.missing),
        }
    }
}

/// Judges a figure without an interval.
fn judge_figure(
    operator: Operator,
    value: Option<f64>,
    limit: f64,
    missing: u64,
) -> ThresholdVerdict {
    match value {
        Some(value) => judge_lower_bound(operator, operator.holds(value, limit), value, missing),
        None if missing > 0 => ThresholdVerdict::CannotTell(UndecidedReason::Missing(missing)),
        None => ThresholdVerdict::CannotTell(UndecidedReason::NoValue),
    }
}

/// Judges a figure of received probes, which late and lost probes could only increase.
fn judge_lower_bound(
    operator: Operator,
    holds: bool,
    value: f64,
    missing: u64,
) -> ThresholdVerdict {
    if missing > 0 && holds != operator.is_upper() {
        return ThresholdVerdict::CannotTell(UndecidedReason::Missing(missing));
    }
    verdict_of(holds, Observed::Nanos(value))
}

fn verdict_of(holds: bool, observed: Observed) -> ThresholdVerdict {
    if holds { ThresholdVerdict::Fail(observed) } else { ThresholdVerdict::Pass(observed) }
}

fn undecided(beyond: u64, probes: u64, allowed: f64) -> ThresholdVerdict {
    let sufficient_probes = sufficient_probes(beyond, probes, allowed);
    ThresholdVerdict::CannotTell(UndecidedReason::TooFew { beyond, probes, sufficient_probes })
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nanos(value) => Nanos(value.round() as i64).fmt(f),
            Self::Share(value) => write!(f, "{:.4}%", value * 100.0),
            Self::BeyondTimeout(Some(timeout)) => write!(f, "> {timeout} (time-out)"),
            Self::BeyondTimeout(None) => f.write_str("among the late and lost probes"),
            Self::Count { beyond, probes } => {
                write!(f, "beyond the limit in {beyond} of {probes} probes")
            }
        }
    }
}

impl fmt::Display for UndecidedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoValue => f.write_str("no value was measured"),
            Self::SingleValue => {
                f.write_str("only 1 value was measured; 2 or more are needed for an interval")
            }
            Self::Unusable(why) => f.write_str(why),
            Self::TooFew { beyond: 0, probes, sufficient_probes: Some(sufficient_probes) } => {
                write!(
                    f,
                    "no probe of {probes} is beyond the limit, which gives no 95 % bound; {sufficient_probes} or \
                 more would"
                )
            }
            Self::TooFew { beyond, probes, sufficient_probes } => {
                write!(
                    f,
                    "{beyond} of {probes} probes are beyond the limit: it lies between the one-sided \
                     95 % bounds"
                )?;
                match sufficient_probes {
                    Some(sufficient_probes) => {
                        write!(f, "; about {sufficient_probes} such probes would decide")
                    }
                    None => Ok(()),
                }
            }
            Self::Inside { low, high } => write!(
                f,
                "the limit lies between the one-sided 95 % bounds, {} and {}",
                Nanos(low.round() as i64),
                Nanos(high.round() as i64)
            ),
            Self::Missing(missing) => write!(
                f,
                "{missing} probes are late or lost and not part of this figure; use a percentile \
                 or loss"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Nanos = Nanos::from_millis(8);

    /// Round trips of 1 us, 2 us ... `received` us, plus `lost` and `late` probes.
    struct Case {
        values: Distribution,
        packets: Packets,
    }

    impl Case {
        fn of(received: u64, lost: u64, late: u64) -> Self {
            let mut values = Distribution::new();
            (1..=received).for_each(|n| values.record(Nanos(n as i64 * 1_000)));
            Self { values, packets: Packets { received, lost, late, ..Packets::default() } }
        }

        fn judge(&self, text: &str) -> ThresholdVerdict {
            let values = Values {
                distribution: &self.values,
                base: Nanos::ZERO,
                missing: self.packets.lost + self.packets.late,
            };
            let evidence = Evidence {
                packets: Some(self.packets),
                values: Some(values),
                jitter: Some(5_000.0),
                timeout: Some(TIMEOUT),
                unusable: None,
            };
            text.parse::<Threshold>().unwrap().judge(&evidence)
        }
    }

    fn fails(verdict: ThresholdVerdict) -> bool {
        matches!(verdict, ThresholdVerdict::Fail(_))
    }

    fn passes(verdict: ThresholdVerdict) -> bool {
        matches!(verdict, ThresholdVerdict::Pass(_))
    }

    fn is_undecided(verdict: ThresholdVerdict) -> bool {
        matches!(verdict, ThresholdVerdict::CannotTell(_))
    }

    #[test]
    fn condition_states_failure_for_every_operator() {
        let case = Case::of(1_000, 0, 0);
        assert_eq!(case.judge("p99 > 1.1ms"), ThresholdVerdict::Pass(Observed::Nanos(990e3)));
        assert_eq!(case.judge("p50 >= 400us"), ThresholdVerdict::Fail(Observed::Nanos(500e3)));
        assert_eq!(case.judge("median < 400us"), ThresholdVerdict::Pass(Observed::Nanos(500e3)));
        assert_eq!(case.judge("rtt.p50 <= 600us"), ThresholdVerdict::Fail(Observed::Nanos(500e3)));
        assert_eq!(case.judge("max <= 1ms"), ThresholdVerdict::Fail(Observed::Nanos(1e6)));
        assert_eq!(case.judge("min > 1us"), ThresholdVerdict::Pass(Observed::Nanos(1e3)));
        assert!(passes(case.judge("mean > 600us")) && fails(case.judge("mean < 600us")));
        assert!(passes(case.judge("jitter > 1s")) && fails(case.judge("jitter > 1us")));
        assert!(passes(case.judge("stddev > 1ms")));
    }

    #[test]
    fn late_and_lost_probes_are_beyond_every_limit() {
        // Measured by ping over a path of 10 ms with a time-out of 8 ms.
        let case = Case::of(381, 0, 1_618);
        let beyond = Observed::BeyondTimeout(Some(TIMEOUT));
        for text in ["p99 > 8ms", "p50 > 8ms", "p99 > 1h", "p90 >= 10s", "max > 10s"] {
            assert_eq!(case.judge(text), ThresholdVerdict::Fail(beyond), "{text}");
        }
        assert_eq!(case.judge("p99 < 8ms"), ThresholdVerdict::Pass(beyond));
        assert_eq!(beyond.to_string(), "> 8ms (time-out)");
        assert!(fails(case.judge("loss > 5%")) && fails(case.judge("late > 70%")));
        assert!(passes(case.judge("lost > 5%")));
        assert_eq!(case.judge("min > 1us"), ThresholdVerdict::Pass(Observed::Nanos(1e3)));
        let none = Case::of(0, 3, 7);
        assert_eq!(none.judge("min > 1s"), ThresholdVerdict::Fail(beyond));
        assert_eq!(none.judge("p50 > 1s"), ThresholdVerdict::Fail(beyond));
    }

    #[test]
    fn few_late_probes_move_a_percentile_up_by_their_number() {
        // 980 of 1,000 at or below 980 us: p95 is received, p99 is among the late probes.
        let case = Case::of(980, 10, 10);
        assert_eq!(case.judge("p95 > 2ms"), ThresholdVerdict::Pass(Observed::Nanos(950e3)));
        let beyond = Observed::BeyondTimeout(Some(TIMEOUT));
        assert_eq!(case.judge("p99 > 2ms"), ThresholdVerdict::Fail(beyond));
    }

    #[test]
    fn mean_with_missing_probes_passes_no_upper_limit() {
        let case = Case::of(1_000, 1, 0);
        assert_eq!(
            case.judge("mean > 1ms"),
            ThresholdVerdict::CannotTell(UndecidedReason::Missing(1))
        );
        assert_eq!(
            case.judge("stddev > 1ms"),
            ThresholdVerdict::CannotTell(UndecidedReason::Missing(1))
        );
        assert!(fails(case.judge("mean > 100us")), "missing probes can only raise it");
        assert!(passes(case.judge("mean < 100us")));
        assert!(passes(case.judge("jitter > 1s")), "RFC 3550 leaves lost packets out");
        let late = Case::of(1_000, 0, 1);
        assert_eq!(
            late.judge("jitter > 1s"),
            ThresholdVerdict::CannotTell(UndecidedReason::Missing(1))
        );
    }

    #[test]
    fn mean_of_a_single_value_needs_two_or_more() {
        for (lost, condition) in [(0, "mean > 1s"), (0, "mean < 1s"), (1, "mean > 1s")] {
            let verdict = Case::of(1, lost, 0).judge(condition);
            assert_eq!(
                verdict,
                ThresholdVerdict::CannotTell(UndecidedReason::SingleValue),
                "{condition}"
            );
        }
        assert!(UndecidedReason::SingleValue.to_string().contains("2 or more are needed"));
        assert!(passes(Case::of(2, 0, 0).judge("mean > 1s")));
    }

    #[test]
    fn unusable_values_decide_only_limits_on_loss() {
        let case = Case::of(1_000, 0, 0);
        let values = Values { distribution: &case.values, base: Nanos::ZERO, missing: 0 };
        let evidence = Evidence {
            packets: Some(case.packets),
            values: Some(values),
            unusable: Some("of another clock"),
            ..Evidence::default()
        };
        let judge = |text: &str| text.parse::<Threshold>().unwrap().judge(&evidence);
        let reason = UndecidedReason::Unusable("of another clock");
        for condition in ["p50 > 1ns", "p50 > 10s", "mean > 10s", "max > 10s"] {
            assert_eq!(judge(condition), ThresholdVerdict::CannotTell(reason), "{condition}");
        }
        assert_eq!(reason.to_string(), "of another clock");
        assert!(passes(judge("loss > 1%")));
    }

    #[test]
    fn limit_inside_the_interval_is_undecided() {
        let case = Case::of(1_000, 0, 0);
        for text in ["p99 > 990us", "p50 > 505us", "p50 <= 505us", "mean > 500us"] {
            assert!(is_undecided(case.judge(text)), "{text}: {:?}", case.judge(text));
        }
        let lossy = Case::of(990, 10, 0);
        assert!(is_undecided(lossy.judge("loss > 1%")) && is_undecided(lossy.judge("loss < 1%")));
        assert!(fails(lossy.judge("loss > 0.1%")) && passes(lossy.judge("loss > 5%")));
    }

    #[test]
    fn too_few_probes_name_the_number_that_decides() {
        let case = Case::of(200, 0, 0);
        let verdict = case.judge("p99 > 50ms");
        let ThresholdVerdict::CannotTell(reason) = verdict else { panic!("{verdict:?}") };
        let text =
            "no probe of 200 is beyond the limit, which gives no 95 % bound; 299 or more would";
        assert_eq!(reason.to_string(), text);
        assert!(passes(Case::of(299, 0, 0).judge("p99 > 50ms")));
        assert!(is_undecided(Case::of(10, 0, 0).judge("loss > 1%")));
        assert!(passes(Case::of(400, 0, 0).judge("loss > 1%")));
        let all = Case::of(10, 0, 0).judge("p99.9 > 0ns");
        assert_eq!(all, ThresholdVerdict::Fail(Observed::Count { beyond: 10, probes: 10 }));
    }

    #[test]
    fn limit_of_zero_loss_applies_to_these_probes_only() {
        assert_eq!(
            Case::of(20, 0, 0).judge("loss > 0%"),
            ThresholdVerdict::Pass(Observed::Share(0.0))
        );
        assert_eq!(
            Case::of(3, 1, 0).judge("loss > 0%"),
            ThresholdVerdict::Fail(Observed::Share(0.25))
        );
        assert_eq!(Observed::Share(0.01).to_string(), "1.0000%");
    }

    #[test]
    fn limit_without_values_is_undecided() {
        let nothing = Case::of(0, 0, 0);
        for text in ["p99 > 10s", "loss > 1%", "min > 1ns", "mean > 1ns"] {
            assert_eq!(
                nothing.judge(text),
                ThresholdVerdict::CannotTell(UndecidedReason::NoValue),
                "{text}"
            );
        }
        let unstamped = Evidence { values: None, ..Evidence::default() };
        let threshold: Threshold = "rtt_kernel.p50 > 10s".parse().unwrap();
        assert_eq!(
            threshold.judge(&unstamped),
            ThresholdVerdict::CannotTell(UndecidedReason::NoValue)
        );
    }
}
