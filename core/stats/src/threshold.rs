//! Thresholds as people state them: `p99 > 10ms`. The condition describes *failure*: when it holds,
//! the measurement failed what was asked of it.
//!
//! ```text
//! threshold = subject operator value
//! subject   = [ metric "." ] field | "loss" | "jitter"
//! metric    = a name of results, with or without "_ns"; "rtt" when left out
//! field     = "min" | "mean" | "median" | "p50" | "p90" | "p95" | "p99" | "p99.9" | "max" | "stddev"
//! operator  = ">" | ">=" | "<" | "<="
//! value     = a time such as 10ms, or for loss a share such as 1%
//! ```
//!
//! A subject without a value (p99 of ten samples, the jitter of one, a metric whose stamps never
//! came) makes the answer "cannot tell". This is not a pass: who states a threshold wants to know
//! that it holds, so it fails the command too.

use std::fmt;
use std::str::FromStr;

use dwell_units::{Nanos, Ratio, UnitError};
use thiserror::Error;

use crate::distribution::Figures;
use crate::metric::Metric;
use crate::round_trip::RoundTrip;

/// A condition that makes a measurement fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    operator: Operator,
    limit: Limit,
}

/// What a threshold says about a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The condition does not hold.
    Pass(Observed),
    /// The condition holds.
    Fail(Observed),
    /// There is no value to judge. Fails the command like [`Verdict::Fail`].
    CannotTell,
}

/// The value that was judged; prints with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Observed {
    /// A time in nanoseconds.
    Nanos(f64),
    /// A share, between 0 and 1.
    Share(f64),
}

/// Why a text is not a threshold. The text reads after "invalid value for --fail-if: ".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ThresholdError {
    /// There is no operator, or none of ours.
    #[error("'{text}' has no comparison; write it like 'p99 > 10ms' with one of > >= < <=")]
    NoOperator {
        /// What was given.
        text: String,
    },
    /// The left side names no figure.
    #[error(
        "'{subject}' is no figure; known are min, mean, median, p50, p90, p95, p99, p99.9, max and \
         stddev (of rtt, or of another metric as in rtt_kernel.p99), loss and jitter"
    )]
    UnknownFigure {
        /// What was given.
        subject: String,
    },
    /// The left side names a figure of a metric that does not exist.
    #[error("'{metric}' is no metric; known are {}", metric_names())]
    UnknownMetric {
        /// What was given.
        metric: String,
    },
    /// The right side is not a value of this kind.
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

/// What is compared and with what; the kind of the one follows from that of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Delay(Metric, Field, Nanos),
    Jitter(Nanos),
    Loss(Ratio),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Min,
    Mean,
    P50,
    P90,
    P95,
    P99,
    P99_9,
    Max,
    Stddev,
}

impl Threshold {
    /// Judges a measurement.
    pub fn judge(&self, measured: &RoundTrip) -> Verdict {
        let (observed, value, limit) = match self.limit {
            Limit::Delay(metric, field, limit) => {
                let value = field.of(&measured.figures(metric));
                (value.map(Observed::Nanos), value, limit.0 as f64)
            }
            Limit::Jitter(limit) => {
                let value = measured.jitter();
                (value.map(Observed::Nanos), value, limit.0 as f64)
            }
            Limit::Loss(limit) => {
                let value = measured.packets().loss_ratio();
                (value.map(Observed::Share), value, limit.as_f64())
            }
        };
        match observed.zip(value) {
            None => Verdict::CannotTell,
            Some((observed, value)) if self.operator.holds(value, limit) => Verdict::Fail(observed),
            Some((observed, _)) => Verdict::Pass(observed),
        }
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
        let limit = match subject {
            "loss" => Limit::Loss(value.parse()?),
            "jitter" => Limit::Jitter(value.parse()?),
            _ => {
                let (metric, field) = delay(subject)?;
                Limit::Delay(metric, field, value.parse()?)
            }
        };
        Ok(Self { operator, limit })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = self.operator.symbol();
        match self.limit {
            Limit::Delay(Metric::Rtt, field, limit) => {
                write!(f, "{} {operator} {limit}", field.name())
            }
            Limit::Delay(metric, field, limit) => {
                let metric = metric.name().trim_end_matches("_ns");
                write!(f, "{metric}.{} {operator} {limit}", field.name())
            }
            Limit::Jitter(limit) => write!(f, "jitter {operator} {limit}"),
            Limit::Loss(limit) => write!(f, "loss {operator} {limit}"),
        }
    }
}

impl Verdict {
    /// Whether the command fails: the condition holds, or nobody can tell that it does not.
    pub fn fails(&self) -> bool {
        !matches!(self, Self::Pass(_))
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nanos(value) => Nanos(value.round() as i64).fmt(f),
            Self::Share(value) => write!(f, "{:.4}%", value * 100.0),
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
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "min" => Self::Min,
            "mean" => Self::Mean,
            "median" | "p50" => Self::P50,
            "p90" => Self::P90,
            "p95" => Self::P95,
            "p99" => Self::P99,
            "p99.9" | "p99_9" => Self::P99_9,
            "max" => Self::Max,
            "stddev" => Self::Stddev,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P99_9 => "p99.9",
            Self::Max => "max",
            Self::Stddev => "stddev",
        }
    }

    fn of(self, figures: &Figures) -> Option<f64> {
        let observed = match self {
            Self::Min => figures.min,
            Self::P50 => figures.p50,
            Self::P90 => figures.p90,
            Self::P95 => figures.p95,
            Self::P99 => figures.p99,
            Self::P99_9 => figures.p99_9,
            Self::Max => figures.max,
            Self::Mean => return figures.mean,
            Self::Stddev => return figures.stddev,
        };
        observed.map(|nanos| nanos.0 as f64)
    }
}

/// Reads the left side of a threshold on a delay.
fn delay(subject: &str) -> Result<(Metric, Field), ThresholdError> {
    // First the field alone, because p99.9 has a point of its own.
    if let Some(field) = Field::named(subject) {
        return Ok((Metric::Rtt, field));
    }
    let unknown = || ThresholdError::UnknownFigure { subject: subject.to_owned() };
    let (metric, field) = subject.split_once('.').ok_or_else(unknown)?;
    let field = Field::named(field).ok_or_else(unknown)?;
    let metric = Metric::named(metric)
        .ok_or_else(|| ThresholdError::UnknownMetric { metric: metric.to_owned() })?;
    Ok((metric, field))
}

fn metric_names() -> String {
    Metric::ALL.map(|metric| metric.name().trim_end_matches("_ns")).join(", ")
}

#[cfg(test)]
mod tests {
    use dwell_engine::stamps::{Rung, RxStamps, Sample, State, TxStamps};
    use dwell_units::{Instant, Pairing};
    use proptest::prelude::*;

    use super::*;

    /// `received` round trips of 1 ms, 2 ms ..., and `lost` losses.
    fn measured(received: u64, lost: u64) -> RoundTrip {
        let bridge =
            Pairing { real: Instant::from_nanos(0), mono: Instant::from_nanos(0), width: Nanos(1) };
        let mut all = RoundTrip::new(Rung::User, 0);
        for id in 0..received + lost {
            let tx = Instant::from_nanos(0);
            let rx = Instant::from_nanos((id as i64 + 1) * 1_000_000);
            let answered = id < received;
            let sample = Sample {
                id,
                state: if answered { State::Received } else { State::Lost },
                reordered: false,
                intended: Instant::from_nanos(0),
                tx: TxStamps { app: tx, sched: None, kernel: None, hw: None },
                rx: answered.then_some(RxStamps { hw: None, kernel: None, app: rx }),
                remote: None,
            };
            all.record(&sample, Some(&bridge));
        }
        all
    }

    fn judge(text: &str, measured: &RoundTrip) -> Verdict {
        text.parse::<Threshold>().unwrap().judge(measured)
    }

    #[test]
    fn the_condition_states_failure() {
        let all = measured(100, 0);
        assert_eq!(judge("p99 > 99ms", &all), Verdict::Pass(Observed::Nanos(99e6)));
        assert_eq!(judge("p99>=99ms", &all), Verdict::Fail(Observed::Nanos(99e6)));
        assert_eq!(judge(" max <= 100ms ", &all), Verdict::Fail(Observed::Nanos(100e6)));
        assert_eq!(judge("rtt.median < 50ms", &all), Verdict::Pass(Observed::Nanos(50e6)));
        assert_eq!(
            judge("rtt_intended_ns.mean < 1s", &all),
            Verdict::Fail(Observed::Nanos(50.5e6))
        );
        assert!(!judge("jitter > 1s", &all).fails());
        assert_eq!(judge("pdv.min > 0ns", &all), Verdict::Pass(Observed::Nanos(0.0)));
    }

    #[test]
    fn loss_is_compared_as_a_share() {
        let all = measured(99, 1);
        assert_eq!(judge("loss > 1%", &all), Verdict::Pass(Observed::Share(0.01)));
        assert_eq!(judge("loss >= 1%", &all), Verdict::Fail(Observed::Share(0.01)));
        assert_eq!(Observed::Share(0.01).to_string(), "1.0000%");
    }

    #[test]
    fn what_cannot_be_told_fails() {
        let few = measured(10, 0);
        for text in ["p99 > 10s", "rtt_kernel.p50 > 10s", "rtt.p99.9 > 10s"] {
            assert_eq!(judge(text, &few), Verdict::CannotTell, "{text}");
            assert!(judge(text, &few).fails());
        }
        assert_eq!(judge("loss > 1%", &measured(0, 0)), Verdict::CannotTell);
    }

    #[test]
    fn a_wrong_threshold_says_what_would_be_right() {
        let error = |text: &str| text.parse::<Threshold>().unwrap_err().to_string();
        assert!(error("p99").contains("write it like 'p99 > 10ms'"));
        assert!(error("p99 = 3ms").contains("one of > >= < <="));
        assert!(error("p99 >> 3ms").contains("one of > >= < <="));
        assert!(error("p98 > 3ms").contains("'p98' is no figure"));
        assert!(error("> 3ms").contains("'' is no figure"));
        assert!(error("wire.p99 > 3ms").contains("known are rtt, rtt_kernel"));
        assert_eq!(error("p99 > 3"), "'3' has no unit; write it like 10ms, 250us or 1.5s");
        assert!(error("p99 > 1%").contains("unknown unit '%'"));
        assert!(error("loss > 3ms").contains("write it like 50%"));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(
            metric in prop::sample::select(Metric::ALL.to_vec()),
            field in prop::sample::select(
                vec!["min", "mean", "p50", "p90", "p95", "p99", "p99.9", "max", "stddev"],
            ),
            operator in prop::sample::select(vec![">", ">=", "<", "<="]),
            limit in any::<i32>(),
        ) {
            let limit = Nanos(i64::from(limit));
            let text = format!("{}.{field} {operator} {limit}", metric.name());
            let threshold: Threshold = text.parse().unwrap();
            prop_assert_eq!(threshold.to_string().parse(), Ok(threshold));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*", middle in "[<>=. %a-z0-9]*") {
            let _ = text.parse::<Threshold>();
            let _ = format!("{text}{middle}{text}").parse::<Threshold>();
        }
    }
}
