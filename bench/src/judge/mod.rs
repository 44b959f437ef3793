//! Judges measurements against goals, the same way in every bench.
//!
//! A contestant is compared with a peer in turns: both run in each turn, and the comparison uses the
//! ratio or difference of each turn ([`paired`]). An [`Estimate`] is judged by its 95 % interval, so a
//! noisy machine makes a bench undecided, not wrong.

mod goal;
pub mod paired;

pub use goal::{Bound, Estimate, Judged, Outcome, Unit, conclude, median, table};

/// Fails if a goal has no row of its name in `docs/performance.md`.
#[cfg(test)]
pub(crate) fn assert_documented<'a>(goals: impl IntoIterator<Item = &'a str>) {
    let page = include_str!("../../../docs/performance.md");
    let rows: Vec<String> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| ")?.replace("\\|", "\u{1f}")))
        .filter_map(|row| Some(row.split_once(" |")?.0.replace('\u{1f}', "|")))
        .collect();
    for goal in goals {
        assert!(rows.iter().any(|row| row == goal), "docs/performance.md has no row '{goal}'");
    }
}
