//! `dwell doctor`: what this node can measure, and how well. Every statement comes from doing the
//! thing once; what was not tried is not stated.

mod advice;
mod playground;
mod print;
mod probe;

use std::io::{self, Write};

use dwell_io::interface::{self, Interface};
use dwell_io::machine::{self, Machine};
use serde::Serialize;

use crate::{Exit, Failure};
use probe::{Lateness, StampsSeen};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
}

/// `dwell.doctor/1`: everything that was found.
#[derive(Debug, Serialize)]
struct Findings {
    schema: &'static str,
    version: &'static str,
    machine: MachineFacts,
    clocks: Clocks,
    timers: Vec<Lateness>,
    stamps: Vec<StampsSeen>,
    interfaces: Vec<InterfaceFacts>,
    abilities: Vec<Ability>,
    advice: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MachineFacts {
    kernel: Option<String>,
    cpu: Option<String>,
    cores: usize,
    governor: Option<String>,
}

#[derive(Debug, Serialize)]
struct Clocks {
    source: Option<String>,
    /// Median of a read of CLOCK_REALTIME.
    read_ns: i64,
    /// Width of the tightest pairing of CLOCK_REALTIME and CLOCK_MONOTONIC.
    pairing_width_ns: i64,
    /// How far CLOCK_REALTIME may be from UTC; null when nobody synchronises it.
    utc_error_ns: Option<i64>,
}

/// An interface of this network namespace; null is what its driver does not say.
#[derive(Debug, Serialize)]
struct InterfaceFacts {
    name: String,
    up: bool,
    driver: Option<String>,
    mtu: Option<u32>,
    qdisc: Option<String>,
    /// Offloads that are switched on and merge, split or checksum packets.
    offloads: Option<Vec<String>>,
    /// The driver's word, not a stamp that was seen.
    tx_software_stamps: Option<bool>,
    tx_hardware_stamps: Option<bool>,
    rx_hardware_stamps: Option<bool>,
}

impl From<Interface> for InterfaceFacts {
    fn from(found: Interface) -> Self {
        let stamping = found.stamping;
        Self {
            name: found.name,
            up: found.up,
            driver: found.driver,
            mtu: found.mtu,
            qdisc: found.qdisc,
            offloads: found.offloads,
            tx_software_stamps: stamping.map(|s| s.tx_software),
            tx_hardware_stamps: stamping.map(|s| s.tx_hardware),
            rx_hardware_stamps: stamping.map(|s| s.rx_hardware),
        }
    }
}

/// Something that can be had here, or not.
#[derive(Debug, Serialize)]
struct Ability {
    name: &'static str,
    available: bool,
    /// Why not.
    reason: Option<String>,
}

impl Ability {
    fn of(name: &'static str, tried: io::Result<()>) -> Self {
        let reason = tried.err().map(|error| error.to_string());
        Self { name, available: reason.is_none(), reason }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let findings = examine();
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &findings)?;
        writeln!(out)?;
    } else {
        print::findings(&mut out, &findings)?;
    }
    Ok(Exit::Measured)
}

fn examine() -> Findings {
    let Machine { kernel, cpu, governor, clocksource } = machine::facts();
    eprintln!("examining timers, stamps and privileges; this takes about two seconds");
    let timers = probe::timers();
    let stamps = probe::stamps();
    let interfaces = interface::all().unwrap_or_default().into_iter().map(Into::into).collect();
    let mut abilities = vec![
        Ability::of("real-time scheduling", probe::real_time()),
        Ability::of("locked memory", probe::locked_memory()),
        Ability::of("ICMP ping socket", probe::ping_socket()),
        Ability::of("ICMP raw socket", probe::raw_socket()),
        Ability::of("ports below 1024", probe::low_port()),
        Ability::of("TAP devices", probe::tap()),
    ];
    abilities.extend(playground::abilities());
    let mut findings = Findings {
        schema: "dwell.doctor/1",
        version: env!("CARGO_PKG_VERSION"),
        machine: MachineFacts { kernel, cpu, cores: dwell_io::cpu::allowed().len(), governor },
        clocks: Clocks {
            source: clocksource,
            read_ns: probe::clock_read().0,
            pairing_width_ns: dwell_io::clock::pair().width.0,
            utc_error_ns: dwell_io::clock::utc_error().map(|error| error.0),
        },
        timers,
        stamps,
        interfaces,
        abilities,
        advice: Vec::new(),
    };
    findings.advice = advice::of(&findings);
    findings
}
