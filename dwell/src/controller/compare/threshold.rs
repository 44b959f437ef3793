//! `dwell compare --fail-if`: limits on values of the later runs, judged like those of `dwell
//! ping`, and limits on the change from the baseline, judged by the interval of the change.

use std::collections::BTreeMap;

use dwell_node_cli::{Exit, Failure, say};
use dwell_record::{BatchStatistics, Column};
use dwell_results::compare::{Basis, CellComparison, QUANTILES, cell_of, percent_ends, time_text};
use dwell_stats::{
    Change, Decision, Distribution, Evidence, Metric, Packets, Quantile, QuantileShift,
    RealInterval, Threshold, ThresholdError, ThresholdVerdict, Values,
};
use dwell_store::{Role, RunRow, Store};
use dwell_units::Nanos;
use serde_json::Value;

/// The conditions of the command line.
pub(super) struct Thresholds(Vec<Threshold>);

impl Thresholds {
    /// Parses the conditions.
    pub(super) fn read(texts: &[String]) -> Result<Self, Failure> {
        let ping = Metric::ALL.map(|metric| metric.name().trim_end_matches("_ns"));
        let mut known: Vec<&str> =
            ping.into_iter().chain(BatchStatistics::metric_names()).collect();
        known.sort_unstable();
        known.dedup();
        let read = |text: &String| -> Result<Threshold, ThresholdError> {
            let threshold: Threshold = text.parse()?;
            threshold.check_metric(&known)?;
            Ok(threshold)
        };
        let all: Result<_, _> = texts.iter().map(read).collect();
        all.map(Self)
            .map_err(|error| Failure::usage(format!("invalid value for --fail-if: {error}")))
    }

    /// Rejects changes of metrics other than the compared `column`.
    pub(super) fn check_changes(&self, column: Column) -> Result<(), Failure> {
        let compared = column.name().trim_end_matches("_ns");
        let changes = self.0.iter().filter(|threshold| threshold.change().is_some());
        let other = |threshold: &&Threshold| threshold.metric().is_some_and(|it| it != compared);
        match changes.clone().find(other) {
            Some(threshold) => Err(Failure::usage(format!(
                "invalid value for --fail-if: '{threshold}': the compared metric is {compared}; choose \
                 another with --metric"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the percentiles to compare.
    pub(super) fn quantiles(&self) -> Vec<Quantile> {
        let limits = |quantile: Quantile| {
            let mut changes = self.0.iter().filter_map(Threshold::change);
            changes.any(|(of, _)| of == quantile)
        };
        let all = QUANTILES.into_iter().map(|(_, quantile)| quantile);
        all.filter(|quantile| *quantile != Quantile::P95 || limits(*quantile)).collect()
    }

    /// Judges the later runs and reports conditions that do not pass.
    pub(super) fn judge(
        &self,
        store: &Store,
        runs: &[RunRow],
        column: Column,
        compared: &[CellComparison],
    ) -> Result<Exit, Failure> {
        let mut exit = Exit::Measured;
        for (threshold, (quantile, limit)) in
            self.0.iter().filter_map(|threshold| Some((threshold, threshold.change()?)))
        {
            for one in compared {
                let shifts = one.comparison.quantiles.iter();
                for shift in shifts.filter(|shift| shift.quantile == quantile) {
                    exit = exit.or_worse(judge_change(threshold, limit, one, shift));
                }
            }
        }
        let values: Vec<&Threshold> = self.0.iter().filter(|it| it.change().is_none()).collect();
        if values.is_empty() {
            return Ok(exit);
        }
        for run in runs {
            for (cell, measured) in cells(store, run)? {
                for threshold in &values {
                    let of = location(&run.run, &cell);
                    exit = exit.or_worse(measured.judge(threshold, column, &of));
                }
            }
        }
        Ok(exit)
    }
}

/// Formats a run and its cell for messages.
fn location(run: &str, cell: &str) -> String {
    if cell.is_empty() { run.to_owned() } else { format!("{run}, {cell}") }
}

fn judge_change(
    threshold: &Threshold,
    limit: Change,
    one: &CellComparison,
    shift: &QuantileShift,
) -> Exit {
    let of = location(&one.run, &one.cell);
    let (ends, limit, text) = match limit {
        Change::Time(limit) => {
            let ends = shift.interval.map(|it| (it.low.0 as f64, it.high.0 as f64));
            let text = shift
                .interval
                .map(|it| format!("{} to {}", time_text(it.low.0), time_text(it.high.0)));
            (ends, limit.0 as f64, text)
        }
        Change::Percent(limit) => {
            let text = shift.percent_interval.map(percent_ends);
            (shift.percent_interval.map(|RealInterval { low, high }| (low, high)), limit, text)
        }
    };
    let Some((ends, text)) = ends.zip(text) else {
        // An interval of times can exist where one of percentages does not.
        let why = match one.basis {
            _ if shift.interval.is_some() => {
                "the baseline is zero or can be negative, so a percentage has no meaning; state the \
                 change as a time"
            }
            Basis::Trials => "too few trials",
            Basis::Repetitions | Basis::Recordings => "too few values",
        };
        say(&format!("dwell: --fail-if {threshold}: cannot tell for {of}: {why}"));
        return Exit::Undecided;
    };
    match threshold.decide(ends, limit) {
        Decision::Holds => {
            say(&format!("dwell: --fail-if {threshold}: it is {text} in {of}"));
            Exit::Threshold
        }
        Decision::DoesNotHold => Exit::Measured,
        Decision::CannotTell => {
            say(&format!(
                "dwell: --fail-if {threshold}: cannot tell for {of}: the limit is inside the \
                 interval, {text}"
            ));
            Exit::Undecided
        }
    }
}

/// The results of one cell of a run.
#[derive(Default)]
struct CellResults {
    trials: Vec<BatchStatistics>,
    timeout: Option<Nanos>,
    /// Packets that did not arrive, in trials whose departures are timestamped by a sink.
    without_departure: u64,
}

impl CellResults {
    /// Judges all probes of the cell together and reports a condition that does not pass.
    fn judge(&self, threshold: &Threshold, column: Column, of: &str) -> Exit {
        let name = threshold.metric().unwrap_or(column.name().trim_end_matches("_ns"));
        let mut distribution = Distribution::new();
        let found = self.trials.iter().filter_map(|trial| trial.metric(name));
        found.for_each(|values| distribution.merge(values));
        let mut packets = Packets::default();
        for counts in self.trials.iter().map(BatchStatistics::packets) {
            packets.received += counts.received;
            packets.lost += counts.lost;
            packets.late += counts.late;
        }
        let base = match distribution.min() {
            Some(min) if name == "pdv" => min,
            _ => Nanos::ZERO,
        };
        let missing = match name {
            // The sender's timestamps also exist for packets that did not arrive.
            "schedule_error" | "gap" | "gap_error" => self.without_departure,
            _ => packets.lost + packets.late,
        };
        let is_known = distribution.count() > 0 || packets.received == 0;
        let values = Values { distribution: &distribution, base, missing };
        let evidence = Evidence {
            packets: Some(packets),
            values: is_known.then_some(values),
            jitter: self.trials.iter().filter_map(BatchStatistics::jitter).max_by(f64::total_cmp),
            timeout: self.timeout,
            unusable: None,
        };
        match threshold.judge(&evidence) {
            ThresholdVerdict::Pass(_) => Exit::Measured,
            ThresholdVerdict::Fail(observed) => {
                say(&format!("dwell: --fail-if {threshold}: it is {observed} in {of}"));
                Exit::Threshold
            }
            ThresholdVerdict::CannotTell(doubt) => {
                say(&format!("dwell: --fail-if {threshold}: cannot tell for {of}: {doubt}"));
                Exit::Undecided
            }
        }
    }
}

/// Returns the results of each cell of a run. Trials with damaged samples have already been
/// reported.
fn cells(store: &Store, run: &RunRow) -> Result<BTreeMap<String, CellResults>, Failure> {
    let mut cells: BTreeMap<String, CellResults> = BTreeMap::new();
    for trial in store.trials(run)? {
        let mut columns = BatchStatistics::default();
        let read = store.samples(run, &trial, Some(BatchStatistics::USED_COLUMNS), &mut |batch| {
            columns.take(batch);
            Ok(())
        });
        if read.is_err() {
            continue;
        }
        let summaries = store.summaries(&trial).unwrap_or_default();
        let measured = summaries.into_iter().find(|(role, ..)| *role == Role::Measurement);
        let parameters = measured.map(|(_, _, summary)| summary.parameters).unwrap_or_default();
        let timeout = parameters.get("timeout_ns").and_then(Value::as_i64);
        let cell = cells.entry(cell_of(&trial)).or_default();
        cell.timeout = cell.timeout.or(timeout.map(Nanos));
        if parameters.get("departures").and_then(Value::as_str) == Some("sink") {
            let counts = columns.packets();
            cell.without_departure += counts.lost + counts.late;
        }
        cell.trials.push(columns);
    }
    Ok(cells)
}
