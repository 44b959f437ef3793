//! Coverage of intervals of changes, like `coverage.rs` for single figures: 93 to 97 % of 1,000
//! seeded comparisons contain the true shift, slope or ratio. A missing interval counts as a miss.
//! `docs/statistics.md` lists the counts.

mod series;

use dwell_stats::{Block, Compare, Quantile, blocked_shift, grouped_least_squares, theil_sen};
use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use series::{MEDIAN, SIGMA, delays};

const ROUNDS: u64 = 1_000;
const CONFIDENCE: f64 = 0.95;

/// Fails unless 930 to 970 of the seeds from `first` are covered.
fn assert_covered(name: &str, first: u64, covers: impl Fn(u64) -> bool) {
    let covered = (first..first + ROUNDS).filter(|&seed| covers(seed)).count();
    println!("{name}, seeds from {first}: {covered} of {ROUNDS}");
    assert!((930..=970).contains(&covered), "{name}, seeds from {first}: {covered} of {ROUNDS}");
}

/// Trials whose log levels deviate normally by 5 %; those of B are `ratio` times slower. Each block
/// has its own level.
fn blocks(seed: u64, shape: [usize; 2], ratio: f64) -> Vec<Block> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let [blocks, repetitions] = shape;
    let mut trial = |level: f64| -> f64 {
        let deviation: f64 = StandardNormal.sample(&mut rng);
        level * (0.05 * deviation).exp()
    };
    (0..blocks)
        .map(|i| {
            let level = MEDIAN * (1.0 + i as f64);
            let mut side = |level: f64| (0..repetitions).map(|_| trial(level)).collect();
            Block { a: side(level), b: side(level * ratio) }
        })
        .collect()
}

#[test]
fn ratios_of_repeated_trials_are_covered() {
    for (shape, first) in
        [([1, 3], 101_000), ([1, 5], 103_000), ([3, 3], 105_000), ([8, 1], 109_000)]
    {
        assert_covered(
            &format!("ratio of trials, blocks and repetitions {shape:?}"),
            first,
            |seed| {
                let found = blocked_shift(&blocks(seed, shape, 1.2), CONFIDENCE);
                let interval = found.and_then(|found| found.interval);
                interval.is_some_and(|interval| interval.low <= 1.2 && 1.2 <= interval.high)
            },
        );
    }
}

/// With two repetitions each block has one degree of freedom, which Satterthwaite's formula
/// underestimates; the intervals are then too wide, which is acceptable.
#[test]
fn ratios_of_trials_measured_twice_are_covered_at_least() {
    let covers = |seed: &u64| {
        let found = blocked_shift(&blocks(*seed, [6, 2], 1.2), CONFIDENCE);
        let interval = found.and_then(|found| found.interval);
        interval.is_some_and(|interval| interval.low <= 1.2 && 1.2 <= interval.high)
    };
    let covered = (107_000..107_000 + ROUNDS).filter(covers).count();
    assert!(covered >= 930, "seeds from 107000: {covered} of {ROUNDS}");
}

/// Checks repetitions whose log levels deviate normally by `deviation`, those of B `ratio` times
/// slower: the intervals of both the percentage and the difference contain the true value.
fn changes_of_repetitions(count: usize, deviation: f64, ratio: f64, first: u64) {
    let level = MEDIAN * 1_000.0;
    let true_value = (ratio - 1.0) * 100.0;
    let covers = |in_percent: bool, seed: u64| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut side = |level: f64| -> Vec<Vec<i64>> {
            let mut repetition = || {
                let log: f64 = StandardNormal.sample(&mut rng);
                vec![(level * (deviation * log).exp()) as i64; 3]
            };
            (0..count).map(|_| repetition()).collect()
        };
        let (a, b) = (side(level), side(level * ratio));
        let [a, b] = [&a, &b].map(|side| side.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let compare =
            Compare { quantiles: vec![Quantile::P50], confidence: CONFIDENCE, draws: 0, seed: 1 };
        let found = compare.repetitions(&a, &b).quantiles[0];
        let (percent, nanos) = (found.percent_interval.unwrap(), found.interval.unwrap());
        match in_percent {
            true => percent.low <= true_value && true_value <= percent.high,
            false => {
                let true_value = (level * (ratio - 1.0)) as i64;
                nanos.low.0 <= true_value && true_value <= nanos.high.0
            }
        }
    };
    let name = format!("{count} repetitions each, deviation {deviation}, ratio {ratio}");
    assert_covered(&format!("{name}, percentage"), first, |seed| covers(true, seed));
    assert_covered(&format!("{name}, difference"), first, |seed| covers(false, seed));
}

#[test]
fn changes_of_repetitions_are_covered() {
    for (count, deviation, ratio, first) in [
        (3, 0.05, 1.2, 131_000),
        (5, 0.05, 1.2, 133_000),
        (3, 0.5, 1.2, 135_000),
        (5, 0.5, 0.05, 137_000),
        (5, 0.3, 10.0, 139_000),
    ] {
        changes_of_repetitions(count, deviation, ratio, first);
    }
}

#[test]
fn shifts_of_quantiles_between_two_series_are_covered() {
    let quantiles = [(Quantile::P50, 0.0), (Quantile::P90, 1.281_551_6)];
    for (phi, first) in [(0.0, 111_000), (0.5, 113_000)] {
        for (quantile, z) in quantiles {
            // The rank-sum test takes the other half of the error probability.
            let compare =
                Compare { quantiles: vec![quantile], confidence: 0.90, draws: 400, seed: 1 };
            let name = format!("shift of quantile {} of 2000 delays, phi {phi}", quantile.share());
            let true_value = (0.1 * MEDIAN * (SIGMA * z).exp()) as i64;
            assert_covered(&name, first, |seed| {
                let a = delays(seed, 2_000, phi);
                let b = delays(seed + 1_000_000, 2_000, phi);
                let b: Vec<i64> = b.iter().map(|delay| delay + delay / 10).collect();
                let found = compare.series(&a, &b).quantiles[0].interval;
                found.is_some_and(|found| found.low.0 <= true_value && true_value <= found.high.0)
            });
        }
    }
}

/// Delays of sizes from 100 to 1,400 bytes, three each: 20 us and 8 ns per byte.
fn points(seed: u64) -> Vec<(f64, f64)> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let sizes = (1..=14).flat_map(|step| [f64::from(step) * 100.0; 3]);
    sizes
        .map(|size| {
            let noise: f64 = StandardNormal.sample(&mut rng);
            (size, 20_000.0 + 8.0 * size + 900.0 * noise)
        })
        .collect()
}

#[test]
fn slopes_of_lines_are_covered() {
    assert_covered("slope by least squares of 42 points", 121_000, |seed| {
        let points: Vec<_> = points(seed).into_iter().map(|(x, y)| (0, x, y)).collect();
        let found = grouped_least_squares(&points, CONFIDENCE).unwrap().0.slope.interval;
        found.low <= 8.0 && 8.0 <= found.high
    });
    assert_covered("slope of Theil and Sen of 42 points", 123_000, |seed| {
        let found = theil_sen(&points(seed), CONFIDENCE, 1).and_then(|fit| fit.slope_interval);
        found.is_some_and(|found| found.low <= 8.0 && 8.0 <= found.high)
    });
}
