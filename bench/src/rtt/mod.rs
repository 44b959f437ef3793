//! Round trips of dwell in comparison with sockperf and a minimal C program. All contestants run in
//! every round, one after the other, so that disturbances affect all of them. The ratios of the rounds
//! are judged, as absolute times differ from day to day.

mod contestant;
mod goals;
mod sockperf;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dwell_node_cli::{Exit, Failure};
use serde_json::json;

use crate::judge::{Judged, conclude, median, table};
use crate::{Interrupt, Lab, Machine, Table};
use contestant::{ALL, Arena, EXPLAIN, EXPLAIN_TURNS};
pub(crate) use contestant::{RoundTrip, dwell_round_trip};
use goals::{GOALS, MEMORY_CYCLES, judge_memory};

/// Compare round trips of dwell with sockperf and a minimal C program
#[derive(Debug, clap::Parser)]
#[command(name = "rtt", version)]
pub struct Args {
    /// Number of rounds; each runs every contestant once
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,
    /// Round trips per measurement (sockperf: one second of them)
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    count: u64,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
    /// Directory for files of the contestants
    #[arg(long, value_name = "DIR", default_value = "results")]
    output: PathBuf,
}

/// Measures, prints and judges. Exit code 3 if goals were missed.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let machine = Machine::read();
    check_machine(&machine)?;
    let interrupt = Interrupt::catch()?;
    fs::create_dir_all(&args.output).with_context(|| {
        format!("--output {}: cannot create the directory", args.output.display())
    })?;
    let arena = Arena::new(Lab::up()?, &args.output)?;
    let mut results = Results::new(machine, args);
    let outcome = results.fill(&arena, args, &interrupt);
    drop(arena);
    if args.json {
        println!("{:#}", results.to_json());
    } else {
        results.print();
    }
    if interrupt.came() {
        return Ok(Exit::Interrupted);
    }
    outcome?;
    conclude(&results.judge())
}

fn check_machine(machine: &Machine) -> Result<(), Failure> {
    if machine.cores < 2 {
        return Err(Failure::unsupported("the comparison needs two cores; this machine has one"));
    }
    for program in ["sockperf", "taskset", "time"] {
        let mut version = Command::new(program);
        let found = version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return Err(Failure::unsupported(format!("{program} is not installed: make setup")));
        }
    }
    Ok(())
}

/// Results, round by round.
#[derive(Debug)]
struct Results {
    machine: Machine,
    count: u64,
    rounds: BTreeMap<&'static str, Vec<RoundTrip>>,
    peak_memory_kib: Option<u64>,
}

impl Results {
    fn new(machine: Machine, args: &Args) -> Self {
        Self { machine, count: args.count, rounds: BTreeMap::new(), peak_memory_kib: None }
    }

    fn fill(&mut self, arena: &Arena, args: &Args, interrupt: &Interrupt) -> Result<()> {
        let mut order = ALL;
        for round in 1..=args.rounds {
            eprintln!("round {round} of {}", args.rounds);
            for contestant in &order {
                let measured = arena.measure(contestant, args.count, interrupt)?;
                self.rounds.entry(contestant.name).or_default().push(measured);
            }
            // No contestant always comes first; the neighbours stay the same.
            order.rotate_left(1);
            let mut pair = EXPLAIN;
            for _ in 0..EXPLAIN_TURNS {
                for contestant in &pair {
                    let measured = arena.measure(contestant, args.count, interrupt)?;
                    self.rounds.entry(contestant.name).or_default().push(measured);
                }
                pair.reverse();
            }
        }
        self.peak_memory_kib = Some(arena.peak_memory_kib(MEMORY_CYCLES, interrupt)?);
        Ok(())
    }

    /// Returns the median over rounds of one figure of a contestant.
    fn median(&self, name: &str, figure: impl Fn(&RoundTrip) -> f64) -> Option<f64> {
        median(&self.rounds.get(name)?.iter().map(figure).collect::<Vec<_>>())
    }

    fn judge(&self) -> Vec<Judged> {
        let p50 = |name: &str| -> Option<Vec<f64>> {
            Some(self.rounds.get(name)?.iter().map(|round| round.p50).collect())
        };
        let judged =
            GOALS.iter().filter_map(|goal| Some(goal.judge(&p50(goal.of)?, &p50(goal.than)?)));
        judged.chain(self.peak_memory_kib.map(judge_memory)).collect()
    }

    fn print(&self) {
        println!("{}", self.machine);
        println!(
            "64 B over veth; medians over rounds of {} round trips each, in us, as the program \
             sees them\n",
            self.count
        );
        let mut figures = Table::new(["contestant", "turns", "p50", "p99"]);
        let micros = |nanos: Option<f64>| format!("{:.2}", nanos.unwrap_or_default() / 1e3);
        for contestant in ALL.iter().chain(&EXPLAIN) {
            if let Some(rounds) = self.rounds.get(contestant.name) {
                figures.row([
                    contestant.name.to_owned(),
                    rounds.len().to_string(),
                    micros(self.median(contestant.name, |r| r.p50)),
                    micros(self.median(contestant.name, |r| r.p99)),
                ]);
            }
        }
        println!("{figures}");
        println!("{}", table(&self.judge()));
    }

    fn to_json(&self) -> serde_json::Value {
        let contestants = ALL.iter().chain(&EXPLAIN).filter_map(|contestant| {
            let rounds = self.rounds.get(contestant.name)?;
            Some(json!({
                "name": contestant.name,
                "p50_ns": rounds.iter().map(|r| r.p50).collect::<Vec<_>>(),
                "p99_ns": rounds.iter().map(|r| r.p99).collect::<Vec<_>>(),
            }))
        });
        json!({
            "schema": "dwell.bench-rtt/2",
            "machine": self.machine,
            "count": self.count,
            "contestants": contestants.collect::<Vec<_>>(),
            "goals": self.judge(),
        })
    }
}
