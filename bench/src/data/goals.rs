//! Goals for handling samples.

use serde::Serialize;

use super::recording::Recording;
use super::timed::Cost;
use crate::judge::{Bound, Estimate, Judged, Unit, median, paired};

/// All measurements, one value per round.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    pub(super) import: Vec<Cost>,
    pub(super) pandas_csv: Vec<Cost>,
    pub(super) scan: Vec<Cost>,
    pub(super) pandas_parquet: Vec<Cost>,
    pub(super) audit: Vec<Cost>,
    pub(super) report: Vec<Cost>,
    pub(super) report_bytes: u64,
    pub(super) first_figure_ms: Vec<f64>,
    pub(super) recording: Recording,
    pub(super) trial_overhead_ms: Option<f64>,
}

impl Measured {
    /// Returns the timed commands by their name in the table.
    pub(super) fn costs(&self) -> [(&'static str, &[Cost]); 6] {
        [
            ("dwell import of the CSV, Parquet written", &self.import),
            ("pandas read_csv and figures", &self.pandas_csv),
            ("dwell show --recompute", &self.scan),
            ("pandas read_parquet and figures", &self.pandas_parquet),
            ("dwell audit of the CSV", &self.audit),
            ("dwell report", &self.report),
        ]
    }
}

/// Judges every goal.
pub(super) fn judge(measured: &Measured) -> Vec<Judged> {
    let Measured { import, pandas_csv, scan, pandas_parquet, audit, report, recording, .. } =
        measured;
    let exact = |value: Option<f64>| value.map(Estimate::exact);
    let at_most =
        |goal, estimate, limit, unit| Judged::new(goal, estimate, Bound::AtMost(limit), unit);
    let at_least =
        |goal, estimate, limit, unit| Judged::new(goal, estimate, Bound::AtLeast(limit), unit);
    let seconds = |costs: &[Cost]| costs.iter().map(|cost| cost.seconds).collect::<Vec<_>>();
    let report_seconds = seconds(report);
    let audit_mb: Vec<f64> = audit.iter().map(|cost| cost.peak_kib as f64 * 1024.0 / 1e6).collect();
    let report_mb = (measured.report_bytes > 0).then(|| measured.report_bytes as f64 / 1e6);
    let extra = recording.p99_recorded.iter().copied().zip(recording.p99_bare.iter().copied());
    vec![
        at_least("import: pandas' time / dwell's", time(pandas_csv, import), 5.0, Unit::Ratio),
        at_most(
            "import: dwell's peak memory / pandas'",
            paired::ratio(pairs(import, pandas_csv, |cost| cost.peak_kib as f64)),
            0.25,
            Unit::Ratio,
        ),
        at_least(
            "scan: pandas' time from CSV / dwell's",
            time(pandas_csv, scan),
            20.0,
            Unit::Ratio,
        ),
        at_least(
            "scan: pandas' time from the same Parquet / dwell's",
            time(pandas_parquet, scan),
            3.0,
            Unit::Ratio,
        ),
        at_most("audit: time", paired::location(&seconds(audit)), 2.0, Unit::S),
        at_most("audit: peak memory", paired::location(&audit_mb), 100.0, Unit::Mb),
        at_most("report: time", paired::location(&report_seconds), 5.0, Unit::S),
        at_most("report: size", exact(report_mb), 6.0, Unit::Mb),
        at_most(
            "report: time to the first figure",
            paired::location(&measured.first_figure_ms),
            1_000.0,
            Unit::Ms,
        ),
        at_most(
            "recording: samples missing",
            exact(recording.missing.map(|n| n as f64)),
            0.0,
            Unit::Count,
        ),
        at_least(
            "recording: probes a second",
            paired::location(&recording.rate),
            198_000.0,
            Unit::PerSecond,
        ),
        at_most(
            "recording: p99 of the schedule error, with / without",
            paired::ratio(extra),
            1.25,
            Unit::Ratio,
        ),
        at_most(
            "trials: time besides measuring",
            exact(measured.trial_overhead_ms),
            50.0,
            Unit::Ms,
        ),
    ]
}

/// Ratio of the wall times in each round.
fn time(of: &[Cost], by: &[Cost]) -> Option<Estimate> {
    paired::ratio(pairs(of, by, |cost| cost.seconds))
}

/// One figure of both in each round.
fn pairs(of: &[Cost], by: &[Cost], figure: impl Fn(&Cost) -> f64) -> Vec<(f64, f64)> {
    of.iter().zip(by).map(|(of, by)| (figure(of), figure(by))).collect()
}

/// Returns the median over rounds of one figure.
pub(super) fn median_of(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> Option<f64> {
    median(&costs.iter().map(of).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Outcome;

    #[test]
    fn unmeasured_goals_are_missed() {
        let judged = judge(&Measured::default());
        assert!(judged.iter().all(|row| row.outcome == Outcome::Missed), "{judged:?}");
    }

    #[test]
    fn goals_are_documented() {
        crate::judge::assert_documented(judge(&Measured::default()).iter().map(|row| &*row.goal));
    }

    #[test]
    fn goals_compare_in_the_right_direction() {
        let cost = |seconds: f64, peak_kib: u64| vec![Cost { seconds, peak_kib }; 7];
        let measured = |import: f64| Measured {
            import: cost(import, 100),
            pandas_csv: cost(2.0, 400),
            ..Measured::default()
        };
        assert!(judge(&measured(0.39))[..2].iter().all(|row| row.outcome == Outcome::Reached));
        assert_eq!(judge(&measured(0.41))[0].outcome, Outcome::Missed);
    }
}
