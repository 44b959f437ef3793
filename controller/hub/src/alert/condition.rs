//! Conditions: `p99 > 20ms for 5m`, `loss > 1% for 10m`, `silent for 15m`.

use std::fmt;
use std::str::FromStr;

use dwell_rollup::RollupMetric;
use dwell_stats::Quantile;
use dwell_units::{Nanos, Ratio};
use serde::{Deserialize, Deserializer};

use crate::period::{DAY_NS, Resolution, SECOND_NS};
use crate::query::QUANTILES;

/// Longest time between two records of a running agent: a status every 5 min, with 2 min to write and
/// collect it. A node that is not heard for longer may be silent.
pub const MAX_CONTACT_GAP_NS: i64 = 420 * SECOND_NS;

/// Time from which rows of 5 min are evaluated instead of those of 10 s.
const COARSE_NS: i64 = 1_800 * SECOND_NS;

/// Maximum time of a condition about delays or loss.
const MAX_TIME_NS: i64 = DAY_NS;

/// Maximum time of a condition about silence.
const MAX_SILENCE_NS: i64 = 7 * DAY_NS;

const EXAMPLES: &str =
    "write it like \"p99 > 20ms for 5m\", \"loss > 1% for 10m\" or \"silent for 15m\"";

const CLEAR_EXAMPLES: &str =
    "write it like \"p99 < 15ms for 10m\", \"loss < 0.5%\" or \"heard for 5m\"";

/// A figure of delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// A percentile, with its name.
    Percentile(&'static str, Quantile),
    /// The arithmetic mean.
    Mean,
    /// The largest delay.
    Max,
}

impl Statistic {
    fn named(name: &str) -> Option<Self> {
        match name {
            "mean" => Some(Self::Mean),
            "max" => Some(Self::Max),
            name => {
                let name = name.replace('.', "_");
                let found = QUANTILES.iter().find(|(known, _)| *known == name);
                found.map(|(name, quantile)| Self::Percentile(name, *quantile))
            }
        }
    }

    /// Name in conditions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Percentile(name, _) => name,
            Self::Mean => "mean",
            Self::Max => "max",
        }
    }
}

/// What a condition compares with its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A figure of delays in nanoseconds.
    Delay(RollupMetric, Statistic),
    /// Lost probes per sent probe, from 0 to 1.
    Loss,
}

impl Quantity {
    pub(super) fn parse(words: &[&str]) -> Option<Self> {
        match words {
            ["loss"] => Some(Self::Loss),
            [statistic] => Some(Self::Delay(RollupMetric::Rtt, Statistic::named(statistic)?)),
            [metric, statistic] => {
                let name = format!("{}_ns", metric.strip_suffix("_ns").unwrap_or(metric));
                Some(Self::Delay(RollupMetric::named(&name)?, Statistic::named(statistic)?))
            }
            _ => None,
        }
    }

    fn limit(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Delay(..) => {
                let limit = text.parse::<Nanos>().map_err(|error| error.to_string())?;
                Ok(limit.0 as f64)
            }
            Self::Loss => {
                let limit = text.parse::<Ratio>().map_err(|error| error.to_string())?;
                Ok(f64::from(limit.ppm()) / 1e6)
            }
        }
    }

    fn limit_text(self, limit: f64) -> String {
        match self {
            Self::Delay(..) => Nanos(limit as i64).to_string(),
            Self::Loss => format!("{}%", (limit * 1e6).round() / 1e4),
        }
    }

    /// Name in messages, like `p99` or `one_way_forward p99`.
    pub fn name(self) -> String {
        match self {
            Self::Loss => "loss".to_owned(),
            Self::Delay(RollupMetric::Rtt, statistic) => statistic.name().to_owned(),
            Self::Delay(metric, statistic) => {
                let metric = metric.name().trim_end_matches("_ns");
                format!("{metric} {}", statistic.name())
            }
        }
    }

    /// Formats a value with its unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Loss => format!("{:.2} %", value * 100.0),
            Self::Delay(..) => {
                let (scale, unit) = match value.abs() {
                    ..1e3 => (1.0, "ns"),
                    1e3..1e6 => (1e3, "us"),
                    1e6..1e9 => (1e6, "ms"),
                    _ => (1e9, "s"),
                };
                format!("{:.2} {unit}", value / scale)
            }
        }
    }
}

/// A time over which a quantity is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(i64);

impl Span {
    fn parse(text: &str) -> Result<Self, String> {
        let ns = time(text)?;
        let unit = if ns < COARSE_NS { 10 * SECOND_NS } else { 300 * SECOND_NS };
        if !(10 * SECOND_NS..=MAX_TIME_NS).contains(&ns) || ns % unit != 0 {
            return Err(format!(
                "'{text}' must be from 10s to 24h: below 30m a multiple of 10s, beyond of 5m"
            ));
        }
        Ok(Self(ns))
    }

    /// Length in nanoseconds.
    pub const fn ns(self) -> i64 {
        self.0
    }

    /// Resolution of the rows that are evaluated.
    pub const fn resolution(self) -> Resolution {
        if self.0 < COARSE_NS { Resolution::TenSeconds } else { Resolution::FiveMinutes }
    }

    /// Time between evaluations in nanoseconds: a tenth of the span, in whole rows.
    pub fn step_ns(self) -> i64 {
        let row = self.resolution().length_ns();
        (self.0 / 10 / row * row).max(row)
    }
}

fn time(text: &str) -> Result<i64, String> {
    text.parse::<Nanos>().map(|time| time.0).map_err(|error| error.to_string())
}

/// Condition under which an alert fires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// A quantity is above a limit.
    Above {
        /// The quantity.
        quantity: Quantity,
        /// The limit in nanoseconds, or from 0 to 1.
        limit: f64,
        /// The time over which it is measured.
        span: Span,
    },
    /// No record of a node arrives for this time in nanoseconds.
    Silent(i64),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Above { quantity, limit, span } => {
                let (name, limit) = (quantity.name(), quantity.limit_text(*limit));
                write!(f, "{name} > {limit} for {}", Nanos(span.ns()))
            }
            Self::Silent(ns) => write!(f, "silent for {}", Nanos(*ns)),
        }
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match &words[..] {
            ["silent", "for", silence] => {
                let ns = time(silence)?;
                if !(MAX_CONTACT_GAP_NS..=MAX_SILENCE_NS).contains(&ns) {
                    return Err(format!(
                        "'{silence}' must be from 7m to 168h: an agent without streams is heard every 5 \
                         min"
                    ));
                }
                Ok(Self::Silent(ns))
            }
            [of @ .., ">", limit, "for", span] => {
                let quantity =
                    Quantity::parse(of).ok_or_else(|| unknown_quantity(text, EXAMPLES))?;
                let limit = quantity.limit(limit)?;
                if limit < 0.0 || quantity == Quantity::Loss && limit >= 1.0 {
                    return Err(format!(
                        "the limit of '{text}' can never be exceeded, or always is"
                    ));
                }
                Ok(Self::Above { quantity, limit, span: Span::parse(span)? })
            }
            _ => Err(format!("'{text}' is no condition; {EXAMPLES}")),
        }
    }
}

fn unknown_quantity(text: &str, examples: &str) -> String {
    let known = QUANTILES.map(|(name, _)| name).join(", ");
    format!(
        "'{text}' names no known quantity: {known}, mean, max, after a metric other than rtt like \
         one_way_forward; or loss; {examples}"
    )
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Condition under which a firing alert clears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clear {
    /// A quantity is below a limit, or at it if the limit is 0.
    Below {
        /// The quantity.
        quantity: Quantity,
        /// The limit in nanoseconds, or from 0 to 1.
        limit: f64,
        /// The time over which it is measured; `None`: that of the condition.
        span: Option<Span>,
    },
    /// Records of a node arrive for this time in nanoseconds.
    Heard(i64),
}

impl FromStr for Clear {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (of, limit, span) = match &words[..] {
            ["heard", "for", heard] => {
                let ns = time(heard)?;
                if !(0..=MAX_SILENCE_NS).contains(&ns) {
                    return Err(format!("'{heard}' must be from 0s to 168h"));
                }
                return Ok(Self::Heard(ns));
            }
            [of @ .., "<", limit, "for", span] => (of, limit, Some(Span::parse(span)?)),
            [of @ .., "<", limit] => (of, limit, None),
            _ => return Err(format!("'{text}' is no condition to clear; {CLEAR_EXAMPLES}")),
        };
        let quantity = Quantity::parse(of).ok_or_else(|| unknown_quantity(text, CLEAR_EXAMPLES))?;
        Ok(Self::Below { quantity, limit: quantity.limit(limit)?, span })
    }
}

impl<'de> Deserialize<'de> for Clear {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A measured quantity with its bounds: the bin of a percentile, and the error of clocks.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, Deserialize)]
pub struct Value {
    /// Lower bound, in nanoseconds or from 0 to 1.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Number of delays, or of sent probes.
    pub n: u64,
}

impl Value {
    /// Whether the value is certainly above a limit.
    pub fn is_above(&self, limit: f64) -> bool {
        self.low > limit
    }

    /// Whether the value is certainly below a limit. 0 counts as below 0: no loss is lower.
    pub fn is_below(&self, limit: f64) -> bool {
        self.high < limit || limit == 0.0 && self.high == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_parsed() {
        let parse = |text: &str| text.parse::<Condition>();
        let Ok(Condition::Above { quantity, limit, span }) = parse("p99 > 20ms for 5m") else {
            panic!("{:?}", parse("p99 > 20ms for 5m"));
        };
        assert_eq!((quantity.name().as_str(), limit, span.ns()), ("p99", 2e7, 300 * SECOND_NS));
        assert_eq!((span.resolution(), span.step_ns()), (Resolution::TenSeconds, 30 * SECOND_NS));
        let Ok(Condition::Above { quantity, limit, .. }) = parse("loss > 1% for 10m") else {
            panic!()
        };
        assert_eq!((quantity, limit), (Quantity::Loss, 0.01));
        let Ok(Condition::Above { quantity, span, .. }) =
            parse("one_way_forward p99.9 > 1ms for 1h")
        else {
            panic!()
        };
        assert_eq!(quantity.name(), "one_way_forward p99_9");
        assert_eq!(span.resolution(), Resolution::FiveMinutes);
        assert_eq!(parse("silent for 15m"), Ok(Condition::Silent(900 * SECOND_NS)));
        for (text, reason) in [
            ("", "no condition"),
            ("p99 < 20ms for 5m", "no condition"),
            ("p98 > 20ms for 5m", "p50, p90"),
            ("p99 > 20 for 5m", "10ms"),
            ("p99 > 20ms for 15s", "multiple of 10s"),
            ("p99 > 20ms for 31m", "multiple of 10s"),
            ("p99 > 20ms for 25h", "24h"),
            ("loss > 100% for 5m", "never"),
            ("loss > 0.5 for 5m", "0.5% or 50%"),
            ("silent for 5m", "from 7m"),
            ("rtt speed > 1ms for 5m", "no known quantity"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(matches!("p99 < 15ms".parse(), Ok(Clear::Below { span: None, .. })));
        assert!(matches!("heard for 5m".parse(), Ok(Clear::Heard(_))));
        assert!("p99 > 15ms".parse::<Clear>().unwrap_err().contains("to clear"));
    }

    #[test]
    fn comparison_needs_certainty() {
        let value = Value { low: 19.9, high: 20.1, n: 1 };
        assert!(!value.is_above(20.0) && !value.is_below(20.0));
        assert!(value.is_above(19.0) && value.is_below(21.0));
        assert!(Value { low: 0.0, high: 0.0, n: 1 }.is_below(0.0));
    }
}
