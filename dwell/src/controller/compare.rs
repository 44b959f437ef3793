//! `dwell compare`: differences between runs and their confidence.

mod threshold;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_record::Column;
use dwell_report::Finding;
use dwell_report::model::RunData;
use dwell_results::compare::{
    Basis, CellComparison, RunComparison, closed_loop_runs, compare_runs, comparison_findings,
    comparison_object, percent_ends, quantile_text, time_text,
};
use dwell_results::{main_column, run_data};
use dwell_stats::Shift;
use dwell_store::{RunRow, Store};
use serde_json::json;

use self::threshold::Thresholds;
use super::data::{DataArgs, fail_if_damaged, find, say_problem};

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

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let thresholds = Thresholds::read(&args.fail_if)?;
    let named = args.metric.as_deref().map(column_named).transpose()?;
    let store = args.data.open_to_read()?;
    let rows: Vec<RunRow> =
        args.runs.iter().map(|name| find(&store, name)).collect::<Result<_, _>>()?;
    let column = named.map_or_else(|| main_column(&store, &rows, &say_problem), Ok)?;
    thresholds.check_changes(column)?;
    let RunComparison { compared, left_out } =
        compare_runs(&store, &rows, column, thresholds.quantiles(), args.seed, &say_problem)?;
    if compared.is_empty() {
        fail_if_damaged(left_out)?;
        return Err(Failure::usage(format!(
            "these runs have no cell in common with values of {}",
            column.name()
        )));
    }
    let findings = comparison_findings(&rows[0].run, column, &compared);
    if let Some(path) = &args.output {
        let data: Vec<RunData> =
            rows.iter().map(|row| run_data(&store, row, &say_problem)).collect::<Result<_, _>>()?;
        let page = dwell_report::comparison_page(&data, column.name(), &findings);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let closed_loop_runs = closed_loop_runs(&store, &rows)?;
    let mut out = terminal::stdout();
    if args.json {
        let mut object = comparison_object(&rows[0].run, column, &compared, &findings);
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
        rows.iter().map(|row| run_data(store, row, &say_problem)).collect::<Result<_, _>>()?;
    if let Some(table) = dwell_report::rates_of_runs(&data) {
        super::show::print_table(out, &table)?;
    }
    Ok(())
}

fn column_named(name: &str) -> Result<Column, Failure> {
    Column::named(name)
        .or_else(|| Column::named(&format!("{name}_ns")))
        .ok_or_else(|| Failure::usage(format!("invalid value for --metric: no column '{name}'")))
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
                value.map_or("-".to_owned(), |value| time_text(value.0))
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
                format!("{} to {}{percent}{tell}", time_text(i.low.0), time_text(i.high.0))
            });
            writeln!(
                out,
                "{:7}{:>14}{:>14}{:>14}{percent:>10}   {interval}",
                quantile_text(shift.quantile),
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
