//! `dwell compare`: differences between runs and their confidence.

mod threshold;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_record::{Batch, Column, Summary};
use dwell_report::Finding;
use dwell_report::model::RunData;
use dwell_sample::State;
use dwell_stats::{Compare, Comparison, MIN_TRIALS, Quantile, QuantileShift, RealInterval, Shift};
use dwell_store::{Role, RunKind, RunRow, Store, StoreError, TrialRow};
use serde_json::{Value, json};

use self::threshold::Thresholds;
use super::data::{DataArgs, chain, fail_if_damaged, find, main_column, run_data};

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The first run is the baseline. Cells with the same parameters are compared by their trials; each \
run needs at least three repetitions to distinguish a difference between runs from one between \
trials. Two imported recordings of one series each are compared within these recordings. Intervals \
have 95 % confidence for all percentiles of all cells together.\n\
--fail-if takes conditions like dwell ping, such as 'p99 > 10ms' or 'loss > 1%', and tests each cell \
of the later runs. A condition without a metric applies to the compared delay. 'p99 change > 10%' and \
'p50 change > 20us' limit the change from the baseline; they hold if the whole interval of the change \
is beyond the limit.\n\
Exit codes: 0 compared; 1 runtime failure; 2 usage error; 3 a --fail-if condition holds; 5 a condition \
cannot be decided because its limit is inside the interval or there are too few trials or values \
(3 takes precedence).")]
pub(crate) struct Args {
    /// Runs to compare; the first is the baseline
    #[arg(num_args = 2.., required = true, value_name = "RUN")]
    runs: Vec<String>,

    /// Delay to compare, named like a sample column [default: the main delay of the first run, such
    /// as rtt_ns or node_delay_ns]
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,

    /// Exit with code 3 if this condition holds in any cell, or 5 if that cannot be decided; may be
    /// repeated
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<String>,

    /// Write an HTML page with figures on shared axes
    #[arg(short = 'o', long, value_name = "FILE.html")]
    output: Option<PathBuf>,

    /// Seed for resampling
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Percentiles by name in results. All but p95 are always compared.
const QUANTILES: [(&str, Quantile); 5] = [
    ("p50", Quantile::P50),
    ("p90", Quantile::P90),
    ("p95", Quantile::P95),
    ("p99", Quantile::P99),
    ("p99_9", Quantile::P99_9),
];

/// The values of each cell, one series per repetition.
type Cells = BTreeMap<String, Vec<Vec<i64>>>;

/// One cell compared between two runs.
struct CellComparison {
    run: String,
    cell: String,
    count: (usize, usize),
    trials: (usize, usize),
    basis: Basis,
    comparison: Comparison,
}

dwell_units::named! {
    /// Evidence of a comparison.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Basis {
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
    fn caution(self, trials: (usize, usize)) -> Option<String> {
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

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let thresholds = Thresholds::read(&args.fail_if)?;
    let named = args.metric.as_deref().map(column_named).transpose()?;
    let store = args.data.open_to_read()?;
    let rows: Vec<RunRow> =
        args.runs.iter().map(|name| find(&store, name)).collect::<Result<_, _>>()?;
    let column = named.map_or_else(|| main_column(&store, &rows), Ok)?;
    thresholds.check_changes(column)?;
    let mut left_out = 0;
    let cells: Vec<Cells> = rows
        .iter()
        .map(|row| cells(&store, row, column, &mut left_out))
        .collect::<Result<_, _>>()?;
    let (first, others) = cells.split_first().context("at least two runs are required")?;
    let pairs: Vec<(&RunRow, CellPair)> = rows[1..]
        .iter()
        .zip(others)
        .flat_map(|(row, other)| pairs(first, other).into_iter().map(move |pair| (row, pair)))
        .collect();
    // The cells share the error probability of one comparison (Bonferroni).
    let share = pairs.len().max(1);
    let usual = Compare::default();
    let how = Compare {
        quantiles: thresholds.quantiles(),
        seed: args.seed,
        confidence: 1.0 - (1.0 - usual.confidence) / share as f64,
        draws: usual.draws * share.min(8),
    };
    let imported = |row: &RunRow| row.kind == RunKind::Import;
    let compare_pair = |(row, (cell, a, b)): (&RunRow, CellPair)| {
        let (basis, comparison) = compare(&how, &a, &b, imported(&rows[0]) && imported(row));
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
    if compared.is_empty() {
        fail_if_damaged(left_out)?;
        return Err(Failure::usage(format!(
            "these runs have no cell in common with values of {}",
            column.name()
        )));
    }
    let findings = findings(&rows[0].run, column, &compared);
    if let Some(path) = &args.output {
        let data: Vec<RunData> =
            rows.iter().map(|row| run_data(&store, row)).collect::<Result<_, _>>()?;
        let page = dwell_report::comparison_page(&data, column.name(), &findings);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let closed_loop_runs = closed_loop_runs(&store, &rows)?;
    let mut out = terminal::stdout();
    if args.json {
        let mut object = object(&rows[0].run, column, &compared, &findings);
        object["closed_loop"] = json!(closed_loop_runs);
        writeln!(out, "{object:#}")?;
    } else {
        if !closed_loop_runs.is_empty() {
            writeln!(out, "measured in a closed loop: {}", closed_loop_runs.join(", "))?;
        }
        print(&mut out, &rows[0].run, column, &compared, &findings)?;
        if matches!(column, Column::GapError | Column::Gap) {
            print_rates(&mut out, &store, &rows)?;
        }
    }
    let exit = thresholds.judge(&store, &rows[1..], column, &compared)?;
    match fail_if_damaged(left_out) {
        // The verdict on the other trials stands.
        Err(failure) if exit == Exit::Threshold => {
            say(&format!("dwell: {:#}", failure.error));
            Ok(exit)
        }
        damaged => damaged.map(|()| exit),
    }
}

/// Prints the largest rates of runs that judge senders, side by side.
fn print_rates(out: &mut impl Write, store: &Store, rows: &[RunRow]) -> Result<(), Failure> {
    let data: Vec<RunData> =
        rows.iter().map(|row| run_data(store, row)).collect::<Result<_, _>>()?;
    if let Some(table) = dwell_report::rates_of_runs(&data) {
        super::show::print_table(out, &table)?;
    }
    Ok(())
}

/// Returns the runs with a trial in closed-loop mode.
fn closed_loop_runs(store: &Store, rows: &[RunRow]) -> Result<Vec<String>, StoreError> {
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

fn column_named(name: &str) -> Result<Column, Failure> {
    Column::named(name)
        .or_else(|| Column::named(&format!("{name}_ns")))
        .ok_or_else(|| Failure::usage(format!("invalid value for --metric: no column '{name}'")))
}

/// Returns the received values of each cell, by repetition. Trials with damaged samples are
/// reported and counted in `left_out`.
fn cells(
    store: &Store,
    run: &RunRow,
    column: Column,
    left_out: &mut usize,
) -> Result<Cells, Failure> {
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
            say(&format!("dwell: trial {trial} of {run} is left out: {}", chain(&error)));
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
fn cell_of(trial: &TrialRow) -> String {
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
fn written(quantile: Quantile) -> String {
    quantile_name(quantile).replace('_', ".")
}

/// Formats nanoseconds for people.
fn time(ns: i64) -> String {
    let magnitude = ns.unsigned_abs();
    match magnitude {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", ns as f64 / 1e3),
        _ => format!("{:.2} ms", ns as f64 / 1e6),
    }
}

/// Formats an interval of percentages; an unbounded end is "any".
fn percent_ends(RealInterval { low, high }: RealInterval) -> String {
    let end = |end: f64| if end.is_finite() { format!("{end:+.1}%") } else { "any".to_owned() };
    format!("{} to {}", end(low), end(high))
}

fn findings(baseline: &str, column: Column, compared: &[CellComparison]) -> Vec<Finding> {
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
                    format!("{} {verb} by {}", written(q.quantile), shift_text(q))
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
    let by = shift.difference.map_or("-".into(), |by| time(by.0.abs()));
    let percent = shift.percent.map_or(String::new(), |p| format!(", {:.1}%", p.abs()));
    format!("{by}{percent}")
}

fn print(
    out: &mut impl Write,
    baseline: &str,
    column: Column,
    compared: &[CellComparison],
    findings: &[Finding],
) -> io::Result<()> {
    writeln!(out, "{} against {baseline}", column.name())?;
    for one in compared {
        let cell = if one.cell.is_empty() { String::new() } else { format!("  {}", one.cell) };
        writeln!(
            out,
            "\nrun {}{cell}  trials {} and {}, values {} and {}",
            one.run, one.trials.0, one.trials.1, one.count.0, one.count.1
        )?;
        if let Some(caution) = one.basis.caution(one.trials) {
            writeln!(out, "{caution}")?;
        }
        if one.trials != (1, 1) {
            writeln!(out, "each figure is the mean over trials, geometric if all are positive")?;
        }
        writeln!(
            out,
            "{:7}{:>14}{:>14}{:>14}{:>10}   95% interval of the shift",
            "", "baseline", "this run", "shift", "",
        )?;
        for shift in &one.comparison.quantiles {
            let value = |value: Option<dwell_units::Nanos>| {
                value.map_or("-".to_owned(), |value| time(value.0))
            };
            let percent = shift.percent.map_or(String::new(), |p| format!("{p:+.1}%"));
            let missing = match one.basis {
                Basis::Trials => "cannot tell: too few trials",
                Basis::Repetitions | Basis::Recordings => "cannot tell: too few values",
            };
            let interval = shift.interval.map_or(missing.to_owned(), |i| {
                let tell = match shift.shift {
                    Shift::CannotTell => "  cannot tell",
                    Shift::Rises => "  rises",
                    Shift::Falls => "  falls",
                };
                let percent = shift
                    .percent_interval
                    .map_or(String::new(), |i| format!(" ({})", percent_ends(i)));
                format!("{} to {}{percent}{tell}", time(i.low.0), time(i.high.0))
            });
            writeln!(
                out,
                "{:7}{:>14}{:>14}{:>14}{percent:>10}   {interval}",
                written(shift.quantile),
                value(shift.baseline),
                value(shift.other),
                value(shift.difference),
            )?;
        }
        if let Some(ranks) = &one.comparison.ranks {
            writeln!(
                out,
                "a value of this run is larger than one of the baseline in {:.1}% of pairs (Cliff's delta \
                 {:+.3}, Mann-Whitney p{})",
                ranks.superiority * 100.0,
                ranks.cliffs_delta(),
                ranks.p_value.map_or(" -".to_owned(), |p| match p {
                    ..0.001 => " < 0.001".to_owned(),
                    p => format!(" {p:.3}"),
                })
            )?;
        }
    }
    writeln!(out)?;
    let shifts = || compared.iter().flat_map(|one| &one.comparison.quantiles);
    if shifts().any(|shift| shift.interval.is_some()) && shifts().count() > 1 {
        let count = shifts().count();
        writeln!(out, "Intervals: 95% for all {count} percentiles together (Bonferroni).")?;
    }
    findings.iter().try_for_each(|finding| writeln!(out, "- {}", finding.text))
}

fn object(
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
