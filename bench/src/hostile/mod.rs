//! `dwell reflect` on a hostile network: datagrams of every kind for every protocol from spoofed
//! sources, and a prober during a flood.

mod arena;
mod goals;
mod pool;

use std::hash::{BuildHasher, Hasher, RandomState};

use anyhow::Result;
use dwell_node_cli::{Exit, Failure};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::json;

use crate::judge::{Judged, conclude, table};
use crate::{Interrupt, Lab, Machine, Table};
use arena::Arena;
use goals::{Measured, Prober, judge_datagrams, judge_prober};
use pool::{Kind, Protocol, pool};

/// Size and rate of the flood during probing, in packets and packets per second.
const FLOOD: u64 = 1_000_000;
const FLOOD_RATE: u64 = 100_000;

/// Attack reflectors with hostile datagrams from spoofed sources
#[derive(Debug, clap::Parser)]
#[command(name = "hostile", version)]
pub struct Args {
    /// Number of hostile datagrams, over all protocols and kinds
    #[arg(long, value_name = "N", default_value_t = 100_000_000,
          value_parser = clap::value_parser!(u64).range(1_000..))]
    count: u64,
    /// Hostile datagrams per second; 0: as fast as possible
    #[arg(long, value_name = "N", default_value_t = 250_000)]
    rate: u64,
    /// Run only this part; other goals are not judged
    #[arg(long, value_name = "PART", value_enum)]
    only: Option<Part>,
    /// Seed of the datagrams [default: from the system]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

/// Parts that can run separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A prober during a flood
    Prober,
    /// Hostile datagrams to every protocol
    Datagrams,
}

/// Attacks, prints and judges. Exit code 3 if goals were missed.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let machine = Machine::read();
    if machine.cores < 2 {
        return Err(Failure::unsupported(
            "attacker and reflector need a core each; this machine has one",
        ));
    }
    let interrupt = Interrupt::catch()?;
    let arena = Arena::new(Lab::up()?)?;
    let seed = args.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    eprintln!("seed {seed}");
    let mut measured = Measured::default();
    let outcome = fill(&mut measured, &arena, args, seed, &interrupt);
    drop(arena);
    let mut judged = Vec::new();
    if args.runs(Part::Prober) {
        judged.extend(judge_prober(measured.prober.as_ref()));
    }
    if args.runs(Part::Datagrams) {
        judged.extend(judge_datagrams(&measured));
    }
    if args.json {
        let schema = "dwell.bench-hostile/2";
        let all = json!({"schema": schema, "machine": machine, "seed": seed,
                         "measured": measured, "goals": judged});
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

impl Args {
    fn runs(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

fn fill(
    measured: &mut Measured,
    arena: &Arena,
    args: &Args,
    seed: u64,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    if args.runs(Part::Prober) {
        eprintln!("a prober beside {FLOOD} packets at {FLOOD_RATE} per second");
        let pool = pool(Protocol::Stamp, Kind::Valid, &mut random);
        measured.prober = Some(arena.probe(FLOOD, FLOOD_RATE, &pool, interrupt)?);
    }
    if args.runs(Part::Datagrams) {
        let pool = |protocol, kind| pool(protocol, kind, &mut random);
        arena.attack(measured, args.count, args.rate, pool, interrupt)?;
    }
    Ok(())
}

fn print(machine: &Machine, measured: &Measured, judged: &[Judged]) {
    println!("{machine}");
    if let Some(prober) = &measured.prober {
        let Prober { flood, sent, lost, far_socket_drops, socket_drops, limited } = prober;
        println!(
            "\nprober: {sent} sent, {lost} lost, during {} spoofed requests in {:.1} s; socket \
             drops: {socket_drops} reported by the reflector, {} by the prober; dropped by the rate \
             limit: {limited}",
            flood.sent,
            flood.seconds,
            far_socket_drops.map_or("unknown".to_owned(), |drops| drops.to_string()),
        );
    }
    if !measured.classes.is_empty() {
        let headings =
            ["datagrams", "sent", "per second", "bytes in", "replies", "bytes out", "longer"];
        let mut classes = Table::new(headings);
        for class in &measured.classes {
            let flood = &class.flood;
            let rate = flood.sent as f64 / flood.seconds.max(1e-9);
            classes.row([
                format!("{}, {}", class.protocol.name(), class.kind.name()),
                flood.sent.to_string(),
                format!("{rate:.0}"),
                flood.bytes_in.to_string(),
                flood.frames_out.to_string(),
                flood.bytes_out.to_string(),
                flood.longer_replies.to_string(),
            ]);
        }
        println!("\n{classes}");
        println!(
            "bytes include frame headers; longer: replies longer than their request (text+udp: 7 to \
             11 bytes, documented)\nread by the reflectors: {}; dropped by their sockets: {}",
            measured.requests, measured.socket_drops
        );
        for (before, after) in &measured.resident {
            println!("resident memory of a reflector: {before} B before, {after} B after");
        }
        for failure in &measured.failed {
            println!("failed: {failure}");
        }
        println!();
    }
    println!("{}", table(judged));
}
