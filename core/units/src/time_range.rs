//! A range of times.

use std::fmt;
use std::str::FromStr;

use crate::{Nanos, UnitError};

/// Times from `min` to `max`, both included and not negative. As text: `20ms..40ms`, or one time.
///
/// ```
/// use dwell_units::{Nanos, TimeRange};
///
/// let print: TimeRange = "20ms..40ms".parse().unwrap();
/// assert_eq!((print.min(), print.max()), (Nanos::from_millis(20), Nanos::from_millis(40)));
/// assert_eq!("5ms".parse(), Ok(TimeRange::fixed(Nanos::from_millis(5))));
/// assert_eq!(print.to_string(), "20ms..40ms");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    min: Nanos,
    max: Nanos,
}

/// Rule for the text of a range.
const LIMIT: &str = "a range goes from the smaller time to the larger, both 0 or more";

impl TimeRange {
    /// The range that contains only 0.
    pub const ZERO: Self = Self::fixed(Nanos::ZERO);

    /// The range that contains only this time.
    pub const fn fixed(time: Nanos) -> Self {
        Self { min: time, max: time }
    }

    /// The range between these numbers of milliseconds.
    pub const fn millis(min: i64, max: i64) -> Self {
        Self { min: Nanos::from_millis(min), max: Nanos::from_millis(max) }
    }

    /// Smallest time.
    pub const fn min(self) -> Nanos {
        self.min
    }

    /// Largest time.
    pub const fn max(self) -> Nanos {
        self.max
    }

    /// Returns the time at `share` of the range, from 0 to 1.
    pub fn at(self, share: f64) -> Nanos {
        let width = (self.max.0 - self.min.0) as f64;
        Nanos(self.min.0 + (width * share).round() as i64)
    }
}

impl FromStr for TimeRange {
    type Err = UnitError;

    /// Parses `20ms..40ms` or `5ms`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (min.trim().parse::<Nanos>()?, max.trim().parse::<Nanos>()?),
            None => {
                let time = text.parse::<Nanos>()?;
                (time, time)
            }
        };
        if min < Nanos::ZERO || max < min {
            return Err(UnitError::OutOfRange { text: text.to_owned(), limit: LIMIT });
        }
        Ok(Self { min, max })
    }
}

impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => self.min.fmt(f),
            false => write!(f, "{}..{}", self.min, self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversed_or_negative_range_is_refused() {
        for text in ["40ms..20ms", "-1ms", "-2ms..1ms", "20..40ms", "20ms..", "..", ""] {
            assert!(text.parse::<TimeRange>().is_err(), "{text}");
        }
        let range: TimeRange = "1ms..3ms".parse().unwrap();
        assert_eq!([0.0, 0.5, 1.0].map(|share| range.at(share).0 / 1_000), [1_000, 2_000, 3_000]);
    }
}
