//! `dwell doctor`: what this node can measure, and how well. Every statement comes from doing the
//! thing once; what was not tried is not stated.

mod probe;

use std::io::{self, Write};

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
        print(&mut out, &findings)?;
    }
    Ok(Exit::Measured)
}

fn examine() -> Findings {
    let Machine { kernel, cpu, governor, clocksource } = machine::facts();
    eprintln!("examining timers, stamps and privileges; this takes about two seconds");
    let timers = probe::timers();
    let stamps = probe::stamps();
    let abilities = vec![
        Ability::of("real-time scheduling", probe::real_time()),
        Ability::of("locked memory", probe::locked_memory()),
        Ability::of("ICMP ping socket", probe::ping_socket()),
        Ability::of("ICMP raw socket", probe::raw_socket()),
        Ability::of("ports below 1024", probe::low_port()),
        Ability::of("TAP devices", probe::tap()),
    ];
    let mut findings = Findings {
        schema: "dwell.doctor/1",
        version: env!("CARGO_PKG_VERSION"),
        machine: MachineFacts { kernel, cpu, cores: dwell_io::cpu::allowed().len(), governor },
        clocks: Clocks {
            source: clocksource,
            read_ns: probe::clock_read().0,
            pairing_width_ns: dwell_io::clock::pair().width.0,
        },
        timers,
        stamps,
        abilities,
        advice: Vec::new(),
    };
    findings.advice = advice(&findings);
    findings
}

/// Plain words: the finding, and the command that mends it.
fn advice(found: &Findings) -> Vec<String> {
    let mut advice = Vec::new();
    let lacks = |name| found.abilities.iter().any(|a| a.name == name && !a.available);
    if found.machine.governor.as_deref().is_some_and(|governor| governor != "performance") {
        advice.push(
            "the CPU changes its frequency, so an idle machine answers later than a busy one: \
             cpupower frequency-set -g performance"
                .to_owned(),
        );
    }
    if found
        .clocks
        .source
        .as_deref()
        .is_some_and(|source| !matches!(source, "tsc" | "arch_sys_counter"))
    {
        advice.push(format!(
            "the clock source is not the processor's counter, so every stamp costs {} ns: boot \
             with clocksource=tsc if the processor's is stable",
            found.clocks.read_ns
        ));
    }
    if found.machine.cores < 2 {
        advice.push(
            "there is one CPU: --busy-poll would starve the far end if it runs here too".to_owned(),
        );
    }
    if lacks("ICMP ping socket") && lacks("ICMP raw socket") {
        advice.push(
            "icmp:// is not to be had: sysctl -w net.ipv4.ping_group_range='0 2147483647'"
                .to_owned(),
        );
    }
    if lacks("ports below 1024") {
        advice.push(
            "the STAMP port 862 is not to be had: reflect on another, like \
             stamp://[::]:8620, or sysctl -w net.ipv4.ip_unprivileged_port_start=862"
                .to_owned(),
        );
    }
    if found.stamps.iter().all(|seen| !seen.tx || !seen.rx) {
        advice.push(
            "no socket here delivers kernel stamps both ways: delays include the program's own \
             waking up"
                .to_owned(),
        );
    }
    advice
}

fn print(out: &mut impl Write, found: &Findings) -> io::Result<()> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mark = |ok: bool| if ok { "ok      " } else { "missing " };
    writeln!(out, "machine")?;
    writeln!(
        out,
        "  kernel {}, {} CPUs, {}",
        text(&found.machine.kernel),
        found.machine.cores,
        text(&found.machine.cpu)
    )?;
    writeln!(out, "  governor {}", text(&found.machine.governor))?;
    writeln!(out, "clocks")?;
    writeln!(
        out,
        "  source {}, a read costs {} ns, both clocks are paired within {} ns",
        text(&found.clocks.source),
        found.clocks.read_ns,
        found.clocks.pairing_width_ns
    )?;
    writeln!(
        out,
        "timers: lateness of an absolute 1 ms sleep, us{:>14}{:>10}{:>10}",
        "median", "p99", "max"
    )?;
    for timer in &found.timers {
        let us =
            |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e3));
        writeln!(
            out,
            "  {:42}{:>14}{:>10}{:>10}  n {}",
            timer.method,
            us(timer.p50_ns),
            us(timer.p99_ns),
            us(timer.max_ns),
            timer.count
        )?;
    }
    writeln!(out, "kernel stamps on loopback")?;
    for seen in &found.stamps {
        let (tx, rx) = (mark(seen.tx), mark(seen.rx));
        writeln!(
            out,
            "  {:20} sending {tx} receiving {rx}{}",
            seen.socket,
            seen.reason.as_deref().unwrap_or("")
        )?;
    }
    writeln!(out, "abilities")?;
    for ability in &found.abilities {
        let reason = ability.reason.as_deref().unwrap_or("");
        writeln!(out, "  {} {:24} {reason}", mark(ability.available), ability.name)?;
    }
    writeln!(out, "advice")?;
    for advice in &found.advice {
        writeln!(out, "  - {advice}")?;
    }
    if found.advice.is_empty() {
        writeln!(out, "  nothing to mend")?;
    }
    Ok(())
}
