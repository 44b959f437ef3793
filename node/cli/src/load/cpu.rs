//! `dwell load cpu`: keeps CPUs busy for a share of the time, with one thread per CPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dwell_engine::burner::{BURN_PERIOD, burn_time};
use dwell_io::clock::monotonic;
use dwell_io::cpu;
use dwell_protocol::CpuJob;
use dwell_record::{Placement, Scalar, Summary, Warning};
use dwell_units::{Nanos, Ratio};
use serde_json::json;

use super::load_summary;
use crate::Failure;

/// Arguments of `load cpu`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// CPU time to burn.
    #[command(flatten)]
    pub(super) job: CpuJob,

    /// Print the summary as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Loads the CPUs until stopped or until the duration is over.
pub(crate) fn burn(
    job: &CpuJob,
    stop: &AtomicBool,
    announce: &mut dyn FnMut(&str),
) -> Result<Summary, Failure> {
    if job.level == Ratio::ZERO {
        return Err(Failure::usage("invalid value 0% for --level: give 1% to 100%"));
    }
    if job.duration.is_some_and(|time| time <= Nanos::ZERO) {
        return Err(Failure::usage("invalid value 0s for --duration: give a time like 2s"));
    }
    job.cpus.iter().try_for_each(|cpu| crate::placement::check_cpu(*cpu))?;
    let mut cpus = if job.cpus.is_empty() { cpu::allowed() } else { job.cpus.clone() };
    cpus.sort_unstable();
    // Two threads on one CPU would share its time.
    cpus.dedup();
    announce(&format!("burning {} of CPU {cpus:?}", job.level));
    let start = monotonic();
    let burnt: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .map(|cpu| scope.spawn(|| burn_one(*cpu, job.level, job.duration, stop)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a burner thread does not panic"))
            .collect()
    });
    let mean = burnt.iter().sum::<f64>() / burnt.len() as f64;
    let elapsed_ns = (monotonic() - start).0.max(0) as u64;
    let values = [
        ("asked_ratio", Scalar::Real(job.level.as_f64())),
        ("burnt_ratio", Scalar::Real(mean)),
        ("duration_ns", Scalar::Count(elapsed_ns)),
    ];
    let parameters = [
        ("load", json!("cpu")),
        ("level_ratio", json!(job.level.as_f64())),
        ("cpus", json!(cpus)),
        ("burnt_ratios", json!(burnt)),
        ("duration_ns", json!(job.duration.map(|time| time.0))),
    ];
    let only = (cpus.len() == 1).then(|| u32::try_from(cpus[0]).ok()).flatten();
    let placement = Placement { cpu: only, ..Placement::default() };
    let mut summary = load_summary("cpu", "duty cycle", parameters, values, placement);
    if (mean - job.level.as_f64()).abs() > 0.03 {
        summary.trust.warn(Warning::CpuLevelMissed);
    }
    Ok(summary)
}

/// Loads one CPU until the end; returns the share of wall time actually used.
fn burn_one(cpu: usize, level: Ratio, duration: Option<Nanos>, stop: &AtomicBool) -> f64 {
    // The CPU was checked; if it went offline since, the thread runs elsewhere and its share is
    // valid.
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
        let until = used + burn_time(level, now - start, used - first);
        while cpu::thread_time() < until {
            std::hint::spin_loop();
        }
        let left = (now + BURN_PERIOD).min(end) - monotonic();
        if left > Nanos::ZERO && level != Ratio::ONE {
            thread::sleep(left.to_std());
        }
    }
    let wall = monotonic() - start;
    (cpu::thread_time() - first).0 as f64 / wall.0.max(1) as f64
}
