//! `dwell doctor`: reports what this node can measure, and how precisely. Every statement comes
//! from a test; untested features are not reported.

mod advice;
mod ebpf;
mod print;
mod probe;
mod sandbox;
mod stamps;

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, IsTerminal, Write};

use dwell_host::CpuUse;
use dwell_io::activity::Own;
use dwell_io::bpf::{Hook, Pass};
use dwell_io::interface::{self, Interface};
use dwell_io::machine::{self, Machine};
use serde::{Deserialize, Serialize};

use crate::host::{CpuWatch, RunQueueWait};
use crate::progress::Progress;
use crate::{Exit, Failure};
use probe::Lateness;
use sandbox::SandboxResults;
use stamps::StampSupport;

/// Number of progress steps: one per timer method, and three more.
const STEPS: usize = probe::TIMER_METHODS + 3;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
    /// Run the tests that need a namespace in a user namespace (started by `doctor`)
    #[arg(long, hide = true)]
    sandbox: bool,
}

/// All findings, in the format `dwell.doctor/1`.
#[derive(Debug, Serialize)]
struct Findings {
    schema: &'static str,
    version: &'static str,
    machine: MachineFacts,
    clocks: Clocks,
    /// CPU use during the tests.
    load: Option<CpuUse>,
    timers: [Lateness; probe::TIMER_METHODS],
    stamps: Vec<StampSupport>,
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
    /// Median duration of a read of CLOCK_REALTIME.
    read_ns: i64,
    /// Width of the tightest pairing of CLOCK_REALTIME and CLOCK_MONOTONIC.
    pairing_width_ns: i64,
    /// Maximum error of CLOCK_REALTIME against UTC; null if not synchronised.
    utc_error_ns: Option<i64>,
}

/// An interface of this network namespace; null if the driver does not report the value.
#[derive(Debug, Serialize)]
struct InterfaceFacts {
    name: String,
    up: bool,
    driver: Option<String>,
    mtu: Option<u32>,
    qdisc: Option<String>,
    /// Enabled offloads that merge, split or checksum packets.
    offloads: Option<Vec<String>>,
    /// As claimed by the driver, not tested.
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

/// A feature that may be available.
#[derive(Debug, Serialize, Deserialize)]
struct Ability {
    name: Cow<'static, str>,
    /// Null if it could not be tested.
    available: Option<bool>,
    /// Why not, or how.
    reason: Option<String>,
}

impl Ability {
    fn of(name: &'static str, tried: io::Result<()>) -> Self {
        let reason = tried.err().map(|error| error.to_string());
        Self { name: name.into(), available: Some(reason.is_none()), reason }
    }

    /// As [`Self::of`]; `how` describes an available feature.
    fn explained(
        name: &'static str,
        tried: io::Result<()>,
        how: impl FnOnce() -> Option<String>,
    ) -> Self {
        let found = Self::of(name, tried);
        Self { reason: found.reason.or_else(how), ..found }
    }

    fn untried(name: &'static str, why: &str) -> Self {
        Self { name: name.into(), available: None, reason: Some(why.to_owned()) }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    if args.sandbox {
        let refused = |error| Failure::unsupported(format!("no user namespace: {error}"));
        print_json(&sandbox::run_rootless().map_err(refused)?)?;
        return Ok(Exit::Measured);
    }
    let findings = examine();
    if args.json {
        print_json(&findings)?;
    } else {
        print::findings(&mut io::stdout().lock(), &findings)?;
    }
    Ok(Exit::Measured)
}

/// Prints JSON. Keeps I/O errors as such, so that a closed standard output (EPIPE) is recognised.
fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

fn examine() -> Findings {
    let Machine { kernel, cpu, governor, clocksource } = machine::facts();
    if !io::stderr().is_terminal() {
        crate::say("examining timers, timestamps and privileges; this takes about 3 s");
    }
    let progress = Progress::new("examining");
    let begun = Cell::new(0);
    let begin = |what: &str| progress.show(begun.replace(begun.get() + 1), STEPS, what);
    let watch = CpuWatch::start(Own::Process);
    let (timers, wait) = RunQueueWait::of(|| probe::timers(&begin));
    begin("timestamps on loopback");
    let mut stamps = stamps::LOOPBACK.stamps();
    begin("namespace tests");
    let SandboxResults { abilities: in_sandbox, stamps: over_veth } = sandbox::run();
    stamps.extend(over_veth);
    begin("privileges");
    let interfaces = interface::all().unwrap_or_default().into_iter().map(Into::into).collect();
    let mut abilities = vec![
        Ability::of("real-time scheduling", probe::real_time()),
        Ability::of("locked memory", probe::locked_memory()),
        Ability::explained("no idle states (ping --no-idle)", probe::no_idle(), probe::idle_states),
        Ability::of("ICMP ping socket", probe::ping_socket()),
        Ability::of("ICMP raw socket", probe::raw_socket()),
        Ability::of("ports below 1024", probe::low_port()),
        Ability::of("eBPF: load an XDP program", Pass::load(Hook::Xdp).map(drop)),
        Ability::of("eBPF: load a netfilter program", Pass::load(Hook::Netfilter).map(drop)),
    ];
    abilities.extend(in_sandbox);
    let load = watch.end(wait);
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
        load,
        timers,
        stamps,
        interfaces,
        abilities,
        advice: Vec::new(),
    };
    findings.advice = advice::of(&findings);
    findings
}
