//! Glossary of the names in results: meaning and source of each. The terms are list items of
//! `docs/glossary.md`. `dwell help terms` prints them; tests compare them with the names in the code
//! and in actual results.

use std::sync::LazyLock;

const PAGE: &str = include_str!("../../../docs/glossary.md");

/// A name in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The name. Capitals mark a variable part, like `POINT` in `missing_POINT`.
    pub name: &'static str,
    /// Meaning in one line.
    pub meaning: &'static str,
    /// Standard, paper or documentation page that defines it.
    pub source: &'static str,
}

/// Kind of a name in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermKind {
    /// A distribution, under `metrics`.
    Metric,
    /// A number, under `values`.
    Value,
}

/// All terms of a kind, in print order.
pub fn terms(kind: TermKind) -> &'static [Term] {
    static METRICS: LazyLock<Vec<Term>> = LazyLock::new(|| section("Metrics"));
    static VALUES: LazyLock<Vec<Term>> = LazyLock::new(|| section("Values"));
    match kind {
        TermKind::Metric => &METRICS,
        TermKind::Value => &VALUES,
    }
}

/// Terms under a heading of the page.
fn section(heading: &str) -> Vec<Term> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(heading));
    section.unwrap_or_default().lines().filter_map(Term::read).collect()
}

/// Finds the term of a name in results, including names with variable parts.
pub fn term(kind: TermKind, name: &str) -> Option<&'static Term> {
    let all = terms(kind);
    all.iter().find(|term| term.name == name).or_else(|| all.iter().find(|term| term.covers(name)))
}

impl Term {
    /// Reads a list item of the page: "- `name`: meaning [source]".
    fn read(line: &'static str) -> Option<Self> {
        let (name, rest) = line.strip_prefix("- `")?.split_once("`: ")?;
        let (meaning, source) = rest.strip_suffix(']')?.rsplit_once(" [")?;
        Some(Self { name, meaning, source })
    }

    /// Returns whether `name` matches, with any text in place of the parts in capitals.
    fn covers(&self, name: &str) -> bool {
        let mut rest = name;
        let mut fixed =
            self.name.split(|c: char| c.is_ascii_uppercase()).filter(|part| !part.is_empty());
        let varies_first = self.name.starts_with(|c: char| c.is_ascii_uppercase());
        if !varies_first {
            let Some(after) = fixed.next().and_then(|first| rest.strip_prefix(first)) else {
                return false;
            };
            rest = after;
        }
        for part in fixed {
            // A variable part has at least one character.
            let Some(at) = rest.char_indices().skip(1).find_map(|(at, _)| {
                rest.get(at..).filter(|tail| tail.starts_with(part)).map(|_| at)
            }) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        let varies_last = self.name.ends_with(|c: char| c.is_ascii_uppercase());
        if varies_last { !rest.is_empty() } else { rest.is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::departures::Variability;
    use crate::{DelayComponent, Leg, Metric};

    #[test]
    fn every_name_of_the_code_has_a_term() {
        let metrics = Metric::ALL.map(Metric::name).into_iter();
        let metrics = metrics
            .chain(DelayComponent::ALL.map(DelayComponent::name))
            .chain(Leg::ALL.map(Leg::name));
        for name in metrics {
            assert!(terms(TermKind::Metric).iter().any(|term| term.name == name), "{name}");
        }
        for (name, _) in Variability::EXPLAINED {
            assert!(terms(TermKind::Value).iter().any(|term| term.name == name), "{name}");
        }
    }

    #[test]
    fn every_list_item_of_the_page_is_a_term() {
        let items = PAGE.lines().filter(|line| line.starts_with("- ")).count();
        assert_eq!(terms(TermKind::Metric).len() + terms(TermKind::Value).len(), items);
    }

    #[test]
    fn terms_are_complete_and_unique() {
        for kind in [TermKind::Metric, TermKind::Value] {
            let mut names: Vec<_> = terms(kind).iter().map(|term| term.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count);
            for term in terms(kind) {
                assert!(!term.meaning.is_empty() && !term.meaning.contains('\n'), "{term:?}");
                assert!(!term.source.is_empty(), "{term:?}");
                assert!(kind == TermKind::Value || term.name.ends_with("_ns"), "{term:?}");
            }
        }
    }

    #[test]
    fn name_with_a_varying_part_is_found() {
        let name = |kind, name: &str| term(kind, name).map(|term| term.name);
        assert_eq!(name(TermKind::Value, "missing_tx_kernel"), Some("missing_POINT"));
        assert_eq!(name(TermKind::Value, "missing_"), None);
        assert_eq!(name(TermKind::Value, "quota_n2_burnt_ratio"), Some("quota_NODE_burnt_ratio"));
        assert_eq!(name(TermKind::Value, "burnt_ratio"), Some("burnt_ratio"));
        assert_eq!(name(TermKind::Value, "rtt_p99_low_ns"), Some("METRIC_pQ_low_ns"));
        assert_eq!(
            name(TermKind::Metric, "path_forward_1_node_7_queueing_in_ns"),
            Some("path_DIRECTION_N_node_ID_PART_ns")
        );
        assert_eq!(name(TermKind::Metric, "rtt_us"), None);
    }
}
