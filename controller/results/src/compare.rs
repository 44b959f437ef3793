//! Differences between runs and their confidence.

use std::collections::BTreeMap;

use dwell_record::{Batch, Column, Summary};
use dwell_report::Finding;
use dwell_sample::State;
use dwell_stats::{Compare, Comparison, MIN_TRIALS, Quantile, QuantileShift, RealInterval, Shift};
use dwell_store::{Role, RunKind, RunRow, Store, StoreError, TrialRow};
use serde_json::{Value, json};

use crate::{OnProblem, chain};

/// Percentiles by name in results. All but p95 are always compared.
pub const QUANTILES: [(&str, Quantile); 5] = [
    ("p50", Quantile::P50),
    ("p90", Quantile::P90),
    ("p95", Quantile::P95),
    ("p99", Quantile::P99),
    ("p99_9", Quantile::P99_9),
];

/// The values of each cell, one series per repetition.
type Cells = BTreeMap<String, Vec<Vec<i64>>>;

/// One cell compared between two runs.
#[derive(Debug)]
pub struct CellComparison {
    /// The later run.
    pub run: String,
    /// The cell: its parameters.
    pub cell: String,
    /// Numbers of values, of the baseline first.
    pub count: (usize, usize),
    /// Numbers of trials, of the baseline first.
    pub trials: (usize, usize),
    /// Its evidence.
    pub basis: Basis,
    /// The percentiles.
    pub comparison: Comparison,
}

dwell_units::named! {
    /// Evidence of a comparison.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Basis {
        /// Several trials on both sides, so that their variation is known.
        Repetitions = "repetitions",
        /// One long imported series on both sides.
        Recordings = "recordings",
        /// Too few trials to know their variation.
        Trials = "trials",
    }
}

impl Basis {
    /// Returns the caveat of the comparison.
    pub fn caution(self, trials: (usize, usize)) -> Option<String> {
        match self {
            Self::Repetitions => None,
            Self::Recordings => Some(
                "within these two recordings; differences between whole recordings are not \
                 covered"
                    .to_owned(),
            ),
            Self::Trials if trials == (1, 1) => {
                Some("one trial each: a difference of trials, not of runs; cannot tell".to_owned())
            }
            Self::Trials => Some(format!(
                "{} and {} trials: a difference of trials, not of runs; cannot tell below \
                 {MIN_TRIALS} of each",
                trials.0, trials.1
            )),
        }
    }
}

/// Runs compared with the first one.
#[derive(Debug)]
pub struct RunComparison {
    /// One element per later run and cell that both have.
    pub compared: Vec<CellComparison>,
    /// Number of trials that were left out because their samples are damaged.
    pub left_out: usize,
}

/// Compares the later of at least two runs with the first one.
pub fn compare_runs(
    store: &Store,
    rows: &[RunRow],
    column: Column,
    quantiles: Vec<Quantile>,
    seed: u64,
    on_problem: OnProblem<'_>,
) -> Result<RunComparison, StoreError> {
    let mut left_out = 0;
    let cells: Vec<Cells> = rows
        .iter()
        .map(|row| cells(store, row, column, &mut left_out, on_problem))
        .collect::<Result<_, _>>()?;
    let Some(((baseline, others), (first, later))) = rows.split_first().zip(cells.split_first())
    else {
        return Ok(RunComparison { compared: Vec::new(), left_out });
    };
    let pairs: Vec<(&RunRow, CellPair)> = others
        .iter()
        .zip(later)
        .flat_map(|(row, other)| pairs(first, other).into_iter().map(move |pair| (row, pair)))
        .collect();
    // The cells share the error probability of one comparison (Bonferroni).
    let share = pairs.len().max(1);
    let usual = Compare::default();
    let how = Compare {
        quantiles,
        seed,
        confidence: 1.0 - (1.0 - usual.confidence) / share as f64,
        draws: usual.draws * share.min(8),
    };
    let imported = |row: &RunRow| row.kind == RunKind::Import;
    let compare_pair = |(row, (cell, a, b)): (&RunRow, CellPair)| {
        let (basis, comparison) = compare(&how, &a, &b, imported(baseline) && imported(row));
        CellComparison {
            run: row.run.clone(),
            cell,
            count: (a.iter().map(Vec::len).sum(), b.iter().map(Vec::len).sum()),
            trials: (a.len(), b.len()),
            basis,
            comparison,
        }
    };
    let compared: Vec<CellComparison> = pairs.into_iter().map(compare_pair).collect();
    Ok(RunComparison { compared, left_out })
}

/// Returns the runs with a trial in closed-loop mode.
pub fn closed_loop_runs(store: &Store, rows: &[RunRow]) -> Result<Vec<String>, StoreError> {
    let mut closed = Vec::new();
    for row in rows {
        let summaries = store.trials(row)?.into_iter().flat_map(|trial| {
            // Unreadable summaries are reported where their figures are shown.
            store.summaries(&trial).unwrap_or_default()
        });
        let mut measured = summaries.filter(|(role, ..)| *role == Role::Measurement);
        let waits = |summary: &Summary| dwell_report::mode_of(summary) == Some("closed-loop");
        if measured.any(|(_, _, summary)| waits(&summary)) && !closed.contains(&row.run) {
            closed.push(row.run.clone());
        }
    }
    Ok(closed)
}

/// Returns the received values of each cell, by repetition. Trials with damaged samples are
/// reported and counted in `left_out`.
fn cells(
    store: &Store,
    run: &RunRow,
    column: Column,
    left_out: &mut usize,
    on_problem: OnProblem<'_>,
) -> Result<Cells, StoreError> {
    let mut cells = Cells::new();
    for trial in store.trials(run)? {
        let mut values = Vec::new();
        let read = store.samples(run, &trial, Some(&[column]), &mut |batch| {
            let all = batch.column(column).unwrap_or_default();
            for (value, state) in all.iter().zip(&batch.state) {
                // Paced packets without a sink have a measurement but no reply.
                let measured = matches!(state, State::Received | State::Sent);
                if measured && *value != Batch::ABSENT {
                    values.push(*value);
                }
            }
            Ok(())
        });
        if let Err(error) = read {
            let (run, trial) = (&run.run, trial.number);
            on_problem(&format!("trial {trial} of {run} is left out: {}", chain(&error)));
            *left_out += 1;
            continue;
        }
        if !values.is_empty() {
            cells.entry(cell_of(&trial)).or_default().push(values);
        }
    }
    Ok(cells)
}

/// Returns the name of a trial's cell: its parameters.
pub fn cell_of(trial: &TrialRow) -> String {
    let named = trial.parameters.iter().filter(|(_, value)| !value.is_empty());
    let cell: Vec<_> = named.map(|(name, value)| format!("{name} {value}")).collect();
    cell.join(", ")
}

/// A cell with its values in both runs.
type CellPair = (String, Vec<Vec<i64>>, Vec<Vec<i64>>);

/// Returns the cells with equal names. Two runs of one cell each are compared whatever the names.
fn pairs(first: &Cells, other: &Cells) -> Vec<CellPair> {
    if let (1, 1) = (first.len(), other.len())
        && let (Some((name, a)), Some(b)) = (first.first_key_value(), other.values().next())
    {
        return vec![(name.clone(), a.clone(), b.clone())];
    }
    first
        .iter()
        .filter_map(|(name, a)| Some((name.clone(), a.clone(), other.get(name)?.clone())))
        .collect()
}

/// Compares repetitions if there are any. Of imported recordings only the series can be compared.
fn compare(how: &Compare, a: &[Vec<i64>], b: &[Vec<i64>], imported: bool) -> (Basis, Comparison) {
    if let (true, [a], [b]) = (imported, a, b) {
        return (Basis::Recordings, how.series(a, b));
    }
    let repeated = a.len() >= MIN_TRIALS && b.len() >= MIN_TRIALS;
    let basis = if repeated { Basis::Repetitions } else { Basis::Trials };
    let a: Vec<&[i64]> = a.iter().map(Vec::as_slice).collect();
    let b: Vec<&[i64]> = b.iter().map(Vec::as_slice).collect();
    (basis, how.repetitions(&a, &b))
}

/// Returns the name used in results.
fn quantile_name(quantile: Quantile) -> &'static str {
    QUANTILES.iter().find(|(_, q)| *q == quantile).map_or("?", |(name, _)| name)
}

/// Returns the name used in text and by --fail-if.
pub fn quantile_text(quantile: Quantile) -> String {
    quantile_name(quantile).replace('_', ".")
}

/// Formats nanoseconds for people.
pub fn time_text(ns: i64) -> String {
    let magnitude = ns.unsigned_abs();
    match magnitude {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", ns as f64 / 1e3),
        _ => format!("{:.2} ms", ns as f64 / 1e6),
    }
}

/// Formats an interval of percentages; an unbounded end is "any".
pub fn percent_ends(RealInterval { low, high }: RealInterval) -> String {
    let end = |end: f64| if end.is_finite() { format!("{end:+.1}%") } else { "any".to_owned() };
    format!("{} to {}", end(low), end(high))
}

/// Returns the findings of a comparison.
pub fn comparison_findings(
    baseline: &str,
    column: Column,
    compared: &[CellComparison],
) -> Vec<Finding> {
    let metric = column.name().trim_end_matches("_ns");
    let several = compared.len() > 1;
    compared
        .iter()
        .map(|one| {
            let place = if several && !one.cell.is_empty() {
                format!(" ({})", one.cell)
            } else {
                String::new()
            };
            let decided = one.comparison.quantiles.iter().filter(|q| q.shift != Shift::CannotTell);
            let shifts: Vec<String> = decided
                .map(|q| {
                    let verb = if q.shift == Shift::Rises { "rose" } else { "fell" };
                    format!("{} {verb} by {}", quantile_text(q.quantile), shift_text(q))
                })
                .collect();
            let caution = one.basis.caution(one.trials);
            let text = match (caution, shifts.is_empty()) {
                (Some(caution), true) if one.basis == Basis::Trials => {
                    format!("{metric}{place}: {baseline} to {}: {caution}", one.run)
                }
                (_, true) => format!(
                    "{metric}{place}: no percentile of {} differs significantly from {baseline}; \
                     cannot tell",
                    one.run
                ),
                (caution, false) => {
                    let caution = caution.map_or(String::new(), |caution| format!(" ({caution})"));
                    let shifts = shifts.join("; ");
                    format!("{metric}{place}: {baseline} to {}: {shifts}{caution}", one.run)
                }
            };
            let cell = if one.cell.is_empty() { String::new() } else { format!("-{}", one.cell) };
            Finding { id: format!("shift-{}{cell}", one.run), text }
        })
        .collect()
}

fn shift_text(shift: &QuantileShift) -> String {
    let by = shift.difference.map_or("-".into(), |by| time_text(by.0.abs()));
    let percent = shift.percent.map_or(String::new(), |p| format!(", {:.1}%", p.abs()));
    format!("{by}{percent}")
}

/// Returns the `dwell.comparison/1` object.
pub fn comparison_object(
    baseline: &str,
    column: Column,
    compared: &[CellComparison],
    findings: &[Finding],
) -> Value {
    let cells: Vec<_> = compared
        .iter()
        .map(|one| {
            let shifts: Vec<_> = one
                .comparison
                .quantiles
                .iter()
                .map(|shift| {
                    json!({
                        "quantile": quantile_name(shift.quantile),
                        "baseline_ns": shift.baseline.map(|v| v.0),
                        "other_ns": shift.other.map(|v| v.0),
                        "shift_ns": shift.difference.map(|v| v.0),
                        "shift_percent": shift.percent,
                        "low_ns": shift.interval.map(|i| i.low.0),
                        "high_ns": shift.interval.map(|i| i.high.0),
                        "low_percent": shift.percent_interval.map(|i| i.low),
                        "high_percent": shift.percent_interval.map(|i| i.high),
                        "verdict": shift.shift.name(),
                    })
                })
                .collect();
            json!({
                "run": one.run,
                "cell": one.cell,
                "baseline_count": one.count.0,
                "count": one.count.1,
                "basis": one.basis.name(),
                "baseline_trials": one.trials.0,
                "trials": one.trials.1,
                "confidence_each": one.comparison.confidence_each,
                "shifts": shifts,
                "cliffs_delta": one.comparison.ranks.as_ref().map(|r| r.cliffs_delta()),
                "superiority": one.comparison.ranks.as_ref().map(|r| r.superiority),
                "mann_whitney_p": one.comparison.ranks.as_ref().map(|r| r.p_value),
            })
        })
        .collect();
    let findings: Vec<_> =
        findings.iter().map(|finding| json!({ "id": finding.id, "text": finding.text })).collect();
    json!({
        "schema": "dwell.comparison/1",
        "baseline": baseline,
        "metric": column.name(),
        "cells": cells,
        "findings": findings,
    })
}
