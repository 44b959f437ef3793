//! When a sender is accurate, as a plan or a command line sets it.

use std::str::FromStr;

use dwell_units::Ratio;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What is accurate; what is not given is as usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accurate {
    /// How far the rate may be off, as a share of the rate asked for.
    #[serde(default)]
    pub rate: Option<Ratio>,
    /// How large the 95th percentile of |gap error| of a train may be, as a share of the gap.
    #[serde(default)]
    pub gap: Option<Ratio>,
    /// The fewest trains that allow a verdict.
    #[serde(default)]
    pub trains: Option<u32>,
    /// The confidence of the intervals that decide.
    #[serde(default)]
    pub confidence: Option<Ratio>,
}

/// What is wrong with it. The text reads after the name of the flag or the field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccurateError {
    /// No part of it.
    #[error("'{0}' is none of: rate 5%, gap 10%, trains 20, confidence 95%")]
    Part(String),
    /// A value that nothing or everything keeps.
    #[error("{value}: {right}")]
    Value {
        /// The field.
        field: &'static str,
        /// As it is written.
        value: String,
        /// What would be right.
        right: &'static str,
    },
}

impl AccurateError {
    /// The field that is wrong; empty for what is none.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Part(_) => "",
            Self::Value { field, .. } => field,
        }
    }
}

impl Accurate {
    /// What `self` gives, and else what `other` does.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            rate: self.rate.or(other.rate),
            gap: self.gap.or(other.gap),
            trains: self.trains.or(other.trains),
            confidence: self.confidence.or(other.confidence),
        }
    }

    /// Refuses what nothing can keep.
    pub(super) fn check(&self) -> Result<(), AccurateError> {
        let wrong = |field, value: String, right| Err(AccurateError::Value { field, value, right });
        for (field, share) in [("rate", self.rate), ("gap", self.gap)] {
            if let Some(share) = share.filter(|share| *share == Ratio::ZERO) {
                return wrong(field, share.to_string(), "a tolerance is above 0%");
            }
        }
        if self.trains == Some(0) {
            return wrong("trains", "0".into(), "1 or more");
        }
        match self.confidence {
            Some(share) if share == Ratio::ZERO || share.as_f64() >= 1.0 => {
                wrong("confidence", share.to_string(), "above 0% and below 100%, like \"95%\"")
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Accurate {
    type Err = AccurateError;

    /// Reads `rate 5%, gap 10%`, in any order.
    fn from_str(text: &str) -> Result<Self, AccurateError> {
        let mut all = Self::default();
        for part in text.split(',').map(str::trim) {
            let none = || AccurateError::Part(part.to_owned());
            let (name, value) = part.split_once(char::is_whitespace).ok_or_else(none)?;
            let value = value.trim();
            let share = || value.parse::<Ratio>().map(Some).map_err(|_| none());
            match name {
                "rate" => all.rate = share()?,
                "gap" => all.gap = share()?,
                "trains" => all.trains = Some(value.parse().map_err(|_| none())?),
                "confidence" => all.confidence = share()?,
                _ => return Err(none()),
            }
        }
        all.check()?;
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_read_in_any_order_and_completes_another() {
        let given: Accurate = "gap 20%, rate 1%".parse().unwrap();
        let plan: Accurate = "rate 3%, trains 40, confidence 99%".parse().unwrap();
        let both = given.or(plan);
        assert_eq!(both.rate.map(Ratio::as_f64), Some(0.01));
        assert_eq!(both.gap.map(Ratio::as_f64), Some(0.2));
        assert_eq!((both.trains, both.confidence.map(Ratio::as_f64)), (Some(40), Some(0.99)));
    }

    #[test]
    fn what_is_no_tolerance_is_refused_with_one_that_is() {
        for (text, words) in [
            ("", "rate 5%"),
            ("rate", "rate 5%"),
            ("rate 0.5", "gap 10%"),
            ("delay 5%", "'delay 5%'"),
            ("rate 0%", "above 0%"),
            ("trains 0", "1 or more"),
            ("trains many", "trains 20"),
            ("confidence 100%", "below 100%"),
        ] {
            let error = text.parse::<Accurate>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
