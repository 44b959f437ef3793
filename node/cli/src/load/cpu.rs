//! `dwell load cpu`: a duty-cycle burner per CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_engine::burner::{PERIOD, slice};
use dwell_io::clock::monotonic;
use dwell_io::cpu;
use dwell_record::Scalar;
use dwell_units::{Nanos, Ratio};
use serde_json::json;

use crate::{Exit, Failure};

/// Arguments of `load cpu`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Share of each CPU to burn, above 0% and up to 100%
    #[arg(long, value_name = "PERCENT", default_value = "100%")]
    level: Ratio,

    /// Burn this CPU; may be given again [default: one burner per CPU]
    #[arg(long, value_name = "N")]
    cpu: Vec<usize>,

    /// Stop after this time [default: until stopped]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,

    /// Print the summary as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    if args.level == Ratio::ZERO {
        return Err(Failure::usage("invalid value 0% for --level: burn 1% to 100%"));
    }
    args.cpu.iter().try_for_each(|cpu| crate::place::check_cpu(*cpu))?;
    let cpus = if args.cpu.is_empty() { cpu::allowed() } else { args.cpu.clone() };
    let stop = Arc::new(AtomicBool::new(false));
    crate::stop::on_signal(&stop)?;
    eprintln!("burning {} of CPU {cpus:?}", args.level);
    let burnt: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|cpu| scope.spawn(|| burn(*cpu, args.level, args.duration, &stop)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no burner panics")).collect()
    });
    let mean = burnt.iter().sum::<f64>() / burnt.len() as f64;
    let mut warnings = Vec::new();
    if (mean - args.level.as_f64()).abs() > 0.03 {
        warnings.push("the level was missed by more than 3 points: others used these CPUs".into());
    }
    let values =
        [("asked_ratio", Scalar::Real(args.level.as_f64())), ("burnt_ratio", Scalar::Real(mean))];
    let parameters = [
        ("level", json!(args.level.to_string())),
        ("cpus", json!(cpus)),
        ("burnt_ratios", json!(burnt)),
        ("duration_ns", json!(args.duration.map(|time| time.0))),
    ];
    super::conclude(args.json, "cpu".into(), "duty cycle", &parameters, &values, warnings)?;
    Ok(Exit::Measured)
}

/// Burns until stopped; returns the share of wall time that was really burnt.
fn burn(cpu: usize, level: Ratio, duration: Option<Nanos>, stop: &AtomicBool) -> f64 {
    // The CPU was checked; if it has gone since, the burner floats, and its share is still true.
    let _ = cpu::pin(cpu);
    let start = monotonic();
    let first = cpu::thread_time();
    let end = start.saturating_add(duration.unwrap_or(Nanos::MAX));
    loop {
        let now = monotonic();
        if now >= end || stop.load(Ordering::Relaxed) {
            break;
        }
        let used = cpu::thread_time();
        let until = used + slice(level, now - start, used - first);
        while cpu::thread_time() < until {
            std::hint::spin_loop();
        }
        let left = (now + PERIOD).min(end) - monotonic();
        if left > Nanos::ZERO && level != Ratio::ONE {
            thread::sleep(left.to_std());
        }
    }
    let wall = monotonic() - start;
    (cpu::thread_time() - first).0 as f64 / wall.0.max(1) as f64
}
