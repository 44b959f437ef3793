//! Repeats the experiment of Roedlach/Vock with the complete product: runs the plan (closed-loop
//! round trips of 24-byte UDP messages, idle and loaded), compares with the published figures,
//! exports and reports. It measures nothing itself.

mod case;
mod product;
mod published;
mod report;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use dwell_node_cli::{Exit, Failure};
use dwell_plan::Plan;

pub use case::Case;

use crate::{Interrupt, Machine};
use product::Product;
use report::{Measured, Report, Written};

/// Repeat the round-trip experiment of Roedlach/Vock in a lab of two nodes
#[derive(Debug, clap::Parser)]
#[command(name = "roundtrip", version)]
pub struct Args {
    /// Round trips per case, over all its trials [default: as in the plan, 51000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    cycles: Option<u64>,
    /// Run only this case; repeatable
    #[arg(long = "case", value_name = "CASE")]
    cases: Vec<Case>,
    /// Directory for the report, the table and the cycles
    #[arg(long, value_name = "DIR", default_value = "results")]
    output: PathBuf,
    /// Data directory of runs [default: dwell-data, or DWELL_DATA]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Plan with the cases as values of its axis load
    #[arg(long, value_name = "FILE", default_value = "plans/quick.toml")]
    plan: PathBuf,
}

/// Runs the experiment, prints the table and writes the results.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::catch()?;
    let plan = read(args)?;
    fs::create_dir_all(&args.output).with_context(|| {
        format!("--output {}: cannot create the directory", args.output.display())
    })?;
    let cases = match args.cases.as_slice() {
        [] => Case::ALL.to_vec(),
        chosen => Case::ALL.into_iter().filter(|case| chosen.contains(case)).collect(),
    };
    let repetitions = u64::from(plan.trials.repetitions);
    let product = Product::new(args.data.as_deref(), &interrupt)?;
    let (end, exit) = product.run(&args.plan, &settings(args, &cases, repetitions))?;
    // Keep the measurements, whatever happened afterwards.
    let found = product.show(&end.run)?;
    let written = Written {
        report: args.output.join("roundtrip.html"),
        csv: args.output.join("roundtrip.csv"),
        json: args.output.join("roundtrip.json"),
    };
    if end.finished > 0 {
        product.export(&end.run, &written.csv)?;
        product.report(&end.run, &written.report)?;
    }
    let report = Report {
        machine: Machine::read(),
        run: end.run,
        end: end.end,
        link_rate: plan.topology.link().and_then(|link| link.rate).map(|rate| rate.to_string()),
        link_mechanism: mechanism(&found),
        rootless: !rustix::process::geteuid().is_root(),
        cycles: count(args, repetitions)
            .or(plan.measurement.ping().and_then(|ping| ping.parameters.count))
            .map(|count| count.saturating_mul(repetitions)),
        cases: cases.iter().filter_map(|&case| Measured::of(case, &found)).collect(),
        missing: cases.iter().filter_map(|&case| report::missing(case, &found)).collect(),
        findings: found.findings.into_iter().map(|finding| finding.text).collect(),
        written: (end.finished > 0).then_some(written),
    };
    report.write(&args.output.join("roundtrip.json"))?;
    print!("{report}");
    // The run is complete if every trial was tried, the experiment only if every case was measured.
    Ok(if exit == Exit::Measured && !report.missing.is_empty() { Exit::Failed } else { exit })
}

/// Reads the plan for values that the run does not report. `dwell run` validates it.
fn read(args: &Args) -> Result<Plan, Failure> {
    let place = args.plan.display();
    let text = fs::read_to_string(&args.plan)
        .map_err(|error| Failure::usage(format!("--plan {place}: {error}")))?;
    Plan::parse(&text, &[]).map_err(|error| Failure::usage(format!("--plan {place}: {error}")))
}

/// Returns round trips per trial, if requested: the trials of a case together have that many or
/// slightly more.
fn count(args: &Args, repetitions: u64) -> Option<u64> {
    args.cycles.map(|cycles| cycles.div_ceil(repetitions.max(1)))
}

fn settings(args: &Args, cases: &[Case], repetitions: u64) -> Vec<String> {
    let loads: Vec<_> = cases.iter().map(|case| format!("\"{}\"", case.load())).collect();
    let chosen = format!("matrix.load=[{}]", loads.join(", "));
    let chosen = (cases.len() < Case::ALL.len()).then_some(chosen);
    let cycles = count(args, repetitions).map(|count| format!("ping.count={count}"));
    chosen.into_iter().chain(cycles).collect()
}

/// Returns the emulation of the link, as seen by the measuring node.
fn mechanism(found: &product::Run) -> Option<String> {
    let mut environments = found.trials.iter().filter_map(|trial| trial.environment.as_ref());
    environments.find_map(|environment| environment.qdisc.clone())
}
