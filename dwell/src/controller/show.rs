//! `dwell show`: prints the results of a run, as text or as one JSON object.

mod trials;

use std::io::{self, Write};

use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_record::{Figures, Summary};
use dwell_report::Table;
use dwell_report::model::{Claim, RunData, TrialData};
use dwell_results::{chain, judge, run_data, run_object};
use dwell_store::{RunKind, RunNode, RunRow, Store, StoreError};

use super::data::{AccurateArgs, DataArgs, fail_if_damaged, find, say_problem};
use super::witness::print_metrics;

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run name, or last for the newest run
    #[arg(default_value = "last")]
    run: String,

    /// Print everything as one JSON object (dwell.run/1)
    #[arg(long)]
    json: bool,

    /// Recompute the figures from the samples, on all cores, instead of printing the stored ones
    #[arg(long)]
    recompute: bool,

    #[command(flatten)]
    accurate: AccurateArgs,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let store = args.data.open_to_read()?;
    let run = find(&store, &args.run)?;
    let mut data = run_data(&store, &run, &say_problem)?;
    data.accurate = args.accurate.accurate;
    let left_out = if args.recompute { recompute(&store, &run, &mut data)? } else { 0 };
    judge(&mut data);
    let nodes = store.nodes(&run)?;
    let mut out = terminal::stdout();
    if args.json {
        writeln!(out, "{:#}", run_object(&run, &nodes, &data))?;
    } else {
        print(&mut out, &data)?;
        print_origin(&mut out, &run, &nodes)?;
        for trial in &data.trials {
            for witness in &trial.witnesses {
                print_witness(&mut out, trial.trial, witness)?;
            }
        }
    }
    fail_if_damaged(left_out)?;
    Ok(Exit::Measured)
}

/// Replaces stored figures with those computed from the samples. Data that samples do not contain,
/// such as a node's own timing, stays. Trials with damaged samples are reported, lose their stored
/// figures and are counted.
fn recompute(store: &Store, run: &RunRow, data: &mut RunData) -> Result<usize, StoreError> {
    let rows = store.trials(run)?;
    let mut left_out = 0;
    for (row, trial) in rows.iter().zip(&mut data.trials) {
        let columns = match store.recompute(run, row) {
            Ok(columns) => columns,
            Err(error) => {
                let text = chain(&error);
                say(&format!("dwell: trial {} is left out: {text}", row.number));
                trial.summary = None;
                trial.reason = Some(text);
                left_out += 1;
                continue;
            }
        };
        let (metrics, values, packets) = columns.figures();
        if let (Some(summary), Some(packets)) = (&mut trial.summary, packets) {
            summary.metrics = metrics;
            summary.values.extend(values);
            // Unknown packet counts cannot be computed from rows either.
            summary.packets = summary.packets.and(Some(packets));
            if summary.packets.is_none() {
                summary.values.insert("loss_ratio".into(), None);
                summary.values.insert("late_ratio".into(), None);
            }
        }
    }
    Ok(left_out)
}

/// Prints the owner of a run, and its devices.
fn print_origin(out: &mut impl Write, run: &RunRow, nodes: &[RunNode]) -> io::Result<()> {
    if let Some(owner) = run.owner.as_ref().filter(|_| run.kind == RunKind::Run) {
        writeln!(out, "run by {owner} with dwell {}", run.dwell)?;
    }
    for node in nodes {
        if let Some(device) = &node.device {
            let (name, destination) = (&device.name, &device.destination);
            let (arch, program) = (&device.arch, &device.program_sha256);
            writeln!(
                out,
                "{} on device {name} ({destination}), {arch}, dwell {}, program SHA-256 {program}",
                node.node, node.dwell
            )?;
        }
    }
    Ok(())
}

/// Claims of the document that the plan names.
fn claims(run: &RunData) -> &[Claim] {
    run.claims.as_ref().map_or(&[], |judged| &judged.claims)
}

/// Prints what a witness saw of a trial and how the run's timestamps differ from it.
fn print_witness(out: &mut impl Write, trial: u32, witness: &Summary) -> io::Result<()> {
    let of = |name: &str| witness.parameters.get(name).cloned().unwrap_or_default();
    writeln!(
        out,
        "witness {} of trial {trial}: {} probes seen, {} not seen",
        witness.target,
        of("matched"),
        of("unseen")
    )?;
    print_metrics(out, &witness.metrics)
}

/// Returns the main delay of the run, or else the first one that the trial has.
fn main_metric<'a>(trial: &'a TrialData, of_run: Option<&str>) -> Option<(&'a str, &'a Figures)> {
    let metrics = &trial.summary.as_ref()?.metrics;
    if let Some((name, figures)) = of_run.and_then(|name| metrics.get_key_value(name)) {
        return Some((name, figures));
    }
    let first = ["rtt_ns", "one_way_forward_ns", "gap_ns"]
        .into_iter()
        .find_map(|name| metrics.get_key_value(name));
    first.or_else(|| metrics.iter().next()).map(|(name, figures)| (name.as_str(), figures))
}

/// Width of a histogram, which leaves room for the cell name on 80 columns.
const HISTOGRAM_WIDTH: usize = 48;

pub(super) fn print(out: &mut impl Write, run: &RunData) -> io::Result<()> {
    writeln!(out, "run {}  {}  {}", run.id, run.name, run.started)?;
    if let Some(title) = &run.title {
        writeln!(out, "{title}")?;
    }
    let measured = dwell_report::measurement_aspects(run);
    let margin = measured.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for one in measured {
        writeln!(out, "  {:margin$}  {}", one.name, one.text)?;
    }
    writeln!(out)?;
    for finding in dwell_report::findings(run) {
        writeln!(out, "- {}", finding.text)?;
    }
    for claim in claims(run) {
        let [found, ..] = claim.numbers();
        let against = claim.against();
        let (id, verdict, text) = (&claim.id, claim.verdict.words(), claim.text());
        writeln!(out, "{id} {verdict}: {text} (found {found}, {against})")?;
    }
    print_table(out, &dwell_report::verdict_table(run))?;
    print_table(out, &dwell_report::machines(run))?;
    trials::print(out, run)?;
    let sparkline = dwell_report::sparkline(run, HISTOGRAM_WIDTH);
    if !sparkline.is_empty() {
        writeln!(out)?;
    }
    sparkline.iter().try_for_each(|line| writeln!(out, "{}", line.trim_end()))?;
    let warnings = dwell_report::warnings(run);
    const MAX_WARNINGS: usize = 8;
    for warning in warnings.iter().take(MAX_WARNINGS) {
        writeln!(out, "note: {warning}")?;
    }
    if warnings.len() > MAX_WARNINGS {
        writeln!(
            out,
            "note: {} more; `dwell show {} --json` lists all",
            warnings.len() - MAX_WARNINGS,
            run.id
        )?;
    }
    for note in &run.notes {
        writeln!(out, "user note: {note}")?;
    }
    Ok(())
}

/// Prints a table with columns as wide as their widest cell; nothing without rows.
pub(super) fn print_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    if table.rows.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    print_rows(out, table)
}

/// Prints the headings and rows of a table with columns as wide as their widest cell.
pub(super) fn print_rows(out: &mut impl Write, table: &Table) -> io::Result<()> {
    let rows = || std::iter::once(&table.columns).chain(&table.rows);
    let width = |column: usize| {
        rows().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    for row in rows() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Formats the cell of a trial, in the order of the axes.
fn cell(run: &RunData, trial: &TrialData) -> String {
    let repeated = run.trials.iter().any(|other| other.repetition > 1);
    let mut words: Vec<String> = run
        .axes
        .iter()
        .filter_map(|axis| {
            let value = trial.parameters.get(&axis.name).filter(|value| !value.is_empty())?;
            Some(format!("{} {value}", axis.name))
        })
        .collect();
    if words.is_empty() {
        words.extend(trial.parameters.values().cloned());
    }
    if repeated {
        words.push(format!("#{}", trial.repetition));
    }
    words.join(", ")
}
