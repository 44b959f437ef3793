//! Thresholds written as text, like `p99 > 10ms`. The condition describes *failure*: if it holds,
//! the measurement failed.
//!
//! ```text
//! threshold = subject operator value
//! subject   = delay | delay "change" | "jitter" | "loss" | "lost" | "late"
//! delay     = [ metric "." ] field
//! metric    = a name in results, with or without "_ns"; when omitted, the metric judged by default
//! field     = "min" | "mean" | "median" | "p50" | "p90" | "p95" | "p99" | "p99.9" | "max" | "stddev"
//! operator  = ">" | ">=" | "<" | "<="
//! value     = a time such as 10ms; a share such as 1% for loss, lost and late; either for a change
//! ```
//!
//! `loss` is the share of lost and late probes; `lost` and `late` are its two parts. A limit on a
//! change is for `dwell compare`, which has a baseline; a percentage is relative to that baseline.
//!
//! `docs/decisions/0010-thresholds-and-intervals.md` defines the rules of judgement.

mod judge;
mod share;

use std::fmt;
use std::str::FromStr;

use dwell_units::{Nanos, Ratio, UnitError};
use thiserror::Error;

use crate::distribution::Quantile;

pub use judge::{Evidence, Observed, ThresholdVerdict, UndecidedReason, Values};

/// A condition that makes a measurement fail.
///
/// ```
/// use dwell_stats::{Distribution, Evidence, Threshold, ThresholdVerdict, Values};
/// use dwell_units::Nanos;
///
/// let mut distribution = Distribution::new();
/// (0..1_000).for_each(|n| distribution.record(Nanos::from_micros(20 + n % 10)));
/// let values = Values { distribution: &distribution, base: Nanos::ZERO, missing: 0 };
/// let evidence = Evidence { values: Some(values), ..Evidence::default() };
///
/// let slow: Threshold = "p99 > 10ms".parse()?;
/// assert!(matches!(slow.judge(&evidence), ThresholdVerdict::Pass(_)));
/// // 1,000 probes do not decide on one in 1,000.
/// let rare: Threshold = "p99.9 > 10ms".parse()?;
/// assert!(matches!(rare.judge(&evidence), ThresholdVerdict::CannotTell(_)));
/// # Ok::<(), dwell_stats::ThresholdError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    operator: Operator,
    condition: Condition,
}

/// Decision about a value known to be within an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The condition holds for every value of the interval.
    Holds,
    /// The condition holds for no value of the interval.
    DoesNotHold,
    /// The limit lies inside the interval.
    CannotTell,
}

/// Limit on a change from a baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Difference of the two values.
    Time(Nanos),
    /// Difference in percent of the baseline's value.
    Percent(f64),
}

/// Parse or validation error of a threshold. The text reads after "invalid value for --fail-if: ".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum ThresholdError {
    #[error(
        "'{text}' has no comparison operator; write it like 'p99 > 10ms' with one of > >= < <="
    )]
    NoOperator { text: String },
    #[error(
        "unknown figure '{subject}'; known are min, mean, median, p50, p90, p95, p99, p99.9, max \
         and stddev (also of another metric, as in rtt_kernel.p99), jitter, loss, lost and late"
    )]
    UnknownFigure { subject: String },
    #[error("unknown metric '{metric}'; known are {known}")]
    UnknownMetric { metric: String, known: String },
    #[error(
        "'{text}': a percentage limits a change, as in '{subject} change {limit}' (dwell compare); a \
         limit on the value itself is a time, like '{subject} > 10ms'"
    )]
    PercentOfDelay {
        text: String,
        subject: String,
        /// Operator and value.
        limit: String,
    },
    #[error("a change of {subject} is not compared; known are p50, p90, p95, p99 and p99.9")]
    NoChange { subject: String },
    #[error("'{text}' limits a change; only dwell compare has a baseline")]
    NoBaseline { text: String },
    #[error("invalid percentage '{text}'; write it like 10%")]
    Percentage { text: String },
    /// The right side has the wrong kind of value.
    #[error("{0}")]
    Value(#[from] UnitError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// Compared quantity and its limit.
#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Delay(Delay, Nanos),
    Change(Delay, Change),
    Jitter(Nanos),
    Share(ProbeShare, Ratio),
}

/// A figure of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Delay {
    /// Name without unit; `None` for the default metric of the command.
    metric: Option<String>,
    field: Field,
}

dwell_units::named! {
    /// Probe states whose share is limited.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum ProbeShare {
        /// Lost or late.
        Loss = "loss",
        Lost = "lost",
        Late = "late",
    }
}

dwell_units::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Field {
        Min = "min",
        Mean = "mean",
        P50 = "p50",
        P90 = "p90",
        P95 = "p95",
        P99 = "p99",
        P99_9 = "p99.9",
        Max = "max",
        Stddev = "stddev",
    }
}

impl Threshold {
    /// Returns the named metric, without its unit.
    pub fn metric(&self) -> Option<&str> {
        match &self.condition {
            Condition::Delay(delay, _) | Condition::Change(delay, _) => delay.metric.as_deref(),
            Condition::Jitter(_) | Condition::Share(..) => None,
        }
    }

    /// Rejects a metric that is not in `known`, a list of names without units.
    pub fn check_metric(&self, known: &[&str]) -> Result<(), ThresholdError> {
        match self.metric() {
            Some(metric) if !known.contains(&metric) => Err(ThresholdError::UnknownMetric {
                metric: metric.to_owned(),
                known: known.join(", "),
            }),
            _ => Ok(()),
        }
    }

    /// Rejects a limit on a change, for commands without a baseline.
    pub fn check_value(&self) -> Result<(), ThresholdError> {
        match self.change() {
            Some(_) => Err(ThresholdError::NoBaseline { text: self.to_string() }),
            None => Ok(()),
        }
    }

    /// Returns the percentile and the limit of a threshold on a change.
    pub fn change(&self) -> Option<(Quantile, Change)> {
        match &self.condition {
            Condition::Change(delay, change) => Some((delay.field.quantile()?, *change)),
            _ => None,
        }
    }

    /// Decides for a value between `low` and `high`, in the unit of `limit`.
    pub fn decide(&self, (low, high): (f64, f64), limit: f64) -> Decision {
        self.operator.decide((low, high), limit)
    }
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let no_operator = || ThresholdError::NoOperator { text: text.to_owned() };
        let at = text.find(['<', '>']).ok_or_else(no_operator)?;
        let (subject, rest) = (text[..at].trim(), &text[at..]);
        let (operator, value) = match rest.as_bytes() {
            [b'>', b'=', ..] => (Operator::AtLeast, &rest[2..]),
            [b'<', b'=', ..] => (Operator::AtMost, &rest[2..]),
            [b'>', ..] => (Operator::Above, &rest[1..]),
            _ => (Operator::Below, &rest[1..]),
        };
        let value = value.trim();
        if value.starts_with(['<', '>', '=']) {
            return Err(no_operator());
        }
        let of_change = subject.strip_suffix("change").filter(|rest| rest.ends_with(' '));
        let condition = match subject {
            "loss" => Condition::Share(ProbeShare::Loss, value.parse()?),
            "lost" => Condition::Share(ProbeShare::Lost, value.parse()?),
            "late" => Condition::Share(ProbeShare::Late, value.parse()?),
            "jitter" => Condition::Jitter(value.parse()?),
            _ if of_change.is_some() => {
                let subject = of_change.unwrap_or_default().trim();
                let unchanging = || ThresholdError::NoChange { subject: subject.to_owned() };
                if ["loss", "lost", "late", "jitter"].contains(&subject) {
                    return Err(unchanging());
                }
                let delay: Delay = subject.parse()?;
                delay.field.quantile().ok_or_else(unchanging)?;
                Condition::Change(delay, value.parse()?)
            }
            _ => {
                let delay = subject.parse()?;
                if value.ends_with('%') {
                    return Err(ThresholdError::PercentOfDelay {
                        text: text.trim().to_owned(),
                        subject: subject.to_owned(),
                        limit: rest.trim().to_owned(),
                    });
                }
                Condition::Delay(delay, value.parse()?)
            }
        };
        Ok(Self { operator, condition })
    }
}

impl FromStr for Change {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let Some(percent) = text.strip_suffix('%') else { return Ok(Self::Time(text.parse()?)) };
        let number = percent.trim().parse().ok().filter(|number: &f64| number.is_finite());
        number
            .map(Self::Percent)
            .ok_or_else(|| ThresholdError::Percentage { text: text.to_owned() })
    }
}

impl FromStr for Delay {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        // Try the field alone first, because p99.9 contains a dot.
        if let Some(field) = Field::parse(text) {
            return Ok(Self { metric: None, field });
        }
        let unknown = || ThresholdError::UnknownFigure { subject: text.to_owned() };
        let (metric, field) = text.split_once('.').ok_or_else(unknown)?;
        let field = Field::parse(field).ok_or_else(unknown)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let metric = metric.strip_suffix("_ns").unwrap_or(metric);
        if metric.is_empty() || !metric.chars().all(is_name) {
            return Err(unknown());
        }
        Ok(Self { metric: Some(metric.to_owned()), field })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = self.operator.symbol();
        match &self.condition {
            Condition::Delay(delay, limit) => write!(f, "{delay} {operator} {limit}"),
            Condition::Change(delay, Change::Time(limit)) => {
                write!(f, "{delay} change {operator} {limit}")
            }
            Condition::Change(delay, Change::Percent(limit)) => {
                write!(f, "{delay} change {operator} {limit}%")
            }
            Condition::Jitter(limit) => write!(f, "jitter {operator} {limit}"),
            Condition::Share(fate, limit) => write!(f, "{} {operator} {limit}", fate.name()),
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.metric {
            Some(metric) => write!(f, "{metric}.{}", self.field.name()),
            None => f.write_str(self.field.name()),
        }
    }
}

impl Operator {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Above => value > limit,
            Self::AtLeast => value >= limit,
            Self::Below => value < limit,
            Self::AtMost => value <= limit,
        }
    }

    fn decide(self, (low, high): (f64, f64), limit: f64) -> Decision {
        match (self.holds(low, limit), self.holds(high, limit)) {
            (true, true) => Decision::Holds,
            (false, false) => Decision::DoesNotHold,
            _ => Decision::CannotTell,
        }
    }

    /// Returns whether larger values make the condition hold.
    const fn is_upper(self) -> bool {
        matches!(self, Self::Above | Self::AtLeast)
    }

    const fn symbol(self) -> &'static str {
        match self {
            Self::Above => ">",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::AtMost => "<=",
        }
    }
}

impl Field {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "median" => Some(Self::P50),
            "p99_9" => Some(Self::P99_9),
            name => Self::named(name),
        }
    }

    const fn quantile(self) -> Option<Quantile> {
        match self {
            Self::P50 => Some(Quantile::P50),
            Self::P90 => Some(Quantile::P90),
            Self::P95 => Some(Quantile::P95),
            Self::P99 => Some(Quantile::P99),
            Self::P99_9 => Some(Quantile::P99_9),
            Self::Min | Self::Mean | Self::Max | Self::Stddev => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_threshold_reports_a_valid_form() {
        let error = |text: &str| text.parse::<Threshold>().unwrap_err().to_string();
        assert!(error("p99").contains("write it like 'p99 > 10ms'"));
        assert!(error("p99 = 3ms").contains("one of > >= < <="));
        assert!(error("p99 >> 3ms").contains("one of > >= < <="));
        assert!(error("p98 > 3ms").contains("unknown figure 'p98'"));
        assert!(error("> 3ms").contains("unknown figure ''"));
        assert_eq!(error("p99 > 3"), "'3' has no unit; write it like 10ms, 250us or 1.5s");
        assert!(error("p99 > 1%").contains("'p99 change > 1%'"));
        assert!(error("loss > 3ms").contains("write it like 50%"));
        assert!(error("loss change > 1%").contains("a change of loss is not compared"));
        assert!(error("mean change > 1%").contains("known are p50"));
        assert!(error("p99 change > x%").contains("invalid percentage 'x%'"));
        let wire: Threshold = "wire_ns.p99 > 3ms".parse().unwrap();
        let error = wire.check_metric(&["rtt", "rtt_kernel"]).unwrap_err().to_string();
        assert_eq!(error, "unknown metric 'wire'; known are rtt, rtt_kernel");
        let change: Threshold = "p99 change > 3ms".parse().unwrap();
        let error = change.check_value().unwrap_err().to_string();
        assert_eq!(error, "'p99 change > 3ms' limits a change; only dwell compare has a baseline");
    }

    #[test]
    fn change_is_decided_by_both_ends_of_its_interval() {
        use Decision::{CannotTell, DoesNotHold, Holds};
        let decide = |text: &str, ends| text.parse::<Threshold>().unwrap().decide(ends, 10.0);
        for (text, beyond, inside) in [
            ("p99 change > 10%", (10.1, 12.0), (9.0, 10.0)),
            ("p99 change >= 10%", (10.0, 12.0), (9.0, 9.9)),
            ("p99 change < 10%", (-5.0, 9.9), (10.0, 12.0)),
            ("p99 change <= 10%", (-5.0, 10.0), (10.1, f64::INFINITY)),
        ] {
            assert_eq!(decide(text, beyond), Holds, "{text}");
            assert_eq!(decide(text, inside), DoesNotHold, "{text}");
            assert_eq!(decide(text, (9.0, 11.0)), CannotTell, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_threshold_reads_back(
            metric in prop::sample::select(vec!["", "rtt_ns.", "rtt_kernel.", "node_delay_ns."]),
            field in prop::sample::select(
                vec!["min", "mean", "p50", "p90", "p95", "p99", "p99.9", "max", "stddev"],
            ),
            operator in prop::sample::select(vec![">", ">=", "<", "<="]),
            limit in any::<i32>(),
            percent in -1e6..1e6_f64,
        ) {
            let limit = Nanos(i64::from(limit));
            for text in [
                format!("{metric}{field} {operator} {limit}"),
                format!("{metric}p99 change {operator} {limit}"),
                format!("{metric}p99.9 change {operator} {percent}%"),
                format!("late {operator} 1.5%"),
            ] {
                let threshold: Threshold = text.parse().unwrap();
                prop_assert_eq!(threshold.to_string().parse(), Ok(threshold));
            }
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in "\\PC*", middle in "[<>=. %a-z0-9]*") {
            let _ = text.parse::<Threshold>();
            let _ = format!("{text}{middle}{text}").parse::<Threshold>();
            let _ = format!("p99 change {middle}").parse::<Threshold>();
        }
    }
}
