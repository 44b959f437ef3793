//! Handling of samples after measurement: import, figures, audit, report, recording, and the overhead of
//! a trial. pandas processes the same data in alternation with dwell, so that disturbances affect
//! both.

pub(crate) mod corpus;
mod goals;
mod pandas;
mod recording;
mod timed;
mod trials;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use dwell_node_cli::{Exit, Failure};
use serde_json::{Value, json};

use crate::first_figure::first_figure_ms;
use crate::judge::{Judged, conclude, table};
use crate::lab::sibling;
use crate::{Machine, Table};
use goals::{Measured, judge};
use pandas::Pandas;
use timed::{Cost, timed};

/// Compare import, figures and reports of dwell with pandas, and measure audit, recording and trials
#[derive(Debug, clap::Parser)]
#[command(name = "data", version)]
pub struct Args {
    /// Number of rounds; each runs dwell and pandas once
    #[arg(long, value_name = "N", default_value_t = 7,
          value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// Number of rows in the CSV
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000))]
    rows: u64,
    /// Number of trials in the plan of tiny trials
    #[arg(long, value_name = "N", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(2..=100_000))]
    trials: u64,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
    /// Directory for the data (some hundred MB)
    #[arg(long, value_name = "DIR", default_value = "target/bench-data")]
    output: PathBuf,
}

/// Measures, prints and judges. Exit code 3 if goals were missed.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let machine = Machine::read();
    fs::create_dir_all(&args.output).with_context(|| {
        format!("--output {}: cannot create the directory", args.output.display())
    })?;
    let folder = fs::canonicalize(&args.output).context("cannot resolve the output directory")?;
    let dwell = sibling("dwell")?;
    let measured = measure(args, &folder, &dwell)?;
    let judged = judge(&measured);
    if args.json {
        let object = json!({
            "schema": "dwell.bench-data/2",
            "machine": machine,
            "rows": args.rows,
            "measured": measured,
            "goals": judged,
        });
        println!("{object:#}");
    } else {
        print(&machine, args, &measured, &judged);
    }
    conclude(&judged)
}

fn measure(args: &Args, folder: &Path, dwell: &Path) -> Result<Measured, Failure> {
    let pandas = Pandas::install(folder)?;
    let csv = corpus::csv(folder, args.rows)?;
    let data = folder.join("data");
    let mut measured = Measured::default();
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}", args.rounds);
        if data.exists() {
            fs::remove_dir_all(&data)?;
        }
        measured.import.push(timed(folder, on(dwell, &data, &["import"]).arg(&csv))?.cost);
        let (cost, from_csv) = pandas.figures(folder, &csv)?;
        measured.pandas_csv.push(cost);
        let parquet = parquet_file(&data)?;
        let scan =
            timed(folder, &mut on(dwell, &data, &["show", "last", "--recompute", "--json"]))?;
        measured.scan.push(scan.cost);
        let (cost, _) = pandas.figures(folder, &parquet)?;
        measured.pandas_parquet.push(cost);
        same_figures(&scan.stdout, &from_csv)?;
        if round == 1 {
            pandas.check(&parquet, args.rows, &from_csv)?;
        }
        measured.audit.push(timed(folder, Command::new(dwell).arg("audit").arg(&csv))?.cost);
        let html = folder.join("report.html");
        let mut report = on(dwell, &data, &["report", "last", "-o"]);
        measured.report.push(timed(folder, report.arg(&html))?.cost);
        measured.report_bytes = fs::metadata(&html)?.len();
        measured.first_figure_ms.extend(first_figure_ms(&html)?);
    }
    eprintln!("recording");
    measured.recording = recording::measure(dwell, folder, args.rounds)?;
    eprintln!("trials");
    measured.trial_overhead_ms = Some(trials::overhead_ms(dwell, folder, args.trials)?);
    Ok(measured)
}

/// Returns a `dwell` command on this benchmark's data directory.
fn on(dwell: &Path, data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(dwell);
    command.args(&words[..1]).arg("--data").arg(data).args(&words[1..]);
    command
}

/// Returns the sample file of the only trial.
fn parquet_file(data: &Path) -> Result<PathBuf> {
    let run = fs::read_dir(data.join("samples"))?.next().context("no run was imported")??;
    Ok(run.path().join("1.parquet"))
}

/// The comparison is valid only if both compute the same figures.
fn same_figures(shown: &str, pandas: &Value) -> Result<()> {
    let shown: Value = serde_json::from_str(shown).context("dwell show --json")?;
    let rtt = &shown["trials"][0]["metrics"]["rtt_ns"];
    let near = |own: &Value, other: &Value, within: f64| {
        let (Some(own), Some(other)) = (own.as_f64(), other.as_f64()) else { return false };
        (own - other).abs() <= other.abs() * within
    };
    for (name, other) in [("count", "count"), ("min", "min"), ("mean", "mean"), ("max", "max")] {
        ensure!(
            near(&rtt[name], &pandas[other], 1e-9),
            "{name}: dwell computes {}, pandas {}",
            rtt[name],
            pandas[other]
        );
    }
    for (place, name) in ["p50", "p90", "p95", "p99", "p99_9"].into_iter().enumerate() {
        let other = &pandas["percentiles"][place];
        ensure!(near(&rtt[name], other, 2e-3), "{name}: dwell says {}, pandas {other}", rtt[name]);
    }
    Ok(())
}

fn print(machine: &Machine, args: &Args, measured: &Measured, judged: &[Judged]) {
    println!("{machine}");
    println!(
        "{} rows; medians over {} rounds of whole processes, start to end\n",
        args.rows, args.rounds
    );
    let mut costs_table = Table::new(["", "wall [s]", "peak memory [MB]"]);
    for (name, costs) in measured.costs() {
        let figure = |of: fn(&Cost) -> f64, digits: usize| {
            goals::median_of(costs, of).map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        costs_table.row([
            name.to_owned(),
            figure(|cost| cost.seconds, 3),
            figure(|cost| cost.peak_kib as f64 * 1024.0 / 1e6, 0),
        ]);
    }
    println!("{costs_table}");
    println!("{}\n", measured.recording);
    println!("{}", table(judged));
}
