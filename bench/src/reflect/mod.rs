//! dwell's reflectors in comparison with sockperf's server, the kernel's ICMP echo and minimal C
//! programs: round trips, also beside a load, and requests per second of one core. All contestants
//! run in every round, and the ratios of the rounds are judged. The time of the XDP program for a
//! malformed frame, and the service time that `dwell node-sim` keeps, are judged too.

mod arena;
mod contestant;
mod goals;
mod node_sim;
mod program;

use std::process::{Command, Stdio};

use anyhow::Result;
use dwell_node_cli::{Exit, Failure};
use serde_json::json;

use crate::judge::{conclude, median, table};
use crate::{Interrupt, Lab, Machine, Table};
use arena::{Arena, Flood};
use contestant::{Client, FLOODED, Flooded, Reflector, TIMED};
use goals::{
    Capacity, Measured, PROGRAM, are_generator_limited, judge_capacities, judge_node_sim,
    judge_program, judge_round_trips,
};
use program::{Program, Times};

/// Maximum loss of a rate that counts as kept.
const MAX_LOSS: f64 = 0.001;

/// Capacity is searched between these multiples of the replies per second at overload, in steps of
/// this factor.
const SEARCHED: (f64, f64) = (0.6, 1.2);
const STEP: f64 = 1.015;

/// Compare dwell's reflectors with sockperf, the kernel and minimal C programs
#[derive(Debug, clap::Parser)]
#[command(name = "reflect", version)]
pub struct Args {
    /// Number of rounds; each runs every contestant once
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,
    /// Round trips per measurement
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    count: u64,
    /// Probes per measurement beside a load, one per millisecond
    #[arg(long, value_name = "N", default_value_t = 2_000,
          value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    probes: u64,
    /// Measure only this part; other goals are not judged
    #[arg(long, value_name = "PART", value_enum)]
    only: Option<Part>,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

/// Parts that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Round trips
    RoundTrips,
    /// Requests per second
    Capacity,
    /// The XDP program alone
    Program,
    /// The service time of a simulated node
    NodeSim,
}

impl Args {
    fn measures(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

/// Measures, prints and judges. Exit code 3 if goals were missed.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let machine = Machine::read();
    if machine.cores < 2 {
        return Err(Failure::unsupported("the comparison needs two cores; this machine has one"));
    }
    for program in ["sockperf", "taskset", "ethtool"] {
        if !is_installed(program) {
            return Err(Failure::unsupported(format!("{program} is not installed: make setup")));
        }
    }
    let interrupt = Interrupt::catch()?;
    let arena = Arena::new(Lab::up()?)?;
    let mut measured = Measured::default();
    note_unavailable(&mut measured, &arena);
    let outcome = fill(&mut measured, &arena, args, &interrupt);
    drop(arena);
    let mut judged = Vec::new();
    if args.measures(Part::RoundTrips) {
        judged.extend(judge_round_trips(&measured));
    }
    if args.measures(Part::Capacity) {
        judged.extend(judge_capacities(&measured));
    }
    if args.measures(Part::Program) {
        judged.push(judge_program(&measured));
    }
    if args.measures(Part::NodeSim) {
        judged.push(judge_node_sim(&measured));
    }
    if args.json {
        let schema = "dwell.bench-reflect/1";
        let all = json!({"schema": schema, "machine": machine, "count": args.count,
                         "measured": measured, "goals": judged});
        println!("{all:#}");
    } else {
        print(&machine, &measured, args);
        println!("{}", table(&judged));
    }
    if interrupt.came() {
        return Ok(Exit::Interrupted);
    }
    outcome?;
    conclude(&judged)
}

fn is_installed(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Finds the contestants that cannot run here.
fn note_unavailable(measured: &mut Measured, arena: &Arena) {
    for reflector in [Reflector::DwellXdp, Reflector::CXdp] {
        let Some(reason) = arena.reason_missing(reflector) else { continue };
        let timed = TIMED.iter().filter(|one| one.reflector == reflector).map(|one| one.name);
        let flooded = FLOODED.iter().filter(|one| one.reflector == reflector).map(|one| one.name);
        for name in timed.chain(flooded) {
            measured.unavailable.insert(name, reason.clone());
        }
    }
    if !is_installed("stress-ng") {
        for one in TIMED.iter().filter(|one| one.client == Client::Loaded) {
            let reason = "stress-ng is not installed: make setup".to_owned();
            measured.unavailable.insert(one.name, reason);
        }
    }
}

fn fill(measured: &mut Measured, arena: &Arena, args: &Args, interrupt: &Interrupt) -> Result<()> {
    let (mut timed, mut flooded) = (TIMED, FLOODED);
    let mut program = None;
    if args.measures(Part::Program) {
        match Program::load() {
            Ok(loaded) => program = Some(loaded),
            Err(error) => drop(measured.unavailable.insert(PROGRAM, error.to_string())),
        }
    }
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}", args.rounds);
        for one in timed.iter().filter(|_| args.measures(Part::RoundTrips)) {
            if !measured.unavailable.contains_key(one.name) {
                let count = if one.client == Client::Loaded { args.probes } else { args.count };
                let round_trip = arena.round_trips(one, count, interrupt)?;
                measured.round_trips.entry(one.name).or_default().push(round_trip);
            }
        }
        for one in flooded.iter().filter(|_| args.measures(Part::Capacity)) {
            if !measured.unavailable.contains_key(one.name) {
                let capacity = capacity(arena, one, interrupt)?;
                measured.capacities.entry(one.name).or_default().push(capacity);
            }
        }
        if let Some(program) = &mut program {
            measured.program.push(program.measure()?);
        }
        if args.measures(Part::NodeSim) {
            measured.node_sim.push(node_sim::deviation(arena, interrupt)?);
        }
        // No contestant always comes first; the neighbours stay the same.
        timed.rotate_left(1);
        flooded.rotate_left(1);
    }
    Ok(())
}

/// Measures replies at overload, and searches the highest rate with hardly any loss. The better of
/// two floods counts, so that one stall of the machine is not taken for loss of the reflector.
fn capacity(arena: &Arena, one: &Flooded, interrupt: &Interrupt) -> Result<Capacity> {
    let target = arena.flooded(one.reflector)?;
    let flood = |rate| -> Result<Flood> {
        let first = target.flood(rate, interrupt)?;
        if first.loss <= MAX_LOSS {
            return Ok(first);
        }
        let second = target.flood(rate, interrupt)?;
        Ok(if second.loss < first.loss { second } else { first })
    };
    let fastest = flood(None)?;
    if fastest.loss <= MAX_LOSS {
        return Ok(Capacity::of_generator(&fastest));
    }
    let overload = fastest.answered;
    let rate = |step: i32| SEARCHED.0 * overload * STEP.powi(step);
    let steps = ((SEARCHED.1 / SEARCHED.0).ln() / STEP.ln()) as i32;
    let (mut kept, mut lost) = (-1, steps);
    let mut lossless = SEARCHED.0 * overload;
    while lost - kept > 1 {
        let step = (kept + lost) / 2;
        let best = flood(Some(rate(step)))?;
        if best.loss <= MAX_LOSS {
            kept = step;
            lossless = best.rate.max(lossless);
        } else {
            lost = step;
        }
    }
    Ok(Capacity { lossless, overload, is_generator_limited: false })
}

fn print(machine: &Machine, measured: &Measured, args: &Args) {
    println!("{machine}");
    println!(
        "64 B over veth; medians over rounds of {} round trips, and of {} probes beside a load\n",
        args.count, args.probes
    );
    let mut figures = Table::new(["round trips", "rounds", "p50, us", "p99, us"]);
    for one in &TIMED {
        let Some(rounds) = measured.round_trips.get(one.name) else { continue };
        let micros = |figure: fn(&crate::rtt::RoundTrip) -> f64| {
            let middle = median(&rounds.iter().map(figure).collect::<Vec<_>>());
            format!("{:.2}", middle.unwrap_or_default() / 1e3)
        };
        let rounds = rounds.len().to_string();
        figures.row([one.name.to_owned(), rounds, micros(|r| r.p50), micros(|r| r.p99)]);
    }
    println!("{figures}");
    let mut figures = Table::new(["packets/s", "rounds", "at 0.1 % loss", "at overload", ""]);
    for one in &FLOODED {
        let Some(rounds) = measured.capacities.get(one.name) else { continue };
        let middle = |figure: fn(&Capacity) -> f64| {
            let middle = median(&rounds.iter().map(figure).collect::<Vec<_>>());
            format!("{:.0}", middle.unwrap_or_default())
        };
        let is_limited = are_generator_limited(rounds);
        figures.row([
            one.name.to_owned(),
            rounds.len().to_string(),
            middle(|capacity| capacity.lossless),
            middle(|capacity| capacity.overload),
            if is_limited { "limited by the generator" } else { "" }.to_owned(),
        ]);
    }
    println!("{figures}");
    if !measured.program.is_empty() {
        let rounds = measured.program.len().to_string();
        let middle = |figure: fn(&Times) -> f64| {
            let middle = median(&measured.program.iter().map(figure).collect::<Vec<_>>());
            format!("{:.0}", middle.unwrap_or_default())
        };
        let mut figures = Table::new(["XDP program", "rounds", "ns"]);
        for (name, figure) in [
            ("malformed frame", middle(|times| times.malformed)),
            ("frame that passes at the first check", middle(|times| times.passed)),
            ("wrong checksum, 64 B", middle(|times| times.bad_checksum)),
            ("wrong checksum, 1,472 B", middle(|times| times.bad_checksum_longest)),
        ] {
            figures.row([name.to_owned(), rounds.clone(), figure]);
        }
        println!("{figures}");
    }
    if let Some(deviation) = median(&measured.node_sim) {
        println!(
            "service time of a simulated node, 64 clients: off by {:.2} %\n",
            100.0 * deviation
        );
    }
    for (name, reason) in &measured.unavailable {
        println!("{name} is unavailable: {reason}");
    }
}
