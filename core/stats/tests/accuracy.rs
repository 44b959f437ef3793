//! Error rates of the accuracy verdict. In 1,000 seeded runs, less than 5 % of senders whose true
//! median is exactly at a limit are called accurate; senders clearly on either side are recognised;
//! and load on the same departures never improves the verdict.

use dwell_engine::departures::{Departures, Pattern};
use dwell_sample::TimestampSource;
use dwell_stats::accuracy::{Accuracy, Tolerance};
use dwell_stats::departures::{TrainDepartures, TrainRequest, Trains};
use dwell_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, LogNormal, Pareto};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::distribution::{Beta, ContinuousCDF};

const RUNS: u64 = 1_000;
/// Packets per train in Mok 2015.
const PACKETS: u32 = 50;
/// 1500 B at 10 Mbit/s.
const REQUEST: TrainRequest =
    TrainRequest { bits: 12_000.0, gap: 1_200_000.0, deadline: None, same_clock: true };

fn departures(trains: u32) -> Departures {
    let pattern = Pattern::Train { count: PACKETS, repeat: trains, gap: REQUEST.gap, pause: None };
    pattern.departures().unwrap()
}

/// Judges trains whose gap errors are drawn from `error`, as shares of the gap.
fn judge(trains: u32, mut error: impl FnMut() -> f64) -> Accuracy {
    let departures = departures(trains);
    let mut all = Trains::new(REQUEST);
    for due in departures.by_train() {
        let mut at = due[0].0 as f64;
        let mut left = vec![Some(due[0])];
        for gap in due.windows(2).map(|pair| (pair[1] - pair[0]).0 as f64) {
            at += gap + error() * REQUEST.gap;
            left.push(Some(Nanos(at.round() as i64)));
        }
        all.record(&TrainDepartures { due, left: &left, stepped: false });
    }
    Tolerance::default().judge(&REQUEST, TimestampSource::KernelSw, all.accuracies()).accuracy
}

/// Errors of both signs with uniform magnitude, scaled so that the median of the trains' 95th
/// percentiles is `limit` (the order statistic has a beta distribution).
fn even(seed: u64, limit: f64) -> impl FnMut() -> f64 {
    let gaps = f64::from(PACKETS - 1);
    let rank = (0.95 * gaps).ceil();
    let widest = limit / Beta::new(rank, gaps + 1.0 - rank).unwrap().inverse_cdf(0.5);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    move || rng.random_range(-widest..widest)
}

/// Number of the 1,000 runs called accurate and inaccurate.
fn called(first: u64, trains: u32, error: impl Fn(u64) -> Box<dyn FnMut() -> f64>) -> [u64; 2] {
    let mut counts = [0; 2];
    for seed in first..first + RUNS {
        match judge(trains, error(seed)) {
            Accuracy::Accurate => counts[0] += 1,
            Accuracy::Inaccurate { .. } => counts[1] += 1,
            Accuracy::CannotTell { .. } => {}
        }
    }
    println!(
        "{trains} trains, seeds from {first}: accurate {} inaccurate {}",
        counts[0], counts[1]
    );
    counts
}

#[test]
fn gaps_at_the_limit_are_rarely_called_accurate() {
    for (trains, first) in [(20, 1_000), (25, 2_000), (60, 3_000)] {
        let [accurate, inaccurate] = called(first, trains, |seed| Box::new(even(seed, 0.1)));
        assert!(accurate < 50, "{trains} trains, seeds from {first}: {accurate} accurate");
        assert!(inaccurate < 50, "{trains} trains, seeds from {first}: {inaccurate} inaccurate");
        // Guards against a test that never reaches a verdict.
        assert!(accurate > 0 && inaccurate > 0);
    }
}

#[test]
fn rate_at_the_limit_is_rarely_called_accurate() {
    // Each whole train is off by a random share; the median rate is 5 % off.
    for (rate, first) in [(0.95_f64, 10_000), (1.05, 20_000)] {
        let at_limit = |seed| -> Box<dyn FnMut() -> f64> {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let spread = LogNormal::new(0.0, 0.01).unwrap();
            let (mut sent, mut off) = (0, 0.0);
            Box::new(move || {
                if sent % (PACKETS - 1) == 0 {
                    off = spread.sample(&mut rng) / rate - 1.0;
                }
                sent += 1;
                off
            })
        };
        let [accurate, inaccurate] = called(first, 20, at_limit);
        assert!(accurate < 50, "{rate}, seeds from {first}: {accurate} accurate");
        assert!(inaccurate < 50, "{rate}, seeds from {first}: {inaccurate} inaccurate");
        assert!(accurate + inaccurate > 0);
    }
}

#[test]
fn senders_clearly_off_the_limit_get_a_verdict() {
    let [accurate, _] = called(30_000, 20, |seed| Box::new(even(seed, 0.095)));
    assert!(accurate > 900, "{accurate}");
    let [_, inaccurate] = called(40_000, 20, |seed| Box::new(even(seed, 0.105)));
    assert!(inaccurate > 900, "{inaccurate}");
}

#[test]
fn load_on_the_same_departures_never_raises_the_verdict() {
    let level = |accuracy| match accuracy {
        Accuracy::Inaccurate { .. } => 0,
        Accuracy::CannotTell { .. } => 1,
        Accuracy::Accurate => 2,
    };
    let mut changed = 0;
    for seed in 50_000..50_000 + RUNS {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let limit = rng.random_range(0.05..0.12);
        let share: f64 = rng.random_range(0.0..0.2);
        let departures = departures(20);
        let (mut idle, mut loaded) = (Trains::new(REQUEST), Trains::new(REQUEST));
        // Every packet leaves slightly late. Under load some are also delayed, occasionally by much
        // more (Pareto), and all following packets wait for them.
        let held = Pareto::new(0.02 * REQUEST.gap, 1.5).unwrap();
        for due in departures.by_train() {
            let late: Vec<f64> =
                due.iter().map(|_| rng.random_range(0.0..limit * REQUEST.gap)).collect();
            let hold: Vec<f64> = due
                .iter()
                .map(|_| if rng.random_bool(share) { held.sample(&mut rng) } else { 0.0 })
                .collect();
            let left = |load: f64| -> Vec<Option<Nanos>> {
                let mut free = 0.0_f64;
                let leave = |(due, (late, hold)): (&Nanos, (&f64, &f64))| {
                    free = free.max(due.0 as f64 + late) + load * hold;
                    Some(Nanos(free.round() as i64))
                };
                due.iter().zip(late.iter().zip(&hold)).map(leave).collect()
            };
            idle.record(&TrainDepartures { due, left: &left(0.0), stepped: false });
            loaded.record(&TrainDepartures { due, left: &left(1.0), stepped: false });
        }
        let judge = |trains: &Trains| {
            level(
                Tolerance::default()
                    .judge(&REQUEST, TimestampSource::KernelSw, trains.accuracies())
                    .accuracy,
            )
        };
        let (idle, loaded) = (judge(&idle), judge(&loaded));
        assert!(loaded <= idle, "seed {seed}: {loaded} under load, {idle} without");
        changed += u64::from(loaded < idle);
    }
    println!("lowered in {changed} of {RUNS}");
    assert!(changed > 100, "load lowered too few verdicts: {changed}");
}
