//! S4's experiment in a two-node lab: closed-loop round trips of a 24-byte message over UDP, idle,
//! under network load and under CPU load, beside the published figures.

mod case;
mod published;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use dwell_node_cli::{Exit, Failure};
use serde_json::Value;

pub use case::Case;

use crate::{Interrupt, Lab, Machine, Node, Server, Summary, finish};
use case::{LINK_RATE, Loads};
use report::{Measured, Report};

/// Where the reflector listens, on the second node.
const PORT: u16 = 7100;

/// Repeat the round-trip experiment of the paper in a lab of two nodes
#[derive(Debug, clap::Parser)]
#[command(name = "roundtrip", version)]
pub struct Args {
    /// Round trips per case
    #[arg(long, value_name = "N", default_value_t = 50_000,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    cycles: u64,
    /// Only this case; may be repeated
    #[arg(long = "case", value_name = "CASE")]
    cases: Vec<Case>,
    /// Where results are written
    #[arg(long, value_name = "DIR", default_value = "results")]
    output: PathBuf,
}

/// Runs the experiment, prints the table and writes the results.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::catch()?;
    fs::create_dir_all(&args.output)
        .with_context(|| format!("--output {}: cannot make it", args.output.display()))?;
    let cases = match args.cases.as_slice() {
        [] => &[Case::Idle, Case::Network, Case::Cpu],
        chosen => chosen,
    };
    let lab = Lab::up(Some(LINK_RATE))?;
    let mut report = Report {
        machine: Machine::read(),
        link_rate: LINK_RATE,
        link_mechanism: lab.link_mechanism().to_owned(),
        rootless: lab.is_rootless(),
        cycles: args.cycles,
        cases: Vec::new(),
    };
    let mut failure = None;
    for &case in cases {
        if interrupt.came() {
            break;
        }
        eprintln!("{}: {} round trips, closed loop", case.title(), args.cycles);
        match measure(case, args, &lab, &interrupt) {
            Ok(measured) => report.cases.push(measured),
            Err(_) if interrupt.came() => break,
            Err(error) => {
                failure = Some(error.context(case.title()));
                break;
            }
        }
    }
    drop(lab);
    // What was measured is kept, whatever happened afterwards.
    report.write(&args.output)?;
    print!("{report}");
    match failure {
        Some(error) => Err(error.into()),
        None if interrupt.came() => Ok(Exit::Interrupted),
        None => Ok(Exit::Measured),
    }
}

fn measure(case: Case, args: &Args, lab: &Lab, interrupt: &Interrupt) -> Result<Measured> {
    let url = format!("roundtrip://{}:{PORT}", lab.address(Node::N2)?);
    let csv = results_file(&args.output, case, "csv");
    let json = results_file(&args.output, case, "json");

    let mut reflect = lab.dwell_on(Node::N2);
    reflect.args(["reflect", &url]);
    let reflector = Server::start(reflect, Some("listening on"))?;
    let loads = Loads::start(case, lab)?;

    let mut ping = lab.dwell_on(Node::N1);
    ping.args(["ping", &url, "--closed-loop", "--json", "-c", &args.cycles.to_string()]);
    ping.arg("--csv").arg(&csv);
    let finished = finish(ping, interrupt)?;
    fs::write(&json, &finished.stdout)
        .with_context(|| format!("cannot write {}", json.display()))?;
    let partial = finished.status.code() == Some(Exit::Interrupted as i32);
    ensure!(finished.status.success() || partial, "dwell ping ended with {}", finished.status);
    let summary = Summary::parse(&finished.stdout)?;

    let load: Vec<Value> = loads.stop()?;
    reflector.stop()?;
    let round_trips = summary.round_trips()?.clone();
    ensure!(round_trips.count > 0, "no round trip was measured");
    Ok(Measured {
        case,
        partial,
        missing: summary.missing(),
        warnings: summary.warnings().to_vec(),
        round_trips,
        load,
        csv,
        json,
    })
}

fn results_file(directory: &Path, case: Case, extension: &str) -> PathBuf {
    directory.join(format!("roundtrip-{}.{extension}", case.name()))
}
