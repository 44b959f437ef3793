//! dwell's trains in comparison with iperf, D-ITG, mgen, trafgen and minimal C programs: gap errors
//! as seen by one witness at the far end of a link. All contestants send every cell of the grid in
//! every round, and medians over rounds are compared. Also judges the verdicts of `dwell run` where
//! the truth is known.

mod arena;
mod contestant;
mod factor;
mod gaps;
mod goals;
mod grid;
mod limits;
mod report;
mod witness;

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dwell_node_cli::{Exit, Failure};
use serde_json::json;

use crate::judge::{Judged, conclude};
use crate::{Interrupt, Lab, Machine, StealBudget};
use arena::{Arena, PAIRS, Turn, all_streams};
use contestant::{CONTESTANTS, Contestant};
use gaps::{Gaps, pair_gap};
use goals::{ABSOLUTE_GOAL_MBITS, Measured, PAIR_SIZES, Part, TWO_SENDS, Turns, controls, judge};
use grid::Cell;
use limits::Experiment;

/// Senders of pairs, with dwell's engine.
const PAIRED: [(&str, Option<&str>); 4] =
    [(TWO_SENDS, None), ("spin", Some("spin")), ("xsk", Some("xsk")), ("gso", Some("gso"))];

/// Turns per round in which all senders send pairs.
const PAIR_TURNS: usize = 3;

/// Compare dwell's trains with those of other senders and of minimal C programs
#[derive(Debug, clap::Parser)]
#[command(name = "pace", version)]
pub struct Args {
    /// Number of rounds. Each runs every contestant once per size and rate (peers four times at
    /// 1000 Mbit/s), closely compared ones four times, twelve times from 50 Mbit/s on, and the
    /// plans of verdicts four times
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,
    /// Measure only this part; other goals are not judged
    #[arg(long, value_name = "PART", value_enum)]
    only: Option<Part>,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

/// Turns per round of closely compared contestants below 50 Mbit/s.
const CLOSE_TURNS: usize = 4;

/// The same from 50 Mbit/s on, where contestants differ least.
const FAST_CLOSE_TURNS: usize = 12;

/// Runs of the plans of verdicts per round; five rounds make twenty.
const RUNS_PER_ROUND: u64 = 4;

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
    for program in ["taskset", "timeout", "stdbuf", "ip"] {
        if !is_installed(program) {
            return Err(Failure::unsupported(format!("{program} is not installed: make setup")));
        }
    }
    let (present, missing): (Vec<&Contestant>, Vec<&Contestant>) = CONTESTANTS
        .iter()
        .partition(|contestant| contestant.needs().iter().all(|program| is_installed(program)));
    let missing: Vec<&str> = missing.iter().map(|contestant| contestant.name).collect();
    if !missing.is_empty() {
        eprintln!("not installed, left out: {} (make setup)", missing.join(", "));
    }
    let interrupt = Interrupt::catch()?;
    let runs = args.rounds * RUNS_PER_ROUND;
    let patience = StealBudget::new(runs);
    let mut measured = Measured { missing, runs, patience, ..Measured::default() };
    let mut outcome = Ok(());
    if args.measures(Part::Trains) || args.measures(Part::Pairs) {
        let arena = Arena::new(Lab::line(2)?, &present)?;
        outcome = fill(&mut measured, &arena, &present, args, &interrupt);
    }
    if args.measures(Part::Verdicts) && outcome.is_ok() {
        outcome = find_limits(&mut measured, &interrupt);
    }
    let mut verdicts = judge(&measured);
    verdicts.retain(|verdict| args.measures(verdict.part));
    let mut controls = controls(&measured);
    controls.retain(|control| args.measures(control.part));
    let judged: Vec<Judged> = verdicts.iter().map(Judged::from).collect();
    if args.json {
        let schema = "dwell.bench-pace/2";
        let goals = &judged;
        let all = json!({"schema": schema, "machine": machine, "measured": measured, "goals": goals,
                   "controls": controls});
        println!("{all:#}");
    } else {
        report::print(&machine, &measured, &verdicts, &controls);
    }
    if interrupt.came() {
        return Ok(Exit::Interrupted);
    }
    outcome?;
    conclude(&judged)
}

/// Runs all rounds; an interrupted round counts as far as it got.
fn fill(
    measured: &mut Measured,
    arena: &Arena,
    contestants: &[&Contestant],
    args: &Args,
    interrupt: &Interrupt,
) -> Result<()> {
    // Let the nodes resolve each other before measuring.
    arena.streams(&contestant::WARM_UP, Cell::FASTEST, interrupt)?;
    for round in 1..=args.rounds {
        if interrupt.came() {
            break;
        }
        eprintln!("round {round} of {}", args.rounds);
        measured.load.extend(load());
        if args.measures(Part::Trains) {
            compare_trains(measured, arena, contestants, round, interrupt)?;
        }
        if args.measures(Part::Pairs) {
            compare_pairs(measured, arena, round, interrupt)?;
        }
    }
    Ok(())
}

/// Lets all contestants send streams of every cell.
fn compare_trains(
    measured: &mut Measured,
    arena: &Arena,
    contestants: &[&Contestant],
    round: u64,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut turns = Vec::new();
    for (place, cell) in Cell::all().into_iter().enumerate() {
        let all = || rotated(contestants, round as usize + place);
        let again = |time| all().filter(move |contestant| times(contestant, cell) > time);
        for contestant in (0..FAST_CLOSE_TURNS).flat_map(again) {
            let sent = arena.streams(contestant, cell, interrupt);
            if interrupt.came() {
                break;
            }
            turns.push((contestant, cell, sent));
        }
    }
    let seen = arena.seen()?;
    measured.unseen = seen.missed;
    for (contestant, cell, sent) in turns {
        let name = contestant.name;
        let gaps = |sent: Vec<Turn>| -> Result<Vec<Gaps>> {
            let streams = all_streams(&sent, &seen, contestant.streams()).context(name)?;
            let gaps = |stamps: &Vec<i64>| Gaps::of(stamps, cell.gap_ns()).context(name);
            streams.iter().map(gaps).collect()
        };
        // Keep turns aligned: a failed turn is an empty entry.
        let gaps = sent.and_then(gaps).unwrap_or_else(|error| {
            measured.failures.insert(format!("{error:#}"));
            Vec::new()
        });
        let cells = measured.streams.entry(name).or_default();
        let rounds = cells.entry(cell.name()).or_default();
        rounds.resize_with(round as usize, Turns::new);
        rounds[round as usize - 1].push(gaps);
    }
    Ok(())
}

/// Returns the number of turns per round in which a contestant sends a cell.
fn times(contestant: &Contestant, cell: Cell) -> usize {
    match contestant.is_narrow() {
        true if cell.mbits >= ABSOLUTE_GOAL_MBITS => FAST_CLOSE_TURNS,
        true => CLOSE_TURNS,
        // A goal states what the best peers do not reach.
        false if contestant.is_peer() && cell == Cell::FASTEST => CLOSE_TURNS,
        false => 1,
    }
}

/// Sends pairs of packets as close together as possible.
fn compare_pairs(
    measured: &mut Measured,
    arena: &Arena,
    round: u64,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut turns = Vec::new();
    for (size, turn) in
        PAIR_SIZES.into_iter().flat_map(|size| (0..PAIR_TURNS).map(move |t| (size, t)))
    {
        for &(name, engine) in rotated(&PAIRED, round as usize + turn) {
            let turn = arena.pairs(engine, size, interrupt);
            if interrupt.came() {
                break;
            }
            turns.push((name, size, turn));
        }
    }
    let seen = arena.seen()?;
    measured.unseen = seen.missed;
    for (name, size, turn) in turns {
        let gap = turn.and_then(|turn| pair_gap(&turn.streams(&seen), PAIRS).context(name));
        if let Err(error) = &gap {
            measured.failures.insert(format!("pairs: {error:#}"));
        }
        let sizes = measured.pairs_ns.entry(name).or_default();
        sizes.entry(size).or_default().push(gap.ok());
    }
    Ok(())
}

/// Runs the plans of verdicts in separate labs. Runs during which the host took too much CPU time
/// are repeated.
fn find_limits(measured: &mut Measured, interrupt: &Interrupt) -> Result<()> {
    let experiment = Experiment::new(interrupt)?;
    for run in 1..=measured.runs {
        if interrupt.came() {
            break;
        }
        eprintln!("verdicts, run {run} of {}", measured.runs);
        match measured.patience.measure(|| experiment.verdicts()) {
            Ok(found) => measured.found.extend(found),
            Err(_) if interrupt.came() => break,
            Err(error) => drop(measured.failures.insert(format!("verdicts: {error:#}"))),
        }
    }
    Ok(())
}

/// Rotates the order, so that no contestant always comes first.
fn rotated<T>(contestants: &[T], turn: usize) -> impl Iterator<Item = &T> {
    let first = turn % contestants.len();
    contestants[first..].iter().chain(&contestants[..first])
}

/// Whether a program is on the search path.
fn is_installed(program: &str) -> bool {
    let mut which = Command::new("sh");
    which.args(["-c", "command -v \"$0\"", program]);
    let found = which.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Returns the load average over the last minute.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
