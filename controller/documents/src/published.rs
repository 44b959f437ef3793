//! Numbers that documents state about their claims: `data/claims.toml`, each with its source.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

static VALUES: LazyLock<BTreeMap<String, f64>> = LazyLock::new(|| {
    let all = entries().unwrap_or_default();
    all.value.iter().map(|entry| (entry.claim.clone(), entry.number())).collect()
});

/// Returns the number of a claim in the unit in which the claim is judged: nanoseconds, bit/s, or a
/// plain number. NaN for a claim without one, with which every comparison is undecided.
pub(crate) fn of_claim(id: &str) -> f64 {
    VALUES.get(id).copied().unwrap_or(f64::NAN)
}

fn entries() -> Result<Entries, toml::de::Error> {
    toml::from_str(include_str!("../data/claims.toml"))
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    value: Vec<Entry>,
}

/// A number of a document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    claim: String,
    value: f64,
    of: Option<f64>,
    unit: Unit,
    /// Place in the document.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    source: String,
}

/// Unit of stated numbers.
#[derive(Clone, Copy, Debug, Deserialize)]
enum Unit {
    #[serde(rename = "times")]
    Times,
    #[serde(rename = "%")]
    Percent,
    #[serde(rename = "us")]
    Microseconds,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "Mbit/s")]
    Megabits,
}

impl Entry {
    fn number(&self) -> f64 {
        let factor = match self.unit {
            Unit::Times => 1.0,
            Unit::Percent => 0.01,
            Unit::Microseconds => 1e3,
            Unit::Milliseconds | Unit::Megabits => 1e6,
        };
        // The unit cancels out of a ratio.
        self.of.map_or(self.value * factor, |of| self.value / of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_claim_and_a_source() {
        let all = entries().unwrap();
        assert_eq!(all.value.len(), VALUES.len());
        for entry in &all.value {
            assert!(entry.number().is_finite() && entry.number() > 0.0, "{entry:?}");
            assert!(entry.source.contains(", "), "{entry:?}");
        }
    }

    #[test]
    fn numbers_are_in_the_units_of_their_claims() {
        let ids = ["S0.19-route", "S0.23", "S2.8-all-sizes", "S2.8-top-rate", "S3.4-low"];
        assert_eq!(ids.map(of_claim), [0.05, 100e3, 50e6, 0.76, 100e6]);
        assert!(of_claim("S9.9").is_nan());
    }
}
