//! Error rates of blocked comparisons at 95 %. Of 2,000 seeded comparisons of identical conditions
//! at most 123 report a difference, the 99 % binomial bound of a true 5 %, for several distributions
//! of trials; with five repetitions most shifts of two standard deviations between trials are found.

use dwell_stats::{Block, Shift, blocked_shift};
use rand::{RngExt as _, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

const ROUNDS: u64 = 2_000;
const CONFIDENCE: f64 = 0.95;
/// The 99 % binomial bound of a true 5 % of [`ROUNDS`].
const MAX_DIFFERENT: usize = 123;

/// Deviation of a trial's level from the level of its cell, in the logarithm.
type DeviationSampler = fn(&mut Xoshiro256PlusPlus) -> f64;

fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    StandardNormal.sample(rng)
}

/// Two levels, like a thread placed on one of two cores.
fn placed(rng: &mut Xoshiro256PlusPlus) -> f64 {
    f64::from(u8::from(rng.random_bool(0.5))) + 0.01 * normal(rng)
}

/// One trial in five is much slower.
fn disturbed(rng: &mut Xoshiro256PlusPlus) -> f64 {
    let slow = if rng.random_bool(0.2) { 3.0 } else { 0.0 };
    slow + 0.1 * normal(rng)
}

/// Level and spread vary by block; B is higher by `shift` standard deviations.
fn blocks(
    seed: u64,
    shape: [usize; 2],
    deviation: DeviationSampler,
    spread_b: f64,
    shift: f64,
) -> Vec<Block> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let [blocks, repetitions] = shape;
    (0..blocks)
        .map(|i| {
            let level = 12.0 + i as f64;
            let mut side = |spread: f64, shift: f64| -> Vec<f64> {
                let mut draw = || (level + spread * (deviation(&mut rng) + shift)).exp();
                (0..repetitions).map(|_| draw()).collect()
            };
            let spread = 0.05 * (1.0 + i as f64);
            Block { a: side(spread, 0.0), b: side(spread * spread_b, shift) }
        })
        .collect()
}

fn assert_same(name: &str, shape: [usize; 2], deviation: DeviationSampler, spread_b: f64) {
    let differs = |&seed: &u64| {
        let found = blocked_shift(&blocks(seed, shape, deviation, spread_b, 0.0), CONFIDENCE);
        found.unwrap().shift != Shift::CannotTell
    };
    let different = (7_000..7_000 + ROUNDS).filter(differs).count();
    println!("{name}, {shape:?}, seeds from 7000: {different} of {ROUNDS} differ");
    assert!(different <= MAX_DIFFERENT, "{name}, {shape:?}: {different} of {ROUNDS} differ");
}

#[test]
fn identical_conditions_do_not_differ() {
    for shape in [[1, 3], [1, 5], [1, 10], [2, 3], [3, 2], [3, 1], [4, 1], [6, 2], [12, 1]] {
        assert_same("normal", shape, normal, 1.0);
        assert_same("two levels", shape, placed, 1.0);
        assert_same("disturbed", shape, disturbed, 1.0);
    }
}

#[test]
fn different_spread_is_not_a_shift() {
    for shape in [[1, 3], [1, 5], [3, 2], [2, 3], [4, 1], [6, 2]] {
        assert_same("tenfold spread", shape, normal, 10.0);
    }
}

#[test]
fn two_sigma_shift_is_found_in_five_repetitions() {
    for (shape, min_share) in [([1, 5], 0.7), ([2, 5], 0.85), ([1, 10], 0.95)] {
        let rises = |&seed: &u64| {
            let found = blocked_shift(&blocks(seed, shape, normal, 1.0, 2.0), CONFIDENCE).unwrap();
            assert_ne!(found.shift, Shift::Falls, "seed {seed}: {found:?}");
            found.shift == Shift::Rises
        };
        let found = (9_000..9_000 + ROUNDS).filter(rises).count();
        println!("two deviations, {shape:?}, seeds from 9000: {found} of {ROUNDS} found");
        assert!(found as f64 >= min_share * ROUNDS as f64, "{shape:?}: {found} of {ROUNDS}");
    }
}
