//! Coverage of distances: an emulated responder with a known delay distribution is calibrated at
//! 1 m and measured at a random distance. The true distance lies inside the 95 % interval in at
//! least 932 of 1,000 runs, the 99 % binomial bound of a true 95 %. A missing interval counts as a
//! miss. `docs/range.md` lists the counts.

use dwell_stats::range::{Distance, Estimate, Estimator, PropagationSpeed, RangeRtts, Settings};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

const RUNS: u64 = 1_000;
const MIN_COVERED: usize = 932;
const CALIBRATED_AT: f64 = 1.0;
const SPEED: PropagationSpeed = PropagationSpeed::AIR;

/// An emulated responder.
struct Responder {
    name: &'static str,
    /// Draws a delay in picoseconds; the number is the position in the series.
    delay: fn(&mut Xoshiro256PlusPlus, &mut f64) -> f64,
    /// Step of the timestamps in picoseconds.
    step_ps: f64,
    /// Numbers of round trips of the calibration and of the measurement.
    lengths: (usize, usize),
}

fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    StandardNormal.sample(random)
}

fn exponential(random: &mut Xoshiro256PlusPlus) -> f64 {
    Exp1.sample(random)
}

const RESPONDERS: [Responder; 7] = [
    Responder {
        name: "kernel stamps: 20 us + three exponential stages of 1 us",
        delay: |random, _| 20e6 + (0..3).map(|_| exponential(random)).sum::<f64>() * 1e6,
        step_ps: 1e3,
        lengths: (400, 300),
    },
    Responder {
        name: "long tail: lognormal of median 5 us, sigma 0.5",
        delay: |random, _| 20e6 + 5e6 * (0.5 * normal(random)).exp(),
        step_ps: 1e3,
        lengths: (300, 600),
    },
    Responder {
        name: "2 % spikes of up to 1 ms above an exponential of 2 us",
        delay: |random, _| {
            let spike = if random.random_bool(0.02) { random.random_range(1e7..1e9) } else { 0.0 };
            50e6 + exponential(random) * 2e6 + spike
        },
        step_ps: 1e3,
        lengths: (400, 400),
    },
    Responder {
        name: "neighbours correlated 0.6, lognormal",
        delay: |random, state| {
            *state = 0.6 * *state + 0.8 * normal(random);
            20e6 + 5e6 * (0.3 * *state).exp()
        },
        step_ps: 1e3,
        lengths: (600, 600),
    },
    Responder {
        name: "two modes 3 us apart, 65 and 35 %",
        delay: |random, _| {
            let mode = if random.random_bool(0.65) { 0.0 } else { 3e6 };
            20e6 + mode + 0.5e6 * normal(random)
        },
        step_ps: 1e3,
        lengths: (500, 500),
    },
    Responder {
        name: "802.11 FTM: 250 ns offset, sigma 8 ns, steps of 1.5625 ns, 64 frames",
        delay: |random, _| 250e3 + 8e3 * normal(random),
        step_ps: 1_562.5,
        lengths: (64, 64),
    },
    Responder {
        name: "steps coarser than the noise: sigma 1 ns, steps of 4 ns",
        delay: |random, _| 250e3 + 1e3 * normal(random),
        step_ps: 4e3,
        lengths: (200, 200),
    },
];

impl Responder {
    /// Round-trip times over `metres`: the difference of two timestamps with the responder's step.
    fn rtts(&self, random: &mut Xoshiro256PlusPlus, metres: f64, n: usize) -> RangeRtts {
        let flight_ps = metres / SPEED.metres(1.0);
        let mut state = normal(random);
        let values: Vec<i64> = (0..n)
            .map(|_| {
                let sent = random.random_range(0.0..self.step_ps);
                let received = sent + flight_ps + (self.delay)(random, &mut state);
                ((received / self.step_ps).floor() * self.step_ps).round() as i64
            })
            .collect();
        RangeRtts::clean(&values, self.step_ps).unwrap()
    }

    /// Whether each estimator's interval contains the true distance, and its error.
    fn run(&self, seed: u64) -> [(bool, f64); Estimator::ALL.len()] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let metres = random.random_range(0.0..100.0);
        let near = self.rtts(&mut random, CALIBRATED_AT, self.lengths.0);
        let far = self.rtts(&mut random, metres, self.lengths.1);
        let settings = Settings::of(&near);
        Estimator::ALL.map(|estimator| {
            let calibrated = Estimate::of(&near, estimator, settings, seed).unwrap();
            let measured = Estimate::of(&far, estimator, settings, seed + 1).unwrap();
            let step_ps = near.resolution_ps().max(far.resolution_ps());
            let found = Distance::calibrated(&measured, &calibrated, CALIBRATED_AT, step_ps, SPEED);
            found.map_or((false, f64::INFINITY), |found| {
                (found.low <= metres && metres <= found.high, found.error())
            })
        })
    }
}

fn assert_covered(responder: usize) {
    let first = (responder as u64 + 1) * 100_000;
    let responder = &RESPONDERS[responder];
    let runs: Vec<_> = (first..first + RUNS).map(|seed| responder.run(seed)).collect();
    for (i, estimator) in Estimator::ALL.into_iter().enumerate() {
        let covered = runs.iter().filter(|run| run[i].0).count();
        let mut errors: Vec<f64> = runs.iter().map(|run| run[i].1).collect();
        errors.sort_by(f64::total_cmp);
        let line = format!(
            "{}, {}, seeds from {first}: {covered} of {RUNS}, median error {:.2} m",
            responder.name,
            estimator.name(),
            errors[errors.len() / 2]
        );
        println!("{line}");
        assert!(covered >= MIN_COVERED, "{line}");
    }
}

#[test]
fn distance_from_kernel_stamps_is_covered() {
    assert_covered(0);
}

#[test]
fn distance_with_long_tail_is_covered() {
    assert_covered(1);
}

#[test]
fn distance_with_spikes_is_covered() {
    assert_covered(2);
}

#[test]
fn distance_from_dependent_delays_is_covered() {
    assert_covered(3);
}

#[test]
fn distance_from_two_frequent_delays_is_covered() {
    assert_covered(4);
}

#[test]
fn distance_from_ftm_frames_is_covered() {
    assert_covered(5);
}

#[test]
fn distance_from_coarse_stamps_is_covered() {
    assert_covered(6);
}
