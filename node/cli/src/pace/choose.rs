//! The best engine that works here, by measuring all of them: a few trains of the pattern each, to the
//! same peer, uncounted.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;

use dwell_engine::departures::{Departures, Pattern};
use dwell_io::cpu;
use dwell_io::train::{Stamping, TrainSender};
use dwell_plan::{PaceEngine, PaceJob, Stamps};
use dwell_stats::departures::{Sent, TrainFigures};
use dwell_units::Nanos;

use super::drive::{Driver, WARM_UP};
use super::engines;
use super::plan::Plan;
use crate::Failure;

/// Trains, or pairs, that each engine sends, after one to warm up.
const TRAINS: u32 = 3;
const PAIRS: u32 = 10;

/// Packets of such a train: enough for a 95th percentile of its gaps.
const PACKETS: u32 = 22;

/// An engine that can be used.
pub(super) struct Opened {
    pub(super) engine: PaceEngine,
    /// Why this one, where the program chose.
    pub(super) why: Option<String>,
    pub(super) sender: Box<dyn TrainSender>,
}

/// Measures every engine whose departures are stamped here; the naive one is for comparison only.
pub(super) fn best(
    job: &PaceJob,
    plan: &Plan,
    flow: u32,
    stop: &AtomicBool,
) -> Result<Opened, Failure> {
    let short = short(&plan.pattern);
    let departures =
        short.departures().map_err(|error| Failure::usage(format!("invalid pattern: {error}")))?;
    let mut found: Vec<(f64, Opened)> = Vec::new();
    let mut said = Vec::new();
    for engine in PaceEngine::ALL.into_iter().filter(|engine| *engine != PaceEngine::Sleep) {
        let name = engine.name();
        let sender = match engines::open(engine, job, plan, flow) {
            Ok(sender) if is_stamped(job, sender.as_ref()) => sender,
            Ok(_) => {
                said.push(format!("{name} is stamped at the far end only"));
                continue;
            }
            Err(why) => {
                said.push(format!("{name}: {why}"));
                continue;
            }
        };
        let (error, sender) = measure(job, plan, sender, &departures, stop)?;
        match error {
            Some(error) => {
                said.push(format!("{name} {:.2} us", error / 1e3));
                found.push((error, Opened { engine, why: None, sender }));
            }
            None => said.push(format!("{name}: its packets had no stamps")),
        }
    }
    let what = if plan.is_pairs() { "median gap" } else { "median of the gap errors' p95" };
    let best = found.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b));
    match best {
        Some((_, opened)) => {
            let why = format!("the best by {what}: {}", said.join(", "));
            Ok(Opened { why: Some(why), ..opened })
        }
        // Nothing can be compared without stamps.
        None => {
            let sender = engines::open(PaceEngine::SleepSpin, job, plan, flow)
                .map_err(|why| Failure::unsupported(format!("no engine works here: {why}")))?;
            let why = format!("no engine's departures are stamped here: {}", said.join(", "));
            Ok(Opened { engine: PaceEngine::SleepSpin, why: Some(why), sender })
        }
    }
}

fn is_stamped(job: &PaceJob, sender: &dyn TrainSender) -> bool {
    job.stamps != Stamps::User && sender.stamping() != Stamping::FarEnd
}

/// The pattern with fewer trains, of fewer packets.
fn short(pattern: &Pattern) -> Pattern {
    match pattern.clone() {
        Pattern::Pair { gap, .. } => Pattern::Pair { pairs: PAIRS, gap },
        Pattern::Train { count, gap, .. } => {
            Pattern::Train { count: count.min(PACKETS), repeat: TRAINS, gap, pause: None }
        }
        Pattern::Poisson { count, mean, seed, .. } => {
            let count = count.min(PACKETS);
            Pattern::Poisson { count, repeat: TRAINS, mean, seed, pause: None }
        }
        Pattern::Replay { mut gaps, .. } => {
            gaps.truncate(PACKETS as usize);
            Pattern::Replay { gaps, repeat: TRAINS, pause: None }
        }
    }
}

/// The median over trains of the 95th percentile of |gap - scheduled gap|, or the median gap of pairs, in
/// nanoseconds.
fn measure(
    job: &PaceJob,
    plan: &Plan,
    sender: Box<dyn TrainSender>,
    departures: &Departures,
    stop: &AtomicBool,
) -> Result<(Option<f64>, Box<dyn TrainSender>), Failure> {
    let (told, heard) = mpsc::channel();
    let first = WARM_UP | WARM_UP >> 1;
    let driver = Driver { sender, departures, first, warm_up: 1, stop, told };
    let real_time = plan.place.real_time(true);
    let sender = thread::scope(|scope| {
        let timing = scope.spawn(move || -> std::io::Result<_> {
            cpu::settle(job.place.cpu, real_time)?;
            Ok(driver.run())
        });
        timing.join().expect("the timing loop does not panic")
    })?;
    let mut errors = Vec::new();
    for train in heard {
        let Some(number) = train.number else { continue };
        let at = &departures.at()[departures.trains()[number].clone()];
        let due: Vec<Nanos> = at.iter().map(|due| *due - at[0]).collect();
        let start = train.bridge.to_real(train.start);
        let left: Vec<_> = train.left.iter().map(|left| left.kernel.map(|at| at - start)).collect();
        let sent = Sent { due: &due, left: &left, stepped: train.stepped };
        errors.extend(match &left[..] {
            [Some(first), Some(second)] if plan.is_pairs() => Some((*second - *first).0 as f64),
            _ if plan.is_pairs() => None,
            _ => TrainFigures::of(&sent, &plan.asked(true))
                .and_then(|figures| figures.gap_error.p95.or(figures.gap_error.max))
                .map(|error| error.0 as f64),
        });
    }
    errors.sort_by(f64::total_cmp);
    Ok((errors.get(errors.len() / 2).copied(), sender))
}
