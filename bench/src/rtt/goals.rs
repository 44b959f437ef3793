//! Goals for round trips: ratios and differences of the p50 of both contestants in each round.

use crate::judge::{Bound, Estimate, Judged, Unit, paired};

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
pub(super) const GOALS: [Goal; 8] = [
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
    Goal {
        title: "kernel stamps recorded, C echo for both: dwell - C",
        of: "dwell busy, kernel stamps, C echo",
        than: "C busy, kernel stamps",
        limit: Limit::Extra(100.0),
    },
    Goal {
        title: "p50 at 1,000 probes/s: ping --explain / without",
        of: "dwell 1,000/s, --explain",
        than: "dwell 1,000/s",
        limit: Limit::Ratio(1.02),
    },
];

/// Peak memory limit for [`MEMORY_CYCLES`] closed-loop cycles, in megabytes.
const MEMORY_LIMIT_MB: f64 = 40.0;
/// See [`MEMORY_LIMIT_MB`].
pub(super) const MEMORY_CYCLES: u64 = 500_000;

impl Goal {
    /// Judges by the p50 of both contestants in the same rounds, in nanoseconds.
    pub(super) fn judge(&self, of: &[f64], than: &[f64]) -> Judged {
        let rounds = of.iter().copied().zip(than.iter().copied());
        let (estimate, limit, unit) = match self.limit {
            Limit::Ratio(limit) => (paired::ratio(rounds), limit, Unit::Ratio),
            Limit::Extra(limit) => (paired::difference(rounds), limit, Unit::Ns),
        };
        Judged::new(self.title, estimate, Bound::AtMost(limit), unit)
    }
}

/// Judges the peak memory.
pub(super) fn judge_memory(kib: u64) -> Judged {
    let estimate = Estimate::exact(kib as f64 * 1024.0 / 1e6);
    let goal = "peak memory of 500,000 closed-loop cycles";
    Judged::new(goal, Some(estimate), Bound::AtMost(MEMORY_LIMIT_MB), Unit::Mb)
}

#[cfg(test)]
mod tests {
    use super::super::contestant::{ALL, EXPLAIN};
    use super::*;

    #[test]
    fn every_goal_compares_contestants_that_exist() {
        for goal in GOALS {
            for name in [goal.of, goal.than] {
                let contestants = ALL.iter().chain(&EXPLAIN);
                assert_eq!(contestants.filter(|c| c.name == name).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn goals_are_documented() {
        let goals = GOALS.iter().map(|goal| goal.title);
        crate::judge::assert_documented(goals.chain([&*judge_memory(0).goal]));
    }

    #[test]
    fn slower_contestant_misses_goal() {
        use crate::judge::Outcome;
        let than: Vec<f64> = (0..9).map(|n| 3_500.0 + f64::from(n)).collect();
        let of = |factor: f64| than.iter().map(|p50| p50 * factor).collect::<Vec<f64>>();
        assert_eq!(GOALS[0].judge(&of(1.04), &than).outcome, Outcome::Reached);
        assert_eq!(GOALS[0].judge(&of(1.06), &than).outcome, Outcome::Missed);
        assert_eq!(GOALS[5].judge(&of(1.02), &than).outcome, Outcome::Reached);
        assert_eq!(GOALS[5].judge(&of(1.04), &than).outcome, Outcome::Missed);
        assert_eq!(judge_memory(40_000).outcome, Outcome::Missed);
    }
}
