//! Tolerance of the accuracy verdict, from a plan or the command line.

use std::str::FromStr;

use dwell_units::Ratio;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Tolerance of the accuracy verdict; missing fields have their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accurate {
    /// Maximum deviation of the rate, as a share of the requested rate.
    pub rate: Option<Ratio>,
    /// Maximum 95th percentile of |gap error| of a train, as a share of the gap.
    pub gap: Option<Ratio>,
    /// Minimum number of trains for a verdict.
    pub trains: Option<u32>,
    /// Confidence of the deciding intervals.
    pub confidence: Option<Ratio>,
}

/// Error in a tolerance. The text reads after the name of the flag or field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccurateError {
    /// An unknown or malformed part.
    #[error("invalid tolerance '{0}'; use rate 5%, gap 10%, trains 20 or confidence 95%")]
    Part(String),
    /// A value outside its range.
    #[error("{value}: {right}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// Value as written.
        value: String,
        /// Valid range.
        right: &'static str,
    },
}

impl AccurateError {
    /// The invalid field; empty for an unknown part.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Part(_) => "",
            Self::Value { field, .. } => field,
        }
    }
}

impl Accurate {
    /// Fills missing fields from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            rate: self.rate.or(other.rate),
            gap: self.gap.or(other.gap),
            trains: self.trains.or(other.trains),
            confidence: self.confidence.or(other.confidence),
        }
    }

    /// Rejects values outside their range.
    pub(super) fn check(&self) -> Result<(), AccurateError> {
        let wrong = |field, value: String, right| Err(AccurateError::Value { field, value, right });
        for (field, share) in [("rate", self.rate), ("gap", self.gap)] {
            if let Some(share) = share.filter(|share| *share == Ratio::ZERO) {
                return wrong(field, share.to_string(), "must be above 0%");
            }
        }
        if self.trains == Some(0) {
            return wrong("trains", "0".into(), "must be 1 or more");
        }
        match self.confidence {
            Some(share) if share == Ratio::ZERO || share.as_f64() >= 1.0 => wrong(
                "confidence",
                share.to_string(),
                "must be above 0% and below 100%, like \"95%\"",
            ),
            _ => Ok(()),
        }
    }
}

impl FromStr for Accurate {
    type Err = AccurateError;

    /// Parses `rate 5%, gap 10%`, in any order.
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
    fn tolerance_parses_in_any_order_and_fills_in_another() {
        let given: Accurate = "gap 20%, rate 1%".parse().unwrap();
        let plan: Accurate = "rate 3%, trains 40, confidence 99%".parse().unwrap();
        let both = given.or(plan);
        assert_eq!(both.rate.map(Ratio::as_f64), Some(0.01));
        assert_eq!(both.gap.map(Ratio::as_f64), Some(0.2));
        assert_eq!((both.trains, both.confidence.map(Ratio::as_f64)), (Some(40), Some(0.99)));
    }

    #[test]
    fn invalid_tolerance_reports_a_valid_form() {
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
