//! A hub with many agents: what it stores, how late, what it costs; a backlog; the footprint of a node; the
//! pages of a large fleet. nats-server, PostgreSQL and the programs of dwell are the real ones. Agents are
//! simulated, because ten thousand real ones do not fit on a machine: each has its own key and connection,
//! and its records have the real format.

mod agents;
mod backlog;
mod bare;
mod costs;
mod database;
mod expected;
mod footprint;
pub mod generator;
mod goals;
mod network;
mod pages;
mod records;
mod usage;

use dwell_node_cli::{Exit, Failure};
use serde::Serialize;
use serde_json::json;

use crate::judge::{Judged, conclude, table};
use crate::process::raise_descriptors;
use crate::{Interrupt, Machine, Table};
use database::Database;
use goals::{Measured, judge};
use network::Network;
use records::RecordForm;

/// Descriptors of nats-server, which inherits the limit: one per agent, and its files.
const OTHER_DESCRIPTORS: u64 = 1_000;

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    /// Agents that publish at the same time
    Agents,
    /// Messages that waited for a hub
    Backlog,
    /// Memory of agent and uplink, and their disturbance
    Footprint,
    /// Pages of a large fleet
    Pages,
}

impl Part {
    const ALL: [Self; 4] = [Self::Agents, Self::Backlog, Self::Footprint, Self::Pages];
}

/// Measure a hub with many agents, a backlog, the footprint of a node, and pages of a large fleet
#[derive(Debug, clap::Parser)]
#[command(name = "fleet", version)]
pub struct Args {
    /// Measure only this part (repeatable)
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<Part>,
    /// Agents that publish at the same time
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=15_000))]
    agents: u64,
    /// Seconds for which they publish
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// Messages of a backlog
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u64).range(40..=500_000))]
    messages: u64,
    /// Turns of the hub and the bare consumer, and of the agent with and without a draining uplink
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=200))]
    rounds: u64,
    /// Length of the spool that an uplink drains in MB
    #[arg(long, value_name = "MB", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(1..=100))]
    spool: u64,
    /// Nodes of the mesh whose pages are requested
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u64).range(2..=200))]
    nodes: u64,
    /// Days of the history of one pair of them; fewer only to try the bench
    #[arg(long, value_name = "N", default_value_t = 90,
          value_parser = clap::value_parser!(i64).range(1..=90))]
    days: i64,
    /// Requests of each page
    #[arg(long, value_name = "N", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(20..=1_000))]
    requests: u64,
    /// Delays in each record: a round trip, its kernel part, and both one-way delays
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u8).range(1..=4))]
    metrics: u8,
    /// Seed of counts and delays
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Change one expected count, which must miss the goals of its rows: a test of the bench
    #[arg(long)]
    miscount: bool,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

/// Measures, prints and judges. Exit code 3 if goals were missed.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let interrupt = Interrupt::catch()?;
    let machine = Machine::read();
    raise_descriptors(args.agents + OTHER_DESCRIPTORS)?;
    let parts: Vec<Part> = Part::ALL
        .into_iter()
        .filter(|part| args.only.is_empty() || args.only.contains(part))
        .collect();
    let mut measured = Measured::default();
    for part in &parts {
        if interrupt.came() {
            break;
        }
        measure(args, *part, &machine, &interrupt, &mut measured);
    }
    let judged: Vec<Judged> = parts.iter().flat_map(|part| judge(&measured, *part)).collect();
    if args.json {
        let object = json!({
            "schema": "dwell.bench-fleet/1",
            "machine": machine,
            "measured": measured,
            "goals": judged,
        });
        println!("{object:#}");
    } else {
        println!("{machine}\n\n{}\n{}", table(&judged), costs_table(&measured));
    }
    if interrupt.came() {
        return Ok(Exit::Interrupted);
    }
    conclude(&judged)
}

/// Measures a part. A failure misses its goals; the other parts follow.
fn measure(
    args: &Args,
    part: Part,
    machine: &Machine,
    interrupt: &Interrupt,
    measured: &mut Measured,
) {
    let form = RecordForm { seed: args.seed, metrics: args.metrics };
    let outcome = match missing(part, machine) {
        Some(reason) => Err((reason, true)),
        None => match part {
            Part::Agents => {
                let (agents, seconds, miscount) = (args.agents, args.seconds, args.miscount);
                let size = agents::Size { agents, seconds, form, miscount };
                agents::measure(size, interrupt).map(|of| measured.agents = Some(of))
            }
            Part::Backlog => {
                let size = backlog::Size { messages: args.messages, rounds: args.rounds, form };
                backlog::measure(size, interrupt).map(|of| measured.backlog = Some(of))
            }
            Part::Footprint => {
                let size = footprint::Size { rounds: args.rounds, spool_mb: args.spool, form };
                footprint::measure(size, interrupt).map(|of| measured.footprint = Some(of))
            }
            Part::Pages => {
                let (nodes, days, requests) = (args.nodes, args.days, args.requests);
                let size = pages::Size { nodes, days, requests, form };
                pages::measure(size, interrupt).map(|of| measured.pages = Some(of))
            }
        }
        .map_err(|error| (format!("{error:#}"), false)),
    };
    if let Err((reason, is_unavailable)) = outcome {
        eprintln!("{reason}");
        measured.failures.insert(part, goals::Failure { reason, is_unavailable });
    }
}

/// Why this machine cannot measure a part.
fn missing(part: Part, machine: &Machine) -> Option<String> {
    if !Database::is_installed() {
        return Some("PostgreSQL 15 is not installed (setup/packages.txt)".to_owned());
    }
    if part != Part::Pages
        && let Some(program) = Network::missing_program()
    {
        return Some(format!("{program} is not installed (setup/packages.txt)"));
    }
    (part == Part::Footprint && machine.cores < 2)
        .then(|| "the node needs a core of its own; this machine has one".to_owned())
}

/// Costs without a goal, for docs/scale.md.
fn costs_table(measured: &Measured) -> Table {
    let mut table = Table::new(["cost", "value", ""]);
    let mut row = |name: &str, value: String, note: &str| {
        table.row([name.to_owned(), value, note.to_owned()]);
    };
    if let Some(agents) = &measured.agents {
        let per = |whole: u64, of: u64| format!("{:.0} B", whole as f64 / of.max(1) as f64);
        let rate = format!("{} agents, {} s", agents.agents, agents.seconds);
        for (name, cores) in [
            ("cores of the hub", agents.hub_cores),
            ("cores of nats-server", agents.server_cores),
            ("cores of PostgreSQL", agents.database_cores),
            ("cores of the generators", agents.generator_cores),
        ] {
            row(name, format!("{cores:.3}"), &rate);
        }
        row("memory of nats-server", format!("{:.1} MB", agents.server_mb), &rate);
        row("message of records", per(agents.bytes, agents.messages), "");
        row("record in a message", per(agents.bytes, agents.records), "");
    }
    if let Some(backlog) = &measured.backlog {
        let bytes = format!("{:.0} B", backlog.stream_bytes_per_message);
        let note = format!("of {} B", backlog.bytes / backlog.messages.max(1));
        row("message in the stream", bytes, &note);
    }
    if let Some(footprint) = &measured.footprint {
        let bytes = footprint.record_bytes;
        for (name, bytes) in [
            ("real record of 10 s", bytes.ten_seconds),
            ("real record of 5 min", bytes.five_minutes),
            ("real status", bytes.status),
            ("real sample", bytes.sample),
        ] {
            let text = bytes.map_or("-".to_owned(), |bytes| format!("{bytes:.0} B"));
            row(name, text, "100 probes/s");
        }
    }
    let of_agents = measured.agents.as_ref().and_then(|agents| agents.costs.as_ref());
    let of_pages = measured.pages.as_ref().and_then(|pages| pages.costs.as_ref());
    for (part, costs) in [("agents", of_agents), ("pages", of_pages)] {
        let Some(costs) = costs else { continue };
        let bytes = format!("{:.0} B", costs.wal_bytes_per_record);
        row(&format!("{part}: record in the write-ahead log"), bytes, "");
        for (table, cost) in &costs.tables {
            if let Some(bytes) = cost.bytes_per_row() {
                let note = format!("{} rows with indexes", cost.rows);
                row(&format!("{part}: row of {table}"), format!("{bytes:.0} B"), &note);
            }
        }
    }
    for store in measured.pages.iter().flat_map(|pages| &pages.stores) {
        let rate = store.records as f64 / store.fill_seconds;
        let note = format!("{} records by the path of the hub", store.records);
        row(&format!("{}: filling", store.store), format!("{rate:.0}/s"), &note);
    }
    table
}
