//! Goals for handling samples, and their verdicts.

use serde::Serialize;

use super::recording::Recording;
use super::timed::Cost;

/// All measurements, one value per round.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    pub(super) import: Vec<Cost>,
    pub(super) pandas_csv: Vec<Cost>,
    pub(super) scan: Vec<Cost>,
    pub(super) pandas_parquet: Vec<Cost>,
    pub(super) report: Vec<Cost>,
    pub(super) report_bytes: u64,
    pub(super) first_figure_ms: Vec<f64>,
    pub(super) recording: Recording,
    pub(super) trial_overhead_ms: Option<f64>,
}

/// A judged goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct DataVerdict {
    pub(super) goal: &'static str,
    /// `None` if it could not be measured, which counts as missed.
    pub(super) value: Option<f64>,
    pub(super) limit: f64,
    /// Whether the limit is a minimum.
    pub(super) at_least: bool,
    pub(super) reached: bool,
}

impl Measured {
    /// Returns the timed commands by their name in the table.
    pub(super) fn costs(&self) -> [(&'static str, &[Cost]); 5] {
        [
            ("dwell import of the CSV, Parquet written", &self.import),
            ("pandas read_csv and figures", &self.pandas_csv),
            ("dwell show --recompute", &self.scan),
            ("pandas read_parquet and figures", &self.pandas_parquet),
            ("dwell report", &self.report),
        ]
    }
}

/// Judges every goal.
pub(super) fn judge(measured: &Measured) -> Vec<DataVerdict> {
    let seconds = |costs: &[Cost]| median_of(costs, |cost| cost.seconds);
    let memory = |costs: &[Cost]| median_of(costs, |cost| cost.peak_kib as f64);
    let ratio = |of: Option<f64>, by: Option<f64>| Some(of? / by?);
    let csv = seconds(&measured.pandas_csv);
    let recording = &measured.recording;
    let extra = recording.p99_recorded.zip(recording.p99_bare).map(|(with, bare)| with / bare);
    vec![
        at_least("import: pandas' time / dwell's", ratio(csv, seconds(&measured.import)), 5.0),
        at_most(
            "import: dwell's peak memory / pandas'",
            ratio(memory(&measured.import), memory(&measured.pandas_csv)),
            0.25,
        ),
        at_least(
            "scan: pandas' time from CSV / dwell's",
            ratio(csv, seconds(&measured.scan)),
            20.0,
        ),
        at_least(
            "scan: pandas' time from the same Parquet / dwell's",
            ratio(seconds(&measured.pandas_parquet), seconds(&measured.scan)),
            3.0,
        ),
        at_most("report: seconds", seconds(&measured.report), 5.0),
        at_most("report: MB", Some(measured.report_bytes as f64 / 1e6), 6.0),
        at_most("report: ms to the first figure", median(&measured.first_figure_ms), 1_000.0),
        at_most("recording: samples missing", recording.missing.map(|n| n as f64), 0.0),
        at_least("recording: probes a second", recording.rate, 198_000.0),
        at_most("recording: p99 of the schedule error, with / without", extra, 1.25),
        at_most("trials: ms besides measuring", measured.trial_overhead_ms, 50.0),
    ]
}

fn at_least(goal: &'static str, value: Option<f64>, limit: f64) -> DataVerdict {
    let reached = value.is_some_and(|value| value >= limit);
    DataVerdict { goal, value, limit, at_least: true, reached }
}

fn at_most(goal: &'static str, value: Option<f64>, limit: f64) -> DataVerdict {
    let reached = value.is_some_and(|value| value <= limit);
    DataVerdict { goal, value, limit, at_least: false, reached }
}

/// Returns the median over rounds of one figure.
pub(super) fn median_of(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> Option<f64> {
    median(&costs.iter().map(of).collect::<Vec<_>>())
}

/// Returns the median; the lower of the two middle values for an even count.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmeasured_goals_are_missed() {
        let verdicts = judge(&Measured::default());
        let reached: Vec<_> = verdicts.iter().filter(|v| v.reached).map(|v| v.goal).collect();
        // An absent report has size 0 and so reaches the size limit.
        assert_eq!(reached, ["report: MB"]);
    }

    #[test]
    fn goal_limits_have_the_right_side() {
        let cost = |seconds: f64, peak_kib: u64| vec![Cost { seconds, peak_kib }];
        let measured = |import: f64| Measured {
            import: cost(import, 100),
            pandas_csv: cost(2.0, 400),
            ..Measured::default()
        };
        assert!(judge(&measured(0.4))[..2].iter().all(|verdict| verdict.reached));
        assert!(!judge(&measured(0.41))[0].reached);
    }
}
