//! dwell's relay in comparison with kernel forwarding, socat and minimal C programs: added
//! round-trip delay, delivery under a flood, and cost of tracing. All contestants run in every
//! round, and ratios of medians over rounds are compared.

mod arena;
mod contestant;
mod events;
mod goals;

use std::process::{Command, Stdio};

use anyhow::Result;
use dwell_node_cli::{Exit, Failure};
use serde_json::json;

use crate::judge::{self, Judged, conclude, median};
use crate::{Interrupt, Lab, Machine, StealBudget, Table};
use arena::{Arena, Blast, Trip};
use contestant::{
    CLOSELY_COMPARED, Contestant, DELAYED, DIRECT, ENCIPHERED, FLOODED, RATED, TRACED,
};
use goals::{Measured, Part, judge};

/// Medium packets of Miya 2020, for comparing delays.
const MEDIUM: u32 = 1_000;
/// Largest packets of Miya 2020, the most expensive to encrypt.
const LARGE: u32 = 1_400;
/// Smallest packets of Miya 2020, for the highest packet rates.
const SMALL: u32 = 100;

/// Duration of a flood.
const FLOOD_MS: u64 = 500;

/// Flood with the smallest packets, as fast as possible.
const OVERLOAD: Blast = Blast { size: SMALL, rate: None, milliseconds: FLOOD_MS, single: false };

/// Rate at which tracing is judged.
const TRACED_PPS: u64 = 200_000;

/// Rate at which the cost of events is compared: one core forwards it easily.
const COMPARED_PPS: u64 = 100_000;

/// Maximum loss of a rate that counts as kept.
const MAX_LOSS: f64 = 0.001;

/// Turns of closely compared contestants per turn of the others.
const CLOSE_TURNS: u64 = 3;

/// Number of rates tried: from 20,000 packets per second in steps of an eighth.
const RATE_STEPS: i32 = 34;

/// Compare dwell's relay with the kernel, socat and minimal C programs
#[derive(Debug, clap::Parser)]
#[command(name = "relay", version)]
pub struct Args {
    /// Number of rounds; each runs every contestant once
    #[arg(long, value_name = "N", default_value_t = 6,
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,
    /// Turns of delay measurement per round
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    turns: u64,
    /// Round trips per turn, at 200 per second
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    count: u64,
    /// Measure only this part; other goals are not judged
    #[arg(long, value_name = "PART", value_enum)]
    only: Option<Part>,
    /// Measure delays only of contestants whose name starts with NAME; other goals are missed
    #[arg(long, value_name = "NAME")]
    who: Vec<String>,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

impl Args {
    fn measures(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    /// Returns the number of delay measurements per turn.
    fn delays_of_a_turn(&self) -> u64 {
        let all = DELAYED.iter().chain(&ENCIPHERED).filter(|one| self.compares(one));
        all.map(|one| if CLOSELY_COMPARED.contains(&one.name) { CLOSE_TURNS } else { 1 }).sum()
    }

    fn compares(&self, contestant: &Contestant) -> bool {
        self.who.is_empty() || self.who.iter().any(|who| contestant.name.starts_with(who))
    }
}

/// Measures, prints and judges. Exit code 3 if goals were missed.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let machine = Machine::read();
    if machine.cores < 2 {
        return Err(Failure::unsupported("the comparison needs two cores; this machine has one"));
    }
    for (program, flag) in [("socat", "-V"), ("taskset", "--version")] {
        let mut version = Command::new(program);
        let found = version.arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            return Err(Failure::unsupported(format!("{program} is not installed: make setup")));
        }
    }
    let interrupt = Interrupt::catch()?;
    let arena = Arena::new(Lab::line(3)?)?;
    let patience = StealBudget::new(args.rounds * args.turns * args.delays_of_a_turn());
    let mut measured = Measured { patience, ..Measured::default() };
    let outcome = fill(&mut measured, &arena, args, &interrupt);
    drop(arena);
    let mut judged = judge(&measured);
    judged.retain(|(part, _)| args.measures(*part));
    let judged: Vec<Judged> = judged.into_iter().map(|(_, row)| row).collect();
    if args.json {
        let schema = "dwell.bench-relay/2";
        let goals = &judged;
        let all =
            json!({"schema": schema, "machine": machine, "measured": measured, "goals": goals});
        println!("{all:#}");
    } else {
        print(&machine, &measured, &judged);
    }
    if interrupt.came() {
        return Ok(Exit::Interrupted);
    }
    outcome?;
    conclude(&judged)
}

fn fill(measured: &mut Measured, arena: &Arena, args: &Args, interrupt: &Interrupt) -> Result<()> {
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}", args.rounds);
        if args.measures(Part::Delay) {
            for turn in 0..args.turns {
                compare_delays(measured, arena, round + turn, args, interrupt)?;
            }
        }
        if args.measures(Part::Flood) {
            compare_floods(measured, arena, round, interrupt)?;
        }
        if args.measures(Part::Events) {
            compare_events(measured, arena, interrupt)?;
        }
    }
    Ok(())
}

/// Measures delivery of all contestants at overload and without loss, and dwell's while traced.
fn compare_floods(
    measured: &mut Measured,
    arena: &Arena,
    round: u64,
    interrupt: &Interrupt,
) -> Result<()> {
    for contestant in rotated(&FLOODED, round) {
        let flood = arena.flood(contestant, OVERLOAD, interrupt)?;
        let per_second = flood.delivered as f64 * 1_000.0 / FLOOD_MS as f64;
        measured.delivered.entry(contestant.name).or_default().push(per_second);
    }
    for contestant in rotated(&RATED, round) {
        let capacity = capacity(arena, contestant, interrupt)?;
        measured.capacity.entry(contestant.name).or_default().push(capacity);
    }
    let with = Blast { rate: Some(TRACED_PPS), single: true, ..OVERLOAD };
    let bare = arena.flood(&TRACED, with, interrupt)?;
    let traced = arena.traced_flood(&TRACED, with, interrupt)?;
    measured.untraced.push(bare.delivered as f64);
    measured.traced.push(traced.flood.delivered as f64);
    measured.traced_pps.push(traced.flood.rate);
    measured.events.push(traced.events);
    measured.lost_events.push(traced.lost_events);
    Ok(())
}

/// Measures delays. Disturbances last for seconds, so turns are short and frequent, and the path
/// without a relay is measured just before and after each contestant. If the host took too much CPU
/// time, all three are repeated.
fn compare_delays(
    measured: &mut Measured,
    arena: &Arena,
    turn: u64,
    args: &Args,
    interrupt: &Interrupt,
) -> Result<()> {
    for (size, contestants) in [(MEDIUM, &DELAYED[..]), (LARGE, &ENCIPHERED[..])] {
        let trip = |of| arena.round_trip(of, size, args.count, interrupt);
        let mut latest = None;
        let narrow: Vec<Contestant> = contestants
            .iter()
            .filter(|one| CLOSELY_COMPARED.contains(&one.name))
            .copied()
            .collect();
        let again =
            |time| if narrow.is_empty() { None } else { Some(rotated(&narrow, turn + time)) };
        let all = rotated(contestants, turn).chain((1..CLOSE_TURNS).filter_map(again).flatten());
        for contestant in all.filter(|one| args.compares(one)) {
            let (before, Trip { rtt_ns, processing_ns }, after) =
                measured.patience.measure(|| {
                    let before = match latest.take() {
                        Some(before) => before,
                        None => trip(&DIRECT)?.rtt_ns,
                    };
                    Ok((before, trip(contestant)?, trip(&DIRECT)?.rtt_ns))
                })?;
            let direct = f64::midpoint(before, after);
            measured.rtt_ns.entry(contestant.name).or_default().push(rtt_ns);
            measured.direct_ns.entry(contestant.name).or_default().push(direct);
            measured.processing_ns.entry(contestant.name).or_default().extend(processing_ns);
            latest = Some(after);
        }
    }
    Ok(())
}

/// The second program finds the packet in the cache, so both orders are measured.
fn compare_events(measured: &mut Measured, arena: &Arena, interrupt: &Interrupt) -> Result<()> {
    let with = Blast { rate: Some(COMPARED_PPS), single: true, ..OVERLOAD };
    let cost = |ours_first| arena.event_cost(ours_first, with, interrupt);
    let ([ours, minimal], [ours_second, minimal_first]) = (cost(true)?, cost(false)?);
    measured.event_ns.push(ours.and(ours_second).each());
    measured.minimal_event_ns.push(minimal.and(minimal_first).each());
    Ok(())
}

/// Rotates the order, so that no contestant always comes first.
fn rotated(contestants: &[Contestant], round: u64) -> impl Iterator<Item = &Contestant> {
    let first = round as usize % contestants.len();
    contestants[first..].iter().chain(&contestants[..first])
}

/// Returns the highest rate with hardly any loss, by binary search. The better of two floods
/// counts, with the rate it reached, so that one stall of the machine is not taken for loss of the
/// relay.
fn capacity(arena: &Arena, contestant: &Contestant, interrupt: &Interrupt) -> Result<f64> {
    let rate = |step: i32| 20_000.0 * 1.125_f64.powi(step);
    let (mut kept, mut lost) = (-1, RATE_STEPS);
    let mut capacity = 0.0;
    while lost - kept > 1 {
        let step = (kept + lost) / 2;
        let with = Blast { rate: Some(rate(step) as u64), ..OVERLOAD };
        let mut best = arena.flood(contestant, with, interrupt)?;
        if best.loss() > MAX_LOSS {
            best = arena.flood(contestant, with, interrupt)?;
        }
        if best.loss() <= MAX_LOSS {
            kept = step;
            capacity = best.rate.max(capacity);
        } else {
            lost = step;
        }
    }
    Ok(capacity)
}

fn print(machine: &Machine, measured: &Measured, judged: &[Judged]) {
    println!("{machine}");
    println!(
        "medians over rounds and turns; line of three nodes, both ends on one core, relay on the other\n"
    );
    let mut table = Table::new(["added to the round trip", "turns", "us"]);
    for contestant in DELAYED.iter().chain(&ENCIPHERED) {
        if let Some(added) = measured.added(contestant.name) {
            let turns = measured.rtt_ns[contestant.name].len().to_string();
            table.row([contestant.name.into(), turns, format!("{:.2}", added / 1e3)]);
        }
    }
    println!("{table}\n{}\n", measured.patience);
    let mut table = Table::new(["delivered at overload, 100 B", "rounds", "packets/s"]);
    for contestant in &FLOODED {
        let rounds = measured.delivered.get(contestant.name).map_or(&[][..], Vec::as_slice);
        if let Some(middle) = median(rounds) {
            table.row([contestant.name.into(), rounds.len().to_string(), format!("{middle:.0}")]);
        }
    }
    println!("{table}");
    let mut table = Table::new(["capacity at 0.1 % loss, 100 B", "rounds", "packets/s"]);
    for contestant in &RATED {
        let rounds = measured.capacity.get(contestant.name).map_or(&[][..], Vec::as_slice);
        if let Some(middle) = median(rounds) {
            table.row([contestant.name.into(), rounds.len().to_string(), format!("{middle:.0}")]);
        }
    }
    println!("{table}");
    let mut table = Table::new(["an event of tracing", "rounds", "ns"]);
    for (name, rounds) in
        [("dwell", &measured.event_ns), ("minimal program", &measured.minimal_event_ns)]
    {
        if let Some(middle) = median(rounds) {
            table.row([name.into(), rounds.len().to_string(), format!("{middle:.1}")]);
        }
    }
    println!("{table}");
    println!("{}", judge::table(judged));
}
