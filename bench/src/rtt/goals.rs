//! Goals for round trips and their verdicts: ratios and differences of medians over rounds.

use serde::Serialize;

/// A goal that compares the median p50 of two contestants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    /// Description of the goal.
    pub(super) title: &'static str,
    /// The contestant that is judged.
    pub(super) of: &'static str,
    /// The contestant it is compared with.
    pub(super) than: &'static str,
    /// Maximum slowdown.
    pub(super) limit: Limit,
}

/// Maximum slowdown of a contestant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// Maximum ratio.
    Ratio(f64),
    /// Maximum difference in nanoseconds.
    Extra(f64),
}

/// Every goal on round trips.
pub(super) const GOALS: [Goal; 6] = [
    Goal {
        title: "busy, two cores: dwell / C",
        of: "dwell busy",
        than: "C busy",
        limit: Limit::Ratio(1.05),
    },
    Goal {
        title: "busy, two cores: dwell / sockperf --nonblocked",
        of: "dwell busy",
        than: "sockperf busy",
        limit: Limit::Ratio(1.0),
    },
    Goal {
        title: "blocking, two cores: dwell / sockperf",
        of: "dwell blocking, two cores",
        than: "sockperf blocking, two cores",
        limit: Limit::Ratio(1.0),
    },
    Goal {
        title: "blocking, one core: dwell / sockperf",
        of: "dwell blocking, one core",
        than: "sockperf blocking, one core",
        limit: Limit::Ratio(1.0),
    },
    Goal {
        title: "kernel stamps recorded - user stamps",
        of: "dwell busy, kernel stamps",
        than: "dwell busy",
        limit: Limit::Extra(300.0),
    },
    Goal {
        title: "kernel stamps recorded: dwell - C",
        of: "dwell busy, kernel stamps",
        than: "C busy, kernel stamps",
        limit: Limit::Extra(100.0),
    },
];

/// Peak memory limit in KiB (40 MB) for [`MEMORY_CYCLES`] closed-loop cycles.
pub(super) const MEMORY_LIMIT_KIB: u64 = 40_000_000 / 1024;
/// See [`MEMORY_LIMIT_KIB`].
pub(super) const MEMORY_CYCLES: u64 = 500_000;

/// A judged goal. Figures are nanoseconds, or KiB for memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RttVerdict {
    pub(super) goal: &'static str,
    pub(super) dwell: f64,
    /// Figure of the other contestant.
    pub(super) other: Option<f64>,
    /// Ratio or difference, as in the goal.
    pub(super) value: f64,
    pub(super) limit: f64,
    pub(super) unit: Unit,
    pub(super) reached: bool,
}

/// Unit of `value` and `limit` of a [`RttVerdict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    Ratio,
    Ns,
    KiB,
}

impl Goal {
    /// Judges by the medians over rounds of `of` and `than`.
    pub(super) fn judge(&self, of: f64, than: f64) -> RttVerdict {
        let (value, limit, unit) = match self.limit {
            Limit::Ratio(limit) => (of / than, limit, Unit::Ratio),
            Limit::Extra(limit) => (of - than, limit, Unit::Ns),
        };
        let reached = value <= limit;
        RttVerdict { goal: self.title, dwell: of, other: Some(than), value, limit, unit, reached }
    }
}

/// Judges the peak memory.
pub(super) fn judge_memory(kib: u64) -> RttVerdict {
    let limit = MEMORY_LIMIT_KIB as f64;
    RttVerdict {
        goal: "peak memory of 500,000 closed-loop cycles",
        dwell: kib as f64,
        other: None,
        value: kib as f64,
        limit,
        unit: Unit::KiB,
        reached: kib < MEMORY_LIMIT_KIB,
    }
}

/// Returns the median; the lower of the two middle values for an even count.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::contestant::ALL;
    use super::*;

    #[test]
    fn every_goal_compares_contestants_that_exist() {
        for goal in GOALS {
            for name in [goal.of, goal.than] {
                assert_eq!(ALL.iter().filter(|c| c.name == name).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn goal_is_reached_at_limit_and_missed_above() {
        assert!(GOALS[0].judge(3_675.0, 3_500.0).reached);
        assert!(!GOALS[0].judge(3_676.0, 3_500.0).reached);
        assert!(GOALS[5].judge(3_900.0, 3_800.0).reached);
        assert!(!GOALS[5].judge(3_901.0, 3_800.0).reached);
        assert!(!judge_memory(MEMORY_LIMIT_KIB).reached);
    }

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        assert_eq!(median(&[3.0, 900.0, 1.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }
}
