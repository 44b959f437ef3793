//! Goals, their three outcomes, and how a bench ends.

use anyhow::anyhow;
use dwell_node_cli::{Exit, Failure};
use serde::{Deserialize, Serialize};

use crate::Table;

/// A measured value and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// Lower end; `None` if too few turns support an interval.
    pub low: Option<f64>,
    /// Upper end; `None` if too few turns support an interval.
    pub high: Option<f64>,
}

impl Estimate {
    /// A value without sampling error, such as a count or a size.
    pub fn exact(value: f64) -> Self {
        Self { value, low: Some(value), high: Some(value) }
    }

    /// Whether the interval is a point, as of [`Self::exact`].
    pub fn is_exact(&self) -> bool {
        self.low == Some(self.value) && self.high == Some(self.value)
    }

    /// Applies an increasing function.
    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self { value: of(self.value), low: self.low.map(&of), high: self.high.map(&of) }
    }
}

/// Limit of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The value may not be above this.
    AtMost(f64),
    /// The value may not be below this.
    AtLeast(f64),
}

/// Relation of the interval to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The whole interval keeps the limit.
    Reached,
    /// The whole interval lies beyond the limit, or nothing was measured.
    Missed,
    /// The limit lies inside the interval, or the interval is unknown.
    CannotTell,
    /// This machine or this build cannot measure it; the note says why.
    Unavailable,
}

/// Unit of a goal's value and limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Ratio to a peer, or a share.
    Ratio,
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// Megabytes (10^6).
    Mb,
    /// Events or packets.
    Count,
    /// Per second.
    PerSecond,
}

impl Unit {
    fn format(self, value: f64) -> String {
        match self {
            Self::Ratio => format!("{value:.3}"),
            Self::Ns => format!("{value:.0} ns"),
            Self::Us => format!("{value:.3} us"),
            Self::Ms => format!("{value:.0} ms"),
            Self::S => format!("{value:.2} s"),
            Self::Mb => format!("{value:.2} MB"),
            Self::Count => format!("{value:.0}"),
            Self::PerSecond => format!("{value:.0}/s"),
        }
    }
}

/// A goal with its estimate and outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The measured or compared quantity.
    pub goal: String,
    /// `None` if it could not be measured.
    pub estimate: Option<Estimate>,
    /// The limit.
    #[serde(flatten)]
    pub bound: Bound,
    /// Of estimate and limit.
    pub unit: Unit,
    /// Relation of the estimate to the limit.
    pub outcome: Outcome,
    /// A condition that a reader needs, such as the cell that the value comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Judged {
    /// Judges an estimate.
    pub fn new(
        goal: impl Into<String>,
        estimate: Option<Estimate>,
        bound: Bound,
        unit: Unit,
    ) -> Self {
        let outcome = estimate.map_or(Outcome::Missed, |estimate| bound.outcome(&estimate));
        Self { goal: goal.into(), estimate, bound, unit, outcome, note: None }
    }

    /// A goal that cannot be measured here, and the reason.
    pub fn unavailable(
        goal: impl Into<String>,
        bound: Bound,
        unit: Unit,
        reason: impl Into<String>,
    ) -> Self {
        let (goal, note) = (goal.into(), Some(reason.into()));
        Self { goal, estimate: None, bound, unit, outcome: Outcome::Unavailable, note }
    }

    /// Adds a condition to the row.
    #[must_use]
    pub fn with_note(mut self, note: Option<String>) -> Self {
        self.note = note;
        self
    }
}

impl Bound {
    /// Returns the relation of an estimate to the limit.
    pub fn outcome(self, estimate: &Estimate) -> Outcome {
        let (Some(low), Some(high)) = (estimate.low, estimate.high) else {
            return Outcome::CannotTell;
        };
        let (kept, broken) = match self {
            Self::AtMost(limit) => (high <= limit, low > limit),
            Self::AtLeast(limit) => (low >= limit, high < limit),
        };
        match (kept, broken) {
            (true, _) => Outcome::Reached,
            (_, true) => Outcome::Missed,
            _ => Outcome::CannotTell,
        }
    }
}

impl Outcome {
    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Missed => "missed",
            Self::CannotTell => "cannot tell",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Returns the median; the lower of the two middle values for an even count. For tables only: goals are
/// judged by estimates.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// The table of goals that every bench ends with.
pub fn table(judged: &[Judged]) -> Table {
    let mut table = Table::new(["goal", "value", "95 % interval", "limit", "outcome", ""]);
    for row in judged {
        let text = |value: f64| row.unit.format(value);
        let interval = row.estimate.and_then(|estimate| Some((estimate.low?, estimate.high?)));
        let (side, limit) = match row.bound {
            Bound::AtMost(limit) => ("<=", limit),
            Bound::AtLeast(limit) => (">=", limit),
        };
        table.row([
            row.goal.clone(),
            row.estimate.map_or("not measured".to_owned(), |estimate| text(estimate.value)),
            match interval {
                Some((low, high)) if low < high => format!("{} to {}", text(low), text(high)),
                Some(_) => String::new(),
                None => "-".to_owned(),
            },
            format!("{side} {}", text(limit)),
            row.outcome.word().to_owned(),
            row.note.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// How a bench ends: exit 3 with the goals that were missed. Undecided and unavailable goals are listed
/// on stderr and are no failure.
pub fn conclude(judged: &[Judged]) -> Result<Exit, Failure> {
    let named = |outcome| {
        let rows = judged.iter().filter(move |row| row.outcome == outcome);
        rows.map(|row| row.goal.as_str()).collect::<Vec<_>>().join("; ")
    };
    let missed = named(Outcome::Missed);
    for outcome in [Outcome::CannotTell, Outcome::Unavailable] {
        let open = named(outcome);
        if !open.is_empty() {
            eprintln!("{}: {open}", outcome.word());
        }
    }
    if missed.is_empty() {
        return Ok(Exit::Measured);
    }
    Err(Failure { exit: Exit::Threshold, error: anyhow!("goals missed: {missed}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(low: f64, high: f64, bound: Bound) -> Outcome {
        let value = f64::midpoint(low, high);
        let estimate = Estimate { value, low: Some(low), high: Some(high) };
        Judged::new("one", Some(estimate), bound, Unit::Ratio).outcome
    }

    #[test]
    fn goal_is_missed_only_if_the_whole_interval_is_beyond() {
        let (most, least) = (Bound::AtMost(1.05), Bound::AtLeast(2.0));
        assert_eq!(outcome(0.9, 1.05, most), Outcome::Reached);
        assert_eq!(outcome(0.99, 1.12, most), Outcome::CannotTell);
        assert_eq!(outcome(1.06, 1.12, most), Outcome::Missed);
        assert_eq!(outcome(2.0, 2.5, least), Outcome::Reached);
        assert_eq!(outcome(1.5, 2.5, least), Outcome::CannotTell);
        assert_eq!(outcome(1.5, 1.9, least), Outcome::Missed);
    }

    #[test]
    fn odd_value_does_not_move_the_median() {
        assert_eq!(median(&[3.0, 900.0, 1.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn value_without_interval_is_undecided_and_no_value_is_missed() {
        let point = Estimate { value: 1.0, low: None, high: None };
        let judged = |estimate| Judged::new("one", estimate, Bound::AtMost(9.0), Unit::Ratio);
        assert_eq!(judged(Some(point)).outcome, Outcome::CannotTell);
        assert_eq!(judged(None).outcome, Outcome::Missed);
        let unavailable = Judged::unavailable("one", Bound::AtMost(9.0), Unit::Ratio, "no engine");
        assert!(conclude(&[judged(Some(point)), unavailable]).is_ok());
        let failure = conclude(&[judged(None)]).unwrap_err();
        assert_eq!(
            (failure.exit, failure.error.to_string()),
            (Exit::Threshold, "goals missed: one".into())
        );
    }
}
