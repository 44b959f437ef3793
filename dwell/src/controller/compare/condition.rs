//! Conditions of `dwell compare --fail-if`: what they are about, and whether a shift meets them.

use dwell_stats::{Quantile, QuantileShift, RealInterval};

use super::{QUANTILES, percent_ends, time};

/// A condition on a shift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) quantile: Quantile,
    beyond: Beyond,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Beyond {
    Percent(f64),
    Time(dwell_units::Nanos),
}

impl std::str::FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let right = "write it like 'p99 > 10%' or 'p50 > 20us'";
        let (name, limit) =
            text.split_once('>').ok_or_else(|| format!("'{text}' has no >; {right}"))?;
        let name = name.trim().replace('.', "_");
        let quantile = QUANTILES
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| format!("'{name}' is not compared; p50, p90, p99 and p99.9 are"))?;
        let limit = limit.trim();
        let beyond = match limit.strip_suffix('%') {
            Some(percent) => Beyond::Percent(
                percent
                    .trim()
                    .parse()
                    .map_err(|_| format!("'{limit}' is no percentage; {right}"))?,
            ),
            None => Beyond::Time(limit.parse().map_err(|error| format!("{error}; {right}"))?),
        };
        Ok(Self { quantile: quantile.1, beyond })
    }
}

impl Condition {
    /// Whether it holds for a shift beyond doubt.
    pub(super) fn judge(self, shift: &QuantileShift) -> Judged {
        let (low, high, limit) = match self.beyond {
            Beyond::Time(limit) => {
                let Some(interval) = shift.interval else { return Judged::NoInterval };
                (interval.low.0 as f64, interval.high.0 as f64, limit.0 as f64)
            }
            Beyond::Percent(limit) => {
                let Some(interval) = shift.percent_interval else { return Judged::NoInterval };
                (interval.low, interval.high, limit)
            }
        };
        if low > limit {
            return Judged::Holds;
        }
        if high <= limit {
            return Judged::DoesNotHold;
        }
        Judged::CannotTell(match self.beyond {
            Beyond::Time(_) => format!("{} to {}", time(low as i64), time(high as i64)),
            Beyond::Percent(_) => percent_ends(RealInterval { low, high }),
        })
    }
}

/// What a shift says of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Judged {
    /// All of the interval is beyond the limit.
    Holds,
    /// None of it is.
    DoesNotHold,
    /// The limit lies within the interval, which is this.
    CannotTell(String),
    /// There is no interval to judge by.
    NoInterval,
}
