//! Numbers that documents state about their claims: `data/claims.toml`, each with its source.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

static VALUES: LazyLock<BTreeMap<String, f64>> = LazyLock::new(|| {
    let all = entries().unwrap_or_default();
    all.value.iter().map(|entry| (entry.claim.clone(), entry.number())).collect()
});

/// Returns the number of a claim in the unit in which the claim is judged: nanoseconds, bit/s, or a
/// plain number. `None` for a claim without one.
pub(crate) fn of_claim(id: &str) -> Option<f64> {
    VALUES.get(id).copied()
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
    use std::collections::BTreeSet;

    use dwell_stats::median;

    use super::*;
    use crate::judgement::Limit;

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
        let values = [0.05, 100e3, 50e6, 0.76, 100e6];
        assert_eq!(ids.map(of_claim), values.map(Some));
        assert_eq!(of_claim("S9.9"), None);
    }

    #[test]
    fn published_limits_have_numbers_and_numbers_have_claims() {
        let claims = crate::claim_limits();
        let ids: BTreeSet<&str> = claims.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids.len(), claims.len(), "an id is used twice");
        for (id, limit) in claims {
            let is_published = matches!(limit, Limit::Published);
            assert!(!is_published || of_claim(id).is_some(), "{id} has no number in claims.toml");
        }
        for id in VALUES.keys() {
            assert!(ids.contains(id.as_str()), "{id} of claims.toml is no claim");
        }
    }

    /// Round-trip times of a file of Roedlach/Vock in microseconds.
    fn round_trips(text: &str) -> Vec<f64> {
        let seconds = text.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().trim());
        let mut all: Vec<f64> = seconds.map(|cell| 1e6 * cell.parse::<f64>().unwrap()).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn computed_numbers_follow_from_the_files() {
        let cpu = round_trips(include_str!("../data/roedlach-vock/cpu_load.csv"));
        let idle = round_trips(include_str!("../data/roedlach-vock/no_load.csv"));
        let tail = |all: &[f64]| all[(0.999 * all.len() as f64).ceil() as usize - 1];
        for (id, from, to) in [
            ("S4.4-cpu-median", median(&idle).unwrap(), median(&cpu).unwrap()),
            ("S4.4-cpu-tail", tail(&idle), tail(&cpu)),
        ] {
            let stated = of_claim(id).unwrap();
            assert!((to / from / stated - 1.0).abs() < 1e-3, "{id}: {to} / {from}, not {stated}");
        }
    }
}
